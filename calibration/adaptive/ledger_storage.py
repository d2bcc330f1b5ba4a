"""Storage of the ledger: its database, its key, and transactions of one writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from saga.calibration.adaptive.database import (
    DatabaseFile,
    create_ledger_engine,
    migrate,
    translate_errors,
)
from saga.calibration.adaptive.ledger_tables import LedgerKey
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from sqlalchemy import Connection, insert, select, update

from saga.errors import Problem, UsageError


class LedgerStorage:
    """The database of a ledger. Threads may share one object; processes open their own."""

    def __init__(self, url: str, key: PseudonymKey, wait_seconds: float) -> None:
        """Open the database and migrate its tables; arguments and errors as in `Ledger`."""
        self.key = key
        self._file = DatabaseFile(url)
        self.engine = create_ledger_engine(url, wait_seconds)
        try:
            self._file.create()
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Migrate the tables and check the key."""
        self._file.look_again()
        with (
            translate_errors(),
            self.engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection,
        ):
            migrate(connection)
            self._check_key(connection)

    def _check_key(self, connection: Connection) -> None:
        key_check = self.key.keyed_hash("ledger")
        stored = connection.scalar(select(LedgerKey.key_check))
        if stored is None:
            connection.execute(insert(LedgerKey).values(id=1, key_check=key_check))
        elif stored != key_check:
            fix = "Give the key file that the ledger was made with"
            raise UsageError(
                "The ledger was made with another key",
                [Problem("ledger-key", "Its pseudonyms cannot be matched", fix)],
            )

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
        """A transaction whose first statement locks the ledger: it updates the row of LedgerKey."""
        self._reopen_if_replaced()
        with translate_errors(), self.engine.begin() as connection:
            connection.execute(update(LedgerKey).values(key_check=LedgerKey.key_check))
            yield connection

    def _reopen_if_replaced(self) -> None:
        if self._file.look_again():  # for example by a backup
            self.engine.dispose()
            self._prepare()
