"""Marginals: quantiles, probabilities, means and scores of a distribution with an atom."""

import numpy as np
import pytest
from saga.evaluation.scoring.ensemble_scores import sample_scores
from scipy.stats import lognorm

from saga.arrays import Floats
from saga.distributions import Marginals, interpolate_rows
from saga.scores import marginal_scores

N, H = 40, 3


def lognormal_marginals(
    seed: int = 0, points: int = 800
) -> tuple[Marginals, Floats, Floats, Floats]:
    """Marginals of an atom and a lognormal; also the location, spread and atom (N, H)."""
    rng = np.random.default_rng(seed)
    location, spread = 11 + 2 * rng.random((N, H)), 0.3 + rng.random((N, H))
    p_zero = 0.6 * rng.random((N, H))
    grid = location[..., None] + spread[..., None] * np.linspace(-8, 8, points)
    inside = lognorm.cdf(np.exp(grid), spread[..., None], scale=np.exp(location)[..., None])
    cdf = p_zero[..., None] + (1 - p_zero[..., None]) * inside
    cdf[..., 0], cdf[..., -1] = p_zero, 1.0
    names, years = np.arange(N).astype(str), np.full(N, 2000)
    return Marginals(names, years - 40, years, grid, cdf, p_zero), location, spread, p_zero


def test_mean_quantiles_and_probabilities_are_those_of_the_lognormal() -> None:
    marginals, location, spread, p_zero = lognormal_marginals()
    mean = (1 - p_zero) * np.exp(location + spread**2 / 2)
    np.testing.assert_allclose(marginals.mean, mean, rtol=1e-3)
    p = np.array([0.05, 0.3, 0.5, 0.9, 0.99])
    inner = (p - p_zero[..., None]) / (1 - p_zero[..., None])
    expected = lognorm.ppf(
        np.maximum(inner, 0), spread[..., None], scale=np.exp(location)[..., None]
    )
    quantiles = marginals.quantiles(p)
    np.testing.assert_allclose(quantiles, expected, rtol=1e-3, atol=1e-3)
    assert (quantiles[np.broadcast_to(p, quantiles.shape) <= p_zero[..., None]] == 0).all()
    positive = quantiles > 0
    back = marginals.probability(quantiles)
    np.testing.assert_allclose(back[positive], np.broadcast_to(p, back.shape)[positive], rtol=1e-6)
    np.testing.assert_array_equal(marginals.probability(np.zeros((N, H))), p_zero)


def test_slices_of_equal_probability_have_the_mean_of_the_distribution() -> None:
    marginals, *_, p_zero = lognormal_marginals(1)
    slices = marginals.slice_means(200)
    np.testing.assert_allclose(slices.mean(axis=-1), marginals.mean, rtol=2e-3)
    assert (np.diff(slices, axis=-1) >= 0).all()
    np.testing.assert_allclose((slices == 0).mean(axis=-1), p_zero, atol=0.5 / 200 + 1e-9)


def test_scores_are_those_of_many_samples_of_the_distribution() -> None:
    marginals, *_ = lognormal_marginals(2)
    samples = marginals.quantiles((np.arange(20_000) + 0.5) / 20_000)
    rng = np.random.default_rng(3)
    outcomes = marginals.quantiles(rng.random((N, H, 1)))[..., 0]
    outcomes[:4] = 0.0
    outcomes[4, 0] = np.nan
    exact, sampled = marginal_scores(marginals, outcomes), sample_scores(samples, outcomes)
    assert exact.keys() == sampled.keys()
    for name in ("crps_log", "crps_sek", "mae_log", "rmse_log", "pinball_log", "brier_zero"):
        np.testing.assert_allclose(exact[name], sampled[name], rtol=2e-3, atol=2e-4, err_msg=name)
        assert np.isnan(exact[name][4, 0])
    difference = (exact["logscore"] - sampled["logscore"])[~np.isnan(outcomes)]
    assert abs(difference.mean()) < 0.02, "a kernel density has a bias of its own"


def test_samples_become_marginals_with_their_atom_and_quantiles() -> None:
    rng = np.random.default_rng(7)
    samples = np.where(rng.random((5, 2, 4_001)) < 0.2, 0, rng.lognormal(12, 0.6, (5, 2, 4_001)))
    marginals = Marginals.from_samples(samples)
    np.testing.assert_allclose(marginals.p_zero, (samples == 0).mean(axis=-1))
    p = [0.1, 0.3, 0.5, 0.9]
    expected = np.moveaxis(np.quantile(samples, p, axis=-1), 0, -1)
    np.testing.assert_allclose(marginals.quantiles(p), expected, rtol=0.01)
    half_of_one = 0.5 / samples.shape[-1]
    np.testing.assert_allclose(marginals.cdf[..., 1] - marginals.p_zero, half_of_one)
    np.testing.assert_allclose(1 - marginals.cdf[..., -2], half_of_one)


def test_constant_and_zero_samples_give_a_distribution() -> None:
    for row in ([0.0] * 6, [5e4] * 6, [0, 0, 0, 0, 0, 7e4]):
        marginals = Marginals.from_samples(np.array(row)[None, None])
        assert np.isfinite(marginals.quantiles([0.05, 0.5, 0.95])).all()
        assert marginals.mean[0, 0] == pytest.approx(np.mean(row), rel=0.02)


def test_a_year_beyond_age_64_is_missing_everywhere() -> None:
    samples = np.random.default_rng(8).lognormal(12, 0.5, (2, 2, 50))
    samples[1, 1] = np.nan
    marginals = Marginals.from_samples(samples)
    np.testing.assert_array_equal(marginals.exists, [[True, True], [True, False]])
    for values in (
        marginals.mean,
        marginals.quantiles([0.5])[..., 0],
        marginals.slice_means(9)[..., 0],
    ):
        np.testing.assert_array_equal(np.isnan(values), ~marginals.exists)


def test_rows_are_interpolated_apart() -> None:
    rng = np.random.default_rng(9)
    xp = np.sort(rng.normal(size=(30, 12)) * 10 ** rng.uniform(-3, 6, (30, 1)), axis=1)
    fp, x = rng.normal(size=(30, 12)), rng.normal(size=(30, 7)) * np.abs(xp).max(1, keepdims=True)
    expected = np.stack([np.interp(x[i], xp[i], fp[i]) for i in range(30)])
    np.testing.assert_allclose(interpolate_rows(x, xp, fp), expected, rtol=1e-6, atol=1e-6)
