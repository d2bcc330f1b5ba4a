"""The moves of marginals: known shifts are found, groups are pooled, and all products follow.

A stored forecast gives the rank of an outcome under the bundle's own forecast.
"""

from __future__ import annotations

import numpy as np
import pytest
from saga.calibration.adaptive.adaptive_state import (
    YEAR,
    AdaptiveState,
    CellState,
    ExcessCounts,
    compute_states,
)
from saga.calibration.adaptive.issued_intervals import (
    collect_intervals,
    judge,
    ranks_of_outcomes,
)
from saga.calibration.adaptive.ledger_tables import unpack_numbers
from saga.calibration.adaptive.marginal_moves import (
    LEVELS,
    adapt,
    mean_levels,
    move_of,
    moved_levels,
    unmoved,
)
from saga.calibration.fit.split_conformal import fit_calibration
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.recalibration import map_paths
from saga.errors import UsageError
from tests.calibration.worlds import draw_paths, draw_world

GROUPS = [f"quintile={k}" for k in range(1, 6)]


def state_after(ranks_by_group: dict[str, list[Floats]]) -> AdaptiveState:
    """The state at h = 1 after one array of ranks per year; intervals were never moved."""
    cells: dict[tuple[str, int, float], CellState] = {}
    for group, years in ranks_by_group.items():
        counts = {}
        for year, ranks in enumerate(years):
            levels = np.tile(LEVELS, (len(ranks), 1))
            scores = np.tile(ranks[:, None], len(LEVELS))
            counts[1, year] = ExcessCounts.of(scores, levels, levels)
        cells |= {(group, *key): cell for key, cell in compute_states(LEVELS, counts).items()}
    return AdaptiveState(1, cells)


def shifted_ranks(rng: np.random.Generator, n: int, shift: float) -> Floats:
    return np.asarray(ndtr(rng.normal(size=n) + shift))


def test_a_shift_of_all_outcomes_is_found_at_every_level() -> None:
    """After six years of a shift by half a standard deviation, the right quantiles are known."""
    rng = np.random.default_rng(1)
    years = [shifted_ranks(rng, 4_000, 0.5) for _ in range(6)]
    levels = moved_levels(state_after({ALL: years}), 1, [ALL])[ALL]
    assert levels == pytest.approx(ndtr(ndtri(np.asarray(LEVELS)) + 0.5), abs=0.03)
    knots, values = move_of(levels)
    recalibrated = np.interp(shifted_ranks(rng, 20_000, 0.5), knots, values)
    covered = ((recalibrated > 0.05) & (recalibrated <= 0.95)).mean()
    unmoved = shifted_ranks(rng, 20_000, 0.5)
    assert covered == pytest.approx(0.9, abs=0.02)
    assert ((unmoved > 0.05) & (unmoved <= 0.95)).mean() < 0.88


def test_groups_with_one_shift_are_pooled_and_different_ones_are_not() -> None:
    rng = np.random.default_rng(2)

    def levels(shifts: list[float]) -> Floats:
        by_group = {
            group: [shifted_ranks(rng, 300, shift) for _ in range(4)]
            for group, shift in zip(GROUPS, shifts, strict=True)
        }
        everybody = [np.concatenate(parts) for parts in zip(*by_group.values(), strict=True)]
        moved = moved_levels(state_after({**by_group, ALL: everybody}), 1, [*GROUPS, ALL])
        return np.stack([moved[group] - moved[ALL] for group in GROUPS])

    assert np.abs(levels([0.3] * 5)).max() < 0.02, "no group differs by more than chance"
    different = levels([1.0, 0.5, 0.0, -0.5, -1.0])
    assert (np.diff(different[:, 4]) < 0).all()
    assert different[0, 4] - different[-1, 4] > 0.4


def test_a_map_is_strictly_increasing_whatever_the_offsets() -> None:
    rng = np.random.default_rng(3)
    for scale in (0.0, 0.01, 0.5, 3.0):
        for _ in range(50):
            knots, values = move_of(np.asarray(LEVELS) + scale * rng.normal(size=len(LEVELS)))
            assert (np.diff(knots) > 0).all()
            assert (knots[0], knots[-1]) == (0.0, 1.0)
            assert np.array_equal(values, [0.0, *LEVELS, 1.0])
    assert np.array_equal(move_of(np.asarray(LEVELS))[0], [0.0, *LEVELS, 1.0])


@pytest.fixture(scope="module")
def calibrated() -> Calibrator:
    marginals, outcomes = draw_world(4_000, 11)
    return fit_calibration(marginals, outcomes, seed=0)


def uniform_state(calibrator: Calibrator, offset: float) -> AdaptiveState:
    cell = CellState(offset, 0.0, 1.0, 300, 0, 2020, (1.0,))
    return AdaptiveState(
        1, {(group, h, level): cell for h, group in calibrator.cells for level in LEVELS}
    )


def test_quantiles_sets_and_paths_follow_the_map(calibrated: Calibrator) -> None:
    raw = draw_world(300, 12)[0]
    assert adapt(calibrated, AdaptiveState(0, {})) is calibrated
    adapted = adapt(calibrated, uniform_state(calibrated, 0.02))
    before, after = calibrated.recalibrate(raw), adapted.recalibrate(raw)
    knots, values = move_of(np.asarray(LEVELS) + 0.02)
    p = np.array([0.2, 0.5, 0.93])
    assert after.quantiles(p) == pytest.approx(before.quantiles(np.interp(p, values, knots)))
    assert (after.p_zero <= before.p_zero).all()
    sets = [c.intervals(m, (0.9,)) for c, m in ((calibrated, before), (adapted, after))]
    assert (sets[1].upper >= sets[0].upper).all()
    assert (sets[1].upper > sets[0].upper).any()
    paths = draw_paths(raw)
    means = [map_paths(paths, m).earnings.mean(axis=2) for m in (before, after)]
    assert means[1] == pytest.approx(after.mean, rel=0.02)
    assert (means[1] >= means[0]).all()


def test_a_sum_of_years_with_the_same_rank_moves_by_the_mean_of_the_moves() -> None:
    """Exact for equal moves, and for years that are equally spread where the sum is."""
    rng = np.random.default_rng(3)
    one = np.asarray(LEVELS) + 0.02 * rng.random(9)
    np.testing.assert_allclose(mean_levels(np.tile(one, (4, 1))), one, atol=1e-12)
    moves = np.stack([np.asarray(LEVELS) + shift for shift in (0.0, 0.01, 0.02)])
    # Uniform years U, U and U, moved: quantiles q_h(p) are the inverses of the maps.
    p = np.linspace(0.05, 0.95, 181)
    quantiles = np.mean([np.interp(p, *move_of(levels)[::-1]) for levels in moves], axis=0)
    mean = np.interp(quantiles, *move_of(mean_levels(moves)))
    assert np.abs(mean - p).max() < 0.002, "a shift of 0.02, to first order"
    assert np.abs(np.interp(quantiles, *move_of(moves[2])) - p).max() > 0.008


OFFSETS = {
    "none": np.zeros(len(LEVELS)),
    "up": 0.02 * np.ones(len(LEVELS)),
    "crossing": np.where(np.arange(len(LEVELS)) == 3, 0.4, -0.01),
    "beyond": np.where(np.asarray(LEVELS) < 0.5, -0.2, 0.2),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_ranks_under_the_issued_forecast_give_those_under_the_bundles(
    calibrated: Calibrator, name: str
) -> None:
    """Whatever the move was, the log knows what the bundle itself forecast."""
    cells = {
        (group, h, level): CellState(float(offset), 0.0, 1.0, 300, 0, 2020, (1.0,))
        for h, group in calibrated.cells
        for level, offset in zip(LEVELS, OFFSETS[name], strict=True)
    }
    raw, outcomes = draw_world(600, 13)
    state = AdaptiveState(3, cells)
    with pytest.raises(UsageError, match="raw"):
        collect_intervals(raw, calibrated, state, (1, 2))
    recalibrated = adapt(calibrated, state).recalibrate(raw)
    issued = collect_intervals(recalibrated, calibrated, state, (1, 2))
    assert len(issued) == 2 * len(raw)
    assert {entry.base for entry in issued} == {np.asarray(LEVELS).tobytes()}
    y = np.concatenate([outcomes[:, 0], outcomes[:, 1]])
    stored = [entry.distribution for entry in issued]
    less, p_zero = np.concatenate(judge([YEAR] * len(y), stored, [*y[:, None]])).T
    levels = unpack_numbers(issued[0].in_force, 1, -1)
    ranks = unmoved(np.where(less > 0, less, p_zero)[:, None], levels)[:, 0]
    exact = calibrated.recalibrate(raw).probability(outcomes)[:, :2].T.ravel()
    knots = move_of(levels[0])[0]
    # Within a flat part of the map different ranks become one.
    steep = np.diff(knots) > 1e-6
    inside = steep[np.clip(np.searchsorted(knots, exact) - 1, 0, len(steep) - 1)]
    assert inside.mean() > 0.5
    # A CDF is linear between its grid points, so kinks of the map are rounded.
    assert ranks[inside] == pytest.approx(exact[inside], abs=5e-3)


def test_ranks_of_zero_are_uniform_below_the_probability_of_zero() -> None:
    """The share of zeros is as forecast, so ranks are uniform: the test is Kolmogorov's."""
    rng = np.random.default_rng(5)
    p_zero = rng.uniform(0.05, 0.95, 4_000)
    uniform = rng.random(4_000)
    ranks = ranks_of_outcomes(np.where(uniform > p_zero, uniform, 0.0), p_zero)
    assert kstest(ranks, "uniform").pvalue > 0.01
    again = ranks_of_outcomes(np.where(uniform > p_zero, uniform, 0.0), p_zero)
    assert np.array_equal(ranks, again)
    at_half = np.where(uniform > p_zero, uniform, 0.5 * p_zero)
    assert kstest(at_half, "uniform").pvalue < 1e-6, "ranks that are not random are not uniform"
