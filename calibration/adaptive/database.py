"""The ledger's database: SQLite by default, PostgreSQL by URL; migrations and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from saga.errors import Problem, SagaError, UsageError

_KEYS_PER_QUERY = 500
WAIT_SECONDS = 60.0  # longest wait of a writer for another one
_MAX_STATEMENT_SECONDS = 60.0  # (PostgreSQL)
_MIGRATION_LOCK = 7_236_801  # number of the PostgreSQL lock for changes of the tables

Key = TypeVar("Key")


class LedgerError(SagaError):
    """The ledger cannot be reached, reports an error or is of a newer version (HTTP 503)."""

    title = "The ledger cannot be used"


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


def create_ledger_engine(url: str, wait_seconds: float = WAIT_SECONDS) -> Engine:
    """The engine of a database URL, which waits at most `wait_seconds` for a lock or a connection.

    Raises UsageError for an unusable URL or a missing driver.
    """
    database = parse_database_url(url)
    if database.get_backend_name() != "sqlite":
        limits = (
            f"-c lock_timeout={wait_seconds * 1_000:.0f} "
            f"-c statement_timeout={_MAX_STATEMENT_SECONDS * 1_000:.0f}"
        )
        try:
            return create_engine(
                database,
                pool_pre_ping=True,
                pool_timeout=wait_seconds,
                connect_args={"connect_timeout": max(2, round(wait_seconds)), "options": limits},
            )
        except ModuleNotFoundError:
            fix = "Install the driver: pip install 'saga-forecast[serve]'"
            raise UsageError(
                "The ledger's database cannot be used",
                [Problem("database", "No driver for PostgreSQL", fix)],
            ) from None
    # A connection never makes the file: a ledger that was removed must not come back empty.
    path = quote(str(Path(database.database or "").absolute()))
    engine = create_engine(
        f"sqlite:///file:{path}?mode=rw&uri=true",
        pool_timeout=wait_seconds,
        connect_args={"timeout": wait_seconds},
    )
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


class DatabaseFile:
    """The file of an SQLite ledger: notices that it was removed or replaced.

    An open connection would still write to the removed file, and its rows would be lost.
    """

    def __init__(self, url: str) -> None:
        database = parse_database_url(url)
        is_file = database.get_backend_name() == "sqlite"
        self._path = Path(database.database or "") if is_file else None
        self._identity: tuple[int, int] | None = None

    def create(self) -> None:
        """Make the file if it is missing. Raises LedgerError if it cannot be made."""
        if self._path is not None and not self._path.exists():
            try:
                self._path.touch(0o600)
            except OSError as error:
                raise _database_error(type(error).__name__) from None

    def look_again(self) -> bool:
        """Whether another file has taken its place since the last look.

        Raises LedgerError if there is no file.
        """
        if self._path is None:
            return False
        try:
            status = self._path.stat()
        except OSError as error:
            raise _database_error(type(error).__name__) from None
        before, self._identity = self._identity, (status.st_dev, status.st_ino)
        return before not in (None, self._identity)


def migrate(connection: Connection) -> None:
    """Bring the tables to their present form; on PostgreSQL one process at a time.

    Raises LedgerError, and changes nothing, if a newer version of SAGA has changed the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    config = migration_config(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    revisions = MigrationContext.configure(connection).get_current_heads()
    if newer := sorted(set(revisions) - known):
        message = f"Its tables have revision {newer[0]}, which this version does not know"
        fix = "Update SAGA to the version that wrote it. The ledger is unchanged"
        raise LedgerError(
            "The ledger was written by a newer version of SAGA",
            [Problem("ledger-version", message, fix)],
        )
    command.upgrade(config, "head")


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
        raise _database_error(_cause(error.orig)) from None
    except PoolTimeoutError:
        raise _database_error("every connection is in use") from None


def damaged_error() -> LedgerError:
    """The error of a ledger whose rows cannot be read."""
    return _database_error("a row is damaged")


def _database_error(cause: str) -> LedgerError:
    fix = "Check that it runs, that its URL is right and that this account may write"
    return LedgerError("The ledger's database failed", [Problem("database", cause, fix)])


def _cause(error: BaseException | None) -> str:
    """The class of a driver's error and its code, such as SQLITE_BUSY, without its message."""
    code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


def key_batches(keys: Sequence[Key]) -> Iterator[list[Key]]:
    """Distinct `keys` in their order, in lists that are short enough for one query."""
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), _KEYS_PER_QUERY):
        yield distinct[start : start + _KEYS_PER_QUERY]
