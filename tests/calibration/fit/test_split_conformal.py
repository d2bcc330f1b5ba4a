"""Coverage of the conformal layer on exchangeable persons; broken variants fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from crepes import ConformalPredictiveSystem  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.regression import SplitConformalRegressor
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import conformal_quantile, rank_needed
from saga.calibration.fit.split_conformal import (
    empirical_map,
    fit_calibration,
    fit_map,
    in_map_fold,
    pit,
)
from saga.calibration.fit.thresholds import fit_thresholds
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin

from saga.conformal.calibration_table import SCHEMA
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import BAND, YEAR
from saga.conformal.intervals import Intervals
from saga.conformal.published_sets import band_intervals, one_sided_limits
from saga.conformal.recalibration import Cell, map_paths
from saga.distribution_scores import marginal_scores
from saga.distributions import Marginals
from saga.errors import BundleError, UsageError
from saga.requests import COVERAGE
from saga.scores import covered, pit_uniforms
from saga.small_groups import MIN_PERSONS
from tests.calibration.fit.hits import P, is_plausible
from tests.calibration.worlds import (
    World,
    draw_paths,
    draw_world,
    lognormal_marginals,
)

Array = NDArray[np.float64]
Judged = tuple[Marginals, Marginals, Array, Intervals]
FITTED, FRESH = 3_000, 8_000
GUARANTEES = ("none", "extrapolated", "assumption")  # the better, the later


@pytest.fixture(scope="module")
def fitted(world: World) -> Calibrator:
    return fit_calibration(*world(FITTED, 1), seed=0)


@pytest.fixture(scope="module")
def judged(world: World, fitted: Calibrator) -> Judged:
    """Fresh persons: raw marginals, recalibrated marginals, outcomes, intervals."""
    raw, outcomes = world(FRESH, 2)
    recalibrated = fitted.recalibrate(raw)
    return raw, recalibrated, outcomes, fitted.intervals(recalibrated, COVERAGE)


def calibrate_probability(u: NDArray[np.float64], cell: Cell) -> NDArray[np.float64]:
    return np.interp(u, cell.knots, cell.values)


def identity_cell(thresholds: Any = None, n: int = 0) -> Cell:
    grid = np.linspace(0, 1, 9)
    return Cell(grid, grid, 500, thresholds or {}, n)


# --- the order statistic ---


class Zero(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    def fit(self) -> Zero:
        self.fitted_ = True
        return self

    def predict(self, features: Array) -> Array:
        return np.zeros(len(features))


def test_thresholds_equal_mapie_at_all_levels() -> None:
    scores = np.random.default_rng(0).random(357)
    features = np.zeros((357, 1))
    model = SplitConformalRegressor(
        Zero().fit(), confidence_level=list(COVERAGE), prefit=True
    ).conformalize(features, scores)
    upper = model.predict_interval(features[:1])[1][0, 1]
    assert upper.tolist() == [conformal_quantile(scores, coverage) for coverage in COVERAGE]


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_rank_is_the_exact_ceiling(coverage: float) -> None:
    exact = Fraction(str(coverage))
    assert [rank_needed(n, coverage) for n in range(1, 1200)] == [
        math.ceil((n + 1) * exact) for n in range(1, 1200)
    ]


def test_too_few_scores_give_an_infinite_threshold_never_the_largest_score() -> None:
    scores = np.arange(1.0, 9.0)
    assert conformal_quantile(scores, 0.9) == math.inf
    assert conformal_quantile(np.arange(1.0, 10.0), 0.9) == 9
    assert conformal_quantile(np.empty(0), 0.5) == math.inf


def test_rounding_averages_order_statistics_at_and_above_the_needed_one() -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1.0, 101.0))
    assert conformal_quantile(scores, 0.8, neighbours=10) == np.arange(81, 91).mean()
    assert conformal_quantile(scores, 0.9, neighbours=10) == np.arange(91, 101).mean()
    assert conformal_quantile(scores, 0.91, neighbours=10) == math.inf


def coverage_law_pvalue(
    quantile: Callable[[Array], float], n: int = 100, coverage: float = 0.9, repeats: int = 2_000
) -> float:
    scores = np.random.default_rng(3).random((repeats, n))
    k = rank_needed(n, coverage)
    thresholds = [quantile(row) for row in scores]
    return float(stats.kstest(thresholds, stats.beta(k, n + 1 - k).cdf).pvalue)


def test_coverage_given_the_calibration_persons_follows_the_beta_law() -> None:
    assert coverage_law_pvalue(lambda row: conformal_quantile(row, 0.9)) > P


def test_a_threshold_without_the_plus_one_fails_the_beta_law() -> None:
    assert coverage_law_pvalue(lambda row: np.sort(row)[math.ceil(0.9 * len(row)) - 1]) < P


def test_mean_coverage_lies_between_the_level_and_one_over_n_plus_1_above_plus_rounding() -> None:
    n, repeats = 299, 4_000
    scores = np.random.default_rng(4).random((repeats, n))
    for coverage in COVERAGE[:3]:
        for neighbours in (1, MIN_PERSONS):
            shares = np.array(
                [conformal_quantile(row, coverage, neighbours=neighbours) for row in scores]
            )
            error = 5 * shares.std() / repeats**0.5
            assert (
                coverage - error
                <= shares.mean()
                <= coverage + 1 / (n + 1) + (neighbours - 1) / 2 / (n + 1) + error
            )


# --- published sets ---


def hits_hold(hits: Array, fitted: Calibrator, outcomes: Array) -> bool:
    """The check that the calibrator must pass and broken variants must fail; hits (n, H, L)."""
    _, horizons, n_coverages = hits.shape
    tail = P / 2 / (horizons * n_coverages)
    return all(
        is_plausible(
            int(hits[:, h, j].sum()),
            len(outcomes),
            fitted.cells[h + 1, "all"].n_threshold,
            coverage,
            tail,
        )
        for h in range(horizons)
        for j, coverage in enumerate(COVERAGE)
    )


def test_sets_cover_fresh_persons_as_stated_although_forecasts_are_wrong(
    fitted: Calibrator, judged: Judged
) -> None:
    _, _, outcomes, intervals = judged
    assert (intervals.guarantee == "assumption").all()
    assert hits_hold(intervals.covered(outcomes), fitted, outcomes)


def _stated(marginals: Marginals) -> Array:
    return np.broadcast_to(np.array(COVERAGE), (*marginals.p_zero.shape, len(COVERAGE)))


def test_broken_calibrators_fail_the_same_check(fitted: Calibrator, judged: Judged) -> None:
    raw, recalibrated, outcomes, intervals = judged
    unfitted = {
        key: replace(cell, thresholds={c: c for c in COVERAGE}, knots=np.empty(0))
        for key, cell in fitted.cells.items()
    }
    unmapped = Calibrator(unfitted)
    no_calibration = unmapped.intervals(unmapped.recalibrate(raw), COVERAGE).covered(outcomes)
    half_open = covered(
        outcomes[..., None],
        intervals.lower,
        intervals.upper,
        np.zeros_like(intervals.includes_zero),
    )
    # Central intervals: zero is inside too often.
    closed = covered(outcomes[..., None], *BAND.ends(recalibrated, _stated(recalibrated), COVERAGE))
    for broken in (no_calibration, half_open, closed):
        assert not hits_hold(broken, fitted, outcomes)


def test_a_threshold_outside_the_sample_is_not_published(world: World) -> None:
    raw, outcomes = world(60, 5)
    small = fit_calibration(raw, outcomes, seed=0)
    for (horizon, _), cell in small.cells.items():
        assert cell.thresholds[0.95] is None
        assert cell.thresholds[0.5] is not None
        assert small.fitted.cell_threshold(horizon, 0.95) == (None, "none", None)
    intervals = small.intervals(small.recalibrate(raw), COVERAGE)
    assert np.isnan(intervals.lower[..., -1]).all()
    assert np.isnan(intervals.upper[..., -1]).all()
    assert (intervals.guarantee[..., -1] == "none").all()
    assert np.isnan(intervals.covered(outcomes)[..., -1]).all()


def test_a_horizon_that_no_finite_set_covers_and_longer_ones_have_no_interval(
    world: World,
) -> None:
    raw, outcomes = world(1_000, 6, horizons=3)
    fitted = fit_calibration(raw, outcomes, seed=0)
    cell = fitted.cells[2, "all"]
    unreachable = replace(cell, thresholds={**cell.thresholds, 0.9: 1.0})
    fitted = replace(fitted, cells={**fitted.cells, (2, "all"): unreachable})
    sets = fitted.intervals(fitted.recalibrate(raw), (0.5, 0.9))
    assert [np.unique(sets.guarantee[:, h, 1]).tolist() for h in range(3)] == [
        ["assumption"],
        ["none"],
        ["none"],
    ]
    assert (sets.guarantee[..., 0] == "assumption").all()
    assert np.isnan(sets.upper[:, 1:, 1]).all()
    assert (fitted.furthest_horizons[0.9], fitted.furthest_horizons[0.5]) == (1, 3)


def test_coverage_of_sets_but_not_of_central_ones_is_the_same_at_any_probability_of_zero(
    world: World,
) -> None:
    fitted = fit_calibration(*world(20_000, 18, horizons=1, wrong=False), seed=0)
    raw, outcomes = world(20_000, 19, horizons=1, wrong=False)
    mapped = fitted.recalibrate(raw)
    sets = fitted.intervals(mapped, COVERAGE).covered(outcomes)[:, 0]
    central = covered(outcomes[..., None], *BAND.ends(mapped, _stated(mapped), COVERAGE))[:, 0]

    def largest_gap(inside: Array, j: int) -> float:
        bins = np.digitize(raw.p_zero[:, 0], [0.15, 0.25, 0.35])
        return max(abs(float(inside[bins == k, j].mean()) - COVERAGE[j]) for k in range(4))

    for j, coverage in enumerate(COVERAGE):
        error = (coverage * (1 - coverage) * (1 / 5_000 + 1 / 10_000)) ** 0.5
        assert largest_gap(sets, j) < 5 * error
        assert largest_gap(central, j) > 6 * error or coverage == 0.5


def draw_atoms(n: int, seed: int) -> tuple[Marginals, Array]:
    """Exact forecasts of persons; a half of them have no earnings with probability .5 to .95."""
    rng = np.random.default_rng(seed)
    zero = rng.uniform(0.05, 0.95, (n, 1))
    one = np.ones((n, 1))
    outcomes = np.where(rng.random((n, 1)) < zero, 0, np.exp(12 + 0.5 * rng.normal(size=(n, 1))))
    return lognormal_marginals(zero, 12 * one, 0.5 * one, str(seed)), outcomes


def test_a_large_atom_does_not_make_the_sets_of_other_persons_too_small() -> None:
    """The set {0} covers more than stated; thresholds do not make up for it at other persons."""
    raw, outcomes = draw_atoms(8_000, 60)
    fitted = fit_calibration(raw, outcomes, seed=0, coverage=(0.5,))
    fresh, y = draw_atoms(12_000, 61)
    mapped = fitted.recalibrate(fresh)
    others = fresh.p_zero[:, 0] < 0.45
    threshold_fold = ~in_map_fold(raw.person_id, 0)
    scores = YEAR.scores(fitted.recalibrate(raw), outcomes, 0.5)[threshold_fold, 0]
    too_small = conformal_quantile(scores, 0.5)  # without the random part of zero
    broken = Calibrator({(1, "all"): replace(fitted.cells[1, "all"], thresholds={0.5: too_small})})
    inside, broken_inside = (
        c.intervals(mapped, (0.5,)).covered(y)[:, 0, 0] for c in (fitted, broken)
    )
    error = 0.5 * (1 / others.sum() + 1 / threshold_fold.sum()) ** 0.5
    assert abs(inside[others].mean() - 0.5) < 5 * error
    assert broken_inside[others].mean() < 0.5 - 8 * error, "the broken version"
    assert inside[~others].mean() > 0.6


# --- the recalibrated distribution ---


def uniformity_pvalue(u: Array, n_fit: int, slack: float = 0.0) -> float:
    """Two-sample Kolmogorov-Smirnov: the map is an empirical CDF of n_fit other persons."""
    distance = stats.kstest(u, "uniform").statistic
    return float(
        stats.kstwobign.sf(max(distance - slack, 0) * math.sqrt(n_fit * len(u) / (n_fit + len(u))))
    )


def test_recalibrated_probabilities_are_uniform_and_raw_ones_are_not(
    fitted: Calibrator, judged: Judged
) -> None:
    raw, recalibrated, outcomes, _ = judged
    v = pit_uniforms(raw)
    before, after = pit(raw, outcomes, v), pit(recalibrated, outcomes, v)
    for h in range(2):
        cell = fitted.cells[h + 1, "all"]
        assert uniformity_pvalue(before[:, h], cell.n_map) < P
        assert uniformity_pvalue(calibrate_probability(before[:, h], cell), cell.n_map) > P
        # Between two grid points the recalibrated CDF is linear.
        assert uniformity_pvalue(after[:, h], cell.n_map, slack=0.001) > P


def test_an_unrandomised_atom_fails_the_uniformity_check(
    fitted: Calibrator, judged: Judged
) -> None:
    raw, _, outcomes, _ = judged
    cell = fitted.cells[1, "all"]
    unrandomised = pit(raw.at_horizon(1), outcomes[:, :1], np.ones((FRESH, 1)))[:, 0]
    assert uniformity_pvalue(calibrate_probability(unrandomised, cell), cell.n_map) < P


def test_recalibrated_marginals_are_the_map_of_raw_ones(fitted: Calibrator, judged: Judged) -> None:
    raw, recalibrated, outcomes, _ = judged
    for h in range(2):
        cell = fitted.cells[h + 1, "all"]
        before, after = raw.at_horizon(h + 1), recalibrated.at_horizon(h + 1)
        expected = calibrate_probability(before.cdf.astype(np.float64), cell)
        np.testing.assert_allclose(after.cdf, expected, rtol=1e-12)
        np.testing.assert_array_equal(after.grid, before.grid)
        np.testing.assert_allclose(
            after.probability(outcomes[:, h : h + 1]),
            calibrate_probability(before.probability(outcomes[:, h : h + 1]), cell),
            atol=0.003,
        )


def test_the_map_equals_the_predictive_system_of_crepes_up_to_its_blocks() -> None:
    u = np.random.default_rng(7).beta(2, 1.3, 4_000)
    grid = np.linspace(0.001, 0.999, 500)
    oracle = (
        ConformalPredictiveSystem().fit(u, seed=0).predict_p(np.zeros(500), grid, smoothing=False)
    )
    for knots, values in (empirical_map(u), fit_map(u)):
        cell = Cell(knots, values, len(u), {}, 0)
        largest_block = np.diff(values).max()
        assert np.abs(calibrate_probability(grid, cell) - oracle).max() <= (
            largest_block + 2 / len(u)
        )
        assert len(knots) <= 200
        assert (np.diff(knots) > 0).all()
        assert (np.diff(values) > 0).all()
        assert (knots[0], knots[-1], values[0], values[-1]) == (0, 1, 0, 1)
    knots, values = empirical_map(u)
    assert np.abs(np.interp(grid, knots, values) - oracle).max() < 0.01


def test_no_single_persons_value_is_in_the_table(world: World) -> None:
    raw, outcomes = world(700, 8)
    fitted = fit_calibration(raw, outcomes, seed=0)
    u = pit(raw, outcomes, pit_uniforms(raw))
    table = fitted.to_table()
    inner = table.filter(pl.col("kind") == "map", pl.col("knot").is_between(0, 1, closed="none"))
    assert inner.height > 10
    assert not np.isin(inner["knot"].to_numpy(), u).any()
    assert not np.isin(table["value"].drop_nulls().to_numpy(), u[(u > 0) & (u < 1)]).any()
    for n in (100, 119, 137, 1000):
        _, values = empirical_map(np.random.default_rng(n).random(n))
        # Values are average ranks of blocks of at least 10: inner knots are 10 ranks apart.
        assert (np.diff(values[1:-1]) * (n + 1) >= MIN_PERSONS - 1e-9).all()
        knots, shrunken = fit_map(np.random.default_rng(n).random(n))
        assert len(knots) <= 2 + n // MIN_PERSONS
        assert (np.diff(shrunken) > 0).all()


# --- shrunken maps ---

DISTORTIONS = {"right": (1.0, 1.0), "nearly right": (1.1, 1.0), "wrong": (1.4, 0.8)}
Map = tuple[Array, Array]
IDENTITY: Map = (np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def mean_gain(fit: Callable[[Array], Map], distortion: str, n: int, repeats: int) -> float:
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


def unshrunk(u: Array) -> Map:
    return empirical_map(u)


def does_no_harm(fit: Callable[[Array], Map], n: int, repeats: int) -> bool:
    """Whether maps from n persons lose at most two nats over n persons against no map."""
    return all(mean_gain(fit, name, n, repeats) > -2 / n for name in DISTORTIONS)


@pytest.mark.parametrize(("n", "repeats"), [(100, 60), (300, 40), (1_000, 20), (10_000, 5)])
def test_a_map_does_no_harm_and_is_better_than_an_unshrunk_one(n: int, repeats: int) -> None:
    assert does_no_harm(fit_map, n, repeats)
    assert does_no_harm(unshrunk, n, repeats) == (n > 10_000), "the broken version"
    for name in DISTORTIONS:
        gain = mean_gain(fit_map, name, n, repeats)
        assert gain > mean_gain(unshrunk, name, n, repeats) - 0.003
        if name == "wrong":
            assert gain > 0.09
        else:
            assert gain > mean_gain(unshrunk, name, n, repeats)


@pytest.mark.parametrize("distortion", list(DISTORTIONS))
def test_a_map_from_many_persons_is_close_to_the_true_map(distortion: str) -> None:
    law = stats.beta(*DISTORTIONS[distortion])
    u = law.rvs(100_000, random_state=np.random.default_rng(0))
    knots, values = fit_map(u)
    grid = np.linspace(0.0, 1.0, 1_001)
    # The bound of Dvoretzky, Kiefer and Wolfowitz at probability P, and one block.
    bound = math.sqrt(math.log(2 / P) / 2 / len(u)) + 0.001
    assert np.abs(np.interp(grid, knots, values) - law.cdf(grid)).max() < bound
    best = float(law.logpdf(law.ppf((np.arange(20_000) + 0.5) / 20_000)).mean())
    assert mean_gain(fit_map, distortion, 100_000, 1) > best - 0.001


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("n", [200, 10_000])
def test_recalibrated_forecasts_of_fresh_persons_score_no_worse_than_raw_ones(
    world: World, n: int, wrong: bool
) -> None:
    """CRPS; a right forecast loses hardly anything, and a wrong one gains."""
    fresh, outcomes = world(1_000, 70, horizons=1, wrong=wrong)
    raw = marginal_scores(fresh, outcomes)["crps_log"].mean()
    scores: dict[str, list[float]] = {"shrunken": [], "unshrunk": []}
    for seed in range(71, 76):
        calibration, truth = world(n, seed, horizons=1, wrong=wrong)
        u = pit(calibration, truth, pit_uniforms(calibration))[:, 0]
        for name, fit in (("shrunken", fit_map), ("unshrunk", unshrunk)):
            calibrator = Calibrator({(1, "all"): Cell(*fit(u), n, {}, 0)})
            mapped = calibrator.recalibrate(fresh)
            scores[name].append(float(marginal_scores(mapped, outcomes)["crps_log"].mean()))
    mean = {name: float(np.mean(values)) for name, values in scores.items()}
    assert mean["shrunken"] < raw - 0.01 if wrong else mean["shrunken"] < raw * (1 + 0.5 / n)
    assert mean["shrunken"] < mean["unshrunk"] * (1.002 if wrong else 1.0001)
    if not wrong and n == 200:
        assert mean["unshrunk"] > raw * (1 + 0.5 / n), "the broken version"


def test_a_map_depends_neither_on_the_order_of_persons_nor_exists_for_few() -> None:
    u = np.random.default_rng(3).beta(1.4, 0.8, 500)
    for left, right in zip(fit_map(u), fit_map(u[::-1]), strict=True):
        assert np.array_equal(left, right)
    assert len(fit_map(u[:99])[0]) == 0
    assert len(fit_map(u[:99], map_persons=50)[0]) > 2


def test_a_map_that_is_the_identity_is_not_replaced_by_that_of_a_shorter_horizon(
    world: World,
) -> None:
    raw, outcomes = world(2_000, 20, wrong=True)
    right, truth = world(2_000, 20, wrong=False)
    mixed = replace(
        raw,
        grid=np.stack([raw.grid[:, 0], right.grid[:, 1]], axis=1),
        cdf=np.stack([raw.cdf[:, 0], right.cdf[:, 1]], axis=1),
        p_zero=np.stack([raw.p_zero[:, 0], right.p_zero[:, 1]], axis=1),
    )
    assert np.array_equal(truth, outcomes)
    fitted = fit_calibration(mixed, outcomes, seed=0)
    assert fitted.fitted.map_cell(2) is fitted.cells[2, "all"]
    grid = np.linspace(0, 1, 101)
    off = [np.abs(calibrate_probability(grid, fitted.cells[h, "all"]) - grid).max() for h in (1, 2)]
    assert off[0] > 0.1 > 0.04 > off[1]


# --- paths ---


def test_mapped_paths_follow_the_recalibrated_marginals(fitted: Calibrator, judged: Judged) -> None:
    raw, recalibrated = (forecast.take(slice(0, 500)) for forecast in judged[:2])
    for count in (7, 60, 500):
        mapped = map_paths(draw_paths(raw, count), recalibrated)
        assert mapped.recalibrated
        ordered = np.sort(mapped.earnings, axis=2)
        # The chance of zero agrees to half a path, and so does the mean.
        np.testing.assert_allclose(
            ordered.mean(axis=2, dtype=float), recalibrated.mean, rtol=0.6 / count
        )
        assert (
            np.abs((ordered == 0).mean(axis=2) - recalibrated.p_zero) <= 0.5 / count + 1e-9
        ).all()
        # The path of rank r lies between the quantiles of r / M and (r + 1) / M.
        edges = recalibrated.quantiles(np.arange(count + 1) / count)
        assert (ordered >= edges[..., :-1] * (1 - 1e-6)).all()
        inside = np.arange(count) + 0.5 > recalibrated.p_zero[..., None] * count
        assert (ordered <= edges[..., 1:] * (1 + 1e-6))[inside].all()
    raw_means = draw_paths(raw, 500).earnings.mean(axis=2, dtype=float)
    assert not np.allclose(raw_means, recalibrated.mean, rtol=0.02), "raw paths do not"


def test_mapping_paths_that_follow_the_marginals_already_changes_nothing(
    fitted: Calibrator, judged: Judged
) -> None:
    raw, recalibrated = (forecast.take(slice(0, 50)) for forecast in judged[:2])
    mapped = map_paths(draw_paths(raw, 60), recalibrated)
    again = map_paths(replace(mapped, recalibrated=False), recalibrated)
    assert np.array_equal(again.earnings, mapped.earnings)
    with pytest.raises(UsageError, match="already recalibrated"):
        map_paths(mapped, recalibrated)
    with pytest.raises(UsageError, match="raw"):
        map_paths(draw_paths(raw, 60), raw)


def test_the_identity_map_leaves_marginals_unchanged_bit_by_bit(world: World) -> None:
    raw, _ = world(20, 9)
    for cell in (identity_cell(), Cell(*IDENTITY, 500, {}, 0)):
        same = Calibrator({(1, "all"): cell, (2, "all"): cell}).recalibrate(raw)
        assert np.array_equal(same.cdf, raw.cdf)
        assert np.array_equal(same.p_zero, raw.p_zero)
    unchanged = Calibrator.identity().recalibrate(raw)
    assert np.array_equal(unchanged.cdf, raw.cdf)
    assert unchanged.recalibrated


def test_paths_keep_their_ranks_and_zeros_go_by_total_earnings(
    fitted: Calibrator, world: World
) -> None:
    raw, _ = world(200, 10)
    paths = draw_paths(raw)
    mapped = map_paths(paths, fitted.recalibrate(raw)).earnings
    total = paths.earnings.astype(float).sum(axis=1)
    for h in range(2):
        order = np.argsort(paths.earnings[:, h], axis=1, kind="stable")
        rises = np.diff(np.take_along_axis(paths.earnings[:, h], order, axis=1)) > 0
        steps = np.diff(np.take_along_axis(mapped[:, h], order, axis=1))
        assert (steps >= 0)[rises].all()
        was_zero, is_zero = paths.earnings[:, h] == 0, mapped[:, h] == 0
        lowest_positive = np.where(was_zero, np.inf, mapped[:, h]).min(axis=1)
        assert (np.where(was_zero, mapped[:, h], 0).max(axis=1) <= lowest_positive).all()
        # If some of the zeros became positive, they are the ones with the largest totals.
        richest_zero = np.where(was_zero & is_zero, total, -np.inf).max(axis=1)
        poorest_raised = np.where(was_zero & ~is_zero, total, np.inf).min(axis=1)
        assert (richest_zero <= poorest_raised).all()
        assert (is_zero.sum(axis=1) != was_zero.sum(axis=1)).any()


def test_years_beyond_the_last_marginal_keep_its_correction(
    fitted: Calibrator, world: World
) -> None:
    raw, _ = world(300, 21, horizons=4)
    paths = draw_paths(raw, 400)
    mapped = map_paths(paths, fitted.recalibrate(raw).first(2))
    full = map_paths(paths, fitted.recalibrate(raw))
    assert np.array_equal(mapped.earnings[:, :2], full.earnings[:, :2])
    for h in (2, 3):  # the map of the last horizon serves beyond it
        before, corrected, expected = (
            np.sort(p.earnings[:, h], axis=1) for p in (paths, mapped, full)
        )
        middle = slice(150, 250)
        off, uncorrected = (
            np.abs(np.log1p(x[:, middle]) - np.log1p(expected[:, middle])).mean()
            for x in (corrected, before)
        )
        assert off < 0.5 * uncorrected
        order = np.argsort(paths.earnings[:, h], axis=1, kind="stable")
        rises = before[:, 1:] > before[:, :-1]
        assert (np.diff(np.take_along_axis(mapped.earnings[:, h], order, axis=1)) >= 0)[rises].all()


def test_numbers_of_a_person_do_not_depend_on_the_batch_or_its_order(
    fitted: Calibrator, world: World
) -> None:
    raw, _ = world(64, 11)
    paths = draw_paths(raw, 37)
    together = fitted.recalibrate(raw)
    mapped, sets = map_paths(paths, together), fitted.intervals(together, COVERAGE)
    back = slice(None, None, -1)
    backwards = fitted.recalibrate(raw.take(back))
    assert np.array_equal(backwards.cdf[::-1], together.cdf)
    assert np.array_equal(map_paths(paths.take(back), backwards).earnings[::-1], mapped.earnings)
    for row in (0, 17, 63):
        index = np.array([row])
        alone = fitted.recalibrate(raw.take(index))
        single = fitted.intervals(alone, COVERAGE)
        assert np.array_equal(alone.cdf[0], together.cdf[row])
        assert np.array_equal(alone.quantiles([0.1, 0.9])[0], together.quantiles([0.1, 0.9])[row])
        assert np.array_equal(map_paths(paths.take(index), alone).earnings[0], mapped.earnings[row])
        assert np.array_equal(single.lower[0], sets.lower[row])
        assert np.array_equal(single.upper[0], sets.upper[row])


def test_a_forecast_without_zeros_gets_none_and_one_of_zeros_keeps_them(world: World) -> None:
    lifted = Calibrator(
        {(1, "all"): Cell(np.array([0, 0.5, 1.0]), np.array([0, 0.8, 1.0]), 500, {}, 0)}
    )
    raw = world(5, 1, horizons=1)[0]
    cdf = (raw.cdf - raw.p_zero[..., None]) / (1 - raw.p_zero[..., None])
    never = replace(raw, cdf=cdf, p_zero=np.zeros_like(raw.p_zero))
    always = replace(raw, cdf=np.ones_like(raw.cdf), p_zero=np.ones_like(raw.p_zero))
    for forecast, is_positive in ((never, True), (always, False)):
        mapped = lifted.recalibrate(forecast)
        assert np.array_equal(mapped.p_zero, forecast.p_zero)
        earnings = map_paths(draw_paths(forecast, 40), mapped).earnings
        assert ((earnings > 0) == is_positive).all()


# --- guarantees ---


def test_horizons_without_outcomes_are_extrapolated(world: World) -> None:
    raw, outcomes = world(1_200, 12, horizons=4)
    outcomes[:, 2:] = np.nan
    fitted = fit_calibration(raw, outcomes, seed=0)
    sets = fitted.intervals(fitted.recalibrate(raw), (0.9,))
    assert [np.unique(sets.guarantee[:, h]).tolist() for h in range(4)] == [
        ["assumption"],
        ["assumption"],
        ["extrapolated"],
        ["extrapolated"],
    ]
    assert fitted.fitted.cell_threshold(4, 0.9)[0] == fitted.cells[2, "all"].thresholds[0.9]
    assert fitted.fitted.map_cell(4) is fitted.cells[2, "all"]
    assert set(fitted.furthest_horizons.values()) == {2}


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=2, max_size=6), st.integers(0, 2))
def test_a_longer_horizon_never_has_more_guarantee_than_a_shorter_one(
    persons: list[int], unobserved: int
) -> None:
    """Whatever the numbers of persons by horizon are; likewise for limits and path bands."""
    raw, outcomes = draw_world(300, 57, horizons=len(persons) + unobserved)
    for h, n in enumerate(persons):
        outcomes[n:, h] = np.nan
    outcomes[:, len(persons) :] = np.nan
    fitted = fit_calibration(raw, outcomes, seed=0)
    fitted = fit_thresholds(fitted, raw, outcomes, seed=0)
    mapped = fitted.recalibrate(raw.take(slice(0, 3)))
    limits = one_sided_limits(fitted, mapped, COVERAGE)
    bands = np.stack(
        [
            band_intervals(fitted, mapped, years, COVERAGE).guarantee[:, 0]
            for years in range(1, raw.n_horizons + 1)
        ],
        axis=1,
    )
    sets = fitted.intervals(mapped, COVERAGE).guarantee
    for guarantee in (sets, limits.guarantee, limits.positive_guarantee, bands):
        rank = np.select([guarantee == word for word in GUARANTEES], [0, 1, 2])
        assert (np.diff(rank, axis=1) <= 0).all()
        assert (np.diff(rank, axis=2) <= 0).all(), "nor a higher coverage"


def test_without_calibration_every_interval_is_none(world: World) -> None:
    raw, _ = world(3, 13)
    sets = Calibrator.identity().intervals(Calibrator.identity().recalibrate(raw), (0.9, 0.123))
    assert (sets.guarantee == "none").all()
    assert np.isnan(sets.lower).all()


# --- form ---


def test_a_table_of_another_form_is_refused(fitted: Calibrator) -> None:
    with pytest.raises(BundleError, match="columns"):
        Calibrator.from_table(fitted.to_table().drop("n"))
    with pytest.raises(BundleError, match="incomplete"):
        Calibrator.from_table(fitted.to_table().filter(pl.col("kind") != "threshold"))
    assert dict(fitted.to_table().schema) == SCHEMA


def test_the_same_seed_gives_the_same_fit_in_any_order_of_persons(world: World) -> None:
    raw, outcomes = world(600, 16)
    shuffled = np.random.default_rng(0).permutation(600)
    one = fit_calibration(raw, outcomes, seed=3)
    other = fit_calibration(raw.take(shuffled), outcomes[shuffled], seed=3)
    assert one.digest == other.digest
    assert one.digest != fit_calibration(raw, outcomes, seed=4).digest
    share = in_map_fold(raw.person_id, 3).mean()
    assert abs(share - 0.5) < 5 * 0.5 / 600**0.5


def test_a_person_twice_wrong_shapes_and_a_coverage_of_one_are_refused(world: World) -> None:
    raw, outcomes = world(20, 17)
    with pytest.raises(UsageError, match="one origin per person"):
        fit_calibration(raw.take(np.array([0, 1, 0])), outcomes[[0, 1, 0]], seed=0)
    with pytest.raises(UsageError, match="disagree"):
        fit_calibration(raw, outcomes[:, :1], seed=0)
    with pytest.raises(UsageError, match="coverage"):
        fit_calibration(raw, outcomes, seed=0, coverage=(1.0,))
    with pytest.raises(UsageError, match="raw"):
        fit_calibration(Calibrator.identity().recalibrate(raw), outcomes, seed=0)
