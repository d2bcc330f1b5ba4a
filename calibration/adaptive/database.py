"""The ledger's database: SQLite by default, PostgreSQL by URL; migrations, transactions, errors."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from saga.calibration.adaptive.ledger_tables import LEDGER_KEY
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    create_engine,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from saga.errors import Problem, SagaError, UsageError

_KEYS_PER_QUERY = 500
WAIT_SECONDS = 60.0  # longest wait of a writer for another one
_MAX_STATEMENT_SECONDS = 60.0  # (PostgreSQL)
_DRIVER = "postgresql+psycopg"
_MIGRATION_LOCK = 7_236_801  # number of the PostgreSQL lock for changes of the tables
_IDS = 2**31  # ledgers have ids below this

Key = TypeVar("Key")


class LedgerError(SagaError):
    """The ledger cannot be reached, reports an error or is of a newer version (HTTP 503)."""

    title = "The ledger cannot be used"


def parse_database_url(text_url: str) -> URL:
    """The database of a URL. Raises UsageError unless it is an SQLite file or PostgreSQL.

    In a URL `%3F` is ?, `%25` is %, and an SQLite file has no options after a ?.
    """
    try:
        url = make_url(text_url)
        driver = url.drivername
    except (ArgumentError, ValueError):  # the URL may contain a password: do not repeat it
        driver = "unknown"
    if (
        driver not in ("sqlite", "postgresql", _DRIVER)
        or url.database in (None, "", ":memory:")
        or (driver == "sqlite" and "?" in text_url)
    ):
        fix = "Give sqlite:///FILE, with %3F for ? and %25 for %, or postgresql://USER@HOST/NAME"
        raise UsageError(
            "The database cannot be used",
            [Problem("database", "Neither an SQLite file nor PostgreSQL", fix)],
        )
    return url.set(drivername=_DRIVER) if driver == "postgresql" else url


def sqlite_url(file: Path) -> str:
    """The URL of an SQLite file. Raises UsageError for a name that is not text."""
    try:
        return URL.create("sqlite", database=str(file)).render_as_string()
    except UnicodeEncodeError:
        problem = Problem("database", "The name of its folder is not UTF-8", "Rename the folder")
        raise UsageError("The database cannot be used", [problem]) from None


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
        database.set(database=f"file:{path}", query={"mode": "rw", "uri": "true"}),
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


class Database:
    """The database of a ledger, with one writer at a time.

    Threads may share one object; processes open their own. A file that is removed or replaced is
    noticed: an open connection would still write to the removed file, and its rows would be lost.
    """

    def __init__(self, url: str, key_check: bytes, wait_seconds: float = WAIT_SECONDS) -> None:
        """Open the database and migrate its tables; a missing SQLite file is made.

        Raises:
            UsageError: The URL is not usable, or the ledger was made with another key than that
                which gives `key_check`.
            LedgerError: The database does not answer, or the file cannot be made.
        """
        database = parse_database_url(url)
        is_file = database.get_backend_name() == "sqlite"
        self._file = Path(database.database or "") if is_file else None
        self._key_check = key_check
        self.engine = create_ledger_engine(url, wait_seconds)
        try:
            if self._file is not None and not self._file.exists():
                with translate_errors():
                    self._file.touch(0o600)
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with."""
        self._reopen_if_replaced()
        with translate_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction whose first statement locks the ledger: it updates the row of the key."""
        self._reopen_if_replaced()
        with translate_errors(), self.engine.begin() as connection:
            connection.execute(update(LEDGER_KEY).values(key_check=LEDGER_KEY.c.key_check))
            yield connection

    def _prepare(self) -> None:
        """Migrate the tables and check the key."""
        self._identity = self._identify()
        immediately = self.engine.execution_options(begin="BEGIN IMMEDIATE")
        with translate_errors(), immediately.begin() as connection:
            migrate(connection)
            stored = connection.execute(select(LEDGER_KEY)).one_or_none()
            if stored is None:
                new = insert(LEDGER_KEY).values(
                    id=secrets.randbelow(_IDS), key_check=self._key_check
                )
                stored = connection.execute(new.returning(LEDGER_KEY)).one()
            self.ledger_id: int = stored.id
            if stored.key_check != self._key_check:
                fix = "Give the key file that the ledger was made with"
                raise UsageError(
                    "The ledger was made with another key",
                    [Problem("ledger-key", "Its pseudonyms cannot be matched", fix)],
                )

    def _reopen_if_replaced(self) -> None:
        if self._identify() != self._identity:  # for example by a backup
            self.engine.dispose()
            self._prepare()

    def _identify(self) -> tuple[int, int] | None:
        """What tells the file from another one of its name. Raises LedgerError without a file."""
        if self._file is None:
            return None
        with translate_errors():
            status = self._file.stat()
        return status.st_dev, status.st_ino


def migrate(connection: Connection) -> None:
    """Bring the tables to their present form; on PostgreSQL one process at a time.

    Raises LedgerError, and changes nothing, if a newer version of SAGA has changed the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    folder = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config = Config()
    config.set_main_option("script_location", folder)
    config.attributes["connection"] = connection
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


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the database or its file into LedgerError, without the driver's message.

    The message may contain data of persons.
    """
    try:
        yield
    except DBAPIError as error:
        raise _database_error(_cause(error.orig)) from None
    except PoolTimeoutError:
        raise _database_error("every connection is in use") from None
    except OSError as error:
        raise _database_error(type(error).__name__) from None


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


def rows_of(
    connection: Connection,
    query: Select[tuple[Any, ...]],
    column: ColumnElement[Any],
    keys: Iterable[object],
) -> Iterator[Row[Any]]:
    """The rows of a query whose `column` is one of `keys`, in queries that are short enough."""
    for batch in key_batches(keys):
        yield from connection.execute(query.where(column.in_(batch)))


def key_batches(keys: Iterable[Key]) -> Iterator[list[Key]]:
    """Distinct `keys` in their order, in lists that are short enough for one query."""
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), _KEYS_PER_QUERY):
        yield distinct[start : start + _KEYS_PER_QUERY]
