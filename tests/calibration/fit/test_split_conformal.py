"""Coverage of the conformal layer on exchangeable persons; broken variants fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from crepes import ConformalPredictiveSystem  # type: ignore[import-untyped]
from mapie.regression import SplitConformalRegressor
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin

from calibration.fit.split_conformal import (
    ATOM_WIDTHS,
    NEIGHBOURS,
    YEARS_OF_PAY,
    conformal_quantile,
    fit_calibration,
    fit_map,
    in_map_fold,
    rank_needed,
    scale_of,
)
from saga.conformal.calibration_table import SCHEMA
from saga.conformal.calibrator import Calibrator, Intervals, reason
from saga.conformal.prediction_sets import grow
from saga.conformal.recalibration import Cell, map_ordered
from saga.errors import BundleError, UsageError
from saga.paths import Paths
from saga.requests import COVERAGE
from saga.scores import covered, pit, pit_uniforms
from tests.calibration.fit.hits import P, is_plausible

Array = NDArray[np.float64]
World = Callable[..., tuple[Paths, Array]]
Judged = tuple[Paths, Paths, Array, Intervals]
FITTED, FRESH = 3_000, 8_000


@pytest.fixture(scope="module")
def fitted(world: World) -> Calibrator:
    paths, outcomes = world(FITTED, 1)
    return fit_calibration(paths, outcomes, seed=0)


@pytest.fixture(scope="module")
def judged(world: World, fitted: Calibrator) -> Judged:
    """Fresh persons: raw paths, recalibrated paths, outcomes, intervals."""
    paths, outcomes = world(FRESH, 2)
    recalibrated = fitted.recalibrate(paths)
    return paths, recalibrated, outcomes, fitted.intervals(recalibrated, COVERAGE)


def calibrate_probability(u: NDArray[np.float64], cell: Cell) -> NDArray[np.float64]:
    return np.interp(u, cell.knots, cell.values)


def identity_cell(thresholds: Any = None, n: int = 0) -> Cell:
    grid = np.linspace(0, 1, 9)
    return Cell(grid, grid, 500, 0.5, thresholds or {}, n)


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
        for neighbours in (1, NEIGHBOURS):
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


def test_sets_cover_fresh_persons_as_stated_although_the_sampler_is_wrong(
    fitted: Calibrator, judged: Judged
) -> None:
    _, _, outcomes, intervals = judged
    assert (intervals.guarantee == "assumption").all()
    assert hits_hold(intervals.covered(outcomes), fitted, outcomes)


def test_sets_from_other_numbers_of_paths_cover_as_stated_too(
    world: World, fitted: Calibrator
) -> None:
    # Between two fitted numbers the threshold of the lower one serves, which can only cover more.
    for count, exact in ((25, True), (40, False), (50, True), (60, True), (150, False)):
        paths, outcomes = world(FRESH, 30 + count, horizons=1, count=count)
        hits = (
            fitted.intervals(fitted.recalibrate(paths), COVERAGE)
            .covered(outcomes)[:, 0]
            .sum(axis=0)
        )
        n = fitted.cells[1, "all"].n_threshold
        for total, coverage in zip(hits, COVERAGE, strict=True):
            if exact:
                assert is_plausible(int(total), FRESH, n, coverage, P / 2 / (4 * 5))
            else:
                k = rank_needed(n, coverage)
                assert total >= stats.betabinom(FRESH, k, n + 1 - k).ppf(P / 20)


def test_a_threshold_fitted_with_many_paths_fails_for_few(world: World, fitted: Calibrator) -> None:
    paths, outcomes = world(FRESH, 55, horizons=2, count=25)
    swapped = {
        key: replace(c, thresholds={(25, share): c.thresholds[60, share] for share in COVERAGE})
        for key, c in fitted.cells.items()
    }
    broken = Calibrator(swapped, scale=fitted.scale)
    assert not hits_hold(
        broken.intervals(broken.recalibrate(paths), COVERAGE).covered(outcomes), fitted, outcomes
    )


def test_fewer_paths_than_any_fitted_number_give_no_interval(
    world: World, fitted: Calibrator
) -> None:
    assert fitted.path_counts == (25, 50, 60)
    paths = fitted.recalibrate(world(3, 56, count=24)[0])
    assert (fitted.intervals(paths, COVERAGE).guarantee == "none").all()


def test_broken_calibrators_fail_the_same_check(fitted: Calibrator, judged: Judged) -> None:
    raw, recalibrated, outcomes, intervals = judged
    unfitted = {
        key: replace(cell, thresholds={(60, c): c for c in COVERAGE}, knots=np.empty(0))
        for key, cell in fitted.cells.items()
    }
    unmapped = Calibrator(unfitted, scale=fitted.scale)
    no_calibration = unmapped.intervals(unmapped.recalibrate(raw), COVERAGE).covered(outcomes)
    half_open = covered(
        outcomes[..., None],
        intervals.lower,
        intervals.upper,
        np.zeros_like(intervals.includes_zero),
    )
    # Equal-tailed closed intervals of a PIT whose atom is not randomised: zero is inside too often.
    coverages = np.array(COVERAGE)
    low, high = (
        np.quantile(recalibrated.earnings, q, axis=2).transpose(1, 2, 0)
        for q in ((1 - coverages) / 2, (1 + coverages) / 2)
    )
    unrandomised = ((low <= outcomes[..., None]) & (outcomes[..., None] <= high)).astype(float)
    for broken in (no_calibration, half_open, unrandomised):
        assert not hits_hold(broken, fitted, outcomes)


def test_a_threshold_outside_the_sample_is_not_published(world: World) -> None:
    paths, outcomes = world(60, 5)
    small = fit_calibration(paths, outcomes, seed=0)
    for (horizon, _), cell in small.cells.items():
        assert cell.thresholds[60, 0.95] is None
        assert cell.thresholds[60, 0.5] is not None
        assert small.cell_threshold(horizon, 0.95, 60) == (None, "none", None)
    intervals = small.intervals(small.recalibrate(paths), COVERAGE)
    assert np.isnan(intervals.lower[..., -1]).all()
    assert np.isnan(intervals.upper[..., -1]).all()
    assert (intervals.guarantee[..., -1] == "none").all()
    assert np.isnan(intervals.covered(outcomes)[..., -1]).all()


def test_sets_are_nested_over_levels(judged: Judged) -> None:
    _, _, _, sets = judged
    positive = sets.upper[..., :-1] > 0
    assert (sets.lower[..., 1:] <= sets.lower[..., :-1])[positive].all()
    assert (sets.upper[..., 1:] >= sets.upper[..., :-1]).all()
    assert (sets.includes_zero[..., 1:] >= sets.includes_zero[..., :-1]).all()
    assert (sets.lower[~sets.includes_zero] > 0).all()


def test_the_chosen_atom_width_covers_zeros_and_positive_outcomes_most_alike(world: World) -> None:
    paths, outcomes = world(4_000, 18, horizons=1, count=120, wrong=False)
    fresh, fresh_outcomes = world(6_000, 19, horizons=1, count=120, wrong=False)
    fitted = fit_calibration(paths, outcomes, seed=0)
    chosen = fitted.cells[1, "all"].atom_width
    assert ATOM_WIDTHS[0] < chosen < ATOM_WIDTHS[-1], "the grid does not end before the best width"
    calibration, test = (
        grow(np.sort(group.earnings[:, 0], axis=1), fitted.scale) for group in (paths, fresh)
    )

    def gap(atom_width: float) -> float:
        threshold = conformal_quantile(calibration.with_atom(atom_width).score(outcomes[:, 0]), 0.9)
        inside = test.with_atom(atom_width).score(fresh_outcomes[:, 0]) <= threshold
        zero = fresh_outcomes[:, 0] == 0
        return abs(float(inside[zero].mean() - inside[~zero].mean()))

    assert gap(chosen) + 0.03 < min(gap(1e-6), gap(1e6))


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
    before, after = pit(raw.earnings, outcomes, v), pit(recalibrated.earnings, outcomes, v)
    for h in range(2):
        cell = fitted.cells[h + 1, "all"]
        assert uniformity_pvalue(before[:, h], cell.n_map) < P
        assert uniformity_pvalue(calibrate_probability(before[:, h], cell), cell.n_map) > P
        # Samples know probabilities up to one of M + 1 steps.
        assert uniformity_pvalue(after[:, h], cell.n_map, slack=1 / (raw.n_paths + 1)) > P


def test_an_unrandomised_atom_fails_the_uniformity_check(
    fitted: Calibrator, judged: Judged
) -> None:
    raw, _, outcomes, _ = judged
    cell = fitted.cells[1, "all"]
    unrandomised = pit(raw.earnings[:, :1], outcomes[:, :1], np.ones((FRESH, 1)))[:, 0]
    assert uniformity_pvalue(calibrate_probability(unrandomised, cell), cell.n_map) < P


def test_the_map_equals_the_predictive_system_of_crepes_up_to_its_blocks() -> None:
    u = np.random.default_rng(7).beta(2, 1.3, 4_000)
    knots, values = fit_map(u)
    cell = Cell(knots, values, len(u), 0.5, {}, 0)
    grid = np.linspace(0.001, 0.999, 500)
    oracle = (
        ConformalPredictiveSystem().fit(u, seed=0).predict_p(np.zeros(500), grid, smoothing=False)
    )
    largest_block = np.diff(values).max()
    assert np.abs(calibrate_probability(grid, cell) - oracle).max() <= largest_block + 2 / len(u)
    assert len(knots) <= 200
    assert (np.diff(knots) > 0).all()
    assert (np.diff(values) > 0).all()
    assert (knots[0], knots[-1], values[0], values[-1]) == (0, 1, 0, 1)


def test_no_single_persons_value_is_in_the_table(world: World) -> None:
    paths, outcomes = world(700, 8)
    fitted = fit_calibration(paths, outcomes, seed=0)
    u = pit(paths.earnings, outcomes, pit_uniforms(paths))
    table = fitted.to_table()
    assert not np.isin(
        table.filter(pl.col("kind") == "map", pl.col("knot").is_between(0, 1, closed="none"))[
            "knot"
        ].to_numpy(),
        u,
    ).any()
    for n in (100, 119, 137, 1000):
        _, values = fit_map(np.random.default_rng(n).random(n))
        # Values are average ranks of blocks of at least 10: inner knots are 10 ranks apart.
        assert (np.diff(values[1:-1]) * (n + 1) >= NEIGHBOURS - 1e-9).all()


def test_marginals_of_mapped_paths_are_the_recalibrated_distribution(
    fitted: Calibrator, judged: Judged
) -> None:
    raw, recalibrated, _, _ = judged
    m = raw.n_paths
    for h in range(2):
        cell = fitted.cells[h + 1, "all"]
        before, after = np.sort(raw.earnings[:500, h]), np.sort(recalibrated.earnings[:500, h])
        zeros = (before == 0).sum(axis=1)
        expected = np.floor((m + 1) * calibrate_probability((zeros + 0.5) / (m + 1), cell) + 1e-9)
        np.testing.assert_array_equal((after == 0).sum(axis=1), np.where(zeros > 0, expected, 0))
        # At the i-th positive sample the new CDF counts floor((M + 1) R(i / (M + 1))) paths; below
        # it is flat up to its smallest value.
        smallest, largest = (
            (after[:, None, :] <= before[:, :, None] * blur).sum(axis=2)
            for blur in (1 - 1e-6, 1 + 1e-6)
        )
        target = np.clip(
            np.floor((m + 1) * calibrate_probability(np.arange(1, m + 1) / (m + 1), cell) + 1e-9),
            0,
            m,
        )
        interior = (np.arange(1, m + 1) > zeros[:, None] + 1) & (np.arange(1, m + 1) < m)
        assert ((smallest <= target) & (target <= largest))[interior].all()


def test_the_identity_map_leaves_paths_unchanged_bit_by_bit(world: World) -> None:
    for count in (7, 50, 500):
        paths, _ = world(20, 9, count=count)
        same = Calibrator({(1, "all"): identity_cell(), (2, "all"): identity_cell()}).recalibrate(
            paths
        )
        assert np.array_equal(same.earnings, paths.earnings)
        unchanged = Calibrator.identity().recalibrate(paths)
        assert unchanged.earnings is paths.earnings
        assert unchanged.recalibrated


def test_paths_keep_their_ranks_and_zeros_go_by_total_earnings(
    fitted: Calibrator, world: World
) -> None:
    paths, _ = world(200, 10)
    mapped = fitted.recalibrate(paths).earnings
    total = paths.earnings.astype(float).sum(axis=1)
    for h in range(2):
        order = np.argsort(paths.earnings[:, h], axis=1, kind="stable")
        assert (np.diff(np.take_along_axis(mapped[:, h], order, axis=1)) >= 0).all()
        # Where some of the zeros became positive they are the ones with the largest totals.
        was_zero, is_zero = paths.earnings[:, h] == 0, mapped[:, h] == 0
        richest_zero = np.where(was_zero & is_zero, total, -np.inf).max(axis=1)
        poorest_raised = np.where(was_zero & ~is_zero, total, np.inf).min(axis=1)
        assert (richest_zero <= poorest_raised).all()


def test_numbers_of_a_person_do_not_depend_on_the_batch_or_its_order(
    fitted: Calibrator, world: World
) -> None:
    paths, _ = world(64, 11, count=37)
    together = fitted.recalibrate(paths)
    sets = fitted.intervals(together, COVERAGE)
    backwards = fitted.recalibrate(paths.take(slice(None, None, -1)))
    assert np.array_equal(backwards.earnings[::-1], together.earnings)
    for row in (0, 17, 63):
        alone = fitted.recalibrate(paths.take(np.array([row])))
        single = fitted.intervals(alone, COVERAGE)
        assert np.array_equal(alone.earnings[0], together.earnings[row])
        assert np.array_equal(single.lower[0], sets.lower[row])
        assert np.array_equal(single.upper[0], sets.upper[row])


def test_a_sampler_without_zeros_gets_none() -> None:
    samples = np.sort(np.random.default_rng(1).lognormal(12, 0.5, (5, 40)).astype(np.float32))
    lifted = Cell(np.array([0, 0.5, 1.0]), np.array([0, 0.8, 1.0]), 500, 0.5, {}, 0)
    assert (map_ordered(samples, lifted) > 0).all()
    assert (map_ordered(np.zeros((2, 40), np.float32), lifted) == 0).all()


# --- guarantees ---


def test_horizons_without_outcomes_are_extrapolated_and_small_ones_give_none(world: World) -> None:
    paths, outcomes = world(1_200, 12, horizons=4)
    outcomes[:, 3] = np.nan
    outcomes[30:, 2] = np.nan
    fitted = fit_calibration(paths, outcomes, seed=0)
    sets = fitted.intervals(fitted.recalibrate(paths), (0.9,))
    assert [np.unique(sets.guarantee[:, h]).tolist() for h in range(4)] == [
        ["assumption"],
        ["assumption"],
        ["none"],
        ["extrapolated"],
    ]
    assert fitted.cell_threshold(4, 0.9, 60)[0] == fitted.cells[2, "all"].thresholds[60, 0.9]
    assert fitted.map_cell(4) is fitted.cells[2, "all"]
    assert set(fitted.furthest_horizons.values()) == {2}
    few = fit_calibration(
        paths.take(slice(0, 150)), outcomes[:150], seed=0
    )  # some 75 in the threshold fold: enough for 80 %, not for 90 %
    assert (few.furthest_horizons[0.8], few.furthest_horizons[0.9]) == (2, 0)


def test_without_calibration_every_interval_is_none(world: World) -> None:
    paths, _ = world(3, 13)
    sets = Calibrator.identity().intervals(Calibrator.identity().recalibrate(paths), (0.9, 0.123))
    assert (sets.guarantee == "none").all()
    assert np.isnan(sets.lower).all()


def test_beyond_age_64_there_is_no_interval(fitted: Calibrator, world: World) -> None:
    paths, _ = world(3, 14)
    earnings = paths.earnings.copy()
    earnings[1, 1] = np.nan
    mapped = fitted.recalibrate(paths.with_earnings(earnings))
    sets = fitted.intervals(mapped, (0.9,))
    assert np.isnan(mapped.earnings[1, 1]).all()
    assert sets.guarantee[1, 1, 0] == "none"
    assert np.isnan(sets.lower[1, 1, 0])
    assert np.array_equal(mapped.earnings[0], fitted.recalibrate(paths).earnings[0])


def test_every_guarantee_has_its_sentence() -> None:
    assert all(
        reason(word).endswith(".")
        for word in ("finite-sample", "assumption", "extrapolated", "none")
    )


def test_a_coverage_that_was_not_calibrated_is_refused_and_the_others_listed(
    fitted: Calibrator, world: World
) -> None:
    with pytest.raises(UsageError, match=r"0\.5, 0\.8, 0\.9, 0\.95"):
        fitted.intervals(fitted.recalibrate(world(2, 15)[0]), (0.85,))


# --- form ---


def test_the_table_gives_back_the_same_calibrator(
    fitted: Calibrator, judged: Judged, tmp_path: Path
) -> None:
    table = fitted.to_table()
    table.write_parquet(tmp_path / "calibration.parquet")
    again = Calibrator.from_table(pl.read_parquet(tmp_path / "calibration.parquet"))
    assert again.digest == fitted.digest
    raw, recalibrated, _, intervals = judged
    assert np.array_equal(again.recalibrate(raw).earnings, recalibrated.earnings)
    assert np.array_equal(again.intervals(recalibrated, COVERAGE).upper, intervals.upper)
    other = replace(fitted, scale=fitted.scale + 1)
    assert other.digest != fitted.digest
    assert Calibrator.from_table(Calibrator.identity().to_table()).coverage == ()


def test_the_scale_is_a_multiple_of_typical_pay_and_describes_no_single_person() -> None:
    pay = np.array(
        [[100_000.0, np.nan, 0.0], [200_000.0, 200_000.0, 200_000.0], [400_000.0, 0.0, 400_000.0]]
        * 4
    )
    assert scale_of(pay) == pytest.approx(
        YEARS_OF_PAY * 200_000, rel=0.01
    )  # a person counts once, however many years are known
    assert (
        scale_of(pay[:9]) == scale_of(np.zeros((50, 2))) == 1.0
    )  # of fewer than ten it would tell something of each
    assert scale_of(np.full((10, 1), 312_345.0)) == 940_000  # two digits


def test_a_table_of_another_form_is_refused(fitted: Calibrator) -> None:
    with pytest.raises(BundleError, match="columns"):
        Calibrator.from_table(fitted.to_table().drop("n"))
    with pytest.raises(BundleError, match="incomplete"):
        Calibrator.from_table(fitted.to_table().filter(pl.col("kind") != "threshold"))
    assert dict(fitted.to_table().schema) == SCHEMA


def test_the_same_seed_gives_the_same_fit_in_any_order_of_persons(world: World) -> None:
    paths, outcomes = world(600, 16)
    shuffled = np.random.default_rng(0).permutation(600)
    one = fit_calibration(paths, outcomes, seed=3)
    other = fit_calibration(paths.take(shuffled), outcomes[shuffled], seed=3)
    assert one.digest == other.digest
    assert one.digest != fit_calibration(paths, outcomes, seed=4).digest
    share = in_map_fold(paths.person_id, 3).mean()
    assert abs(share - 0.5) < 5 * 0.5 / 600**0.5


def test_a_person_twice_wrong_shapes_and_a_coverage_of_one_are_refused(world: World) -> None:
    paths, outcomes = world(20, 17)
    with pytest.raises(UsageError, match="one origin per person"):
        fit_calibration(paths.take(np.array([0, 1, 0])), outcomes[[0, 1, 0]], seed=0)
    with pytest.raises(UsageError, match="disagree"):
        fit_calibration(paths, outcomes[:, :1], seed=0)
    with pytest.raises(UsageError, match="coverage"):
        fit_calibration(paths, outcomes, seed=0, coverage=(1.0,))
