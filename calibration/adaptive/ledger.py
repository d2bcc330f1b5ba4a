"""The ledger: what was promised to whom, what came true, and the adaptive state that follows from it.

One database holds the tables of `calibration.adaptive.ledger_tables`. Log entry, tally and state change in one transaction, under a lock that one writer
holds at a time, so a process that dies leaves all of it or nothing, and two processes lose nothing. `replay` computes tallies and state
from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from calibration.adaptive.issued_intervals import IssuedIntervals
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
from calibration.adaptive.settlement_counts import Key, count_settled, log_settlements
from saga.errors import Problem, UsageError

_SLICE = 5_000  # outcomes, or promises, of one transaction


@dataclass(frozen=True)
class RecordCounts:
    """What became of promises handed in: `new` are in the ledger now, `repeated` were before, `late` are about a year already known."""

    new: int = 0
    repeated: int = 0
    late: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(
            self.new + other.new, self.repeated + other.repeated, self.late + other.late
        )


@dataclass(frozen=True)
class SettlementReport:
    """What became of outcomes handed in. `new` settled the number of `promises`; a `duplicate` says what is known; `conflicting` ones
    contradict it and change nothing (`problems` names them); `unmatched` ones nobody made a promise about, and nothing of them is kept."""

    new: int = 0
    duplicate: int = 0
    conflicting: int = 0
    unmatched: int = 0
    promises: int = 0
    problems: tuple[Problem, ...] = ()

    def __add__(self, other: SettlementReport) -> SettlementReport:
        return SettlementReport(
            self.new + other.new,
            self.duplicate + other.duplicate,
            self.conflicting + other.conflicting,
            self.unmatched + other.unmatched,
            self.promises + other.promises,
            self.problems + other.problems,
        )


class Ledger:
    """The ledger in a database. Safe to share between threads; any number of processes may open the same one."""

    def __init__(self, url: str, secret: PseudonymKey) -> None:
        """Open, and bring the tables to their present form. Raises UsageError for a URL that is none or a secret that is not the
        ledger's, LedgerError where the database does not answer."""
        self._secret = secret
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
        check = self._secret.keyed_hash("ledger")
        found = connection.scalar(select(LedgerKey.key_check))
        if found is None:
            connection.execute(insert(LedgerKey).values(id=1, key_check=check))
        elif found != check:
            fix = "Give the key file that the ledger was made with"
            raise UsageError(
                "The ledger was made with another key",
                [Problem("ledger-key", "Its pseudonyms cannot be matched", fix)],
            )

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that no other writer shares: its first statement takes the one row that all writers take."""
        with translate_errors(), self._engine.begin() as connection:
            connection.execute(update(LedgerKey).values(key_check=LedgerKey.key_check))
            yield connection

    def record(self, bundle: str, promises: IssuedIntervals) -> RecordCounts:
        """Enter promises made with the bundle of this digest. The first promise to a person about a year at a horizon stands."""
        result = RecordCounts()
        for start in range(0, len(promises), _SLICE):
            with self._writing() as connection:
                result += self._record(
                    connection, bundle, promises, range(start, min(start + _SLICE, len(promises)))
                )
        return result

    def _record(
        self, connection: Connection, bundle: str, promises: IssuedIntervals, rows: range
    ) -> RecordCounts:
        stream = _stream(connection, bundle, promises.levels)
        person = [self._person(str(promises.person_id[row])) for row in rows]
        before: set[tuple[bytes, int, int]] = set()
        known: set[tuple[bytes, int]] = set()
        for some in key_batches(person):
            made = select(
                IssuedIntervalRow.person, IssuedIntervalRow.origin_year, IssuedIntervalRow.horizon
            )
            before |= {
                (p, o, h)
                for p, o, h in connection.execute(
                    made.where(
                        IssuedIntervalRow.stream_id == stream, IssuedIntervalRow.person.in_(some)
                    )
                )
            }
            known |= {
                (p, y)
                for p, y in connection.execute(
                    select(OutcomeRow.person, OutcomeRow.year).where(OutcomeRow.person.in_(some))
                )
            }
        new: dict[tuple[bytes, int, int], dict[str, Any]] = {}
        repeated = late = 0
        for key, row in zip(person, rows, strict=True):
            origin, horizon = int(promises.origin_year[row]), int(promises.horizon[row])
            if (key, origin, horizon) in before or (key, origin, horizon) in new:
                repeated += 1
            elif (key, origin + horizon) in known:
                late += 1
            else:
                new[key, origin, horizon] = {
                    "stream_id": stream,
                    "person": key,
                    "origin_year": origin,
                    "horizon": horizon,
                    "group": str(promises.group[row]),
                    "base": pack_thresholds(promises.base[row]),
                    "issued": pack_thresholds(promises.issued[row]),
                    "family": promises.family[row],
                }
        if new:
            connection.execute(insert(IssuedIntervalRow), list(new.values()))
        return RecordCounts(len(new), repeated, late)

    def settle(self, outcomes: Iterable[tuple[str, int, float]]) -> SettlementReport:
        """Take in realised earnings (person id, year, real money of the bundle's price year; 0 is an outcome), in any order, any number of
        times. Amounts are compared in whole units of the currency. Of 5,000 outcomes all or nothing is taken in at a time."""
        told = list(outcomes)
        result = SettlementReport()
        for start in range(0, len(told), _SLICE):
            with self._writing() as connection:
                result += self._settle(connection, told[start : start + _SLICE])
        return result

    def _settle(
        self, connection: Connection, told: Sequence[tuple[str, int, float]]
    ) -> SettlementReport:
        person = [self._person(name) for name, _, _ in told]
        seals: dict[tuple[bytes, int], bytes] = {}
        waiting: dict[tuple[bytes, int], list[Any]] = {}
        for some in key_batches(person):
            known = select(OutcomeRow.person, OutcomeRow.year, OutcomeRow.seal).where(
                OutcomeRow.person.in_(some)
            )
            seals |= {(p, y): seal for p, y, seal in connection.execute(known)}
            due = (IssuedIntervalRow.origin_year + IssuedIntervalRow.horizon).in_(
                {year for _, year, _ in told}
            )
            for row in connection.execute(
                select(IssuedIntervalRow.__table__).where(
                    IssuedIntervalRow.person.in_(some), due, IssuedIntervalRow.family.is_not(None)
                )
            ):
                waiting.setdefault((row.person, row.origin_year + row.horizon), []).append(row)
        matched: dict[tuple[bytes, int], float] = {}
        duplicate = unmatched = 0
        problems: list[Problem] = []
        for key, (name, year, amount) in zip(person, told, strict=True):
            place, seal = (
                (key, year),
                self._secret.keyed_hash("outcome", key.hex(), year, round(amount)),
            )
            if (before := seals.get(place)) is not None:
                if before == seal:
                    duplicate += 1
                else:
                    fix = "The first one stands; if it was wrong, the ledger cannot unlearn it"
                    problems.append(
                        Problem(
                            "outcome-conflict",
                            "Another amount is known for this year",
                            fix,
                            "earnings",
                            name,
                            year,
                        )
                    )
            elif place in waiting:
                seals[place], matched[place] = seal, amount
            else:
                unmatched += 1
        promised = [(row, amount) for place, amount in matched.items() for row in waiting[place]]
        if matched:
            connection.execute(
                insert(OutcomeRow),
                [{"person": p, "year": y, "seal": seals[p, y]} for p, y in matched],
            )
            log_settlements(connection, promised)
        return SettlementReport(
            len(matched), duplicate, len(problems), unmatched, len(promised), tuple(problems)
        )

    def state(self, bundle: str) -> AdaptiveState | None:
        """The adaptive state of the bundle with this digest; None where the ledger does not know the bundle."""
        query = (
            select(Stream.version, StateRow.__table__)
            .outerjoin(StateRow, StateRow.stream_id == Stream.id)
            .where(Stream.bundle == bundle)
        )
        with translate_errors(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return None
        cells = {
            (row.group, row.horizon, row.level): CellState(
                row.offset,
                row.integral,
                row.weight,
                row.persons,
                row.missed,
                row.last_year,
                tuple(row.experts),
            )
            for row in rows
            if row.group is not None
        }
        return _state(rows[0].version, cells)

    def version(self, bundle: str) -> int | None:
        """The version of that state, cheaply; None where the ledger does not know the bundle."""
        with translate_errors(), self._engine.connect() as connection:
            return connection.scalar(select(Stream.version).where(Stream.bundle == bundle))

    def replay(self, bundle: str, version: int | None = None) -> AdaptiveState | None:
        """The state worked out from the log alone, as it was at `version` (the present one by default): equal to `state`, bit for bit."""
        with translate_errors(), self._engine.connect() as connection:
            found = connection.execute(
                select(Stream.id, Stream.levels).where(Stream.bundle == bundle)
            ).one_or_none()
            if found is None:
                return None
            log = (
                select(IssuedIntervalRow.__table__, SettlementRow.score, SettlementRow.version)
                .join(SettlementRow, SettlementRow.promise_id == IssuedIntervalRow.id)
                .order_by(SettlementRow.id)
            )
            log = log.where(IssuedIntervalRow.stream_id == found.id)
            if version is not None:
                log = log.where(SettlementRow.version <= version)
            rows = connection.execution_options(yield_per=_SLICE).execute(log)
            total: dict[str, dict[Key, ExcessCounts]] = {}
            last = 0
            for part in rows.partitions():
                last = max(last, *(row.version for row in part))
                for group, tallies in count_settled((row, row.score) for row in part).items():
                    for key, tally in tallies.items():
                        own = total.setdefault(group, {})
                        own[key] = own[key] + tally if key in own else tally
        cells = {
            (group, h, level): cell
            for group, own in total.items()
            for (h, level), cell in compute_states(found.levels, own).items()
        }
        return _state(last, cells)

    def delivered_until(self, bundle: str) -> int | None:
        """The last origin year from which deliveries have promised all that they were to promise with this bundle; None: none yet."""
        with translate_errors(), self._engine.connect() as connection:
            return connection.scalar(select(Stream.promised_until).where(Stream.bundle == bundle))

    def mark_delivered(self, bundle: str, year: int) -> None:
        """All has been promised from the origin year `year`. Promises that somebody else enters do not tell."""
        later = func.coalesce(Stream.promised_until, year) <= year
        with self._writing() as connection:
            connection.execute(
                update(Stream).where(Stream.bundle == bundle, later).values(promised_until=year)
            )

    def first_outcome_year(self) -> int | None:
        """The first year that some promise, with whatever bundle, is about; None where there is none."""
        with translate_errors(), self._engine.connect() as connection:
            return connection.scalar(
                select(func.min(IssuedIntervalRow.origin_year + IssuedIntervalRow.horizon))
            )

    def with_issued_intervals(self, names: Sequence[str]) -> list[str]:
        """Those of `names` to whom something was promised, in the same order."""
        keys = [self._person(name) for name in names]
        found: set[bytes] = set()
        with translate_errors(), self._engine.connect() as connection:
            for some in key_batches(keys):
                found |= set(
                    connection.scalars(
                        select(IssuedIntervalRow.person)
                        .where(IssuedIntervalRow.person.in_(some))
                        .distinct()
                    )
                )
        return [name for name, key in zip(names, keys, strict=True) if key in found]

    def counts(self, bundle: str) -> dict[str, int]:
        """How many promises of this bundle are settled, and how many wait for their outcome."""
        own = (
            select(func.count(IssuedIntervalRow.id), func.count(IssuedIntervalRow.family))
            .join(Stream)
            .where(Stream.bundle == bundle)
        )
        with translate_errors(), self._engine.connect() as connection:
            made, waiting = connection.execute(own).one()
        return {"settled": made - waiting, "waiting": waiting}

    def _person(self, name: str) -> bytes:
        return self._secret.keyed_hash("person", name)


def open_ledger(url: str, key: Path | None = None) -> Ledger:
    """The ledger at a database URL, with the secret in the file `key`. By default that of an SQLite file is FILE.key, made if it is
    missing; for PostgreSQL it has to be given. Raises UsageError and LedgerError."""
    place = parse_database_url(url)
    if key is not None:
        return Ledger(url, PseudonymKey.read(key, create=False))
    if place.get_backend_name() != "sqlite":
        fix = "Make a file of 32 random bytes or more, for this account only, and name it with --database-key or SAGA_DATABASE_KEY"
        raise UsageError(
            "The ledger needs a key",
            [Problem("ledger-key", "A server's database has no file beside it", fix)],
        )
    return Ledger(url, PseudonymKey.read(Path(f"{place.database}.key"), create=True))


def _state(version: int, cells: Mapping[tuple[str, int, float], CellState]) -> AdaptiveState:
    years = [cell.last_year for cell in cells.values() if cell.last_year is not None]
    return AdaptiveState(version, max(years, default=None), cells)


def _stream(connection: Connection, bundle: str, levels: Sequence[float]) -> int:
    found = connection.scalar(select(Stream.id).where(Stream.bundle == bundle))
    if found is None:
        made = (
            insert(Stream)
            .values(bundle=bundle, levels=list(levels), version=0)
            .returning(Stream.id)
        )
        found = connection.execute(made).scalar_one()
    return found
