"""The ledger's database: SQLite by default, PostgreSQL by URL; its tables brought to their present form, its failures in our terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from saga.errors import Problem, SagaError, UsageError

_ASKED = 500  # keys of one query
_WAIT = 60.0  # seconds that a writer waits for another
_TURN = 7_236_801  # names the lock under which PostgreSQL changes the tables


class LedgerError(SagaError):
    """The database of the ledger does not answer, or refuses (HTTP 503)."""

    title = "The ledger cannot be reached"


def parse_database_url(url: str) -> URL:
    """The database that a URL names. Raises UsageError where it is neither an SQLite file nor PostgreSQL."""
    fix = "Give sqlite:///FILE or postgresql://USER@HOST/NAME"
    try:
        place = make_url(url)
        kind = place.get_backend_name()
    except (ArgumentError, NoSuchModuleError):  # the URL may hold a password: it is not repeated
        kind = "unknown"
    if kind not in ("sqlite", "postgresql") or place.database in (None, "", ":memory:"):
        raise UsageError(
            "The ledger's database cannot be used",
            [Problem("database", "Neither an SQLite file nor PostgreSQL", fix)],
        )
    return place.set(drivername="postgresql+psycopg") if place.drivername == "postgresql" else place


def create_ledger_engine(url: str) -> Engine:
    """What opens connections to the database at a URL. Raises UsageError for a URL that is none, or without its driver."""
    place = parse_database_url(url)
    if place.get_backend_name() == "sqlite":
        engine = create_engine(place, connect_args={"timeout": _WAIT})
    else:
        try:
            engine = create_engine(place, pool_pre_ping=True)
        except ModuleNotFoundError:
            fix = "Install the driver: pip install 'saga-forecast[serve]'"
            raise UsageError(
                "The ledger's database cannot be used",
                [Problem("database", "No driver for PostgreSQL", fix)],
            ) from None
    if engine.dialect.name == "sqlite":
        # The driver would begin a transaction when it pleases; ours begins when told.
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
    """Bring the tables to their present form, on a server one process at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": _TURN})
    command.upgrade(migration_config(connection), "head")


def migration_config(connection: Connection) -> Config:
    """Alembic's view of the ledger's migrations, on a connection."""
    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%")
    )
    config.attributes["connection"] = connection
    return config


@contextmanager
def translate_errors() -> Iterator[None]:
    """A failing database in our terms; its own message may repeat rows."""
    try:
        yield
    except DBAPIError as error:
        fix = "Check that it runs, that its URL is right and that this account may write"
        raise LedgerError(
            "The ledger's database failed", [Problem("database", type(error.orig).__name__, fix)]
        ) from None


def key_batches(keys: Sequence[Any]) -> Iterator[list[Any]]:
    """Distinct `keys`, in their order, as many at a time as one query may ask for."""
    once = list(dict.fromkeys(keys))
    for start in range(0, len(once), _ASKED):
        yield once[start : start + _ASKED]
