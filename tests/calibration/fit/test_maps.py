"""Maps make forecast probabilities uniform, do no harm, and hold no person's value."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from crepes import ConformalPredictiveSystem  # type: ignore[import-untyped]
from saga.calibration.fit.maps import empirical_map, fit_map, pit
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from scipy import stats

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.scores import pit_uniforms
from saga.small_groups import MIN_PERSONS
from tests.calibration.worlds import SURPRISE, P, draw_economy, draw_world

Map = tuple[Floats, Floats]
DISTORTIONS = {"right": (1.0, 1.0), "nearly right": (1.1, 1.0), "wrong": (1.4, 0.8)}


def uniformity_pvalue(u: Floats, n_fit: int, slack: float = 0.0) -> float:
    """Two-sample Kolmogorov-Smirnov: the map is an empirical CDF of n_fit other persons."""
    distance = stats.kstest(u, "uniform").statistic
    return float(
        stats.kstwobign.sf(max(distance - slack, 0) * math.sqrt(n_fit * len(u) / (n_fit + len(u))))
    )


def test_recalibrated_probabilities_are_uniform_and_raw_or_unrandomised_ones_are_not() -> None:
    fitted = fit_calibration(*draw_world(3_000, 1), seed=0)
    raw, outcomes = draw_world(8_000, 2)
    v, recalibrated = pit_uniforms(raw), fitted.recalibrate(raw)
    before, after = pit(raw, outcomes, v), pit(recalibrated, outcomes, v)
    unrandomised = pit(recalibrated, outcomes, np.ones_like(v))
    for h in range(2):
        n = fitted.cells[h + 1, "all"].n_map
        assert uniformity_pvalue(before[:, h], n) < P
        # Between two grid points the recalibrated CDF is linear.
        assert uniformity_pvalue(after[:, h], n, slack=0.001) > P
        assert uniformity_pvalue(unrandomised[:, h], n, slack=0.001) < P


def test_the_map_equals_the_predictive_system_of_crepes_up_to_its_blocks() -> None:
    u = np.random.default_rng(7).beta(2, 1.3, 4_000)
    grid = np.linspace(0.001, 0.999, 500)
    oracle = (
        ConformalPredictiveSystem().fit(u, seed=0).predict_p(np.zeros(500), grid, smoothing=False)
    )
    for knots, values in (empirical_map(u), fit_map(u)):
        off = np.abs(np.interp(grid, knots, values) - oracle)
        assert off.max() <= np.diff(values).max() + 2 / len(u)
        assert len(knots) <= 200
        assert (np.diff(knots) > 0).all()
        assert (np.diff(values) > 0).all()
        assert (knots[0], knots[-1], values[0], values[-1]) == (0, 1, 0, 1)
    assert np.abs(np.interp(grid, *empirical_map(u)) - oracle).max() < 0.01


@pytest.mark.parametrize("n", [100, 119, 137, 1_000])
def test_every_knot_averages_at_least_ten_persons(n: int) -> None:
    u = np.random.default_rng(n).random(n)
    knots, values = empirical_map(u)
    # Values are average ranks of blocks of at least 10: inner knots are 10 ranks apart.
    assert (np.diff(values[1:-1]) * (n + 1) >= MIN_PERSONS - 1e-9).all()
    assert not np.isin(knots, u).any()
    knots, shrunken = fit_map(u)
    assert len(knots) <= 2 + n // MIN_PERSONS
    assert (np.diff(shrunken) > 0).all()


def mean_gain(fit: Callable[[Floats], Map], distortion: str, n: int, repeats: int) -> float:
    """Mean log score that maps from n persons gain for fresh persons, in nats.

    The PIT of a person has the beta distribution of `distortion`.
    """
    rng, law = np.random.default_rng(n), stats.beta(*DISTORTIONS[distortion])
    fresh = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    gains = []
    for _ in range(repeats):
        knots, values = fit(law.rvs(n, random_state=rng))
        density = np.diff(values) / np.diff(knots)
        gains.append(np.log(density[np.searchsorted(knots, fresh) - 1]).mean())
    return float(np.mean(gains))


@pytest.mark.parametrize(
    ("n", "repeats"),
    [
        (100, 60),
        pytest.param(300, 40, marks=pytest.mark.thorough),
        pytest.param(1_000, 20, marks=pytest.mark.thorough),
        (10_000, 5),
    ],
)
def test_a_map_does_no_harm_and_is_better_than_an_unshrunk_one(n: int, repeats: int) -> None:
    """A map from n persons loses at most two nats over n persons against no map."""
    gains, unshrunk = (
        {name: mean_gain(fit, name, n, repeats) for name in DISTORTIONS}
        for fit in (fit_map, empirical_map)
    )
    assert min(gains.values()) > -2 / n
    assert min(unshrunk.values()) <= -2 / n, "the broken version"
    assert gains["wrong"] > 0.09
    for name, gain in gains.items():
        assert gain > unshrunk[name] - (0.003 if name == "wrong" else 0)


def test_a_map_depends_neither_on_the_order_of_persons_nor_exists_for_few() -> None:
    u = np.random.default_rng(3).beta(1.4, 0.8, 500)
    for left, right in zip(fit_map(u), fit_map(u[::-1]), strict=True):
        assert np.array_equal(left, right)
    assert len(fit_map(u[:99])[0]) == 0
    assert len(fit_map(u[:99], map_persons=50)[0]) > 2


# --- forecasts conditioned on the realised macro series ---


def mean_shift(calibrator: Calibrator, marginals: Marginals) -> float:
    """By how much the maps raise forecasts, in logs: the mean over quantiles."""
    p = (np.arange(80) + 0.5) / 80
    mapped = calibrator.recalibrate(marginals).quantiles(p)
    return float(np.log(mapped / marginals.quantiles(p)).mean())


def test_the_luck_of_one_economy_is_not_added_to_every_future() -> None:
    free, realised, outcomes = draw_economy(2_000, 1)
    informed = fit_calibration(free, outcomes, seed=0, realised=realised)
    uninformed = fit_calibration(free, outcomes, seed=0)
    fresh = draw_economy(1_000, 2)[0]
    # The map's noise: its ranks are those of 1,000 persons, whose mean outcome has a standard
    # error of .3 / sqrt(1,000).
    assert abs(mean_shift(informed, fresh)) < 5 * 0.3 / 1_000**0.5
    assert mean_shift(uninformed, fresh) > 0.8 * SURPRISE


def test_conditioned_marginals_may_have_any_order_and_must_contain_the_map_fold() -> None:
    free, realised, outcomes = draw_economy(600, 5)
    map_rows = np.flatnonzero(in_map_fold(free.person_id, 0))
    fitted = fit_calibration(free, outcomes, seed=0, realised=realised)
    again = fit_calibration(free, outcomes, seed=0, realised=realised.take(map_rows[::-1]))
    assert again.digest == fitted.digest
    for wrong in (realised.take(map_rows[1:]), realised.at_horizons([1, 1])):
        with pytest.raises(UsageError, match="not those of the map fold"):
            fit_calibration(free, outcomes, seed=0, realised=wrong)
