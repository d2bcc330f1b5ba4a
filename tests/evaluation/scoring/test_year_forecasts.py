"""Forecasts of single years: sets of samples cover, and scores are those of the distribution."""

from __future__ import annotations

import numpy as np
import pytest
from saga.evaluation.scoring.ensemble_scores import sample_scores
from saga.evaluation.scoring.year_forecasts import YearForecasts, nominal_sets

from saga.distributions import Marginals
from saga.scores import covered, marginal_scores

LEVELS = (0.5, 0.8, 0.9)


@pytest.mark.parametrize("zero", [0.0, 0.04, 0.3, 0.85])
def test_sets_have_every_coverage_if_outcome_and_samples_are_exchangeable(zero: float) -> None:
    rng = np.random.default_rng(0)
    n, m = 20_000, 200
    draws = np.where(rng.random((n, 1, m + 1)) < zero, 0.0, rng.lognormal(12, 0.7, (n, 1, m + 1)))
    sets = nominal_sets(Marginals.from_samples(draws[..., :m]), LEVELS, m)
    inside = covered(draws[..., m:], *sets)[:, 0].mean(axis=0)
    for level, share in zip(LEVELS, inside, strict=True):
        if zero > level:  # only {0} is left, which holds more than the level
            assert share == pytest.approx(zero, abs=4 * np.sqrt(zero * (1 - zero) / n))
        else:
            # 1 / (M + 1) on top of sampling error: the samples' share of zeros is rounded.
            assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / n) + 1 / (m + 1)


def test_samples_have_fair_scores_and_distributions_exact_ones() -> None:
    rng = np.random.default_rng(2)
    samples, outcomes = rng.lognormal(12, 1, (20, 2, 30)), rng.lognormal(12, 1, (20, 2))
    at = (np.arange(5), np.ones(5, dtype=np.int64))
    sampled = YearForecasts.of_samples(np.array([""] * 20), samples)
    marginals = sampled.marginals
    exact = YearForecasts(
        sampled.person_id, marginals, sampled.lower, sampled.upper, sampled.includes_zero
    )
    for forecasts, scores in (
        (sampled, sample_scores(samples, outcomes)),
        (exact, marginal_scores(marginals, outcomes)),
    ):
        computed = forecasts.scores(outcomes, at, 24_150.0)
        assert set(computed) == set(scores)
        for name, values in scores.items():
            assert computed[name] == pytest.approx(values[at]), name
