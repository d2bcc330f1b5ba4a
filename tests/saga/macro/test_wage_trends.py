"""Drifting growth: the filter, its draws, and the coverage of levels where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, multivariate_normal

from saga.macro import wage_trends
from saga.macro.wage_trends import (
    FIRST_MEAN,
    FIRST_SD,
    Parameters,
    TrendPosterior,
    WageTrend,
    country_spreads,
    filter_growth,
)

TRUE = Parameters(
    common_step=0.003, persistence=0.9, own_drift=0.008, year_shock=0.004, spread_factor=1.0
)


def simulated_growth(
    n_years: int, n_countries: int, seed: int, parameters: Parameters = TRUE, spread: float = 0.012
) -> np.ndarray:
    """Growth (n_year, n_country) of the process, with Student t shocks of this scale."""
    random = np.random.default_rng(seed)
    common = FIRST_MEAN + parameters.common_step * random.standard_normal(n_years).cumsum()
    own = parameters.own_drift * random.standard_normal(n_countries)
    growth = np.empty((n_years, n_countries))
    for year in range(n_years):
        step = parameters.own_drift * np.sqrt(1 - parameters.persistence**2)
        own = parameters.persistence * own + step * random.standard_normal(n_countries)
        shock = parameters.year_shock * random.standard_normal()
        noise = spread * random.standard_t(wage_trends.DEGREES, n_countries)
        growth[year] = common[year] + own + shock + noise
    return growth


def test_the_filter_is_the_normal_distribution_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With normal shocks: likelihood and moments of the dense joint distribution."""
    monkeypatch.setattr(wage_trends, "DEGREES", 1e12)
    n_years, n_countries = 6, 3
    growth = simulated_growth(n_years, n_countries, seed=1)
    growth[2, 1] = np.nan
    spreads = np.array([0.01, 0.02, 0.03])
    filtered = filter_growth(growth, spreads, TRUE)

    years = np.arange(1, n_years + 1)
    common = FIRST_SD**2 + TRUE.common_step**2 * np.minimum.outer(years, years)
    own = TRUE.own_drift**2 * TRUE.persistence ** np.abs(np.subtract.outer(years, years))
    same = np.eye(n_countries)
    covariance = (
        np.kron(common + TRUE.year_shock**2 * np.eye(n_years), np.ones((n_countries, n_countries)))
        + np.kron(own, same)
        + np.kron(np.eye(n_years), np.diag(spreads**2))
    )
    known = ~np.isnan(growth.ravel())
    seen = covariance[np.ix_(known, known)]
    error = growth.ravel()[known] - FIRST_MEAN
    expected = multivariate_normal(cov=seen).logpdf(error)
    assert filtered.log_likelihood == pytest.approx(expected, rel=1e-9)

    of_common = np.kron(common[-1], np.ones(n_countries))[known]
    of_own = np.kron(own[-1], same[1])[known]
    weighted = np.linalg.solve(seen, error)
    means = [FIRST_MEAN + of_common @ weighted, of_own @ weighted]
    assert filtered.mean[[0, 2]] == pytest.approx(means, rel=1e-8)
    variance = common[-1, -1] - of_common @ np.linalg.solve(seen, of_common)
    assert filtered.covariance[0, 0] == pytest.approx(variance, rel=1e-8)


def test_spreads_are_those_of_the_shocks_drawn_to_the_typical_one() -> None:
    random = np.random.default_rng(2)
    true = np.geomspace(0.005, 0.05, 40)
    growth = 0.02 + true * random.standard_normal((4000, 40))
    weight = 1 / (1 - 0.5 ** (1 / wage_trends.HALF_LIFE))
    typical = np.exp(np.median(np.log(true)))
    pooled = wage_trends.POOLED_YEARS
    expected = np.sqrt((weight * true**2 + pooled * typical**2) / (weight + pooled))
    # With a half-life of 15 years some 43 years count: a standard error of 1 / sqrt(86).
    assert np.log(country_spreads(growth) / expected) == pytest.approx(0, abs=4 / 86**0.5)
    growth[:-40, 3] = np.nan
    assert np.isfinite(country_spreads(growth)).all()


def test_a_path_does_not_depend_on_their_number_and_a_draw_not_on_later_ones() -> None:
    growth = simulated_growth(40, 4, seed=3)
    posterior = TrendPosterior(wage_trends.PRIOR_MEAN, 0.1 * np.eye(5))
    (trend,) = WageTrend.of_countries(growth, posterior, [1])
    many, few = trend.draw(7, 200, 12), trend.draw(7, 70, 5)
    assert np.array_equal(many[:70, :5], few)
    assert not np.array_equal(many[:64, 0], many[64:128, 0])
    assert posterior.draws(0, 5) == posterior.draws(0, 9)[:5]
    assert not np.array_equal(trend.draw(8, 70, 5), few)


def covered(fixed_mean: bool) -> tuple[int, int]:
    """Levels 20 years ahead inside their 90 % bands, and their number, in simulated worlds."""
    inside = n = 0
    for seed in range(60):
        growth = simulated_growth(65, 6, seed=100 + seed)
        past, future = growth[:45], growth[45:].sum(axis=0)
        posterior = TrendPosterior(
            np.array([np.log(0.003), np.log(9.0), np.log(0.008), np.log(0.004), 0.0]),
            np.zeros((5, 5)),
        )
        # One country a world: countries of a world share its common trend.
        (trend,) = WageTrend.of_countries(past, posterior, [seed % 6], n_draws=1)
        levels = trend.draw(seed, 2000, 20).sum(axis=1)
        if fixed_mean:
            levels = 20 * past[:, seed % 6].mean() + past[:, seed % 6].std() * 20**0.5 * (
                (levels - levels.mean()) / levels.std()
            )
        lower, upper = np.quantile(levels, [0.05, 0.95])
        inside += bool(lower <= future[seed % 6] <= upper)
        n += 1
    return inside, n


def test_bands_of_the_level_cover_where_the_process_is_true() -> None:
    inside, n = covered(fixed_mean=False)
    # 1 in 1,000 on each side; spreads are estimated, which takes some coverage.
    assert binom.ppf(0.001, n, 0.88) <= inside <= binom.ppf(0.999, n, 0.92)
    # A process with a fixed mean, as in a stationary autoregression, is too sure of itself.
    narrow, _ = covered(fixed_mean=True)
    assert narrow < binom.ppf(0.001, n, 0.88)


def test_the_posterior_finds_what_many_countries_show() -> None:
    growth = simulated_growth(70, 16, seed=5)
    posterior = TrendPosterior.fit(growth)
    odds = TRUE.persistence / (1 - TRUE.persistence)
    true = np.log([TRUE.common_step, odds, TRUE.own_drift, TRUE.year_shock])
    spread = np.sqrt(np.diag(posterior.root @ posterior.root.T))[:4]
    assert (np.abs(posterior.mode[:4] - true) < 3.5 * spread).all()
    assert (spread < wage_trends.PRIOR_SD[:4]).all()
