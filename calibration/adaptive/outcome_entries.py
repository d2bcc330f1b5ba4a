"""Outcomes in the ledger: enter them, and correct them.

No entry tells one holder anything about another, because pseudonyms depend on the holder. A holder
who sends wrong amounts for a known outcome is told so a few times only, so that a stolen key cannot
find out amounts by trying them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import add
from typing import Literal, Self

import numpy as np
from saga.calibration.adaptive.adaptive_state import YEAR
from saga.calibration.adaptive.database import key_batches
from saga.calibration.adaptive.ledger_tables import (
    ConflictRow,
    IssuedIntervalRow,
    OutcomeRow,
    SettlementRow,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.settlement_counts import IssuedRow, LogEntry, judge, write_log
from sqlalchemy import Connection, Update, bindparam, delete, insert, or_, select, update

from saga.errors import InputError, Problem, SagaError

MAX_AMOUNT = 1e12  # in the bundle's money; more is a mistake in any currency
MAX_CONFLICTS = 5  # contradicting amounts of one person and year that are answered

PersonYear = tuple[bytes, int]  # (pseudonym, year)
OutcomeInput = tuple[str, int, float | None]  # person id, year, amount in the bundle's money
CorrectionReason = Literal["revised", "mistake", "wrong-person", "not-resident"]


class ConflictLimitError(SagaError):
    """A known outcome was contradicted too often (HTTP 429)."""

    title = "Too many contradictions of a known outcome"


@dataclass(frozen=True)
class SettlementReport:
    """Numbers of outcomes that were passed to `Ledger.settle`.

    `new` outcomes settled `settled_intervals` issued intervals. `duplicate` ones repeat a known
    outcome. `conflicting` ones contradict a known outcome and change nothing; `problems` names
    them. `unmatched` ones have no recorded interval and are not stored. `settled_spans` are bands
    and present values whose last outcome became known.
    """

    new: int = 0
    duplicate: int = 0
    conflicting: int = 0
    unmatched: int = 0
    settled_intervals: int = 0
    problems: tuple[Problem, ...] = ()
    settled_spans: int = 0

    def __add__(self, other: SettlementReport) -> SettlementReport:
        return SettlementReport(*map(add, vars(self).values(), vars(other).values()))

    def counts(self) -> dict[str, int]:
        """The counts under their names in responses of the service and the command line."""
        return {
            "new": self.new,
            "duplicate": self.duplicate,
            "conflicting": self.conflicting,
            "unmatched": self.unmatched,
            "settled_intervals": self.settled_intervals,
            "settled_spans": self.settled_spans,
        }


@dataclass(frozen=True)
class CorrectionReport:
    """Numbers of corrections that were passed to `Ledger.correct`.

    `corrected` outcomes have the new amount, whether or not it differs. `withdrawn` ones are
    unknown again, and their intervals wait for an outcome. `unmatched` ones had no known outcome.
    `rejudged` intervals were judged anew, and `reopened` ones wait again.
    """

    corrected: int = 0
    withdrawn: int = 0
    unmatched: int = 0
    rejudged: int = 0
    reopened: int = 0

    def __add__(self, other: CorrectionReport) -> CorrectionReport:
        return CorrectionReport(*map(add, vars(self).values(), vars(other).values()))

    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Pseudonymised:
    """An outcome whose person has become a pseudonym; without an amount it is to be withdrawn."""

    person_id: str
    person: bytes
    year: int
    amount: float | None
    amount_hash: bytes

    @classmethod
    def of(cls, key: PseudonymKey, holder_parts: tuple[str, ...], row: OutcomeInput) -> Self:
        """The outcome as the part of a holder has it."""
        person_id, year, amount = row
        person = key.keyed_hash("person", *holder_parts, person_id)
        units = "withdrawn" if amount is None else round(amount)
        return cls(
            person_id, person, year, amount, key.keyed_hash("outcome", person.hex(), year, units)
        )

    @property
    def key(self) -> PersonYear:
        """What identifies it."""
        return self.person, self.year


def check_amounts(outcomes: Sequence[OutcomeInput]) -> None:
    """Raise InputError that names the first outcome whose amount is not from 0 to MAX_AMOUNT."""
    broken = [
        (person_id, year)
        for person_id, year, amount in outcomes
        if amount is not None and not (math.isfinite(amount) and 0 <= amount <= MAX_AMOUNT)
    ]
    if broken:
        fix = f"Give earnings from 0 to {MAX_AMOUNT:,.0f} in the bundle's money"
        raise InputError(
            "Some rows are not outcomes",
            [Problem("outcome-amount", "Not an amount", fix, "earnings", *broken[0], len(broken))],
        )


def enter_outcomes(
    connection: Connection,
    key: PseudonymKey,
    outcomes: Sequence[Pseudonymised],
    audit_id: int,
    max_conflicts: int | None,
) -> SettlementReport | ConflictLimitError:
    """Settle the intervals that wait for these outcomes.

    With `max_conflicts` contradicting amounts are counted, each once. Beyond that number the error
    is returned, to be raised after the transaction, which then stores these amounts alone. From
    then on even the known amount gives the error: otherwise it would stand out.
    """
    hashes = _known_hashes(connection, outcomes)
    waiting = _intervals_about(connection, {outcome.key for outcome in outcomes}, waiting=True)
    awaited, in_span = _years_of_all(waiting), _years_of_all(_spans(waiting))
    before = _conflicts(connection, outcomes) if max_conflicts is not None else {}
    incoming = _IncomingOutcomes(awaited, before, max_conflicts, dict(hashes))
    for outcome in outcomes:
        incoming.add(outcome)
    if max_conflicts is not None:
        for person_year in hashes if incoming.over else incoming.hashes:
            _store_conflicts(connection, person_year, incoming.tried, before)
    if incoming.over:
        message = (
            "Outcomes contradict a known one too often; their block and later ones do not count"
        )
        return ConflictLimitError(message, tuple(incoming.over.values()))
    entries = []
    if incoming.new:
        _store_outcomes(connection, key, incoming, in_span)
        entries = _settle(connection, key, waiting, incoming.new)
        write_log(connection, entries, audit_id)
    settled_spans = len(_spans(entry.row for entry in entries))
    return SettlementReport(
        len(incoming.new),
        incoming.duplicate,
        len(incoming.problems),
        incoming.unmatched,
        len(entries) - settled_spans,
        tuple(incoming.problems),
        settled_spans,
    )


def _settle(
    connection: Connection,
    key: PseudonymKey,
    rows: Sequence[IssuedRow],
    amounts: Mapping[PersonYear, float],
) -> list[LogEntry]:
    """Judge those waiting intervals whose outcomes are all known; their log entries.

    `amounts` are new outcomes; those of earlier years of bands and present values are stored.
    """
    known = {**_stored_amounts(connection, key, {row.person for row in _spans(rows)}), **amounts}
    ready, of_ready = [], []
    for row in rows:
        of_row = [known.get(person_year) for person_year in _person_years(row)]
        if None not in of_row:
            ready.append(row)
            of_ready.append(np.array(of_row, dtype=np.float64))
    entries = judge(ready, of_ready)
    seals = [
        {"row": row.id, "distribution": None, "sealed": key.seal(row.distribution, row.person)}
        for row in ready
    ]
    if seals:
        connection.execute(_set_distributions(), seals)
    return entries


class _IncomingOutcomes:
    """The outcomes of a call, sorted into new, known, contradicting and unmatched ones.

    `hashes` are hashes of the known and the new outcomes; `tried` are hashes of amounts that
    contradict a known outcome, in this call or `before`. `over` has a problem for each outcome
    that more than `max_conflicts` amounts contradict.
    """

    def __init__(
        self,
        awaited: set[PersonYear],
        before: Mapping[PersonYear, set[bytes]],
        max_conflicts: int | None,
        hashes: dict[PersonYear, bytes],
    ) -> None:
        self.awaited, self.before, self.max_conflicts = awaited, before, max_conflicts
        self.hashes = hashes
        self.tried = {person_year: set(amounts) for person_year, amounts in before.items()}
        self.new: dict[PersonYear, float] = {}
        self.duplicate = self.unmatched = 0
        self.problems: list[Problem] = []
        self.over: dict[PersonYear, Problem] = {}

    def add(self, outcome: Pseudonymised) -> None:
        """Sort one outcome."""
        known_hash = self.hashes.get(outcome.key)
        if known_hash is None:
            if outcome.key in self.awaited and outcome.amount is not None:
                self.hashes[outcome.key] = outcome.amount_hash
                self.new[outcome.key] = outcome.amount
            else:
                self.unmatched += 1
            return
        amounts = self.tried.setdefault(outcome.key, set())
        if known_hash == outcome.amount_hash:
            self.duplicate += 1
        else:
            self.problems.append(_conflict(outcome))
            if self.max_conflicts is None or len(amounts) < self.max_conflicts:
                amounts.add(outcome.amount_hash)
            elif outcome.amount_hash not in amounts:
                self.over[outcome.key] = _limit(outcome)
        was_tried = len(self.before.get(outcome.key, ()))
        if self.max_conflicts is not None and was_tried >= self.max_conflicts:
            self.over[outcome.key] = _limit(outcome)


def _store_outcomes(
    connection: Connection,
    key: PseudonymKey,
    incoming: _IncomingOutcomes,
    in_span: set[PersonYear],
) -> None:
    """Store the new outcomes; only spans need their amounts, which are encrypted."""
    connection.execute(
        insert(OutcomeRow),
        [
            {
                "person": person,
                "year": year,
                "amount_hash": incoming.hashes[person, year],
                "sealed_amount": _seal_amount(key, amount, person)
                if (person, year) in in_span
                else None,
            }
            for (person, year), amount in incoming.new.items()
        ],
    )


def correct_outcomes(
    connection: Connection,
    key: PseudonymKey,
    corrections: Sequence[Pseudonymised],
    audit_id: int,
) -> CorrectionReport:
    """Take back what was settled by these outcomes, and judge the intervals by the new amounts.

    The same amount takes the same steps as another one, so the answer and the version of the state
    do not tell whether it was the known one.
    """
    hashes = _known_hashes(connection, corrections)
    known = {c.key: c for c in corrections if c.key in hashes}
    settled = _intervals_about(connection, set(known), waiting=False)
    waiting = _intervals_about(connection, set(known), waiting=True)
    in_span = _years_of_all(_spans([*settled, *waiting]))
    withdrawn = [c for c in known.values() if c.amount is None]
    corrected = [c for c in known.values() if c.amount is not None]
    for correction in known.values():
        same = (ConflictRow.person == correction.person, ConflictRow.year == correction.year)
        connection.execute(delete(ConflictRow).where(*same))
        is_outcome = (OutcomeRow.person == correction.person, OutcomeRow.year == correction.year)
        if correction.amount is None:
            connection.execute(delete(OutcomeRow).where(*is_outcome))
        else:
            values: dict[str, object] = {"amount_hash": correction.amount_hash}
            if correction.key in in_span:
                values["sealed_amount"] = _seal_amount(key, correction.amount, correction.person)
            connection.execute(update(OutcomeRow).where(*is_outcome).values(**values))
    taken_back = _reopen(connection, key, settled)
    waiting = _intervals_about(connection, set(known), waiting=True)
    amounts = {c.key: c.amount for c in corrected if c.amount is not None}
    judged = _settle(connection, key, waiting, amounts)
    if taken_back:
        write_log(connection, [*taken_back, *judged], audit_id)
    n_reopened = len(settled) - len(_spans(settled))
    n_rejudged = len(judged) - len(_spans(entry.row for entry in judged))
    return CorrectionReport(
        len(corrected),
        len(withdrawn),
        len(corrections) - len(known),
        n_rejudged,
        n_reopened - n_rejudged,
    )


def _reopen(connection: Connection, key: PseudonymKey, rows: Sequence[IssuedRow]) -> list[LogEntry]:
    """Take settled intervals back, so that they wait again; their log entries."""
    last: dict[int, bytes] = {}
    for batch in key_batches([row.id for row in rows]):
        log = select(SettlementRow.interval_id, SettlementRow.ranks).where(
            SettlementRow.interval_id.in_(batch)
        )
        for interval, ranks in connection.execute(log.order_by(SettlementRow.id)):
            last[interval] = ranks
    contents = [
        {"row": row.id, "distribution": key.unseal(row.sealed, row.person), "sealed": None}
        for row in rows
    ]
    if contents:
        connection.execute(_set_distributions(), contents)
    return [LogEntry(row, last[row.id], -1) for row in rows]


def check_corrections(corrections: Sequence[OutcomeInput]) -> None:
    """Raise InputError if an amount is out of range, or a person and year appears twice."""
    check_amounts(corrections)
    seen: set[tuple[str, int]] = set()
    for person_id, year, _ in corrections:
        if (person_id, year) in seen:
            fix = "Give one correction for each person and year"
            problem = Problem("correction-twice", "Two corrections", fix, None, person_id, year)
            raise InputError("The corrections contradict each other", [problem])
        seen.add((person_id, year))


def _known_hashes(
    connection: Connection, outcomes: Sequence[Pseudonymised]
) -> dict[PersonYear, bytes]:
    """Hashes of the known outcomes of these persons."""
    hashes: dict[PersonYear, bytes] = {}
    for batch in key_batches([outcome.person for outcome in outcomes]):
        of_persons = select(OutcomeRow.person, OutcomeRow.year, OutcomeRow.amount_hash).where(
            OutcomeRow.person.in_(batch)
        )
        hashes |= {(p, year): known for p, year, known in connection.execute(of_persons)}
    return hashes


def _intervals_about(
    connection: Connection, keys: set[PersonYear], *, waiting: bool
) -> list[IssuedRow]:
    """The intervals that are about one of these persons and years, waiting or settled."""
    interval = IssuedIntervalRow
    content = interval.distribution if waiting else interval.sealed
    last_year = interval.origin_year + interval.horizon
    is_near = or_(interval.family != YEAR, last_year.in_({year for _, year in keys}))
    rows: list[IssuedRow] = []
    for batch in key_batches(sorted(person for person, _ in keys)):
        of_persons = select(interval.__table__).where(
            interval.person.in_(batch), content.is_not(None), is_near
        )
        rows += [
            row
            for row in connection.execute(of_persons.order_by(interval.id))
            if not keys.isdisjoint(_person_years(row))
        ]
    return rows


def outcome_years(origin_year: int, family: str, horizon: int) -> range:
    """The years whose outcomes judge an interval: the last one, or all after the origin."""
    first = horizon if family == YEAR else 1
    return range(origin_year + first, origin_year + horizon + 1)


def _person_years(row: IssuedRow) -> list[PersonYear]:
    years = outcome_years(row.origin_year, row.family, row.horizon)
    return [(row.person, year) for year in years]


def _years_of_all(rows: Iterable[IssuedRow]) -> set[PersonYear]:
    return {person_year for row in rows for person_year in _person_years(row)}


def _spans(rows: Iterable[IssuedRow]) -> list[IssuedRow]:
    """Bands and present values, which need the outcomes of several years."""
    return [row for row in rows if row.family != YEAR]


def _stored_amounts(
    connection: Connection, key: PseudonymKey, persons: set[bytes]
) -> dict[PersonYear, float]:
    amounts: dict[PersonYear, float] = {}
    for batch in key_batches(sorted(persons)):
        known = select(OutcomeRow.person, OutcomeRow.year, OutcomeRow.sealed_amount).where(
            OutcomeRow.person.in_(batch)
        )
        for person, year, sealed in connection.execute(known):
            if sealed is not None:
                amounts[person, year] = struct.unpack("<d", key.unseal(sealed, person))[0]
    return amounts


def _seal_amount(key: PseudonymKey, amount: float, person: bytes) -> bytes:
    """An amount encrypted with the ledger's key; it stays until the outcome is withdrawn."""
    return key.seal(struct.pack("<d", amount), person)


def _conflicts(
    connection: Connection, outcomes: Sequence[Pseudonymised]
) -> dict[PersonYear, set[bytes]]:
    """Hashes of the amounts that contradicted the known outcomes of these persons."""
    amounts: dict[PersonYear, set[bytes]] = {}
    for batch in key_batches([outcome.person for outcome in outcomes]):
        rows = select(ConflictRow.person, ConflictRow.year, ConflictRow.amount_hash).where(
            ConflictRow.person.in_(batch)
        )
        for person, year, seal in connection.execute(rows):
            amounts.setdefault((person, year), set()).add(seal)
    return amounts


def _store_conflicts(
    connection: Connection,
    person_year: PersonYear,
    tried: Mapping[PersonYear, set[bytes]],
    before: Mapping[PersonYear, set[bytes]],
) -> None:
    person, year = person_year
    amounts = tried.get(person_year, set()) - before.get(person_year, set())
    if amounts:
        connection.execute(
            insert(ConflictRow),
            [{"person": person, "year": year, "amount_hash": amount} for amount in sorted(amounts)],
        )


def _set_distributions() -> Update:
    return (
        update(IssuedIntervalRow.__table__)  # type: ignore[arg-type]  # a table, not a subquery
        .where(IssuedIntervalRow.id == bindparam("row"))
        .values(distribution=bindparam("distribution"), sealed=bindparam("sealed"))
    )


def _conflict(outcome: Pseudonymised) -> Problem:
    return Problem(
        "outcome-conflict",
        "Another amount is known for this year",
        "The first amount stays; a correction replaces it",
        "earnings",
        outcome.person_id,
        outcome.year,
    )


def _limit(outcome: Pseudonymised) -> Problem:
    return Problem(
        "outcome-limit",
        f"The known amount of this year was contradicted {MAX_CONFLICTS} times",
        "Leave this outcome out, or correct it with POST /v1/outcomes/corrections",
        "earnings",
        outcome.person_id,
        outcome.year,
    )
