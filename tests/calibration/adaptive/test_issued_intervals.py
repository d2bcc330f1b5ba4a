"""A stored forecast gives the rank of an outcome under the bundle's own forecast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import AdaptiveState, CellState
from saga.calibration.adaptive.issued_intervals import (
    collect_intervals,
    pack_marginals,
    ranks_of_outcomes,
    unmoved_ranks,
    unpack_marginals,
)
from saga.calibration.adaptive.marginal_moves import LEVELS, adapt, move_of
from saga.calibration.fit.split_conformal import fit_calibration
from scipy.stats import kstest

from saga.conformal.calibrator import Calibrator
from saga.conformal.families.set_family import probability_of_less
from saga.distributions import Marginals
from saga.errors import UsageError

Array = NDArray[np.float64]
World = Callable[..., tuple[Marginals, Array]]


@pytest.fixture(scope="module")
def calibrator(world: World) -> Calibrator:
    marginals, outcomes = world(4_000, 11)
    return fit_calibration(marginals, outcomes, seed=0)


def state_with(calibrator: Calibrator, offsets: Array) -> AdaptiveState:
    """The same offsets in all cells, one for each of LEVELS."""
    return AdaptiveState(
        3,
        2020,
        {
            (group, h, level): CellState(float(offset), 0.0, 1.0, 300, 0, 2020, (1.0,))
            for h, group in calibrator.cells
            for level, offset in zip(LEVELS, offsets, strict=True)
        },
    )


OFFSETS = {
    "none": np.zeros(len(LEVELS)),
    "up": 0.02 * np.ones(len(LEVELS)),
    "crossing": np.where(np.arange(len(LEVELS)) == 3, 0.4, -0.01),
    "beyond": np.where(np.asarray(LEVELS) < 0.5, -0.2, 0.2),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_ranks_under_the_issued_forecast_give_those_under_the_bundles(
    calibrator: Calibrator, world: World, name: str
) -> None:
    """Whatever the move was, the log knows what the bundle itself forecast."""
    raw, outcomes = world(600, 13)
    state = state_with(calibrator, OFFSETS[name])
    adapted = adapt(calibrator, state)
    with pytest.raises(UsageError, match="raw"):
        collect_intervals(raw, adapted, (1, 2), state)
    issued = collect_intervals(adapted.recalibrate(raw), adapted, (1, 2), state)
    assert len(issued) == 2 * len(raw)
    assert np.array_equal(issued.base, np.tile(LEVELS, (len(issued), 1)))
    bundles = calibrator.recalibrate(raw)
    y = np.concatenate([outcomes[:, 0], outcomes[:, 1]])
    less, p_zero = stored_probabilities(issued.marginals, y)
    ranks = unmoved_ranks(np.where(less > 0, less, p_zero), issued.issued)
    exact = np.concatenate([bundles.probability(outcomes)[:, h] for h in (0, 1)])
    knots = move_of(issued.issued[0])[0]
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


def stored_probabilities(blobs: tuple[bytes, ...], outcomes: Array) -> tuple[Array, Array]:
    less, p_zero = np.empty(len(blobs)), np.empty(len(blobs))
    for index, stored in unpack_marginals(blobs):
        less[index] = probability_of_less(stored, outcomes[index, None])[:, 0]
        p_zero[index] = stored.p_zero[:, 0]
    return less, p_zero


def test_packed_distributions_of_several_grids_are_read_in_their_order() -> None:
    rng = np.random.default_rng(4)
    few, many = (
        Marginals.from_samples(np.exp(rng.normal(12, 1, (3, 1, m))) * (rng.random((3, 1, m)) < 0.7))
        for m in (20, 90)
    )
    blobs = [
        blob
        for pair in zip(pack_marginals(few), pack_marginals(many), strict=True)
        for blob in pair
    ]
    p_zero = np.full(6, np.nan)
    for index, stored in unpack_marginals(blobs):
        p_zero[index] = stored.p_zero[:, 0]
    assert np.array_equal(p_zero[::2], few.p_zero[:, 0])
    assert np.array_equal(p_zero[1::2], many.p_zero[:, 0])
