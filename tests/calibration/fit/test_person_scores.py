"""Order statistics of scores: exact ranks, oracles, weights, and several origins of a person."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.regression import SplitConformalRegressor
from saga.calibration.fit.person_scores import (
    PersonCounts,
    effective_persons,
    pooled_quantile,
    rank_needed,
    weighted_quantile,
)
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin

from saga.arrays import Floats
from saga.small_groups import MIN_PERSONS
from tests.calibration.worlds import P, split_quantile

COVERAGE, N_ORIGINS = 0.9, 8
LEVELS = (0.5, 0.8, 0.9, 0.95)


class Zero(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    def fit(self) -> Zero:
        self.fitted_ = True
        return self

    def predict(self, features: Floats) -> Floats:
        return np.zeros(len(features))


def test_thresholds_equal_mapie_at_all_levels() -> None:
    scores = np.random.default_rng(0).random(357)
    features = np.zeros((357, 1))
    model = SplitConformalRegressor(
        Zero().fit(), confidence_level=list(LEVELS), prefit=True
    ).conformalize(features, scores)
    upper = model.predict_interval(features[:1])[1][0, 1]
    assert upper.tolist() == [split_quantile(scores, coverage) for coverage in LEVELS]


@pytest.mark.parametrize("coverage", [*LEVELS, 0.99])
def test_the_rank_is_the_exact_ceiling(coverage: float) -> None:
    exact = Fraction(str(coverage))
    assert [rank_needed(n, coverage) for n in range(1, 1200)] == [
        math.ceil((n + 1) * exact) for n in range(1, 1200)
    ]


def test_too_few_scores_give_an_infinite_threshold_never_the_largest_score() -> None:
    scores = np.arange(1.0, 9.0)
    assert split_quantile(scores, 0.9) == math.inf
    assert split_quantile(np.arange(1.0, 10.0), 0.9) == 9
    assert split_quantile(np.empty(0), 0.5) == math.inf


def beta_law_pvalue(quantile: Callable[[Floats], float], n: int = 100) -> float:
    """Whether coverage given n calibration persons has its law at 90 %."""
    scores, k = np.random.default_rng(3).random((2_000, n)), rank_needed(n, 0.9)
    law = stats.beta(k, n + 1 - k)
    return float(stats.kstest([quantile(row) for row in scores], law.cdf).pvalue)


def test_coverage_follows_the_beta_law_and_without_the_plus_one_does_not() -> None:
    assert beta_law_pvalue(lambda row: split_quantile(row, 0.9)) > P
    assert beta_law_pvalue(lambda row: np.sort(row)[math.ceil(0.9 * len(row)) - 1]) < P


# --- weights ---


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=1, max_size=40),
    st.sampled_from([0.5, 0.8, 0.9]),
)
@settings(max_examples=200, deadline=None)
def test_integer_weights_equal_repeated_persons(
    weighted_scores: list[tuple[float, int]], stated: float
) -> None:
    scores, times = (
        np.array(column, dtype=np.float64) for column in zip(*weighted_scores, strict=True)
    )
    weighted = weighted_quantile(scores, times, stated, neighbours=1)
    enough = int(effective_persons(times) + 1e-9)
    if rank_needed(enough, stated) <= enough:
        assert weighted == split_quantile(np.repeat(scores, times.astype(int)), stated)
    else:
        assert weighted == np.inf


def test_the_quantile_is_the_one_of_that_argument() -> None:
    """The rank that the test above computes by hand."""
    rng = np.random.default_rng(8)
    scores, weights = rng.random(300), rng.choice([0.0, 0.5, 2.0], 300)
    q = weighted_quantile(scores, weights, 0.8, heaviest=2.0, neighbours=1)
    total = weights.sum() + 2.0
    assert weights[scores <= q].sum() >= 0.8 * total
    assert weights[scores < q].sum() < 0.8 * total
    assert weighted_quantile(scores, weights, 0.8, heaviest=2.0) > q


def test_few_persons_in_effect_give_no_interval_however_many_there_are() -> None:
    scores = np.linspace(0, 1, 5_000)
    assert np.isfinite(weighted_quantile(scores, np.ones(5_000), 0.9))
    heavy = np.where(np.arange(5_000) % 500 == 0, 1.0, 1e-4)
    assert effective_persons(heavy) < 20
    assert weighted_quantile(scores, heavy, 0.9) == np.inf
    assert effective_persons(np.full(7, 3.0)) == pytest.approx(7)
    assert effective_persons(np.zeros(3)) == 0


# --- several origins ---


def draw_scores(
    rng: np.random.Generator, n: int, correlation: float, *, n_origins: int = N_ORIGINS
) -> Floats:
    """Scores (n, R) of persons with a common effect; those of low effect have fewer outcomes."""
    effect = rng.normal(size=(n, 1))
    noise = rng.normal(size=(n, n_origins))
    scores = stats.norm.cdf(math.sqrt(correlation) * effect + math.sqrt(1 - correlation) * noise)
    is_known = rng.random((n, n_origins)) < np.where(effect > 0, 0.9, 0.3)
    return np.where(is_known, scores, np.nan)


def pooled(scores: Floats) -> float:
    """The `pooled_quantile` of scores (n, N_ORIGINS)."""
    persons, _ = np.nonzero(~np.isnan(scores))
    known = scores[~np.isnan(scores)]
    return pooled_quantile(known, persons, COVERAGE, N_ORIGINS, neighbours=1)


def coverage_of(thresholds: list[float], judged: list[Floats]) -> tuple[float, float]:
    """Share of known scores of new persons at or below the thresholds, with its standard error.

    Each sample counts by its number of known scores: the promise is on average over origins.
    """
    inside = np.array([(new <= q).sum() for q, new in zip(thresholds, judged, strict=True)])
    known = np.array([(~np.isnan(new)).sum() for new in judged])
    share = inside.sum() / known.sum()
    return float(share), float((inside - share * known).std() * len(known) ** 0.5 / known.sum())


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_coverage_of_new_persons_is_at_least_as_stated(correlation: float) -> None:
    rng = np.random.default_rng(1)
    samples = [draw_scores(rng, 40, correlation) for _ in range(3_000)]
    judged = [draw_scores(rng, 20, correlation) for _ in samples]
    share, error = coverage_of([pooled(scores) for scores in samples], judged)
    assert share > COVERAGE - 4 * error
    known = np.mean([(~np.isnan(scores)).sum() for scores in samples])
    assert share < COVERAGE + 2 * N_ORIGINS / known + 4 * error


def test_one_origin_is_split_conformal_prediction() -> None:
    scores = np.random.default_rng(4).random(357)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        k = math.ceil(358 * Fraction(str(coverage)))
        expected = np.sort(scores)[k - 1 : k - 1 + MIN_PERSONS].mean()
        assert pooled_quantile(scores, np.arange(357), coverage, 1) == expected
    assert pooled_quantile(scores, np.arange(357), 0.99, 1) == math.inf


def test_a_threshold_averages_scores_of_at_least_ten_persons() -> None:
    persons = np.repeat(np.arange(30), 5)
    scores = np.sort(np.random.default_rng(5).random(150))  # a person's scores are neighbours
    q = pooled_quantile(scores, persons, 0.5, 5)
    k = rank_needed(150, 0.5, 5)
    assert len(np.unique(persons[k - 1 : np.searchsorted(scores, 2 * q - scores[k - 1])])) >= 9
    assert pooled_quantile(scores, persons, 0.75, 5) == math.inf


def test_sets_that_contain_those_of_lower_coverage_cover_no_more_than_stated() -> None:
    # Sets are central, but those of 90 % begin at zero for every second person. More outcomes are
    # in the lower tail than forecast, so there the 80 % set ends above the 90 % set.
    rng, n, power = np.random.default_rng(6), 2_000, 1.4
    counts, from_zero = PersonCounts(np.arange(n)), np.arange(n) % 2 == 0
    coverage: dict[str, list[float]] = {"nested": [], "each by itself": []}
    for _ in range(300):
        u = rng.random(n) ** power
        central = np.abs(2 * u - 1)
        scores = {0.8: central, 0.9: np.where(from_zero, u, central)}
        nested_thresholds = counts.thresholds(scores, np.arange(n), 0)
        by_itself = [split_quantile(scores[c], c, MIN_PERSONS) for c in (0.8, 0.9)]
        together = [nested_thresholds[c] or math.inf for c in (0.8, 0.9)]
        for name, (low, high) in {"nested": together, "each by itself": by_itself}.items():
            upper = np.array([max((1 + low) / 2, high), (1 + high) / 2]) ** (1 / power)
            lower = ((1 - high) / 2) ** (1 / power)
            coverage[name].append((upper.sum() - lower) / 2)
    # A sample covers (k + 9) / (n + 1) at most, and leaves out one rank.
    bound = 0.9 + (MIN_PERSONS + 1) / n
    nested = np.array(coverage["nested"])
    error = nested.std() / math.sqrt(len(nested))
    assert 0.9 - 4 * error < nested.mean() < bound + 4 * error
    assert np.mean(coverage["each by itself"]) > bound + 4 * error
