"""The ledger: issued intervals, their outcomes, and the adaptive state.

One database has the tables of `adaptive.ledger_tables`. Log, counts and state change
in one transaction, with one writer at a time. So a process that is killed leaves a whole
transaction or none, and nothing is lost if two processes write. `Ledger.replay` computes the state
from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Any

from saga.calibration.adaptive.adaptive_state import YEAR, AdaptiveState
from saga.calibration.adaptive.audit_trail import AuditEntry, add_to_audit, read_audit
from saga.calibration.adaptive.database import WAIT_SECONDS, key_batches, parse_database_url
from saga.calibration.adaptive.holder_streams import find_stream, holder_id, open_stream, read_state
from saga.calibration.adaptive.issued_intervals import IssuedIntervals
from saga.calibration.adaptive.issued_spans import IssuedSpans
from saga.calibration.adaptive.ledger_storage import LedgerStorage
from saga.calibration.adaptive.ledger_tables import (
    BandScaleRow,
    Holder,
    IssuedIntervalRow,
    OutcomeRow,
    SettlementRow,
    Stream,
    pack_thresholds,
)
from saga.calibration.adaptive.outcome_entries import (
    ConflictLimitError,
    CorrectionReason,
    CorrectionReport,
    OutcomeInput,
    PersonYear,
    Pseudonymised,
    SettlementReport,
    check_amounts,
    check_corrections,
    correct_outcomes,
    enter_outcomes,
    outcome_years,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.settled_outcomes import (
    SettledOutcomes,
    SpanCoverage,
    read_settled,
    read_span_coverage,
)
from saga.calibration.adaptive.settlement_counts import read_scales, replay_state
from saga.calibration.adaptive.tenancy import COMMON, Actor
from sqlalchemy import Connection, func, insert, select, update

from saga.errors import Problem, UsageError

Issued = IssuedIntervals | IssuedSpans
Key = tuple[bytes, int, str, int]  # pseudonym, origin year, family, horizon

_ROWS_PER_TRANSACTION = 5_000


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


class Ledger:
    """The part of a holder of the ledger in a database.

    Threads may share one object, and any number of processes may open the same database.
    """

    def __init__(
        self,
        url: str,
        key: PseudonymKey,
        actor: Actor = Actor(),  # noqa: B008  # frozen
        *,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Open the database and migrate its tables.

        Args:
            url: Database URL; a missing SQLite file is made.
            key: Secret key of the pseudonyms.
            actor: Whose part of the ledger this is, and who uses it.
            wait_seconds: Longest wait for the lock of another writer, or for a connection.

        Raises:
            UsageError: The URL is not usable, or `key` is not the key of this ledger.
            LedgerError: The database does not answer.
        """
        self._key, self._actor = key, actor
        self._storage = LedgerStorage(url, key, wait_seconds)

    def acting_as(self, actor: Actor) -> Ledger:
        """The part of the actor's holder; the database and its connections are shared."""
        part = copy(self)
        part._actor = actor
        return part

    def close(self) -> None:
        """Close all connections."""
        self._storage.close()

    def probe(self) -> None:
        """Take the lock of a writer and write nothing. Raises LedgerError if this fails."""
        with self._storage.writing():
            pass

    def versions(self, bundle: str) -> dict[str, int]:
        """The versions of the states of the bundle with this digest, by holder."""
        query = select(Holder.name, Stream.version).join(Stream).where(Stream.bundle == bundle)
        with self._storage.reading() as connection:
            return {row.name: row.version for row in connection.execute(query)}

    def audit(self) -> list[AuditEntry]:
        """The transactions of this holder that changed the ledger, in their order."""
        with self._storage.reading() as connection:
            return read_audit(connection, self._actor.holder)

    def record(self, bundle: str, issued: Issued) -> RecordCounts:
        """Enter the intervals, bands or present values issued with the bundle of this digest.

        Only the first ones for a person, origin year and horizon, or number of years, are entered.
        """
        total = RecordCounts()
        for start in range(0, len(issued), _ROWS_PER_TRANSACTION):
            rows = range(start, min(start + _ROWS_PER_TRANSACTION, len(issued)))
            with self._storage.writing() as connection:
                counts = self._record(connection, bundle, issued, rows)
                details = vars(counts)
                if isinstance(issued, IssuedSpans):
                    details = details | {"kind": issued.kind}
                add_to_audit(connection, self._actor, "record", details)
                total += counts
        return total

    def _record(
        self, connection: Connection, bundle: str, issued: Issued, rows: range
    ) -> RecordCounts:
        holder = holder_id(connection, self._actor.holder)
        stream_id = open_stream(connection, holder, bundle)
        persons = [self._pseudonym(str(issued.person_id[row])) for row in rows]
        recorded, known_years = _recorded_and_known(connection, stream_id, persons)
        new: dict[Key, dict[str, Any]] = {}
        repeated = late = 0
        for person, entry in zip(persons, issued.entries(rows), strict=True):
            key = person, entry["origin_year"], entry["family"], entry["horizon"]
            if key in recorded or key in new:
                repeated += 1
            elif any((person, year) in known_years for year in outcome_years(*key[1:])):
                late += 1
            else:
                new[key] = {"stream_id": stream_id, "person": person, **entry}
        if new:
            if isinstance(issued, IssuedSpans):
                _store_scales(connection, stream_id, issued)
            connection.execute(insert(IssuedIntervalRow), list(new.values()))
        return RecordCounts(len(new), repeated, late)

    def record_issued(self, bundle: str, issued: Iterable[Issued]) -> RecordCounts:
        """Enter all of them by `record`."""
        return sum((self.record(bundle, part) for part in issued), RecordCounts())

    def span_coverage(self, bundle: str) -> list[SpanCoverage]:
        """How often settled bands and present values contained the outcomes, by outcome year."""
        with self._storage.reading() as connection:
            return read_span_coverage(connection, bundle, self._actor.holder)

    def settle(
        self, outcomes: Iterable[tuple[str, int, float]], *, max_conflicts: int | None = None
    ) -> SettlementReport:
        """Enter realised earnings: person id, year, real money of the bundle's price year.

        Earnings of 0 are an outcome. Order and repetitions do not matter. Amounts are compared in
        whole units of the currency. Each 5,000 outcomes are one transaction.

        Args:
            outcomes: The outcomes.
            max_conflicts: Number of amounts that may contradict the known one of a person and year.

        Raises:
            InputError: An amount is not from 0 to MAX_AMOUNT.
            ConflictLimitError: There are more contradictions than `max_conflicts`.
        """
        rows = list(outcomes)
        check_amounts(rows)
        total = SettlementReport()
        for start in range(0, len(rows), _ROWS_PER_TRANSACTION):
            part = self._pseudonymise(rows[start : start + _ROWS_PER_TRANSACTION])
            with self._storage.writing() as connection:
                audit_id = add_to_audit(connection, self._actor, "settle", {"outcomes": len(part)})
                report = enter_outcomes(connection, self._key, part, audit_id, max_conflicts)
            if isinstance(report, ConflictLimitError):
                raise report
            total += report
        return total

    def correct(
        self, corrections: Iterable[tuple[str, int, float | None]], reason: CorrectionReason
    ) -> CorrectionReport:
        """Replace known outcomes, or withdraw those without an amount.

        Old settlements stay in the log, with an entry that takes them back, so that `replay` gives
        every version of the state. Each 5,000 corrections are one transaction.

        Raises InputError for an amount that is not from 0 to MAX_AMOUNT, or a person and year that
        appears twice.
        """
        rows = list(corrections)
        check_corrections(rows)
        total = CorrectionReport()
        for start in range(0, len(rows), _ROWS_PER_TRANSACTION):
            part = self._pseudonymise(rows[start : start + _ROWS_PER_TRANSACTION])
            with self._storage.writing() as connection:
                details = {"corrections": len(part), "reason": reason}
                audit_id = add_to_audit(connection, self._actor, "correct", details)
                total += correct_outcomes(connection, self._key, part, audit_id)
        return total

    def state(self, bundle: str) -> AdaptiveState | None:
        """The adaptive state of the bundle with this digest; None if the ledger has no entry."""
        with self._storage.reading() as connection:
            stream = find_stream(connection, self._actor.holder, bundle)
            return None if stream is None else read_state(connection, stream.id)

    def version(self, bundle: str) -> int | None:
        """The version of the adaptive state, without reading the state; None as for `state`."""
        with self._storage.reading() as connection:
            stream = find_stream(connection, self._actor.holder, bundle)
            return None if stream is None else int(stream.version)

    def replay(self, bundle: str, version: int | None = None) -> AdaptiveState | None:
        """The state computed from the log alone: equal to `state`, bit for bit.

        With `version` it is the state of that earlier version.
        """
        with self._storage.reading() as connection:
            stream = find_stream(connection, self._actor.holder, bundle)
            if stream is None:
                return None
            return replay_state(connection, stream, version)

    def settled(self, bundle: str, horizons: Sequence[int]) -> SettledOutcomes:
        """The outcomes that this holder's forecasts with the bundle have had."""
        with self._storage.reading() as connection:
            return read_settled(connection, bundle, self._actor.holder, horizons)

    def delivered_until(self, bundle: str) -> int | None:
        """The last origin year that deliveries finished with this bundle; None if there is none."""
        with self._storage.reading() as connection:
            return connection.scalar(
                select(Stream.delivered_until)
                .join(Holder)
                .where(Stream.bundle == bundle, Holder.name == self._actor.holder)
            )

    def mark_delivered(self, bundle: str, year: int) -> None:
        """Note that a delivery has recorded all its intervals from origin year `year`."""
        is_later = func.coalesce(Stream.delivered_until, year) <= year
        with self._storage.writing() as connection:
            connection.execute(
                update(Stream)
                .where(
                    Stream.bundle == bundle,
                    Stream.holder_id == holder_id(connection, self._actor.holder),
                    is_later,
                )
                .values(delivered_until=year)
            )

    def first_outcome_year(self) -> int | None:
        """The first year that a recorded interval is about, of any bundle; None without any."""
        with self._storage.reading() as connection:
            return connection.scalar(
                select(func.min(IssuedIntervalRow.origin_year + IssuedIntervalRow.horizon))
                .join(Stream, Stream.id == IssuedIntervalRow.stream_id)
                .join(Holder)
                .where(Holder.name == self._actor.holder, IssuedIntervalRow.family == YEAR)
            )

    def with_issued_intervals(self, person_ids: Sequence[str]) -> list[str]:
        """The persons of `person_ids` who have recorded intervals, in the same order."""
        pseudonyms = [self._pseudonym(person_id) for person_id in person_ids]
        recorded: set[bytes] = set()
        with self._storage.reading() as connection:
            for batch in key_batches(pseudonyms):
                query = select(IssuedIntervalRow.person).where(IssuedIntervalRow.person.in_(batch))
                recorded |= set(connection.scalars(query.distinct()))
        return [
            person_id
            for person_id, pseudonym in zip(person_ids, pseudonyms, strict=True)
            if pseudonym in recorded
        ]

    def counts(self, bundle: str) -> dict[str, int]:
        """How many intervals of single years are settled, and how many wait for their outcome."""
        is_year = IssuedIntervalRow.family == YEAR
        of_holder = (Stream.bundle == bundle, Holder.name == self._actor.holder, is_year)
        settled = (
            select(func.coalesce(func.sum(SettlementRow.sign), 0))
            .join(IssuedIntervalRow)
            .join(Stream)
            .join(Holder)
            .where(*of_holder)
        )
        waiting = (
            select(func.count(IssuedIntervalRow.distribution))
            .join(Stream)
            .join(Holder)
            .where(*of_holder)
        )
        with self._storage.reading() as connection:
            return {
                "settled": int(connection.scalar(settled) or 0),
                "waiting": int(connection.scalar(waiting) or 0),
            }

    def _pseudonymise(self, outcomes: Sequence[OutcomeInput]) -> list[Pseudonymised]:
        return [Pseudonymised.of(self._key, self._holder_parts, outcome) for outcome in outcomes]

    @property
    def _holder_parts(self) -> tuple[str, ...]:
        """What pseudonyms depend on besides the id: nothing for the common holder."""
        return () if self._actor.holder == COMMON else (self._actor.holder,)

    def _pseudonym(self, person_id: str) -> bytes:
        return self._key.keyed_hash("person", *self._holder_parts, person_id)


def open_ledger(
    url: str,
    key: Path | None = None,
    actor: Actor = Actor(),  # noqa: B008  # frozen
    *,
    wait_seconds: float = WAIT_SECONDS,
) -> Ledger:
    """The ledger at a database URL, with the pseudonym key in the file `key`.

    By default the key of an SQLite file is FILE.key, which is made if it is missing. A server has
    no default. Raises the same errors as `Ledger`.
    """
    database = parse_database_url(url)
    if key is not None:
        return Ledger(url, PseudonymKey.read(key, create=False), actor, wait_seconds=wait_seconds)
    if database.get_backend_name() != "sqlite":
        fix = (
            "Make a file of 32 random bytes or more that only this account can read, and name it"
            " with --database-key or SAGA_DATABASE_KEY"
        )
        raise UsageError(
            "The ledger needs a key",
            [Problem("ledger-key", "The database of a server has no default key file", fix)],
        )
    key_file = Path(f"{database.database}.key")
    return Ledger(url, PseudonymKey.read(key_file, create=True), actor, wait_seconds=wait_seconds)


def _recorded_and_known(
    connection: Connection, stream_id: int, pseudonyms: Sequence[bytes]
) -> tuple[set[Key], set[PersonYear]]:
    """What is recorded for these persons, and the years of their known outcomes."""
    recorded: set[Key] = set()
    known_years: set[PersonYear] = set()
    interval = IssuedIntervalRow
    for batch in key_batches(pseudonyms):
        intervals = select(
            interval.person, interval.origin_year, interval.family, interval.horizon
        ).where(interval.stream_id == stream_id, interval.person.in_(batch))
        recorded |= {
            (p, origin, family, h) for p, origin, family, h in connection.execute(intervals)
        }
        years = select(OutcomeRow.person, OutcomeRow.year).where(OutcomeRow.person.in_(batch))
        known_years |= {(p, year) for p, year in connection.execute(years)}
    return recorded, known_years


def _store_scales(connection: Connection, stream_id: int, issued: IssuedSpans) -> None:
    known = read_scales(connection, [stream_id]).get(stream_id, {})
    missing = [
        {
            "stream_id": stream_id,
            "horizon": horizon,
            "knots": pack_thresholds(knots),
            "values": pack_thresholds(values),
        }
        for horizon, (knots, values) in issued.scales.items()
        if horizon not in known
    ]
    if missing:
        connection.execute(insert(BandScaleRow), missing)
