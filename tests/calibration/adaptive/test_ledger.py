"""The ledger: every family has the state of its log, in any order and after any crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saga.calibration.adaptive.adaptive_state import (
    BAND,
    PRESENT_VALUE,
    SPAN_KINDS,
    YEAR,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.database import LedgerError
from saga.calibration.adaptive.issued_intervals import cells_of_text
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.ledger_tables import COMMON, ISSUED, SETTLEMENT, unpack_numbers
from saga.calibration.adaptive.marginal_moves import LEVELS, adapt, unmoved
from saga.calibration.adaptive.outcome_entries import CorrectionReport, SettlementReport
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from sqlalchemy import Connection, MetaData, func, select, text
from sqlalchemy.schema import CreateTable

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import FAMILIES as SETS
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import probability_of_less
from saga.conformal.published_sets import band_intervals, value_intervals
from saga.conformal.recalibration import map_paths
from saga.errors import UsageError
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE
from tests.calibration.adaptive.ledgers import (
    BUNDLE,
    FAMILIES,
    KEY,
    ORIGIN,
    K,
    N,
    Outcomes,
    connect,
    current_state,
    issue,
    make_amounts,
    make_calibrator,
    make_paths,
    marginals_of,
    outcomes_of,
    start_settling,
    state_of,
)

MANY = 400  # persons of the tests of coverage
ON_BOTH = pytest.mark.parametrize(
    "url",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)],
    indirect=True,
)


def in_parts(outcomes: Outcomes, size: int) -> Iterator[Outcomes]:
    shuffled = random.Random(3).sample(outcomes, len(outcomes))
    return (shuffled[start : start + size] for start in range(0, len(shuffled), size))


def shuffled_in_parts(ledger: Ledger, outcomes: Outcomes) -> Iterator[object]:
    for part in in_parts(outcomes, 17):
        yield ledger.settle(part)


def repeated(ledger: Ledger, outcomes: Outcomes) -> Iterator[object]:
    yield ledger.settle(outcomes[:50] + outcomes[:10])
    yield ledger.settle(outcomes[20:90])
    yield ledger.settle(outcomes)


def corrected(ledger: Ledger, outcomes: Outcomes) -> Iterator[object]:
    yield ledger.settle([(person, year, amount + 50_000) for person, year, amount in outcomes])
    for part in in_parts(outcomes, 31):
        yield ledger.correct(part, "revised")


def withdrawn(ledger: Ledger, outcomes: Outcomes) -> Iterator[object]:
    yield ledger.settle(outcomes[:70])
    yield ledger.correct([(person, year, None) for person, year, _ in outcomes[::2]], "mistake")
    yield ledger.settle(outcomes)


@pytest.mark.parametrize("move", [shuffled_in_parts, repeated, corrected, withdrawn])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_way_to_the_same_outcomes_gives_one_state_and_the_log_every_version(
    ledger: Ledger,
    family: str,
    move: Callable[[Ledger, Outcomes], Iterator[object]],
    tmp_path: Path,
) -> None:
    """Settled in any order and parts, repeated, corrected or withdrawn; replay is bit for bit."""
    outcomes = outcomes_of(make_amounts())
    ledger.record(BUNDLE, issue(family))
    states = [current_state(ledger) for _ in move(ledger, outcomes)]
    assert states[-1].cells == state_of(tmp_path, (issue(family), outcomes)).cells
    assert states[-1].cells
    for state in states:
        replayed = ledger.replay(BUNDLE, state.version)
        assert replayed == state
        assert replayed.digest == state.digest
    assert ledger.settle(outcomes) == SettlementReport(duplicate=len(outcomes))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_outcome_is_matched_with_what_waits_for_it(ledger: Ledger, family: str) -> None:
    """Spans wait for the last of their years; what is about a known year is refused."""
    outcomes, spans = outcomes_of(make_amounts()), family != YEAR
    issued = issue(family)
    assert ledger.record(BUNDLE, issued) == RecordCounts(new=len(issued))
    assert ledger.record(BUNDLE, issue(family, make_paths(seed=5))) == RecordCounts(
        repeated=len(issued)
    ), "the first intervals stay"
    ledger.record("b" * 64, issued)
    unmatched = [("nobody", 2016, 1.0), ("P1", ORIGIN + K + 1, 1.0)]
    first = ledger.settle([*outcomes[: 2 * N], *unmatched])
    expected = SettlementReport(2 * N, unmatched=2, settled_intervals=0 if spans else 4 * N)
    assert first == expected
    later = [replace(entry, origin_year=ORIGIN + 1) for entry in issued]
    # The outcomes of 2017 are known: a span needs them, and so does the first of three years.
    assert ledger.record(BUNDLE, later) == RecordCounts(new=len(issued) - N, late=N)
    last = ledger.settle(outcomes[2 * N :])
    assert (last.settled_spans, last.settled_intervals) == ((2 * N, 0) if spans else (0, 3 * N))
    assert current_state(ledger).through == ORIGIN + K
    assert ledger.counts(BUNDLE) == {"settled": 0 if spans else 4 * N, "waiting": 0 if spans else N}
    assert ledger.replay("c" * 64) is ledger.state("c" * 64) is None


@ON_BOTH
def test_a_contradiction_is_named_without_amounts_and_changes_nothing(ledger: Ledger) -> None:
    ledger.record(BUNDLE, issue(YEAR))
    outcomes = outcomes_of(make_amounts())
    ledger.settle(outcomes)
    before = current_state(ledger)
    person_id, year, amount = outcomes[7]
    report = ledger.settle([(person_id, year, amount + 4_321)])
    assert replace(report, problems=()) == SettlementReport(conflicting=1)
    (problem,) = report.problems
    assert (problem.person_id, problem.year, problem.rule) == (person_id, year, "outcome-conflict")
    assert str(round(amount)) not in str(problem)
    assert str(round(amount + 4_321)) not in str(problem)
    assert current_state(ledger) == before


def test_corrections_report_what_was_judged_again_and_what_waits(ledger: Ledger) -> None:
    outcomes = outcomes_of(make_amounts())
    ledger.record(BUNDLE, issue(YEAR))
    ledger.settle(outcomes)
    revised = [(person, year, amount + 1) for person, year, amount in outcomes[:31]]
    assert ledger.correct(revised, "revised") == CorrectionReport(corrected=31, rejudged=31)
    gone = [("nobody", 2016, 1.0), *((person, year, None) for person, year, _ in outcomes[60:])]
    n_gone = len(outcomes) - 60
    report = ledger.correct(gone, "not-resident")
    assert report == CorrectionReport(withdrawn=n_gone, unmatched=1, reopened=n_gone)
    assert ledger.counts(BUNDLE) == {"settled": 60, "waiting": n_gone}
    ledger.correct([(person, year, None) for person, year, _ in outcomes], "mistake")
    assert current_state(ledger).cells == {}
    with connect(ledger) as connection:
        entries = connection.scalar(select(func.count()).select_from(SETTLEMENT))
    assert entries == len(outcomes) + 2 * 31 + n_gone + 60, "the log keeps everything"


def test_what_is_counted_is_what_the_published_sets_contain(ledger: Ledger) -> None:
    """The ledger's coverage is that of the limits, bands and intervals that a reader sees."""
    paths, split, amounts = make_paths(MANY), make_calibrator(), make_amounts(MANY)
    for family in FAMILIES:
        ledger.record(BUNDLE, issue(family, paths))
    report = ledger.settle(outcomes_of(amounts))
    assert (report.settled_intervals, report.settled_spans) == (MANY * K, 2 * MANY)
    marginals = split.recalibrate(marginals_of(paths))
    state = current_state(ledger)
    for level in (0.75, 0.9, 0.975):  # above all probabilities of zero
        above = (amounts[:, 0] > marginals.quantiles(np.array([level]))[:, 0, 0]).mean()
        cell = state.cells[ALL, 1, level]
        assert cell.persons == MANY
        assert cell.missed / MANY == pytest.approx(above, abs=0.01)
    bands = band_intervals(split, marginals, K, COVERAGE[:3]).covered(amounts)
    sets = value_intervals(split, values_of(paths, split), np.full(MANY, K), COVERAGE[:3], 0.02)
    realised = realised_value(amounts)[:, None]
    inside = (sets.lower <= realised) & (realised <= sets.upper)
    expected = {BAND: (bands == 1).all(axis=1).mean(axis=0), PRESENT_VALUE: inside.mean(axis=0)}
    rows = {row.kind: row for row in ledger.span_coverage(BUNDLE)}
    for kind, row in rows.items():
        assert (row.years, row.year, row.persons, row.inside[3]) == (K, ORIGIN + K, MANY, None)
        assert np.array(row.inside[:3], dtype=float) == pytest.approx(expected[kind], abs=0.01)
        q, moved_q = (
            c.thresholds_of_kind[kind, K].thresholds[0.9] for c in (split, adapt(split, state))
        )
        assert q is not None
        assert moved_q == pytest.approx(min(q + state.offset(kind, K, 0.9), 0.999))
    assert set(rows) == set(SPAN_KINDS)


def values_of(paths: Paths, calibrator: Calibrator) -> SimulatedValues:
    mapped = map_paths(paths, calibrator.recalibrate(marginals_of(paths)))
    return SimulatedValues.of(mapped, lambda p: present_value(p, years=K))


def published_scores(
    kind: str, paths: Paths, calibrator: Calibrator, amounts: np.ndarray
) -> np.ndarray:
    """Scores (n, L) by the product's own recalibration, bands and present values."""
    marginals = calibrator.recalibrate(marginals_of(paths))
    sets = calibrator.band if kind == BAND else SETS[kind]
    forecasts = marginals if kind == BAND else map_paths(paths, marginals)
    of_shares = [sets.joined(sets.scores(forecasts, amounts, share)) for share in COVERAGE]
    return np.stack([scores[:, K - 1] for scores in of_shares], axis=1)


def moved_ledger(ledger: Ledger, kind: str, paths: Paths) -> tuple[np.ndarray, Outcomes]:
    """Single years and spans whose outcomes have moved the forecasts.

    Persons keep their rank in all years, as in comonotone paths: present values then move by the
    mean of the moves.
    """
    rng = np.random.default_rng(1)
    person_effect = rng.normal(0.3, 0.4, (MANY, 1))
    amounts = np.exp(12.0 + person_effect + rng.normal(0, 0.02, (MANY, K)))
    for family in (YEAR, kind):
        ledger.record(BUNDLE, issue(family, paths))
    ledger.settle(outcomes_of(amounts))
    return amounts, outcomes_of(amounts, ORIGIN + K)


@pytest.mark.parametrize("kind", SPAN_KINDS)
def test_experts_of_spans_see_scores_under_the_moves_in_force(ledger: Ledger, kind: str) -> None:
    """What today's forecasts would have contained.

    Single years correct the drift, so experts of spans must not correct it again: their last year
    needs the offset of the moved forecasts, not that of the published ones.
    """
    paths, split = make_paths(MANY).comonotone(), make_calibrator()
    amounts, _ = moved_ledger(ledger, kind, paths)
    state = current_state(ledger)
    base = np.tile([0.6, 0.85, 0.93, np.nan], (MANY, 1))
    published, in_force = (
        ExcessCounts.of(published_scores(kind, paths, calibrator, amounts), base, base)
        for calibrator in (split, adapt(split, state))
    )
    seen = ExcessCounts(in_force.counts, published.missed)
    known, rescored = (compute_states(COVERAGE, {(K, ORIGIN + K): c}) for c in (published, seen))
    for share in COVERAGE[:3]:
        cell, expected = state.cells[kind, K, share], rescored[K, share]
        assert cell.missed == expected.missed
        assert cell.integral == expected.integral
        # Distributions are stored as float32, and ranks of 60 paths are steps of 1/60.
        assert cell.offset == pytest.approx(expected.offset, abs=1e-3)
    assert state.cells[kind, K, 0.9].offset < known[K, 0.9].offset - 0.003, "far beyond that"


@pytest.mark.parametrize("kind", SPAN_KINDS)
def test_spans_after_moves_are_judged_by_the_ranks_before_them(ledger: Ledger, kind: str) -> None:
    """The log keeps published ranks, and the row the moves, which give those of the bundle."""
    split = make_calibrator()
    amounts, later_outcomes = moved_ledger(ledger, kind, make_paths(MANY).comonotone())
    later = make_paths(MANY, ORIGIN + K, seed=5).comonotone()
    ledger.record(BUNDLE, issue(kind, later, current_state(ledger)))
    ledger.settle(later_outcomes[::-1])
    query = select(ISSUED, SETTLEMENT.c.ranks).join(SETTLEMENT)
    with connect(ledger) as connection:
        rows = connection.execute(query.where(ISSUED.c.origin_year > ORIGIN)).all()
    by_person = {row.person: row for row in rows}
    entries = [by_person[ledger._pseudonym(f"P{i}")] for i in range(MANY)]
    assert {len(cells_of_text(row.cells)) for row in entries} == {K}
    levels = [unpack_numbers(row.in_force, -1, len(LEVELS)) for row in entries]
    assert min(np.abs(of_row - LEVELS).max() for of_row in levels) > 0.05, (
        "the drift has moved them"
    )
    ranks = [unpack_numbers(row.ranks, 1, -1, 2) for row in entries]
    pairs = zip(ranks, levels, strict=True)
    before = np.concatenate([unmoved(of_row, moves) for of_row, moves in pairs])[..., 0]
    expected = (
        probability_of_less(split.recalibrate(marginals_of(later)), amounts)
        if kind == BAND
        else probability_of_less(
            values_of(later, split).distribution, realised_value(amounts)[:, None]
        )
    )
    # Ranks of 60 paths are steps of 1/60, and knots of a move lie between them.
    assert np.abs(before - expected).mean() < 0.01
    assert np.abs(np.concatenate(ranks)[..., 0] - expected).mean() > 0.05, "far beyond the steps"
    ledger.correct([(person, year, None) for person, year, _ in later_outcomes[:40]], "mistake")
    ledger.settle(later_outcomes)
    current_state(ledger)


def test_only_finished_deliveries_count_as_delivered(ledger: Ledger) -> None:
    ledger.record(BUNDLE, issue(YEAR))
    assert ledger.delivered_until(BUNDLE) is None
    for year, last in ((ORIGIN, ORIGIN), (ORIGIN + 2, ORIGIN + 2), (ORIGIN + 1, ORIGIN + 2)):
        ledger.mark_delivered(BUNDLE, year)
        assert ledger.delivered_until(BUNDLE) == last
    assert ledger.delivered_until("b" * 64) is None


def test_a_ledger_of_a_newer_version_is_refused_and_unchanged(ledger: Ledger, url: str) -> None:
    ledger.record(BUNDLE, issue(YEAR))
    with connect(ledger) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
        before = contents(connection)
    with pytest.raises(LedgerError, match="written by a newer version of SAGA"):
        Ledger(url, KEY)
    with connect(ledger) as connection:
        assert contents(connection) == before


def contents(connection: Connection) -> dict[str, list[str]]:
    """The definition and the rows of every table, as they are in the database."""
    tables = MetaData()
    tables.reflect(connection)
    return {
        str(CreateTable(table)): sorted(map(repr, connection.execute(select(table))))
        for table in tables.sorted_tables
    }


def test_another_key_is_refused_and_a_failing_database_is_a_ledger_error(
    url: str, ledger: Ledger
) -> None:
    with pytest.raises(UsageError, match="another key"):
        Ledger(url, PseudonymKey(b"x" * 32))
    with connect(ledger) as connection:
        connection.execute(text("DROP TABLE outcome"))
    with pytest.raises(LedgerError) as caught:
        ledger.settle(outcomes_of(make_amounts()))
    assert "P1" not in str(caught.value)


@pytest.mark.parametrize(
    ("unusable_url", "error"),
    [
        ("", UsageError),
        ("sqlite://", UsageError),
        ("sqlite:///:memory:", UsageError),
        ("mysql://u:SENTINEL@h/d", UsageError),
        ("file.sqlite", UsageError),
        ("postgresql://u:SENTINEL@127.0.0.1:1/d", LedgerError),
    ],
)
def test_an_unusable_database_is_refused_without_repeating_its_password(
    unusable_url: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        Ledger(unusable_url, KEY)
    assert "SENTINEL" not in str(caught.value)


def test_the_key_file_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = PseudonymKey.read(tmp_path / "key", create=True)
    assert PseudonymKey.read(tmp_path / "key", create=True) == first
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert first.key.hex() not in repr(first)
    with pytest.raises(UsageError, match="cannot be read"):
        PseudonymKey.read(tmp_path / "other", create=False)
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(UsageError, match="too short"):
        PseudonymKey.read(tmp_path / "short", create=True)


def record_everything(ledger: Ledger) -> None:
    for family in FAMILIES:
        ledger.record(BUNDLE, issue(family))


def state_of_everything(folder: Path) -> object:
    issued = [entry for family in FAMILIES for entry in issue(family)]
    return state_of(folder, (issued, outcomes_of(make_amounts()))).cells


@pytest.mark.thorough
def test_two_processes_lose_nothing_and_count_nothing_twice(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    """Each settles one outcome per call, and both send some of the outcomes."""
    record_everything(ledger)
    both = [start_settling(url, tmp_path, parts) for parts in ("0123456", "3456789")]
    assert [process.wait(120) for process in both] == [0, 0]
    assert ledger.versions(BUNDLE) == {COMMON: N * K}, "one transaction an outcome"
    with connect(ledger) as connection:
        assert connection.scalar(select(func.count()).select_from(SETTLEMENT)) == N * K + 2 * N
    assert current_state(ledger).cells == state_of_everything(tmp_path)


@ON_BOTH
def test_concurrent_first_openings_create_the_tables_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for opened in pool.map(lambda _: Ledger(url, KEY), range(4)):
            opened.close()
