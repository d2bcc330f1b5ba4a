"""Parts of the ledger: what one holder enters is nothing to another, and the common part is to all.

With its corrections: the state after them is that of the corrected outcomes, and of the log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saga.calibration.adaptive.adaptive_state import AdaptiveState
from saga.calibration.adaptive.database import LedgerError
from saga.calibration.adaptive.issued_intervals import IssuedIntervals
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.ledger_tables import IssuedIntervalRow, SettlementRow
from saga.calibration.adaptive.outcome_entries import (
    MAX_AMOUNT,
    MAX_CONFLICTS,
    ConflictLimitError,
    CorrectionReport,
    SettlementReport,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from saga.calibration.adaptive.tenancy import Actor
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from saga.errors import InputError
from tests.calibration.adaptive.ledgers import (
    BUNDLE,
    HORIZONS,
    ORIGIN,
    PERSONS,
    make_intervals,
    make_outcomes,
)
from tests.calibration.adaptive.test_ledger import connect, current_state
from tests.postgresql_server import database_of

KEY = PseudonymKey(b"k" * 32)
N = PERSONS * HORIZONS


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """The common part of an empty ledger."""
    with database_of(request.param, tmp_path) as url:
        opened = Ledger(url, KEY)
        yield opened
        opened.close()


def part_of(ledger: Ledger, holder: str) -> Ledger:
    return ledger.acting_as(Actor(holder, f"{holder}-key", "call"))


def state_of(folder: Path, *parts: tuple[list[tuple[str, int, float]], str]) -> AdaptiveState:
    """The state of a new ledger after one delivery of outcomes, recorded for these persons."""
    fresh = Ledger(f"sqlite:///{folder / 'fresh.sqlite'}", KEY)
    for outcomes, prefix in parts:
        fresh.record(BUNDLE, named(prefix))
        fresh.settle([(f"{prefix}{person}", year, amount) for person, year, amount in outcomes])
    state = current_state(fresh)
    fresh.close()
    return state


def named(prefix: str) -> IssuedIntervals:
    issued = make_intervals()
    names = np.array([f"{prefix}{person}" for person in issued.person_id])
    return replace(issued, person_id=names)


def test_another_holder_learns_nothing_by_any_number_of_guesses(ledger: Ledger) -> None:
    """The answers and the ledger of B are the same with and without the outcomes of A."""
    a, b = part_of(ledger, "a"), part_of(ledger, "b")
    outcomes = make_outcomes()
    guesses = [(p, year, amount + step) for p, year, amount in outcomes for step in (0.0, 1e3)]

    def ask() -> list[object]:
        return [
            b.settle(guesses, max_conflicts=MAX_CONFLICTS),
            b.correct(outcomes[:5], "mistake"),
            b.counts(BUNDLE),
            b.state(BUNDLE),
            b.with_issued_intervals(["P1", "P2"]),
            b.first_outcome_year(),
            b.delivered_until(BUNDLE),
        ]

    before = ask()
    a.record(BUNDLE, make_intervals())
    a.settle(outcomes)
    a.mark_delivered(BUNDLE, ORIGIN)
    assert ask() == before
    assert before[0] == SettlementReport(unmatched=2 * N)
    assert before[1] == CorrectionReport(unmatched=5)
    assert b.record(BUNDLE, make_intervals()) == RecordCounts(new=N), "not late, not repeated"
    assert b.settle([("P1", 2016, 1.0)]).new == 1
    assert a.settle(outcomes) == SettlementReport(duplicate=N), "and A keeps what it sent"
    with connect(ledger) as connection:
        persons = connection.scalar(select(func.count(IssuedIntervalRow.person.distinct())))
    assert persons == 2 * PERSONS, "the same person has another pseudonym for each holder"


def test_a_holder_follows_the_common_outcomes_and_its_own(ledger: Ledger, tmp_path: Path) -> None:
    common, own = make_outcomes(seed=1), make_outcomes(seed=2)
    a, b = part_of(ledger, "a"), part_of(ledger, "b")
    ledger.record(BUNDLE, make_intervals())
    ledger.settle(common[:20])
    assert a.state(BUNDLE) == ledger.state(BUNDLE), "before it has entries of its own"
    a.record(BUNDLE, make_intervals())
    b.record(BUNDLE, make_intervals())
    assert current_state(a) == current_state(ledger)
    states = []
    for step in range(4):
        a.settle(own[30 * step : 30 * step + 30])
        states.append(current_state(a))
        ledger.settle(common[20 + 25 * step : 45 + 25 * step])
        states.append(current_state(a))
    assert b.state(BUNDLE) == ledger.state(BUNDLE), "what A sends moves nothing of B"
    assert [state.version for state in states] == sorted({state.version for state in states})
    for state in states:
        assert a.replay(BUNDLE, state.version) == state
    for part in (a, b, ledger):
        assert part.replay(BUNDLE) == part.state(BUNDLE)
    pooled = state_of(tmp_path, (common, "common-"), (own, "own-"))
    assert current_state(a).cells == pooled.cells
    versions = ledger.versions(BUNDLE)
    assert versions == {
        name: current_state(p).version for name, p in zip("ab", (a, b), strict=True)
    } | {"common": current_state(ledger).version}


def test_contradictions_are_answered_a_few_times_only(ledger: Ledger) -> None:
    """After five amounts even the known one gives the error, so that it does not stand out."""
    ledger.record(BUNDLE, make_intervals())
    (person, year, amount), other = make_outcomes()[:2]
    ledger.settle([(person, year, amount)])

    def guess(*amounts: float) -> SettlementReport:
        rows = [(person, year, amount) for amount in amounts]
        return ledger.settle(rows, max_conflicts=MAX_CONFLICTS)

    with pytest.raises(ConflictLimitError) as caught:
        guess(*(amount + 1_000 * step for step in range(50)))
    assert {(p.person_id, p.year) for p in caught.value.problems} == {(person, year)}
    for again in (amount, amount + 1_000, amount + 99_000):
        with pytest.raises(ConflictLimitError):
            guess(again)
    with pytest.raises(ConflictLimitError):
        ledger.settle([other, (person, year, amount)], max_conflicts=MAX_CONFLICTS)
    assert ledger.settle([other]).new == 1, "nothing of the refused call was entered"
    ledger.correct([(person, year, amount)], "mistake")
    assert guess(amount).duplicate == 1
    for step in range(1, 4):
        assert guess(amount + 1_000).conflicting == 1, "the same amount again is no new guess"
        assert guess(amount + 1_000 * step).conflicting == 1
    assert ledger.settle([(person, year, amount + 7_000 + s) for s in range(9)]).conflicting == 9, (
        "the commands have no limit"
    )


@pytest.mark.parametrize("amount", [1.7e308, float("inf"), float("nan"), -1.0, MAX_AMOUNT * 1.01])
def test_an_absurd_amount_is_refused_by_person_and_year(ledger: Ledger, amount: float) -> None:
    ledger.record(BUNDLE, make_intervals())
    outcomes = make_outcomes()[:3]
    for enter in (ledger.settle, lambda rows: ledger.correct(rows, "mistake")):
        with pytest.raises(InputError, match="P1") as caught:
            enter([*outcomes, ("P1", 2017, amount)])
        assert "1.7e" not in str(caught.value)
    assert ledger.counts(BUNDLE)["settled"] == 0


def test_corrections_give_the_state_of_the_corrected_outcomes_and_of_the_log(
    ledger: Ledger, tmp_path: Path
) -> None:
    """In any order and in parts; every version can be replayed, and the log keeps all entries."""
    wrong, right = make_outcomes(seed=1), make_outcomes(seed=2)
    ledger.record(BUNDLE, make_intervals())
    ledger.settle(wrong)
    states = [current_state(ledger)]
    shuffled = random.Random(1).sample(right, N)
    for start in range(0, N, 31):
        part = shuffled[start : start + 31]
        report = ledger.correct(part, "revised")
        assert report == CorrectionReport(corrected=len(part), rejudged=len(part))
        states.append(current_state(ledger))
    assert current_state(ledger).cells == state_of(tmp_path, (right, "")).cells
    assert current_state(ledger).cells != states[0].cells
    for state in states:
        assert ledger.replay(BUNDLE, state.version) == state
    assert ledger.settle(right) == SettlementReport(duplicate=N)
    assert ledger.counts(BUNDLE) == {"settled": N, "waiting": 0}
    with connect(ledger) as connection:
        assert connection.scalar(select(func.count()).select_from(SettlementRow)) == 3 * N


def test_a_withdrawn_outcome_counts_no_more_and_can_be_sent_anew(
    ledger: Ledger, tmp_path: Path
) -> None:
    outcomes = make_outcomes()
    ledger.record(BUNDLE, make_intervals())
    ledger.settle(outcomes)
    everything = current_state(ledger)
    withdrawn = [(person, year, None) for person, year, _ in outcomes[N // 2 :]]
    report = ledger.correct([*withdrawn, ("nobody", 2016, 1.0)], "not-resident")
    assert report == CorrectionReport(withdrawn=N // 2, unmatched=1, reopened=N // 2)
    assert current_state(ledger).cells == state_of(tmp_path, (outcomes[: N // 2], "")).cells
    assert ledger.replay(BUNDLE) == current_state(ledger)
    assert ledger.counts(BUNDLE) == {"settled": N // 2, "waiting": N // 2}
    assert ledger.settle(outcomes).new == N // 2
    assert current_state(ledger).cells == everything.cells
    assert ledger.replay(BUNDLE) == current_state(ledger)
    ledger.correct([(person, year, None) for person, year, _ in outcomes], "mistake")
    assert current_state(ledger).cells == {}
    assert ledger.replay(BUNDLE) == current_state(ledger)


def test_a_correction_does_not_tell_whether_the_amount_was_known(ledger: Ledger) -> None:
    """Another amount and the same one give the same answer and the same new version."""
    ledger.record(BUNDLE, make_intervals())
    outcomes = make_outcomes()
    ledger.settle(outcomes)
    person, year, amount = outcomes[0]
    reports, versions = [], [ledger.version(BUNDLE) or 0]
    for sent in (amount, amount + 5_000, amount + 5_000):
        reports.append(ledger.correct([(person, year, sent)], "revised"))
        versions.append(ledger.version(BUNDLE) or 0)
    assert reports == [CorrectionReport(corrected=1, rejudged=1)] * 3
    assert np.diff(versions).tolist() == [1, 1, 1]


def test_two_corrections_of_a_person_and_year_contradict_each_other(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="P1"):
        ledger.correct([("P1", 2016, 1.0), ("P1", 2016, 2.0)], "mistake")


def test_the_audit_trail_names_key_call_and_reason_and_cannot_be_changed(ledger: Ledger) -> None:
    a = part_of(ledger, "a")
    a.record(BUNDLE, make_intervals())
    a.settle(make_outcomes())
    a.correct(make_outcomes()[:2], "revised")
    ledger.record(BUNDLE, make_intervals())
    entries = a.audit()
    assert [(entry.action, entry.key, entry.call) for entry in entries] == [
        (action, "a-key", "call") for action in ("record", "settle", "correct")
    ]
    assert entries[2].details == {"corrections": 2, "reason": "revised"}
    assert [(entry.action, entry.key) for entry in ledger.audit()] == [("record", None)]
    with connect(ledger) as connection:
        settled = connection.execute(
            text(
                "SELECT COUNT(*) FROM settlement JOIN audit ON audit.id = audit_id"
                " WHERE action = :a"
            ),
            {"a": "correct"},
        )
        assert settled.scalar_one() == 4, "two entries taken back, two new ones"
    for statement in ("UPDATE audit SET key_name = 'x'", "DELETE FROM audit"):
        with pytest.raises(DBAPIError, match="append-only"), connect(ledger) as connection:
            connection.execute(text(statement))


def test_a_distribution_is_unreadable_after_its_outcome_without_the_key(ledger: Ledger) -> None:
    issued = make_intervals()
    ledger.record(BUNDLE, issued)
    ledger.settle(make_outcomes())
    with connect(ledger) as connection:
        rows = connection.execute(
            select(IssuedIntervalRow.distribution, IssuedIntervalRow.sealed)
        ).all()
    plain = {blob[:64] for blob in issued.marginals}
    assert {row.distribution for row in rows} == {None}
    assert len({row.sealed for row in rows}) == N
    assert not any(start in row.sealed for row in rows for start in plain)
    with pytest.raises(LedgerError):
        PseudonymKey(b"x" * 32).unseal(rows[0].sealed, b"")
