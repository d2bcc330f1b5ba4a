"""The ledger: issued intervals, their outcomes, and the adaptive state.

One database has the tables of `adaptive.ledger_tables`. Log, counts and state change
in one transaction, with one writer at a time. So a process that is killed leaves a whole
transaction or none, and nothing is lost if two processes write. `Ledger.replay` computes the state
from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from saga.calibration.adaptive.adaptive_state import YEAR, AdaptiveState
from saga.calibration.adaptive.database import (
    WAIT_SECONDS,
    Database,
    parse_database_url,
    rows_of,
)
from saga.calibration.adaptive.issued_intervals import IssuedInterval, outcome_years
from saga.calibration.adaptive.ledger_tables import AUDIT, COMMON, ISSUED, OUTCOME, STREAM
from saga.calibration.adaptive.outcome_entries import (
    ConflictLimitError,
    CorrectionReason,
    CorrectionReport,
    Counted,
    Outcome,
    OutcomeInput,
    PersonYear,
    SettlementReport,
    check_amounts,
    check_corrections,
    correct_outcomes,
    enter_outcomes,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.settlement_log import (
    SpanCoverage,
    read_settled,
    read_span_coverage,
    read_state,
    replay_state,
)
from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update

from saga.errors import Problem, UsageError

Key = tuple[bytes, int, str, int]  # pseudonym, origin year, family, horizon

ROWS_PER_TRANSACTION = 5_000


@dataclass(frozen=True)
class Actor:
    """Who uses the ledger: the holder of a part of it, the name of the key and of the call."""

    holder: str = COMMON
    key: str | None = None
    call: str | None = None


@dataclass(frozen=True)
class RecordCounts(Counted):
    """Numbers of issued intervals that were passed to `Ledger.record`.

    `new` ones were entered. `repeated` ones had been entered before. `late` ones are about a year
    whose outcome is known; they were not entered.
    """

    new: int = 0
    repeated: int = 0
    late: int = 0


class Ledger:
    """The part of a holder of the ledger in a database.

    Threads may share one object, and any number of processes may open the same database.
    """

    def __init__(
        self,
        url: str,
        key: PseudonymKey,
        actor: Actor = Actor(),  # frozen
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
        self._database = Database(url, key.keyed_hash("ledger"), wait_seconds)

    def acting_as(self, actor: Actor) -> Ledger:
        """The part of the actor's holder; the database and its connections are shared."""
        part = copy(self)
        part._actor = actor
        return part

    @property
    def identity(self) -> str:
        """What tells the part of this holder from other parts, and from those of other ledgers."""
        return self._key.keyed_hash("part", self._database.ledger_id, self._actor.holder).hex()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def probe(self) -> None:
        """Take the lock of a writer and write nothing. Raises LedgerError if this fails."""
        with self._database.writing():
            pass

    def versions(self, bundle: str) -> dict[str, int]:
        """The versions of the states of the bundle with this digest, by holder."""
        query = select(STREAM.c.holder, STREAM.c.version).where(STREAM.c.bundle == bundle)
        with self._database.reading() as connection:
            return {row.holder: row.version for row in connection.execute(query)}

    def record(self, bundle: str, issued: Sequence[IssuedInterval]) -> RecordCounts:
        """Enter the intervals, bands or present values issued with the bundle of this digest.

        Only the first ones for a person, origin year and horizon, or number of years, are entered.
        """
        total = RecordCounts()
        for start in range(0, len(issued), ROWS_PER_TRANSACTION):
            part = issued[start : start + ROWS_PER_TRANSACTION]
            with self._database.writing() as connection:
                counts = self._record(connection, bundle, part)
                self._add_to_audit(connection, "record", counts.counts())
                total += counts
        return total

    def _record(
        self, connection: Connection, bundle: str, issued: Sequence[IssuedInterval]
    ) -> RecordCounts:
        stream = _open_stream(connection, self._actor.holder, bundle)
        persons = [self._pseudonym(entry.person_id) for entry in issued]
        recorded, known_years = _recorded_and_known(connection, stream.id, persons)
        new: dict[Key, dict[str, Any]] = {}
        scales = dict(stream.scales)
        repeated = late = 0
        for person, entry in zip(persons, issued, strict=True):
            about = entry.origin_year, entry.family, entry.horizon
            if (person, *about) in recorded or (person, *about) in new:
                repeated += 1
            elif any((person, year) in known_years for year in outcome_years(*about)):
                late += 1
            else:
                new[person, *about] = {
                    **entry.columns(),
                    "stream_id": stream.id,
                    "person": person,
                    "distribution": self._key.seal(entry.distribution, person),
                    "settled": False,
                }
                for horizon, scale in entry.scales.items():
                    if str(horizon) not in scales:
                        scales[str(horizon)] = [part.tolist() for part in scale]
        if new:
            connection.execute(insert(ISSUED), list(new.values()))
        if scales != stream.scales:
            is_stream = STREAM.c.id == stream.id
            connection.execute(update(STREAM).where(is_stream).values(scales=scales))
        return RecordCounts(len(new), repeated, late)

    def span_coverage(self, bundle: str) -> list[SpanCoverage]:
        """How often settled bands and present values contained the outcomes, by outcome year."""
        with self._database.reading() as connection:
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
        for start in range(0, len(rows), ROWS_PER_TRANSACTION):
            part = self._outcomes(rows[start : start + ROWS_PER_TRANSACTION])
            with self._database.writing() as connection:
                audit_id = self._add_to_audit(connection, "settle", {"outcomes": len(part)})
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
        for start in range(0, len(rows), ROWS_PER_TRANSACTION):
            part = self._outcomes(rows[start : start + ROWS_PER_TRANSACTION])
            with self._database.writing() as connection:
                details = {"corrections": len(part), "reason": reason}
                audit_id = self._add_to_audit(connection, "correct", details)
                total += correct_outcomes(connection, self._key, part, audit_id)
        return total

    def state(self, bundle: str) -> AdaptiveState | None:
        """The adaptive state of the bundle with this digest; None if the ledger has no entry."""
        with self._database.reading() as connection:
            stream = _find_stream(connection, self._actor.holder, bundle)
            return None if stream is None else read_state(stream)

    def replay(self, bundle: str, version: int | None = None) -> AdaptiveState | None:
        """The state computed from the log alone: equal to `state`, bit for bit.

        With `version` it is the state of that earlier version.
        """
        with self._database.reading() as connection:
            stream = _find_stream(connection, self._actor.holder, bundle)
            return None if stream is None else replay_state(connection, stream, version)

    def settled(self, bundle: str, horizons: Sequence[int]) -> pl.DataFrame:
        """The outcomes that this holder's forecasts with the bundle have had: `read_settled`."""
        with self._database.reading() as connection:
            return read_settled(connection, bundle, self._actor.holder, horizons)

    def delivered_until(self, bundle: str) -> int | None:
        """The last origin year that deliveries finished with this bundle; None if there is none."""
        with self._database.reading() as connection:
            query = select(STREAM.c.delivered_until)
            return connection.scalar(query.where(*self._is_stream(bundle)))

    def mark_delivered(self, bundle: str, year: int) -> None:
        """Note that a delivery has recorded all its intervals from origin year `year`."""
        is_later = func.coalesce(STREAM.c.delivered_until, year) <= year
        note = update(STREAM).where(*self._is_stream(bundle), is_later)
        with self._database.writing() as connection:
            connection.execute(note.values(delivered_until=year))

    def first_outcome_year(self) -> int | None:
        """The first year that a recorded interval is about, of any bundle; None without any."""
        first = select(func.min(ISSUED.c.origin_year + ISSUED.c.horizon)).join(STREAM)
        is_own = STREAM.c.holder == self._actor.holder, ISSUED.c.family == YEAR
        with self._database.reading() as connection:
            year: int | None = connection.scalar(first.where(*is_own))
        return year

    def with_issued_intervals(self, person_ids: Sequence[str]) -> list[str]:
        """The persons of `person_ids` who have recorded intervals, in the same order."""
        pseudonyms = [self._pseudonym(person_id) for person_id in person_ids]
        persons = select(ISSUED.c.person).distinct()
        with self._database.reading() as connection:
            rows = rows_of(connection, persons, ISSUED.c.person, pseudonyms)
            recorded = {row.person for row in rows}
        by_id = zip(person_ids, pseudonyms, strict=True)
        return [person_id for person_id, pseudonym in by_id if pseudonym in recorded]

    def counts(self, bundle: str) -> dict[str, int]:
        """How many intervals of single years are settled, and how many wait for their outcome."""
        of_years = select(ISSUED.c.settled, func.count()).join(STREAM)
        is_own = *self._is_stream(bundle), ISSUED.c.family == YEAR
        query = of_years.where(*is_own).group_by(ISSUED.c.settled)
        with self._database.reading() as connection:
            counts = {bool(row[0]): int(row[1]) for row in connection.execute(query)}
        return {"settled": counts.get(True, 0), "waiting": counts.get(False, 0)}

    def _is_stream(self, bundle: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return STREAM.c.bundle == bundle, STREAM.c.holder == self._actor.holder

    def _outcomes(self, rows: Sequence[OutcomeInput]) -> list[Outcome]:
        return [Outcome(row[0], self._pseudonym(row[0]), row[1], row[2]) for row in rows]

    def _pseudonym(self, person_id: str) -> bytes:
        return self._key.pseudonym(self._actor.holder, person_id)

    def _add_to_audit(
        self, connection: Connection, action: str, details: Mapping[str, int | str]
    ) -> int:
        """Add a transaction to the audit trail; its id."""
        values = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "holder": self._actor.holder,
            "key_name": self._actor.key,
            "call": self._actor.call,
            "action": action,
            "details": dict(details),
        }
        row = insert(AUDIT).values(values).returning(AUDIT.c.id)
        return int(connection.execute(row).scalar_one())


def open_ledger(
    url: str,
    key: Path | None = None,
    actor: Actor = Actor(),  # frozen
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


def _find_stream(connection: Connection, holder: str, bundle: str) -> Row[Any] | None:
    """The holder's stream of a bundle; before it has one, that of the common holder."""
    is_followed = STREAM.c.bundle == bundle, STREAM.c.holder.in_((holder, COMMON))
    query = select(STREAM).where(*is_followed).order_by((STREAM.c.holder == holder).desc())
    return connection.execute(query).first()


def _open_stream(connection: Connection, holder: str, bundle: str) -> Row[Any]:
    """The holder's stream of a bundle; a new one begins with the state of the common one."""
    known = _find_stream(connection, holder, bundle)
    if known is not None and known.holder == holder:
        return known
    new: dict[str, Any] = {"holder": holder, "bundle": bundle, "version": 0, "state": []}
    if known is not None:
        new |= {"version": known.version, "state": known.state}
    return connection.execute(insert(STREAM).values(scales={}, **new).returning(STREAM)).one()


def _recorded_and_known(
    connection: Connection, stream_id: int, pseudonyms: Sequence[bytes]
) -> tuple[set[Key], set[PersonYear]]:
    """What is recorded for these persons, and the years of their known outcomes."""
    about = ISSUED.c.person, ISSUED.c.origin_year, ISSUED.c.family, ISSUED.c.horizon
    issued = select(*about).where(ISSUED.c.stream_id == stream_id)
    years = select(OUTCOME.c.person, OUTCOME.c.year)
    return (
        {
            (row.person, row.origin_year, row.family, row.horizon)
            for row in rows_of(connection, issued, ISSUED.c.person, pseudonyms)
        },
        {
            (row.person, row.year)
            for row in rows_of(connection, years, OUTCOME.c.person, pseudonyms)
        },
    )
