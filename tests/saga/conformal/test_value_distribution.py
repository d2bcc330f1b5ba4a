"""Distributions of present values: right for Gaussian dependence, and less noisy than samples."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

from saga.arrays import Floats
from saga.conformal.families.present_value import SimulatedValues
from saga.lifetime import present_value
from saga.paths import Paths

YEARS = 10
LEVELS = np.array([0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975])


def careers(
    n: int, n_paths: int, seed: int, *, persistence: float = 0.8, p_zero: float = 0.0
) -> Paths:
    """Recalibrated paths: exact lognormal marginals in each year, Gaussian dependence."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1, n_paths))
    years = [z]
    for _ in range(YEARS - 1):
        shock = np.sqrt(1 - persistence**2) * rng.normal(size=z.shape)
        years.append(persistence * years[-1] + shock)
    ranks = np.concatenate(years, axis=1).argsort(axis=-1).argsort(axis=-1)
    u = (ranks + 0.5) / n_paths
    positive = np.exp(12.5 + 0.5 * stats.norm.ppf(np.clip((u - p_zero) / (1 - p_zero), 1e-9, 1)))
    earnings = np.where(u < p_zero, 0.0, positive).astype(np.float32)
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    return Paths(ids, np.full(n, 1980), np.full(n, 2020), earnings, recalibrated=True)


def value(paths: Paths) -> Floats:
    return present_value(paths, years=YEARS)


@pytest.fixture(scope="module")
def truth() -> Floats:
    return np.asarray(np.quantile(value(careers(1, 400_000, 1)), LEVELS))


def test_quantiles_are_those_of_many_paths(truth: Floats) -> None:
    quantiles = SimulatedValues.of(careers(200, 500, 2), value).quantiles(LEVELS)
    error = quantiles.mean(axis=0) / truth - 1
    assert (abs(error) < 0.02).all(), error


def ending_careers(n: int, n_paths: int, seed: int, years: int) -> Paths:
    """Recalibrated paths of careers that end for good with a probability of a quarter a year."""
    rng = np.random.default_rng(seed)
    shape = (n, years, n_paths)
    ended = np.cumsum(rng.random(shape) < 0.25, axis=1) > 0
    level = 0.6 * rng.normal(size=(n, 1, n_paths)) + 0.2 * rng.normal(size=shape)
    ranks = np.where(ended, rng.random(shape) - 99, level).argsort(axis=-1).argsort(axis=-1)
    u = (ranks + 0.5) / n_paths
    p_zero = 1 - 0.75 ** np.arange(1, years + 1)[:, None]
    scores = stats.norm.ppf(np.clip((u - p_zero) / (1 - p_zero), 1e-9, 1))
    earnings = np.where(u < p_zero, 0.0, np.exp(12.5 + scores * 0.4**0.5)).astype(np.float32)
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    return Paths(ids, np.full(n, 1980), np.full(n, 2020), earnings, recalibrated=True)


@pytest.mark.parametrize("years", [3, 5, 8])
def test_quantiles_near_the_end_of_careers_are_those_of_many_paths(years: int) -> None:
    """Sums of few years that may be zero have modes: one year, two years, all years."""
    levels, of_years = [0.5, 0.75, 0.9], partial(present_value, years=years)
    many = of_years(ending_careers(1, 200_000, 1, years))
    truth = np.quantile(many, levels)
    quantiles = SimulatedValues.of(ending_careers(100, 500, 2, years), of_years).quantiles(levels)
    bias = (quantiles.mean(axis=0) - truth) / many.mean()
    assert (abs(bias) < 0.05).all(), bias


def test_quantiles_vary_less_than_those_of_the_samples() -> None:
    values = SimulatedValues.of(careers(300, 500, 3), value)
    fitted, empirical = values.quantiles(LEVELS), np.quantile(values.values, LEVELS, axis=1).T
    ratio = fitted.std(axis=0) / empirical.std(axis=0)
    assert (ratio < 0.7).all(), ratio


def test_the_probability_of_zero_is_the_share_of_paths_without_earnings() -> None:
    values = SimulatedValues.of(careers(50, 200, 5, persistence=0.97, p_zero=0.3), value)
    share = (values.values == 0).mean(axis=1)
    assert share.max() > 0.05
    np.testing.assert_allclose(values.distribution.p_zero[:, 0], share)
    assert (values.quantiles([0.5]) > 0).all()


def test_values_do_not_depend_on_other_persons_or_the_order_of_paths() -> None:
    paths = careers(20, 100, 6, p_zero=0.05)
    together = SimulatedValues.of(paths, value).quantiles(LEVELS)
    alone = SimulatedValues.of(paths.take(slice(7, 8)), value).quantiles(LEVELS)
    assert np.array_equal(together[7:8], alone)
    order = np.random.default_rng(0).permutation(100)
    shuffled = paths.with_earnings(paths.earnings[:, :, order])
    np.testing.assert_allclose(SimulatedValues.of(shuffled, value).quantiles(LEVELS), together)


@pytest.mark.parametrize("n_paths", [2, 5, 25])
def test_few_paths_and_persons_without_earnings_have_a_distribution(n_paths: int) -> None:
    paths = careers(3, n_paths, 7)
    never = paths.with_earnings(np.zeros_like(paths.earnings))
    assert (SimulatedValues.of(never, value).quantiles(LEVELS) == 0).all()
    quantiles = SimulatedValues.of(paths, value).quantiles(LEVELS)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    constant = paths.with_earnings(np.full_like(paths.earnings, 1e5))
    middle = SimulatedValues.of(constant, value).quantiles([0.5])
    np.testing.assert_allclose(middle, value(constant)[:, :1], rtol=1e-2)
