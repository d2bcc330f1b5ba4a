"""Prediction sets from samples have their nominal coverage, with and without zeros."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.scoring.sample_sets import sets_from_samples
from saga.scores import covered


@pytest.mark.parametrize("zero", [0.0, 0.04, 0.3, 0.85])
def test_sets_have_every_coverage_if_outcome_and_samples_are_exchangeable(zero: float) -> None:
    rng = np.random.default_rng(0)
    n, m = 20_000, 200
    draws = np.where(rng.random((n, 1, m + 1)) < zero, 0.0, rng.lognormal(12, 0.7, (n, 1, m + 1)))
    levels = (0.5, 0.8, 0.9)
    sets = sets_from_samples(draws[..., :m], levels)
    inside = covered(draws[..., m:], sets.lower, sets.upper, sets.includes_zero)[:, 0].mean(axis=0)
    for level, share in zip(levels, inside, strict=True):
        if zero > level:  # only {0} is left, which holds more than the level
            assert share == pytest.approx(zero, abs=4 * np.sqrt(zero * (1 - zero) / n))
        else:
            # 1 / (M + 1) on top of sampling error: the samples' share of zeros is rounded.
            assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / n) + 1 / (m + 1)


def test_sets_are_nested_over_coverages_until_zero_is_included() -> None:
    rng = np.random.default_rng(1)
    sets = sets_from_samples(rng.lognormal(12, 0.7, (50, 3, 100)), (0.5, 0.8, 0.95))
    assert (np.diff(sets.lower, axis=-1) <= 0).all()
    assert (np.diff(sets.upper, axis=-1) >= 0).all()
    assert not sets.includes_zero.any()


def test_missing_samples_give_no_set() -> None:
    samples = np.full((1, 1, 10), np.nan)
    sets = sets_from_samples(samples, (0.9,))
    assert np.isnan(sets.lower).all()
    assert not sets.includes_zero.any()
