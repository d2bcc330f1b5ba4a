"""Parts of the ledger: what one holder enters is nothing to another, and the common part is to all.

With what the ledger tells: nobody learns amounts from it, and the audit trail names who did what.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saga.calibration.adaptive.adaptive_state import YEAR
from saga.calibration.adaptive.database import LedgerError
from saga.calibration.adaptive.issued_intervals import IssuedInterval
from saga.calibration.adaptive.ledger import Actor, Ledger, RecordCounts
from saga.calibration.adaptive.ledger_tables import AUDIT, COMMON, ISSUED, OUTCOME, TABLES
from saga.calibration.adaptive.outcome_entries import (
    MAX_CONFLICTS,
    ConflictLimitError,
    CorrectionReport,
    SettlementReport,
)
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from saga.errors import InputError
from saga.schema import MAX_AMOUNT
from tests.calibration.adaptive.ledgers import (
    BUNDLE,
    FAMILIES,
    ORIGIN,
    K,
    N,
    Outcomes,
    connect,
    current_state,
    issue,
    make_amounts,
    outcomes_of,
    state_of,
)

ALL_OUTCOMES = outcomes_of(make_amounts())


def part_of(ledger: Ledger, holder: str) -> Ledger:
    return ledger.acting_as(Actor(holder, f"{holder}-key", "call"))


def renamed(prefix: str, outcomes: Outcomes) -> tuple[list[IssuedInterval], Outcomes]:
    issued = [entry for family in FAMILIES for entry in issue(family)]
    return (
        [replace(entry, person_id=prefix + entry.person_id) for entry in issued],
        [(prefix + person, year, amount) for person, year, amount in outcomes],
    )


def test_another_holder_learns_nothing_by_any_number_of_guesses(ledger: Ledger) -> None:
    """The answers and the ledger of B are the same with and without the outcomes of A."""
    a, b = part_of(ledger, "a"), part_of(ledger, "b")
    guesses = [(p, year, amount + step) for p, year, amount in ALL_OUTCOMES for step in (0.0, 1e3)]

    def ask() -> list[object]:
        return [
            b.settle(guesses, max_conflicts=MAX_CONFLICTS),
            b.correct(ALL_OUTCOMES[:5], "mistake"),
            b.counts(BUNDLE),
            b.state(BUNDLE),
            b.with_issued_intervals(["P1", "P2"]),
            b.first_outcome_year(),
            b.delivered_until(BUNDLE),
        ]

    before = ask()
    a.record(BUNDLE, issue(YEAR))
    a.settle(ALL_OUTCOMES)
    a.mark_delivered(BUNDLE, ORIGIN)
    assert ask() == before
    assert before[0] == SettlementReport(unmatched=2 * N * K)
    assert before[1] == CorrectionReport(unmatched=5)
    assert b.record(BUNDLE, issue(YEAR)) == RecordCounts(new=N * K), "not late, not repeated"
    assert b.settle([("P1", 2016, 1.0)]).new == 1
    assert a.settle(ALL_OUTCOMES) == SettlementReport(duplicate=N * K), "and A keeps what it sent"
    with connect(ledger) as connection:
        persons = connection.scalar(select(func.count(ISSUED.c.person.distinct())))
    assert persons == 2 * N, "the same person has another pseudonym for each holder"


def test_a_holder_follows_the_common_outcomes_and_its_own(ledger: Ledger, tmp_path: Path) -> None:
    common, own = ALL_OUTCOMES, outcomes_of(make_amounts(seed=2))
    a, b = part_of(ledger, "a"), part_of(ledger, "b")
    issued, _ = renamed("", [])
    ledger.record(BUNDLE, issued)
    ledger.settle(common[:20])
    assert a.state(BUNDLE) == ledger.state(BUNDLE), "before it has entries of its own"
    a.record(BUNDLE, issued)
    b.record(BUNDLE, issued)
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
    pooled = state_of(tmp_path, renamed("common-", common), renamed("own-", own))
    assert current_state(a).cells == pooled.cells
    parts = {"a": a, "b": b, "common": ledger}
    expected = {name: current_state(part).version for name, part in parts.items()}
    assert ledger.versions(BUNDLE) == expected


def test_contradictions_are_answered_a_few_times_only(ledger: Ledger) -> None:
    """After five amounts even the known one gives the error, so that it does not stand out."""
    ledger.record(BUNDLE, issue(YEAR))
    (person, year, amount), other = ALL_OUTCOMES[:2]
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
    ledger.record(BUNDLE, issue(YEAR))
    for enter in (ledger.settle, lambda rows: ledger.correct(rows, "mistake")):
        with pytest.raises(InputError, match="P1") as caught:
            enter([*ALL_OUTCOMES[:1], ("P1", 2017, amount)])
        assert "1.7e" not in str(caught.value)
    with pytest.raises(InputError, match="P1"):
        ledger.correct([("P1", 2016, 1.0), ("P1", 2016, 2.0)], "mistake")
    assert ledger.counts(BUNDLE)["settled"] == 0


def test_a_correction_does_not_tell_whether_the_amount_was_known(ledger: Ledger) -> None:
    """Another amount and the same one give the same answer and the same new version."""
    ledger.record(BUNDLE, issue(YEAR))
    ledger.settle(ALL_OUTCOMES)
    person, year, amount = ALL_OUTCOMES[0]
    reports, versions = [], [ledger.versions(BUNDLE)[COMMON]]
    for sent in (amount, amount + 5_000, amount + 5_000):
        reports.append(ledger.correct([(person, year, sent)], "revised"))
        versions.append(ledger.versions(BUNDLE)[COMMON])
    assert reports == [CorrectionReport(corrected=1, rejudged=1)] * 3
    assert np.diff(versions).tolist() == [1, 1, 1]


def test_the_audit_trail_names_key_call_and_reason(ledger: Ledger) -> None:
    a = part_of(ledger, "a")
    a.record(BUNDLE, issue(YEAR))
    a.settle(ALL_OUTCOMES)
    a.correct(ALL_OUTCOMES[:2], "revised")
    ledger.record(BUNDLE, issue(YEAR))
    query = "SELECT COUNT(*) FROM settlement JOIN audit ON audit.id = audit_id WHERE action = :a"
    with connect(ledger) as connection:
        entries = connection.execute(select(AUDIT).order_by(AUDIT.c.id)).all()
        settled = connection.execute(text(query), {"a": "correct"}).scalar_one()
    assert [(entry.holder, entry.action, entry.key_name, entry.call) for entry in entries] == [
        *(("a", action, "a-key", "call") for action in ("record", "settle", "correct")),
        ("common", "record", None, None),
    ]
    assert entries[2].details == {"corrections": 2, "reason": "revised"}
    assert settled == 4, "two entries taken back, two new ones"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE settlement SET sign = 0",
        "DELETE FROM settlement",
        "UPDATE audit SET key_name = 'x'",
        "DELETE FROM audit",
    ],
)
def test_the_log_and_the_audit_trail_cannot_be_changed(ledger: Ledger, change: str) -> None:
    ledger.record(BUNDLE, issue(YEAR))
    ledger.settle(ALL_OUTCOMES)
    with pytest.raises(DBAPIError, match="append-only"), connect(ledger) as connection:
        connection.execute(text(change))


def test_no_person_amount_or_distribution_can_be_read_without_the_key(ledger: Ledger) -> None:
    issued, outcomes = renamed("SENTINEL-", ALL_OUTCOMES)
    ledger.record(BUNDLE, issued)
    ledger.settle([(person, year, 271_828.0) for person, year, _ in outcomes])
    with connect(ledger) as connection:
        tables = {
            table.name: connection.execute(select(table)).all() for table in TABLES.sorted_tables
        }
    assert "SENTINEL" not in repr(tables)
    assert "271828" not in repr(tables)
    assert len({row.amount for row in tables[OUTCOME.name]}) == len(outcomes)
    plain = [entry.distribution[:64] for entry in issued]
    sealed = [row.distribution for row in tables[ISSUED.name]]
    assert len(set(sealed)) == len(issued)
    assert not any(start in b"".join(sealed) for start in plain)
    with pytest.raises(LedgerError):
        PseudonymKey(b"x" * 32).unseal(sealed[0], tables[ISSUED.name][0].person)
