"""Outcomes in the ledger: enter them, and correct them.

No entry tells one holder anything about another, because pseudonyms depend on the holder. A holder
who sends wrong amounts for a known outcome is told so a few times only, so that a stolen key cannot
find out amounts by trying them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from saga.calibration.adaptive.adaptive_state import YEAR
from saga.calibration.adaptive.database import key_batches, rows_of
from saga.calibration.adaptive.issued_intervals import (
    judge,
    outcome_years,
    rows_alike,
    unpack_marginals,
)
from saga.calibration.adaptive.ledger_tables import (
    CONFLICT,
    ISSUED,
    OUTCOME,
    SETTLEMENT,
    pack_numbers,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.settlement_log import update_states
from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select, tuple_, update

from saga.amount_warnings import require_forecast_unit
from saga.errors import InputError, Problem, SagaError
from saga.schema import MAX_AMOUNT

MAX_CONFLICTS = 5  # contradicting amounts of one person and year that are answered

PersonYear = tuple[bytes, int]  # (pseudonym, year)
OutcomeInput = tuple[str, int, float | None]  # person id, year, amount in the bundle's money
CorrectionReason = Literal["revised", "mistake", "wrong-person", "not-resident"]


class ConflictLimitError(SagaError):
    """A known outcome was contradicted too often (HTTP 429)."""

    title = "Too many contradictions of a known outcome"


@dataclass(frozen=True)
class Counted:
    """What a call has done, in numbers that add up over its transactions."""

    def __add__(self, other: Self) -> Self:
        both = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return replace(self, **both)

    def counts(self) -> dict[str, int]:
        """The numbers under their names in responses of the service and the command line."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}


@dataclass(frozen=True)
class SettlementReport(Counted):
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
    settled_spans: int = 0
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class CorrectionReport(Counted):
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


@dataclass(frozen=True)
class Outcome:
    """An outcome of a person and the pseudonym; without an amount it is to be withdrawn."""

    person_id: str
    person: bytes
    year: int
    amount: float | None

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


def enter_outcomes(
    connection: Connection,
    key: PseudonymKey,
    outcomes: Sequence[Outcome],
    audit_id: int,
    max_conflicts: int | None,
) -> SettlementReport | ConflictLimitError:
    """Settle the intervals that wait for these outcomes.

    With `max_conflicts` contradicting amounts are counted, each once. Beyond that number the error
    is returned, to be raised after the transaction, which then stores these amounts alone. From
    then on even the known amount gives the error: otherwise it would stand out. New amounts have to
    be in the unit of the forecasts; raises InputError.
    """
    known = _read_amounts(connection, key, outcomes)
    waiting = _intervals_about(connection, {outcome.key for outcome in outcomes}, settled=False)
    awaited = {person_year for row in waiting for person_year in _person_years(row)}
    before = _read_conflicts(connection, outcomes) if max_conflicts is not None else {}
    tried = {person_year: set(amounts) for person_year, amounts in before.items()}
    new: dict[PersonYear, float] = {}
    over: dict[PersonYear, Problem] = {}
    problems: list[Problem] = []
    duplicate = unmatched = 0
    for outcome in outcomes:
        amount = known.get(outcome.key, new.get(outcome.key))
        if amount is None:
            if outcome.key in awaited and outcome.amount is not None:
                new[outcome.key] = outcome.amount
            else:
                unmatched += 1
            continue
        if outcome.amount is not None and round(amount) == round(outcome.amount):
            duplicate += 1
        else:
            problems.append(_conflict(outcome))
            tried.setdefault(outcome.key, set()).add(_amount_hash(key, outcome))
        n_before, n_tried = (len(of.get(outcome.key, ())) for of in (before, tried))
        if max_conflicts is not None and (n_before >= max_conflicts or n_tried > max_conflicts):
            over[outcome.key] = _limit(outcome)
    if max_conflicts is not None:
        _require_unit(key, waiting, new)
        counted = tried if not over else {k: amounts for k, amounts in tried.items() if k in known}
        _store_conflicts(connection, counted, before, max_conflicts)
    if over:
        message = (
            "Outcomes contradict a known one too often; their block and later ones do not count"
        )
        return ConflictLimitError(message, tuple(over.values()))
    _store_amounts(connection, key, new)
    settled = _write_log(connection, key, waiting, known | new, audit_id)
    n_spans = sum(row.family != YEAR for row in settled)
    return SettlementReport(
        len(new),
        duplicate,
        len(problems),
        unmatched,
        len(settled) - n_spans,
        n_spans,
        tuple(problems),
    )


def _require_unit(
    key: PseudonymKey, waiting: Sequence[Row[Any]], new: Mapping[PersonYear, float]
) -> None:
    """Raise InputError if many persons' amounts are in another unit than what was forecast."""
    by_person = {
        row.person: row for row in waiting if row.family == YEAR and _person_years(row)[0] in new
    }
    rows = list(by_person.values())
    packed = [key.unseal(row.distribution, row.person) for row in rows]
    medians = np.empty(len(rows))
    for index in rows_alike(map(len, packed)).values():
        marginals = unpack_marginals([packed[i] for i in index])
        medians[index] = marginals.quantiles([0.5]).ravel()
    require_forecast_unit(np.array([new[_person_years(row)[0]] for row in rows]), medians)


def correct_outcomes(
    connection: Connection, key: PseudonymKey, corrections: Sequence[Outcome], audit_id: int
) -> CorrectionReport:
    """Take back what was settled by these outcomes, and judge the intervals by the new amounts.

    The same amount takes the same steps as another one, so the answer and the version of the state
    do not tell whether it was the known one.
    """
    known = _read_amounts(connection, key, corrections)
    changed = {c.key: c.amount for c in corrections if c.key in known}
    for table in (OUTCOME, CONFLICT):
        for batch in key_batches(list(changed)):
            is_changed = tuple_(table.c.person, table.c.year).in_(batch)
            connection.execute(delete(table).where(is_changed))
    corrected = {k: amount for k, amount in changed.items() if amount is not None}
    _store_amounts(connection, key, corrected)
    settled = _intervals_about(connection, set(changed), settled=True)
    left = {k: amount for k, amount in known.items() if k not in changed} | corrected
    judged = _write_log(connection, key, settled, left, audit_id)
    n_taken_back, n_rejudged = (
        sum(row.family == YEAR for row in rows) for rows in (settled, judged)
    )
    return CorrectionReport(
        len(corrected),
        len(changed) - len(corrected),
        len(corrections) - len(changed),
        n_rejudged,
        n_taken_back - n_rejudged,
    )


def _write_log(
    connection: Connection,
    key: PseudonymKey,
    rows: Sequence[Row[Any]],
    known: Mapping[PersonYear, float],
    audit_id: int,
) -> list[Row[Any]]:
    """Take back the settled ones of `rows`, and settle those whose outcomes are all known.

    Returns the latter. Counts and states follow the log.
    """
    entries = [
        {"interval_id": interval, "ranks": ranks, "sign": -1, "audit_id": audit_id}
        for interval, ranks in _settled_ranks(connection, [row.id for row in rows if row.settled])
    ]
    of_rows = [[known.get(person_year) for person_year in _person_years(row)] for row in rows]
    ready = {i for i, amounts in enumerate(of_rows) if None not in amounts}
    judged = [rows[i] for i in sorted(ready)]
    ranks = judge(
        [row.family for row in judged],
        [key.unseal(row.distribution, row.person) for row in judged],
        [np.array(of_rows[i], dtype=np.float64) for i in sorted(ready)],
    )
    entries += [
        {"interval_id": row.id, "ranks": pack_numbers(of_row), "sign": 1, "audit_id": audit_id}
        for row, of_row in zip(judged, ranks, strict=True)
    ]
    if entries:
        connection.execute(insert(SETTLEMENT), entries)
        is_row = ISSUED.c.id == bindparam("row")
        settled = [{"row": row.id, "settled": i in ready} for i, row in enumerate(rows)]
        connection.execute(update(ISSUED).where(is_row), settled)
        update_states(connection, audit_id)
    return judged


def _settled_ranks(connection: Connection, intervals: Sequence[int]) -> Iterable[tuple[int, bytes]]:
    """The ranks by which settled intervals were judged last."""
    log = select(SETTLEMENT.c.interval_id, SETTLEMENT.c.ranks).order_by(SETTLEMENT.c.id)
    rows = rows_of(connection, log, SETTLEMENT.c.interval_id, intervals)
    return {row.interval_id: row.ranks for row in rows}.items()


def _intervals_about(
    connection: Connection, keys: set[PersonYear], *, settled: bool
) -> list[Row[Any]]:
    """The intervals that are about one of these persons and years, settled or not."""
    last_year = ISSUED.c.origin_year + ISSUED.c.horizon
    is_near = or_(ISSUED.c.family != YEAR, last_year.in_({year for _, year in keys}))
    query = select(ISSUED).where(ISSUED.c.settled == settled, is_near).order_by(ISSUED.c.id)
    rows = rows_of(connection, query, ISSUED.c.person, sorted(person for person, _ in keys))
    return [row for row in rows if not keys.isdisjoint(_person_years(row))]


def _person_years(row: Row[Any]) -> list[PersonYear]:
    years = outcome_years(row.origin_year, row.family, row.horizon)
    return [(row.person, year) for year in years]


def _read_amounts(
    connection: Connection, key: PseudonymKey, outcomes: Sequence[Outcome]
) -> dict[PersonYear, float]:
    """The known outcomes of these persons, of all years."""
    persons = [outcome.person for outcome in outcomes]
    return {
        (row.person, row.year): struct.unpack("<d", key.unseal(row.amount, row.person))[0]
        for row in rows_of(connection, select(OUTCOME), OUTCOME.c.person, persons)
    }


def _store_amounts(
    connection: Connection, key: PseudonymKey, amounts: Mapping[PersonYear, float]
) -> None:
    """Store outcomes, whose amounts are encrypted, until they are withdrawn."""
    rows = [
        {"person": person, "year": year, "amount": key.seal(struct.pack("<d", amount), person)}
        for (person, year), amount in amounts.items()
    ]
    if rows:
        connection.execute(insert(OUTCOME), rows)


def _read_conflicts(
    connection: Connection, outcomes: Sequence[Outcome]
) -> dict[PersonYear, set[bytes]]:
    """Hashes of the amounts that contradicted the known outcomes of these persons."""
    amounts: dict[PersonYear, set[bytes]] = {}
    persons = [outcome.person for outcome in outcomes]
    for row in rows_of(connection, select(CONFLICT), CONFLICT.c.person, persons):
        amounts.setdefault((row.person, row.year), set()).add(row.amount_hash)
    return amounts


def _store_conflicts(
    connection: Connection,
    tried: Mapping[PersonYear, set[bytes]],
    before: Mapping[PersonYear, set[bytes]],
    at_most: int,
) -> None:
    """Store the hashes that were not there before, so that there are `at_most` of an outcome."""
    rows = [
        {"person": person, "year": year, "amount_hash": amount_hash}
        for (person, year), amounts in tried.items()
        for known in [before.get((person, year), set())]
        for amount_hash in sorted(amounts - known)[: at_most - len(known)]
    ]
    if rows:
        connection.execute(insert(CONFLICT), rows)


def _amount_hash(key: PseudonymKey, outcome: Outcome) -> bytes:
    units = "withdrawn" if outcome.amount is None else round(outcome.amount)
    return key.keyed_hash("outcome", outcome.person.hex(), outcome.year, units)


def _conflict(outcome: Outcome) -> Problem:
    return Problem(
        "outcome-conflict",
        "Another amount is known for this year",
        "The first amount stays; a correction replaces it",
        "earnings",
        outcome.person_id,
        outcome.year,
    )


def _limit(outcome: Outcome) -> Problem:
    return Problem(
        "outcome-limit",
        f"The known amount of this year was contradicted {MAX_CONFLICTS} times",
        "Leave this outcome out, or correct it with POST /v1/outcomes/corrections",
        "earnings",
        outcome.person_id,
        outcome.year,
    )
