"""Draws of groups on marginals and paths: the mixture, coherence, and means told the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from saga.distributions import Marginals
from saga.macro.everybody import Everybody
from saga.macro.group_trends import PRIOR_MEAN, PRIOR_SD, GroupSeries, GroupTrends
from saga.macro.moving_mean import GrowthTrend
from saga.macro.scenarios import Scenario
from saga.requests import MAX_HORIZON, Draws
from saga.simulation.group_layer import GroupLayer

SHARES = np.array([0.45, 0.55])
STILL = np.zeros((33, 2))
OWN = np.arange(1, 31)[:, None] * np.array([0.005, -0.004])  # the network's trend
SERIES = GroupSeries(np.tile([-0.15, 0.12], (33, 1)), STILL, STILL + 0.003, SHARES, OWN)
TRENDS = GroupTrends(
    [("sex", ["female", "male"])],
    1990,
    PRIOR_MEAN,
    np.diag(PRIOR_SD / 4),
    {"earnings": SERIES, "odds": replace(SERIES, implied=0 * OWN)},
)
KNOWN = TRENDS.changes("earnings", 0, 4096, 2022, MAX_HORIZON)
FEMALE, MALE, UNKNOWN = 0, 1, 2


class Transforms:
    """What a layer needs of a bundle's transforms."""

    categories = ("sex",)
    codes: ClassVar = {"sex": ("female", "male")}


TRANSFORMS: Any = Transforms()
LAYER = GroupLayer(TRENDS, TRANSFORMS)


def of(*sexes: int) -> np.ndarray:
    """Levels of persons of 30."""
    return np.array([[sex, 30] for sex in sexes])


def normal_marginals(n: int, sd: float = 0.9, p_zero: float = 0.15) -> Marginals:
    """Log earnings N(12, sd) with an atom, at 30 horizons."""
    grid = np.broadcast_to(12 + np.linspace(-9, 9, 241) * sd, (n, MAX_HORIZON, 241)).copy()
    cdf = p_zero + (1 - p_zero) * norm.cdf((grid - 12) / sd)
    cdf[..., 0], cdf[..., -1] = p_zero, 1.0
    ids = np.array([f"p{i}" for i in range(n)])
    year = np.full(n, 2022)
    return Marginals(ids, year - 30, year, grid, cdf, np.full((n, MAX_HORIZON), p_zero))


def test_a_marginal_is_the_mixture_over_the_draws() -> None:
    raw = replace(normal_marginals(1), members=(normal_marginals(1),))
    moved = LAYER.move_marginals(raw, of(FEMALE), None)
    np.testing.assert_array_equal(moved.members[0].grid, moved.grid)
    d = KNOWN[:, -1, FEMALE]
    e = TRENDS.changes("odds", 0, 4096, 2022, MAX_HORIZON)[:, -1, FEMALE]
    p_zero = expit(logit(0.15) - e).mean()
    assert moved.p_zero[0, -1] == pytest.approx(p_zero, abs=1e-4)
    assert moved.mean[0, -1] == pytest.approx(
        raw.mean[0, -1] * np.exp(d).mean() * (1 - p_zero) / 0.85, rel=1e-4
    )
    p = np.linspace(0.2, 0.98, 14)
    quantiles = np.log(moved.quantiles(p)[0, -1])
    mixture = norm.cdf(quantiles[:, None], 12 + d, 0.9).mean(axis=1)
    np.testing.assert_allclose(p_zero + (1 - p_zero) * mixture, p, atol=5e-4)


def test_a_person_of_unknown_group_or_without_earnings_stays_as_forecast() -> None:
    raw = normal_marginals(2)
    unknown = LAYER.move_marginals(raw, of(UNKNOWN, UNKNOWN), None)
    np.testing.assert_allclose(unknown.mean, raw.mean, rtol=1e-9)
    np.testing.assert_allclose(unknown.cdf, raw.cdf, atol=1e-12)
    never = normal_marginals(1, p_zero=1.0)
    moved = LAYER.move_marginals(never, of(FEMALE), None)
    np.testing.assert_array_equal(moved.p_zero, never.p_zero)
    assert np.isfinite(moved.grid).all()
    absent = replace(raw, cdf=raw.cdf * np.nan, p_zero=raw.p_zero * np.nan)
    assert np.isnan(LAYER.move_marginals(absent, of(MALE, MALE), None).cdf).all()


def layer_of_ages(young: float) -> GroupLayer:
    series = replace(SERIES, weights=np.array([young, 1 - young]), implied=0 * OWN)
    trends = replace(
        TRENDS,
        columns=[("age", ["age_22", "age_62"])],
        series={"earnings": series, "odds": series},
    )
    return GroupLayer(trends, TRANSFORMS)


@pytest.mark.parametrize("young", [0.5, 0.9, 0.25])
def test_persons_in_whom_the_effects_of_ages_cancel_have_a_chance_of_zero(young: float) -> None:
    """Their variance is 0 but for rounding, and may come out below it."""
    layer = layer_of_ages(young)
    ages = np.arange(18, 63)
    moved = layer.move_marginals(normal_marginals(len(ages)), ages[:, None], None)
    assert np.isfinite(moved.p_zero).all()
    assert np.isfinite(moved.grid).all()


def simulated(n_paths: int, p_zero: float = 0.2) -> np.ndarray:
    """Paths (2, 30, n_path): the same two persons, whose states last some years."""
    rng = np.random.default_rng(1)
    out = np.empty((2, MAX_HORIZON, n_paths), dtype=np.float32)
    state = rng.normal(size=(2, n_paths))
    for h in range(MAX_HORIZON):
        state = 0.95 * state + np.sqrt(1 - 0.95**2) * rng.normal(size=state.shape)
        out[:, h] = np.where(norm.cdf(state) < p_zero, 0.0, np.exp(12 + 0.9 * state))
    return out


def test_paths_have_the_means_and_zeros_of_the_marginals() -> None:
    raw, n = simulated(4000), 4000
    year, levels = np.full(2, 2022), of(FEMALE, MALE)
    moved = LAYER.move_paths(raw, year, levels, Draws(n, 5), None)
    distributions = replace(Marginals.from_samples(raw), origin_year=year)
    marginals = LAYER.move_marginals(distributions, levels, None)
    for h in (0, 9, 29):
        d, e = KNOWN[:, h], TRENDS.changes("odds", 0, 4096, 2022, 30)[:, h]
        # Draws of two seeds differ: the error of a mean over draws, and rounding of ranks.
        tolerance = 4 * d.std(axis=0) * np.sqrt(2 / n) + 0.003
        of_paths = moved[:, h].mean(axis=1) / raw[:, h].mean(axis=1)
        ratio = of_paths / (marginals.mean[:, h] / distributions.mean[:, h])
        tolerance = tolerance + 4 * e.std() * 0.2 / np.sqrt(n)
        np.testing.assert_array_less(np.abs(ratio - 1), tolerance)
        zeros = (moved[:, h] == 0).mean(axis=1)
        np.testing.assert_allclose(zeros, marginals.p_zero[:, h], atol=0.005)
    # Of the paths without earnings those with a higher total begin work first.
    idle, begins, total = raw[:, 29] == 0, moved[:, 29] > 0, raw.sum(axis=1)
    assert total[idle & begins].mean() > 2 * total[idle & ~begins].mean()


def test_all_persons_of_a_group_share_a_paths_draw() -> None:
    raw = simulated(200, p_zero=0.0)
    year, levels = np.full(2, 2022), of(FEMALE, FEMALE)
    factor = LAYER.move_paths(raw, year, levels, Draws(200, 5), None) / raw
    np.testing.assert_allclose(factor[0], factor[1], rtol=1e-6)
    np.testing.assert_allclose(
        np.log(factor[0]).T, TRENDS.changes("earnings", 5, 200, 2022, 30)[..., FEMALE], atol=1e-5
    )


def test_in_the_first_year_a_person_of_21_is_22() -> None:
    layer, raw = layer_of_ages(0.5), simulated(50, p_zero=0.0)
    ages, years = np.array([[21], [61]]), np.full(2, 2022)
    factor = layer.move_paths(raw, years, ages, Draws(50, 5), None)[:, 0] / raw[:, 0]
    at_22_and_62 = layer.trends.changes("earnings", 5, 50, 2022, 30)[:, 0].T
    np.testing.assert_allclose(np.log(factor), at_22_and_62, atol=1e-5)


def test_the_draws_of_everybody_move_all_persons() -> None:
    growth = GrowthTrend(
        np.array([-6.0, 2.6, -4.6, -5.1, 0.0]),
        np.diag(np.full(5, 0.1)),
        np.array([[0.015, 0.0]]),
        np.diag([0.005, 0.01])[None],
    )
    everybody = Everybody.expecting(2022, growth, 0.02, 0.05, np.zeros(MAX_HORIZON))
    layer = GroupLayer(replace(TRENDS, everybody=everybody), TRANSFORMS)
    raw = simulated(200, p_zero=0.0)
    year, levels, draws = np.full(2, 2022), of(FEMALE, UNKNOWN), Draws(200, 5)
    moved = layer.move_paths(raw, year, levels, draws, None)
    beside = LAYER.move_paths(raw, year, levels, draws, None)
    of_all = everybody.changes("earnings", 5, 200, 2022, MAX_HORIZON)
    for person in range(2):
        factor = moved[person] / beside[person]
        np.testing.assert_allclose(np.log(factor).T, of_all, atol=1e-5)
    marginals = layer.move_marginals(normal_marginals(1, p_zero=0.0), of(UNKNOWN), None)
    grown = np.log(marginals.mean / normal_marginals(1, p_zero=0.0).mean)[0]
    spread = of_all.std(axis=0)
    # Of a log-normal variable and 4,096 draws.
    error = 4 * spread / np.sqrt(4_096) + spread**4
    np.testing.assert_array_less(np.abs(grown - everybody.expected), error)


@pytest.mark.parametrize(("forgets", "bias"), [(False, 0.0), (True, -0.009 * 20)])
def test_told_the_true_ratio_means_are_unbiased(forgets: bool, bias: float) -> None:
    """In the world the ratio goes to .95 in 2042; the network alone goes on as in `OWN`."""
    true_change = np.log(0.95) + 0.27  # of the log ratio, from -.27
    series = TRENDS.series["earnings"]
    broken = replace(series, implied=0 * OWN)
    trends = replace(TRENDS, series={**TRENDS.series, "earnings": broken if forgets else series})
    told = Scenario("told", {}, ratios={2042: {"female/male": 0.95}})
    layer = GroupLayer(trends, TRANSFORMS)
    levels = of(FEMALE, MALE)
    raw = normal_marginals(2)
    network = replace(raw, grid=raw.grid + (OWN.T)[..., None])
    mean = layer.move_marginals(network, levels, told).mean[:, 19]
    forecast = np.log(mean[0] / mean[1])
    working = 1 - layer.move_marginals(network, levels, told).p_zero[:, 19]
    forecast -= np.log(working[0] / working[1])
    assert forecast == pytest.approx(true_change - bias, abs=0.002)
