"""Path bands and present values in the ledger: judged when their last outcome is known.

The store is that of single years: one state, one log for each kind, replay bit for bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from saga.calibration.adaptive.adaptive_state import (
    BAND,
    PRESENT_VALUE,
    AdaptiveState,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.issuance import INITIAL_STATE
from saga.calibration.adaptive.issued_intervals import collect_intervals
from saga.calibration.adaptive.issued_spans import (
    IssuedSpans,
    cells_of_text,
    collect_bands,
    collect_values,
    unmoved,
)
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.marginal_moves import LEVELS, adapt
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from sqlalchemy import text

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import FAMILIES
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import KindThresholds, probability_of_less
from saga.conformal.published_sets import band_intervals, value_intervals
from saga.conformal.recalibration import Cell, map_paths
from saga.distributions import Marginals
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE
from tests.calibration.adaptive.test_ledger import connect
from tests.postgresql_server import database_of

BUNDLE, N, K, ORIGIN = "a" * 64, 400, 3, 2015
Outcomes = list[tuple[str, int, float]]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database_of(request.param, tmp_path) as database_url:
        yield database_url


def make_calibrator() -> Calibrator:
    """Thresholds and stretched band scales of K years."""
    thresholds = KindThresholds({0.5: 0.6, 0.8: 0.85, 0.9: 0.93, 0.95: None}, 1_000, 60)
    half = np.array([0.0, 0.5, 1.0])
    scales = {h: (half, np.array([0.0, 0.5 + 0.05 * h, 1.0])) for h in (1, 2, 3)}
    kinds = {(kind, K): thresholds for kind in (BAND, PRESENT_VALUE)}
    own = Cell(np.empty(0), np.empty(0), 0, {share: share for share in COVERAGE}, 1_000)
    cells = {(h, ALL): own for h in (1, 2, 3)}
    return Calibrator(cells, thresholds_of_kind=kinds, band_scales=scales)


def make_paths(seed: int = 0) -> Paths:
    rng = np.random.default_rng(seed)
    earnings = np.exp(rng.normal(12.0, 0.4, (N, K, 60)))
    earnings[::5, :, :30] = 0.0
    names = np.array([f"P{i}" for i in range(N)])
    years = np.full(N, ORIGIN)
    return Paths(names, years - 40, years, earnings.astype(np.float32), recalibrated=True)


def make_marginals(paths: Paths) -> Marginals:
    sampled = Marginals.from_samples(paths.earnings, recalibrated=True)
    return replace(
        sampled,
        person_id=paths.person_id,
        birth_year=paths.birth_year,
        origin_year=paths.origin_year,
    )


def make_outcomes(seed: int = 1, drift: float = 0.3) -> tuple[np.ndarray, Outcomes]:
    rng = np.random.default_rng(seed)
    amounts = np.where(rng.random((N, K)) < 0.1, 0.0, np.exp(rng.normal(12.0 + drift, 0.4, (N, K))))
    rows = product(range(N), range(K))
    return amounts, [(f"P{i}", ORIGIN + 1 + h, float(amounts[i, h])) for i, h in rows]


def make_spans() -> tuple[IssuedSpans, IssuedSpans]:
    paths, split = make_paths(), make_calibrator()
    bands = collect_bands(make_marginals(paths), split, INITIAL_STATE, K)
    return bands, collect_values(paths, split, INITIAL_STATE, K)


def issue(ledger: Ledger) -> None:
    for spans in make_spans():
        assert ledger.record(BUNDLE, spans) == RecordCounts(new=N)


def states(ledger: Ledger) -> tuple[AdaptiveState | None, AdaptiveState | None]:
    return ledger.state(BUNDLE), ledger.replay(BUNDLE)


def test_what_is_counted_is_what_the_published_sets_contain(url: str) -> None:
    """The ledger's coverage is that of the bands and intervals that a reader sees."""
    ledger = Ledger(url, PseudonymKey(b"k" * 32))
    issue(ledger)
    amounts, outcomes = make_outcomes()
    report = ledger.settle(outcomes)
    assert (report.new, report.settled_spans, report.settled_intervals) == (N * K, 2 * N, 0)
    paths, split = make_paths(), make_calibrator()
    bands = band_intervals(split, make_marginals(paths), K, COVERAGE[:3]).covered(amounts)
    values = SimulatedValues.of(paths, lambda p: present_value(p, years=K))
    sets = value_intervals(split, values, np.full(N, K), COVERAGE[:3], 0.02)
    realised = realised_value(amounts)[:, None]
    inside = (sets.lower <= realised) & (realised <= sets.upper)
    expected = {
        BAND: (bands == 1).all(axis=1).mean(axis=0),
        PRESENT_VALUE: inside.mean(axis=0),
    }
    for row in ledger.span_coverage(BUNDLE):
        assert (row.years, row.year, row.persons, row.inside[3]) == (K, ORIGIN + K, N, None)
        assert np.array(row.inside[:3], dtype=float) == pytest.approx(expected[row.kind], abs=0.01)
    state, replayed = states(ledger)
    assert state == replayed
    assert state is not None
    assert min(state.offset(kind, K, 0.9) for kind in (BAND, PRESENT_VALUE)) > 0.01
    moved = adapt(split, state)
    for kind in (BAND, PRESENT_VALUE):
        q, moved_q = (c.thresholds_of_kind[kind, K].thresholds[0.9] for c in (split, moved))
        assert q is not None
        assert moved_q == pytest.approx(min(q + state.offset(kind, K, 0.9), 0.999))
    ledger.close()


def test_order_parts_and_corrections_give_the_same_state(url: str, tmp_path: Path) -> None:
    """By years or persons, repeated, corrected and withdrawn: the counts are those of the end."""
    _, outcomes = make_outcomes()
    once = Ledger(f"sqlite:///{tmp_path / 'once.sqlite'}", PseudonymKey(b"other" * 8))
    ledger = Ledger(url, PseudonymKey(b"k" * 32))
    for opened in (once, ledger):
        issue(opened)
    once.settle(outcomes)
    wrong = [(person, year, amount + 50_000) for person, year, amount in outcomes[:30]]
    ledger.settle(wrong)
    assert ledger.settle(outcomes[30:]).settled_spans == 2 * (N - 10)
    ledger.settle(outcomes[40:90])
    ledger.correct([(p, y, None) for p, y, _ in outcomes[:30:3]], "mistake")
    assert states(ledger)[0] == states(ledger)[1]
    ledger.correct(outcomes[1:30:3], "revised")
    ledger.correct(outcomes[2:30:3], "revised")
    ledger.settle(outcomes)
    state, replayed = states(ledger)
    expected = once.state(BUNDLE)
    assert state is not None
    assert expected is not None
    assert state == replayed
    assert state.cells == expected.cells
    middle = ledger.replay(BUNDLE, state.version - 1)
    assert middle is not None
    assert middle.version == state.version - 1
    late = make_spans()[0]
    assert ledger.record(BUNDLE, late) == RecordCounts(repeated=N)
    later = replace(late, origin_year=late.origin_year + 1)
    assert ledger.record(BUNDLE, later) == RecordCounts(late=N), "two of three years known"
    for opened in (once, ledger):
        opened.close()


def record_years_and_bands(ledger: Ledger) -> None:
    """Single years of K years and bands of all of them, under the bundle's calibrator."""
    marginals, split = make_marginals(make_paths()), make_calibrator()
    ledger.record(BUNDLE, collect_intervals(marginals, split, range(1, K + 1), INITIAL_STATE))
    ledger.record(BUNDLE, collect_bands(marginals, split, INITIAL_STATE, K))


def moved_ledger(url: str) -> tuple[Ledger, AdaptiveState, np.ndarray, Outcomes]:
    """A ledger whose outcomes have moved the forecasts; its state, the amounts and outcomes."""
    ledger = Ledger(url, PseudonymKey(b"k" * 32))
    record_years_and_bands(ledger)
    amounts, outcomes = make_outcomes()
    ledger.settle(outcomes)
    state = ledger.state(BUNDLE)
    assert state is not None
    return ledger, state, amounts, outcomes


def years_later(paths: Paths) -> Paths:
    """The same paths from an origin K years later, of persons of the same age."""
    return replace(paths, origin_year=paths.origin_year + K, birth_year=paths.birth_year + K)


def correct_and_settle(ledger: Ledger, outcomes: Outcomes) -> None:
    """Withdraw some outcomes and send all again: the state is that of its log."""
    ledger.correct([(person, year, None) for person, year, _ in outcomes[:40]], "mistake")
    ledger.settle(outcomes)
    assert states(ledger)[0] == states(ledger)[1]


def test_experts_of_bands_see_scores_under_the_moves_in_force(url: str) -> None:
    """What today's forecasts would have contained, by the product's own recalibration and bands.

    Single years correct the drift, so the experts of bands must not correct it again: their last
    year needs the offset of the moved forecasts, not that of the published ones.
    """
    ledger = Ledger(url, PseudonymKey(b"k" * 32))
    record_years_and_bands(ledger)
    amounts, outcomes = make_outcomes(drift=0.3)
    ledger.settle(outcomes)
    state, replayed = states(ledger)
    assert state is not None
    assert state == replayed
    split, raw = make_calibrator(), replace(make_marginals(make_paths()), recalibrated=False)
    base = np.tile([0.6, 0.85, 0.93, np.nan], (N, 1))
    expected = {}
    for name, calibrator in (("published", split), ("in force", adapt(split, state))):
        band = calibrator.band
        scores = band.joined(band.scores(calibrator.recalibrate(raw), amounts, 0.9))[:, K - 1]
        expected[name] = ExcessCounts.of(np.tile(scores[:, None], 4), base, base)
    counts = {name: {(K, ORIGIN + K): of_name} for name, of_name in expected.items()}
    known = compute_states(COVERAGE, counts["published"])
    missed = ExcessCounts(expected["in force"].counts, expected["published"].missed)
    rescored = compute_states(COVERAGE, {(K, ORIGIN + K): missed})
    for share in COVERAGE[:3]:
        cell, cell_expected = state.cells[BAND, K, share], rescored[K, share]
        assert cell.missed == cell_expected.missed == known[K, share].missed
        assert cell.integral == cell_expected.integral
        # Distributions are stored as float32, so a score may lie in the next of 4,096 bins.
        assert cell.offset == pytest.approx(cell_expected.offset, abs=1e-3)
    assert state.cells[BAND, K, 0.9].offset < known[K, 0.9].offset - 0.005, "far beyond the bins"
    ledger.close()


def comonotone_paths(seed: int = 0) -> Paths:
    """Raw paths that keep their rank in all years: a sum then moves by the mean of the moves."""
    return replace(make_paths(seed), recalibrated=False).comonotone()


def values_of(paths: Paths) -> SimulatedValues:
    return SimulatedValues.of(paths, lambda p: present_value(p, years=K))


def test_experts_of_present_values_see_scores_under_the_moves_in_force(url: str) -> None:
    """What today's paths would have contained, by the product's own mapping of paths.

    Without rescoring, the threshold would correct the drift a second time.
    """
    ledger = Ledger(url, PseudonymKey(b"k" * 32))
    raw, split = comonotone_paths(), make_calibrator()
    marginals, published = make_marginals(raw), replace(raw, recalibrated=True)
    ledger.record(BUNDLE, collect_intervals(marginals, split, range(1, K + 1), INITIAL_STATE))
    ledger.record(BUNDLE, collect_values(published, split, INITIAL_STATE, K))
    rng = np.random.default_rng(1)
    person_effect = rng.normal(0.3, 0.4, (N, 1))  # the same in all years, as in the paths
    amounts = np.exp(12.0 + person_effect + rng.normal(0, 0.02, (N, K)))
    rows = product(range(N), range(K))
    ledger.settle([(f"P{i}", ORIGIN + 1 + h, float(amounts[i, h])) for i, h in rows])
    state, replayed = states(ledger)
    assert state is not None
    assert state == replayed
    of_raw = replace(marginals, recalibrated=False)
    in_force = map_paths(raw, adapt(split, state).recalibrate(of_raw))
    base = np.tile([0.6, 0.85, 0.93, np.nan], (N, 1))
    counts = {}
    for name, paths in (("published", published), ("in force", in_force)):
        scores = [
            FAMILIES[PRESENT_VALUE].scores(paths, amounts, share)[:, K - 1] for share in COVERAGE
        ]
        counts[name] = ExcessCounts.of(np.stack(scores, axis=1), base, base)
    missed = ExcessCounts(counts["in force"].counts, counts["published"].missed)
    known = compute_states(COVERAGE, {(K, ORIGIN + K): counts["published"]})
    rescored = compute_states(COVERAGE, {(K, ORIGIN + K): missed})
    for share in COVERAGE[:3]:
        cell, cell_expected = state.cells[PRESENT_VALUE, K, share], rescored[K, share]
        assert cell.missed == cell_expected.missed == known[K, share].missed
        assert cell.integral == cell_expected.integral
        # Ranks of 60 paths are steps of 1/60; years move alike, but not the same.
        assert cell.offset == pytest.approx(cell_expected.offset, abs=1e-3)
        assert cell.offset < known[K, share].offset - 0.004, "far beyond that"
    ledger.close()


def test_present_values_after_moves_are_judged_by_the_ranks_before_them(url: str) -> None:
    """Those issued under moves: their log has ranks in the bundle's forecast; any order, replay."""
    ledger, state, amounts, outcomes = moved_ledger(url)
    split, later = make_calibrator(), years_later(comonotone_paths(seed=5))
    raw = replace(make_marginals(later), recalibrated=False)
    moved = map_paths(later, adapt(split, state).recalibrate(raw))
    ledger.record(BUNDLE, collect_values(moved, split, state, K))
    of_years = [(person, year + K, amount) for person, year, amount in outcomes]
    ledger.settle(of_years[::-1])
    assert states(ledger)[0] == states(ledger)[1]
    with connect(ledger) as connection:
        query = text(
            "SELECT person, levels, cells, ranks FROM settlement "
            "JOIN issued_interval i ON i.id = interval_id WHERE family = 'present_value'"
        )
        events = connection.execute(query).all()
    assert len(events) == N
    levels = np.frombuffer(bytes(events[0].levels))
    assert levels.shape == (len(LEVELS),)
    assert np.abs(levels - LEVELS).max() > 0.05, "the drift has moved the forecasts"
    assert cells_of_text(events[0].cells) == [(h, ALL) for h in range(1, K + 1)]
    realised = realised_value(amounts)[:, None]
    of_bundle = values_of(map_paths(later, split.recalibrate(raw))).distribution
    expected = probability_of_less(of_bundle, realised)[:, 0]
    found = {bytes(row.person): np.frombuffer(bytes(row.ranks)) for row in events}
    in_log = np.stack([found[ledger._pseudonym(f"P{i}")] for i in range(N)])
    published, ranks = in_log[:, 0], unmoved(in_log[:, None], levels[None])[:, 0, 0]
    # Ranks of 60 paths are steps of 1/60, and knots of a move lie between them.
    assert np.abs(ranks - expected).mean() < 0.01
    assert np.abs(published - expected).mean() > 0.05, "far beyond the steps"
    correct_and_settle(ledger, of_years)
    ledger.close()


def test_bands_after_moves_are_judged_by_the_ranks_before_them(url: str) -> None:
    """Bands issued under moves: their log has ranks in the bundle's forecast; any order, replay."""
    ledger, state, amounts, outcomes = moved_ledger(url)
    split, later = make_calibrator(), years_later(make_paths(seed=5))
    raw = replace(make_marginals(later), recalibrated=False)
    moved = adapt(split, state).recalibrate(raw)
    ledger.record(BUNDLE, collect_bands(moved, split, state, K))
    with connect(ledger) as connection:
        query = text("SELECT levels, cells FROM issued_interval WHERE origin_year > :year")
        rows = connection.execute(query, {"year": ORIGIN}).all()
    levels = np.frombuffer(bytes(rows[0].levels)).reshape(K, len(LEVELS))
    assert cells_of_text(rows[0].cells) == [(h, ALL) for h in range(1, K + 1)]
    assert np.abs(levels - LEVELS).max() > 0.05, "the drift has moved the forecasts"
    of_years = [(person, year + K, amount) for person, year, amount in outcomes]
    ledger.settle(of_years[::-1])
    assert states(ledger)[0] == states(ledger)[1]
    with connect(ledger) as connection:
        query = text(
            "SELECT person, ranks FROM settlement "
            "JOIN issued_interval i ON i.id = interval_id WHERE origin_year > :year"
        )
        events = connection.execute(query, {"year": ORIGIN}).all()
    expected = probability_of_less(split.recalibrate(raw), amounts)
    by_person = {bytes(row.person): np.frombuffer(bytes(row.ranks)) for row in events}
    assert len(by_person) == N
    for i in range(N):
        published = by_person[ledger._pseudonym(f"P{i}")].reshape(1, K, 2)
        ranks = unmoved(published, levels)[0]
        # A knot of a move may lie between two of 60 points of a grid; moves here reach 0.1.
        np.testing.assert_allclose(ranks[:, 0], expected[i], atol=0.01)
        np.testing.assert_allclose(ranks[:, 1], raw.p_zero[i], atol=0.01)
    correct_and_settle(ledger, of_years)
    ledger.close()


def test_a_killed_process_leaves_spans_that_a_repetition_completes(
    url: str, tmp_path: Path
) -> None:
    """Killed while outcomes settle bands and present values, then repeated: the same state."""
    key_file = tmp_path / "key"
    key_file.write_bytes(b"k" * 32)
    ledger = Ledger(url, PseudonymKey(b"k" * 32))
    issue(ledger)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    line = [sys.executable, "-m", "tests.calibration.adaptive.test_spans", url, str(key_file)]
    process = subprocess.Popen(line, env=environment)
    deadline = time.monotonic() + 120
    while (ledger.version(BUNDLE) or 0) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed, replayed = states(ledger)
    assert killed == replayed
    assert killed is not None
    settled = sum(row.persons for row in ledger.span_coverage(BUNDLE))
    assert 0 < settled < 2 * N
    _, outcomes = make_outcomes()
    ledger.settle(outcomes)
    once = Ledger(f"sqlite:///{tmp_path / 'once.sqlite'}", PseudonymKey(b"other" * 8))
    issue(once)
    once.settle(outcomes)
    state, expected = ledger.state(BUNDLE), once.state(BUNDLE)
    assert state is not None
    assert expected is not None
    assert state.cells == expected.cells
    assert states(ledger)[0] == states(ledger)[1]
    for opened in (once, ledger):
        opened.close()


def main(url: str, key: str) -> None:
    """Settle the outcomes ten persons at a time."""
    ledger = Ledger(url, PseudonymKey.read(Path(key), create=False))
    _, outcomes = make_outcomes()
    for start in range(0, len(outcomes), 10 * K):
        ledger.settle(outcomes[start : start + 10 * K])


if __name__ == "__main__":
    main(*sys.argv[1:])
