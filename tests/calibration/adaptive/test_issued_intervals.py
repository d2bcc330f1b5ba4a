"""A stored forecast gives the rank of an outcome under the bundle's own forecast."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import BAND, YEAR, AdaptiveState, CellState
from saga.calibration.adaptive.issued_intervals import (
    collect_intervals,
    judge,
    pack_marginals,
    ranks_of_outcomes,
)
from saga.calibration.adaptive.ledger_tables import unpack_numbers
from saga.calibration.adaptive.marginal_moves import LEVELS, adapt, move_of, unmoved
from saga.calibration.fit.split_conformal import fit_calibration
from scipy.stats import kstest

from saga.conformal.families.set_family import probability_of_less
from saga.distributions import Marginals
from saga.errors import UsageError

Array = NDArray[np.float64]
World = Callable[..., tuple[Marginals, Array]]

OFFSETS = {
    "none": np.zeros(len(LEVELS)),
    "up": 0.02 * np.ones(len(LEVELS)),
    "crossing": np.where(np.arange(len(LEVELS)) == 3, 0.4, -0.01),
    "beyond": np.where(np.asarray(LEVELS) < 0.5, -0.2, 0.2),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_ranks_under_the_issued_forecast_give_those_under_the_bundles(
    world: World, name: str
) -> None:
    """Whatever the move was, the log knows what the bundle itself forecast."""
    calibrator = fit_calibration(*world(4_000, 11), seed=0)
    cells = {
        (group, h, level): CellState(float(offset), 0.0, 1.0, 300, 0, 2020, (1.0,))
        for h, group in calibrator.cells
        for level, offset in zip(LEVELS, OFFSETS[name], strict=True)
    }
    raw, outcomes = world(600, 13)
    state = AdaptiveState.of(3, cells)
    with pytest.raises(UsageError, match="raw"):
        collect_intervals(raw, calibrator, state, (1, 2))
    recalibrated = adapt(calibrator, state).recalibrate(raw)
    issued = collect_intervals(recalibrated, calibrator, state, (1, 2))
    assert len(issued) == 2 * len(raw)
    assert {entry.base for entry in issued} == {np.asarray(LEVELS).tobytes()}
    y = np.concatenate([outcomes[:, 0], outcomes[:, 1]])
    stored = [entry.distribution for entry in issued]
    less, p_zero = np.concatenate(judge([YEAR] * len(y), stored, [*y[:, None]])).T
    levels = unpack_numbers(issued[0].in_force, 1, -1)
    ranks = unmoved(np.where(less > 0, less, p_zero)[:, None], levels)[:, 0]
    exact = calibrator.recalibrate(raw).probability(outcomes)[:, :2].T.ravel()
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


def test_distributions_of_several_grids_and_numbers_of_years_are_judged_in_their_order() -> None:
    rng = np.random.default_rng(4)
    grids = {
        points: Marginals.from_samples(np.exp(rng.normal(12, 1, (3, 2, points))), recalibrated=True)
        for points in (20, 90)
    }
    y = np.exp(rng.normal(12, 1, (3, 2)))
    families, stored, amounts, expected = [], [], [], []
    for i, grid, years in product(range(3), grids.values(), (1, 2)):
        families.append(YEAR if years == 1 else BAND)
        stored.append(pack_marginals(grid, years)[i])
        amounts.append(y[i, :years])
        expected.append(probability_of_less(grid, y)[i, :years])
    for ranks, less in zip(judge(families, stored, amounts), expected, strict=True):
        np.testing.assert_allclose(ranks[:, 0], less, atol=1e-6)
