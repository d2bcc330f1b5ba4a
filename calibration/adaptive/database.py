"""The ledger's database: SQLite by default, PostgreSQL by URL; migrations and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from saga.errors import Problem, SagaError, UsageError

_KEYS_PER_QUERY = 500
_WAIT_SECONDS = 60.0  # a writer waits so long for another one (SQLite)
_MIGRATION_LOCK = 7_236_801  # number of the PostgreSQL lock for changes of the tables

Key = TypeVar("Key")


class LedgerError(SagaError):
    """The database of the ledger cannot be reached or reports an error (HTTP 503)."""

    title = "The ledger cannot be reached"


def parse_database_url(text_url: str) -> URL:
    """The database of a URL. Raises UsageError unless it is an SQLite file or PostgreSQL."""
    try:
        url = make_url(text_url)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError):  # the URL may contain a password: do not repeat it
        backend = "unknown"
    if backend not in ("sqlite", "postgresql") or url.database in (None, "", ":memory:"):
        fix = "Give sqlite:///FILE or postgresql://USER@HOST/NAME"
        raise UsageError(
            "The ledger's database cannot be used",
            [Problem("database", "Neither an SQLite file nor PostgreSQL", fix)],
        )
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def create_ledger_engine(url: str) -> Engine:
    """The engine of a database URL. Raises UsageError for an unusable URL or a missing driver."""
    database = parse_database_url(url)
    if database.get_backend_name() != "sqlite":
        try:
            return create_engine(database, pool_pre_ping=True)
        except ModuleNotFoundError:
            fix = "Install the driver: pip install 'saga-forecast[serve]'"
            raise UsageError(
                "The ledger's database cannot be used",
                [Problem("database", "No driver for PostgreSQL", fix)],
            ) from None
    engine = create_engine(database, connect_args={"timeout": _WAIT_SECONDS})
    # Python's driver must not begin transactions by itself: SQLAlchemy does.
    event.listen(
        engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None)
    )
    event.listen(
        engine,
        "begin",
        lambda connection: connection.exec_driver_sql(
            connection.get_execution_options().get("begin", "BEGIN")
        ),
    )
    return engine


def migrate(connection: Connection) -> None:
    """Bring the tables to their present form; on PostgreSQL one process at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    command.upgrade(migration_config(connection), "head")


def migration_config(connection: Connection) -> Config:
    """Alembic's configuration of the ledger's migrations, on a connection."""
    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%")
    )
    config.attributes["connection"] = connection
    return config


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn database errors into LedgerError, without the driver's message.

    The message may contain data of persons.
    """
    try:
        yield
    except DBAPIError as error:
        fix = "Check that it runs, that its URL is right and that this account may write"
        raise LedgerError(
            "The ledger's database failed", [Problem("database", type(error.orig).__name__, fix)]
        ) from None


def key_batches(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """Distinct `keys` in their order, in lists that are short enough for one query."""
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), _KEYS_PER_QUERY):
        yield distinct[start : start + _KEYS_PER_QUERY]
