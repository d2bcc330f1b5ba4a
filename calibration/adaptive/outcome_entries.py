"""Outcomes in the ledger: enter them, and correct them.

No entry tells one holder anything about another, because pseudonyms depend on the holder. A holder
who sends wrong amounts for a known outcome is told so a few times only, so that a stolen key cannot
find out amounts by trying them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import add
from typing import Literal, Self

from saga.calibration.adaptive.database import key_batches
from saga.calibration.adaptive.ledger_tables import (
    ConflictRow,
    IssuedIntervalRow,
    OutcomeRow,
    SettlementRow,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.settlement_counts import IssuedRow, LogEntry, judge, write_log
from saga.calibration.adaptive.span_entries import (
    reopen_spans,
    seal_amount,
    settle_spans,
    span_years,
    spans_about,
    write_span_log,
)
from sqlalchemy import Connection, Update, bindparam, delete, insert, select, update

from saga.errors import InputError, Problem, SagaError

MAX_AMOUNT = 1e12  # in the bundle's money; more is a mistake in any currency
MAX_CONFLICTS = 5  # contradicting amounts of one person and year that are answered

_OUTCOME_YEAR = IssuedIntervalRow.origin_year + IssuedIntervalRow.horizon

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
    hashes, waiting = _known_and_waiting(connection, outcomes)
    spans = spans_about(connection, [outcome.key for outcome in outcomes], waiting=True)
    in_span = span_years(spans)
    before = _conflicts(connection, outcomes) if max_conflicts is not None else {}
    incoming = _IncomingOutcomes({*waiting, *in_span}, before, max_conflicts, dict(hashes))
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
    settled = [
        (row, amount)
        for person_year, amount in incoming.new.items()
        for row in waiting.get(person_year, ())
    ]
    span_entries = []
    if incoming.new:
        _store_outcomes(connection, key, incoming, in_span)
        span_entries = settle_spans(connection, key, spans)
        changed = write_span_log(connection, span_entries, audit_id)
        judged = judge([(row, row.distribution, amount) for row, amount in settled])
        write_log(connection, judged, audit_id, changed)
    if settled:
        connection.execute(
            _set_distributions(),
            [
                {
                    "row": row.id,
                    "distribution": None,
                    "sealed": key.seal(row.distribution, row.person),
                }
                for row, _ in settled
            ],
        )
    return SettlementReport(
        len(incoming.new),
        incoming.duplicate,
        len(incoming.problems),
        incoming.unmatched,
        len(settled),
        tuple(incoming.problems),
        len(span_entries),
    )


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
                "sealed_amount": seal_amount(key, amount, person)
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
    hashes, _ = _known_and_waiting(connection, corrections)
    known = {c.key: c for c in corrections if c.key in hashes}
    settled = _settled(connection, list(known.values()))
    taken_back, to_judge = [], []
    distributions: list[dict[str, object]] = []
    for entry in settled:
        row = entry.row
        correction = known[row.person, row.origin_year + row.horizon]
        taken_back.append(LogEntry(row, entry.probability, entry.p_zero, -1))
        if correction.amount is not None:
            to_judge.append((row, key.unseal(row.sealed, row.person), correction.amount))
        else:
            distribution = key.unseal(row.sealed, row.person)
            distributions.append({"row": row.id, "distribution": distribution, "sealed": None})
    if distributions:
        connection.execute(_set_distributions(), distributions)
    in_span = span_years(
        row for waiting in (True, False) for row in spans_about(connection, known, waiting=waiting)
    )
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
                values["sealed_amount"] = seal_amount(key, correction.amount, correction.person)
            connection.execute(update(OutcomeRow).where(*is_outcome).values(**values))
    reopened = reopen_spans(connection, key, spans_about(connection, known, waiting=False))
    rejudged = settle_spans(connection, key, spans_about(connection, known, waiting=True))
    changed = write_span_log(connection, [*reopened, *rejudged], audit_id)
    if taken_back or changed:
        write_log(connection, [*taken_back, *judge(to_judge)], audit_id, changed)
    return CorrectionReport(
        len(corrected),
        len(withdrawn),
        len(corrections) - len(known),
        len(to_judge),
        len(distributions),
    )


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


def _known_and_waiting(
    connection: Connection, outcomes: Sequence[Pseudonymised]
) -> tuple[dict[PersonYear, bytes], dict[PersonYear, list[IssuedRow]]]:
    """Hashes of the known outcomes of these persons, and the intervals that wait for the years."""
    hashes: dict[PersonYear, bytes] = {}
    waiting: dict[PersonYear, list[IssuedRow]] = {}
    years = {outcome.year for outcome in outcomes}
    for batch in key_batches([outcome.person for outcome in outcomes]):
        of_persons = select(OutcomeRow.person, OutcomeRow.year, OutcomeRow.amount_hash).where(
            OutcomeRow.person.in_(batch)
        )
        hashes |= {(p, year): seal for p, year, seal in connection.execute(of_persons)}
        unsettled = select(IssuedIntervalRow.__table__).where(
            IssuedIntervalRow.person.in_(batch),
            _OUTCOME_YEAR.in_(years),
            IssuedIntervalRow.distribution.is_not(None),
        )
        for row in connection.execute(unsettled):
            waiting.setdefault((row.person, row.origin_year + row.horizon), []).append(row)
    return hashes, waiting


def _settled(connection: Connection, outcomes: Sequence[Pseudonymised]) -> list[LogEntry]:
    """The last log entries of the intervals that these outcomes have settled."""
    wanted_years = {outcome.key for outcome in outcomes}
    last: dict[int, LogEntry] = {}
    for batch in key_batches([outcome.person for outcome in outcomes]):
        entries = (
            select(
                IssuedIntervalRow.__table__,
                SettlementRow.probability,
                SettlementRow.p_zero,
                SettlementRow.sign,
            )
            .join(SettlementRow, SettlementRow.interval_id == IssuedIntervalRow.id)
            .where(IssuedIntervalRow.person.in_(batch))
            .order_by(SettlementRow.id)
        )
        for row in connection.execute(entries):
            if (row.person, row.origin_year + row.horizon) in wanted_years:
                last[row.id] = LogEntry(row, row.probability, row.p_zero, row.sign)
    return [entry for entry in last.values() if entry.sign == 1]


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
