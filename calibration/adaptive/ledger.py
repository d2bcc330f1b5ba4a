"""The ledger: issued intervals, their outcomes, and the adaptive state.

One database has the tables of `calibration.adaptive.ledger_tables`. Log, counts and state change
in one transaction, with one writer at a time. So a process that is killed leaves a whole
transaction or none, and nothing is lost if two processes write. `Ledger.replay` computes the state
from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, insert, select, update

from calibration.adaptive.adaptive_state import (
    AdaptiveState,
    CellState,
    ExcessCounts,
    compute_states,
)
from calibration.adaptive.database import (
    create_ledger_engine,
    key_batches,
    migrate,
    parse_database_url,
    translate_errors,
)
from calibration.adaptive.issued_intervals import IssuedIntervals, conformity_scores
from calibration.adaptive.ledger_tables import (
    IssuedIntervalRow,
    LedgerKey,
    OutcomeRow,
    SettlementRow,
    StateRow,
    Stream,
    pack_thresholds,
)
from calibration.adaptive.pseudonyms import PseudonymKey
from calibration.adaptive.settlement_counts import (
    HorizonYear,
    IssuedRow,
    count_settled,
    log_settlements,
)
from saga.errors import Problem, UsageError

_ROWS_PER_TRANSACTION = 5_000

PersonYear = tuple[bytes, int]  # (pseudonym, year)


@dataclass(frozen=True)
class RecordCounts:
    """Numbers of issued intervals that were passed to `Ledger.record`.

    `new` ones were entered. `repeated` ones had been entered before. `late` ones are about a year
    whose outcome is known; they were not entered.
    """

    new: int = 0
    repeated: int = 0
    late: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(*map(add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class SettlementReport:
    """Numbers of outcomes that were passed to `Ledger.settle`.

    `new` outcomes settled `settled_intervals` issued intervals. `duplicate` ones repeat a known
    outcome. `conflicting` ones contradict a known outcome and change nothing; `problems` names
    them. `unmatched` ones have no recorded interval and are not stored.
    """

    new: int = 0
    duplicate: int = 0
    conflicting: int = 0
    unmatched: int = 0
    settled_intervals: int = 0
    problems: tuple[Problem, ...] = ()

    def __add__(self, other: SettlementReport) -> SettlementReport:
        return SettlementReport(*map(add, vars(self).values(), vars(other).values()))

    def counts(self) -> dict[str, int]:
        """The counts under their names in responses of the service and the command line."""
        return {
            "new": self.new,
            "duplicate": self.duplicate,
            "conflicting": self.conflicting,
            "unmatched": self.unmatched,
            "promises": self.settled_intervals,
        }


class Ledger:
    """The ledger in a database.

    Threads may share one object, and any number of processes may open the same database.
    """

    def __init__(self, url: str, key: PseudonymKey) -> None:
        """Open the database and migrate its tables.

        Raises:
            UsageError: The URL is not usable, or `key` is not the key of this ledger.
            LedgerError: The database does not answer.
        """
        self._key = key
        self._engine = create_ledger_engine(url)
        try:
            with (
                translate_errors(),
                self._engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection,
            ):
                self._prepare(connection)
        except BaseException:
            self.close()
            raise

    def _prepare(self, connection: Connection) -> None:
        migrate(connection)
        key_check = self._key.keyed_hash("ledger")
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
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with translate_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction whose first statement locks the ledger: it updates the row of LedgerKey."""
        with translate_errors(), self._engine.begin() as connection:
            connection.execute(update(LedgerKey).values(key_check=LedgerKey.key_check))
            yield connection

    def record(self, bundle: str, issued: IssuedIntervals) -> RecordCounts:
        """Enter the intervals issued with the bundle of this digest.

        Only the first intervals for a person, origin year and horizon are entered. Raises
        UsageError if the entries of this bundle are closed.
        """
        total = RecordCounts()
        for start in range(0, len(issued), _ROWS_PER_TRANSACTION):
            rows = range(start, min(start + _ROWS_PER_TRANSACTION, len(issued)))
            with self._writing() as connection:
                total += self._record(connection, bundle, issued, rows)
        return total

    def _record(
        self, connection: Connection, bundle: str, issued: IssuedIntervals, rows: range
    ) -> RecordCounts:
        stream_id = _stream_id(connection, bundle, issued.coverage)
        pseudonyms = [self._pseudonym(str(issued.person_id[row])) for row in rows]
        recorded, settled_years = _recorded_and_settled(connection, stream_id, pseudonyms)
        new: dict[tuple[bytes, int, int], dict[str, Any]] = {}
        repeated = late = 0
        for person, row in zip(pseudonyms, rows, strict=True):
            origin, horizon = int(issued.origin_year[row]), int(issued.horizon[row])
            key = person, origin, horizon
            if key in recorded or key in new:
                repeated += 1
            elif (person, origin + horizon) in settled_years:
                late += 1
            else:
                new[key] = {
                    "stream_id": stream_id,
                    "person": person,
                    "origin_year": origin,
                    "horizon": horizon,
                    "group": str(issued.group[row]),
                    "base": pack_thresholds(issued.base[row]),
                    "issued": pack_thresholds(issued.issued[row]),
                    "family": issued.marginals[row],
                }
        if new:
            connection.execute(insert(IssuedIntervalRow), list(new.values()))
        return RecordCounts(len(new), repeated, late)

    def settle(self, outcomes: Iterable[tuple[str, int, float]]) -> SettlementReport:
        """Enter realised earnings: person id, year, real money of the bundle's price year.

        Earnings of 0 are an outcome. Order and repetitions do not matter. Amounts are compared in
        whole units of the currency. Each 5,000 outcomes are one transaction.
        """
        rows = list(outcomes)
        total = SettlementReport()
        for start in range(0, len(rows), _ROWS_PER_TRANSACTION):
            with self._writing() as connection:
                total += self._settle(connection, rows[start : start + _ROWS_PER_TRANSACTION])
        return total

    def _settle(
        self, connection: Connection, outcomes: Sequence[tuple[str, int, float]]
    ) -> SettlementReport:
        pseudonyms = [self._pseudonym(person_id) for person_id, _, _ in outcomes]
        hashes, waiting = _known_and_waiting(
            connection, pseudonyms, {year for _, year, _ in outcomes}
        )
        new: dict[PersonYear, float] = {}
        duplicate = unmatched = 0
        problems: list[Problem] = []
        for person, (person_id, year, amount) in zip(pseudonyms, outcomes, strict=True):
            key = person, year
            amount_hash = self._key.keyed_hash("outcome", person.hex(), year, round(amount))
            if (known_hash := hashes.get(key)) is not None:
                if known_hash == amount_hash:
                    duplicate += 1
                else:
                    problems.append(_conflict(person_id, year))
            elif key in waiting:
                hashes[key], new[key] = amount_hash, amount
            else:
                unmatched += 1
        settled = [(row, amount) for key, amount in new.items() for row in waiting[key]]
        if new:
            connection.execute(
                insert(OutcomeRow), [{"person": p, "year": y, "seal": hashes[p, y]} for p, y in new]
            )
            log_settlements(connection, settled)
        return SettlementReport(
            len(new), duplicate, len(problems), unmatched, len(settled), tuple(problems)
        )

    def state(self, bundle: str) -> AdaptiveState | None:
        """The adaptive state of the bundle with this digest; None if the ledger has no entry."""
        query = (
            select(Stream.version, StateRow.__table__)
            .outerjoin(StateRow, StateRow.stream_id == Stream.id)
            .where(Stream.bundle == bundle)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return None
        cells = {}
        for row in rows:
            if row.group is not None:
                values = {field.name: getattr(row, field.name) for field in fields(CellState)}
                values["experts"] = tuple(row.experts)
                cells[row.group, row.horizon, row.level] = CellState(**values)
        return _state(rows[0].version, cells)

    def version(self, bundle: str) -> int | None:
        """The version of the adaptive state, without reading the state; None as for `state`."""
        with self._reading() as connection:
            return connection.scalar(select(Stream.version).where(Stream.bundle == bundle))

    def replay(self, bundle: str, version: int | None = None) -> AdaptiveState | None:
        """The state computed from the log alone: equal to `state`, bit for bit.

        With `version` it is the state of that earlier version. Raises UsageError if the entries of
        this bundle are closed.
        """
        with self._reading() as connection:
            stream = connection.execute(
                select(Stream.id, Stream.levels, Stream.closed).where(Stream.bundle == bundle)
            ).one_or_none()
            if stream is None:
                return None
            _require_open(stream.closed)
            log = (
                select(
                    IssuedIntervalRow.__table__,
                    SettlementRow.probability,
                    SettlementRow.p_zero,
                    SettlementRow.version,
                )
                .join(SettlementRow, SettlementRow.promise_id == IssuedIntervalRow.id)
                .where(IssuedIntervalRow.stream_id == stream.id)
                .order_by(SettlementRow.id)
            )
            if version is not None:
                log = log.where(SettlementRow.version <= version)
            rows = connection.execution_options(yield_per=_ROWS_PER_TRANSACTION).execute(log)
            total: dict[str, dict[HorizonYear, ExcessCounts]] = {}
            last_version = 0
            for part in rows.partitions():
                last_version = max(last_version, *(row.version for row in part))
                less, p_zero = np.array([(row.probability, row.p_zero) for row in part]).T
                scores = conformity_scores(less, p_zero, stream.levels)
                for group, counts in count_settled(part, scores).items():
                    of_group = total.setdefault(group, {})
                    for key, new in counts.items():
                        of_group[key] = of_group[key] + new if key in of_group else new
        cells = {
            (group, h, coverage): cell
            for group, counts in total.items()
            for (h, coverage), cell in compute_states(stream.levels, counts).items()
        }
        return _state(last_version, cells)

    def delivered_until(self, bundle: str) -> int | None:
        """The last origin year that deliveries finished with this bundle; None if there is none."""
        with self._reading() as connection:
            return connection.scalar(select(Stream.promised_until).where(Stream.bundle == bundle))

    def mark_delivered(self, bundle: str, year: int) -> None:
        """Note that a delivery has recorded all its intervals from origin year `year`."""
        is_later = func.coalesce(Stream.promised_until, year) <= year
        with self._writing() as connection:
            connection.execute(
                update(Stream).where(Stream.bundle == bundle, is_later).values(promised_until=year)
            )

    def first_outcome_year(self) -> int | None:
        """The first year that a recorded interval is about, of any bundle; None without any."""
        with self._reading() as connection:
            return connection.scalar(
                select(func.min(IssuedIntervalRow.origin_year + IssuedIntervalRow.horizon))
            )

    def with_issued_intervals(self, person_ids: Sequence[str]) -> list[str]:
        """The persons of `person_ids` who have recorded intervals, in the same order."""
        pseudonyms = [self._pseudonym(person_id) for person_id in person_ids]
        recorded: set[bytes] = set()
        with self._reading() as connection:
            for batch in key_batches(pseudonyms):
                query = select(IssuedIntervalRow.person).where(IssuedIntervalRow.person.in_(batch))
                recorded |= set(connection.scalars(query.distinct()))
        return [
            person_id
            for person_id, pseudonym in zip(person_ids, pseudonyms, strict=True)
            if pseudonym in recorded
        ]

    def counts(self, bundle: str) -> dict[str, int]:
        """How many intervals of this bundle are settled, and how many wait for their outcome.

        Those that a migration closed before their outcome are neither.
        """
        query = (
            select(func.count(SettlementRow.id), func.count(IssuedIntervalRow.family))
            .select_from(IssuedIntervalRow)
            .join(Stream)
            .outerjoin(SettlementRow)
            .where(Stream.bundle == bundle)
        )
        with self._reading() as connection:
            settled, waiting = connection.execute(query).one()
        return {"settled": settled, "waiting": waiting}

    def _pseudonym(self, person_id: str) -> bytes:
        return self._key.keyed_hash("person", person_id)


def open_ledger(url: str, key: Path | None = None) -> Ledger:
    """The ledger at a database URL, with the pseudonym key in the file `key`.

    By default the key of an SQLite file is FILE.key, which is made if it is missing. A server has
    no default. Raises the same errors as `Ledger`.
    """
    database = parse_database_url(url)
    if key is not None:
        return Ledger(url, PseudonymKey.read(key, create=False))
    if database.get_backend_name() != "sqlite":
        fix = (
            "Make a file of 32 random bytes or more that only this account can read, and name it"
            " with --database-key or SAGA_DATABASE_KEY"
        )
        raise UsageError(
            "The ledger needs a key",
            [Problem("ledger-key", "The database of a server has no default key file", fix)],
        )
    return Ledger(url, PseudonymKey.read(Path(f"{database.database}.key"), create=True))


def _recorded_and_settled(
    connection: Connection, stream_id: int, pseudonyms: Sequence[bytes]
) -> tuple[set[tuple[bytes, int, int]], set[PersonYear]]:
    """What is recorded for these persons (person, origin, horizon), and their known outcomes."""
    recorded: set[tuple[bytes, int, int]] = set()
    settled_years: set[PersonYear] = set()
    for batch in key_batches(pseudonyms):
        intervals = select(
            IssuedIntervalRow.person, IssuedIntervalRow.origin_year, IssuedIntervalRow.horizon
        ).where(IssuedIntervalRow.stream_id == stream_id, IssuedIntervalRow.person.in_(batch))
        recorded |= {(p, origin, h) for p, origin, h in connection.execute(intervals)}
        years = select(OutcomeRow.person, OutcomeRow.year).where(OutcomeRow.person.in_(batch))
        settled_years |= {(p, year) for p, year in connection.execute(years)}
    return recorded, settled_years


def _known_and_waiting(
    connection: Connection, pseudonyms: Sequence[bytes], years: set[int]
) -> tuple[dict[PersonYear, bytes], dict[PersonYear, list[IssuedRow]]]:
    """Hashes of the known outcomes of these persons, and the intervals that wait for `years`."""
    hashes: dict[PersonYear, bytes] = {}
    waiting: dict[PersonYear, list[IssuedRow]] = {}
    outcome_year = IssuedIntervalRow.origin_year + IssuedIntervalRow.horizon
    for batch in key_batches(pseudonyms):
        outcomes = select(OutcomeRow.person, OutcomeRow.year, OutcomeRow.seal).where(
            OutcomeRow.person.in_(batch)
        )
        hashes |= {(p, year): seal for p, year, seal in connection.execute(outcomes)}
        unsettled = select(IssuedIntervalRow.__table__).where(
            IssuedIntervalRow.person.in_(batch),
            outcome_year.in_(years),
            IssuedIntervalRow.family.is_not(None),
        )
        for row in connection.execute(unsettled):
            waiting.setdefault((row.person, row.origin_year + row.horizon), []).append(row)
    return hashes, waiting


def _conflict(person_id: str, year: int) -> Problem:
    return Problem(
        "outcome-conflict",
        "Another amount is known for this year",
        "The first amount stays; the ledger cannot correct an outcome",
        "earnings",
        person_id,
        year,
    )


def _require_open(closed: str | None) -> None:
    """Raise UsageError with the reason why a stream is closed."""
    if closed is not None:
        fix = "Use the present bundle; its intervals have a state of their own."
        raise UsageError(
            "The ledger's entries for this bundle are closed",
            [Problem("ledger-closed", closed, fix)],
        )


def _state(version: int, cells: Mapping[tuple[str, int, float], CellState]) -> AdaptiveState:
    years = [cell.last_year for cell in cells.values() if cell.last_year is not None]
    return AdaptiveState(version, max(years, default=None), cells)


def _stream_id(connection: Connection, bundle: str, coverage: Sequence[float]) -> int:
    query = select(Stream.id, Stream.closed).where(Stream.bundle == bundle)
    stream = connection.execute(query).one_or_none()
    if stream is not None:
        _require_open(stream.closed)
        return int(stream.id)
    new = insert(Stream).values(bundle=bundle, levels=list(coverage), version=0)
    return connection.execute(new.returning(Stream.id)).scalar_one()
