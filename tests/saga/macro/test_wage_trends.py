"""Drifting growth: the filter, its draws, and the coverage of levels where the truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from saga.errors import UsageError
from saga.macro import wage_trends
from saga.macro.moving_mean import Parameters
from saga.macro.wage_trends import (
    FIRST_MEAN,
    FIRST_SD,
    CountryWages,
    TrendPosterior,
    country_spreads,
    filter_growth,
    growth_of_countries,
    growth_trends,
)

TRUE = Parameters(*np.array([0.003, 0.9, 0.008, 0.004, 1.0]))


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
    mean, covariances, log_likelihood = filter_growth(growth, spreads, TRUE)

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
    assert log_likelihood == pytest.approx(expected, rel=1e-9)

    of_common = np.kron(common[-1], np.ones(n_countries))[known]
    of_own = np.kron(own[-1], same[1])[known]
    weighted = np.linalg.solve(seen, error)
    means = [FIRST_MEAN + of_common @ weighted, of_own @ weighted]
    assert mean[-1, [0, 2]] == pytest.approx(means, rel=1e-8)
    variance = common[-1, -1] - of_common @ np.linalg.solve(seen, of_common)
    assert covariances[-1, 0, 0] == pytest.approx(variance, rel=1e-8)
    # What is known at the end of an earlier year is what its years tell.
    _, earlier, _ = filter_growth(growth[:4], spreads, TRUE)
    assert np.array_equal(covariances[:4], earlier)


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


def test_a_trend_has_the_mean_and_spread_over_the_draws_of_the_parameters() -> None:
    growth = simulated_growth(40, 4, seed=3)
    posterior = TrendPosterior(wage_trends.PRIOR_MEAN, 0.3 * np.eye(5))
    (trend,) = growth_trends(growth, posterior, [1], first_row=30)
    draws = posterior.draws(wage_trends.N_DRAWS)
    assert posterior.draws(5) == draws[:5]
    filtered = [filter_growth(growth, country_spreads(growth), draw) for draw in draws]
    means = np.array([mean[-1, [0, 2]] for mean, *_ in filtered])
    within = np.mean([inner[-1][np.ix_([0, 2], [0, 2])] for _, inner, _ in filtered], axis=0)
    assert trend.state_mean.shape == (10, 2)
    assert trend.state_mean[-1] == pytest.approx(means.mean(axis=0), rel=1e-12)
    covariance = trend.state_root[-1] @ trend.state_root[-1].T
    assert covariance == pytest.approx(within + np.cov(means.T, bias=True), rel=1e-6, abs=2e-12)


def test_the_shipped_wages_end_with_the_cut_off_and_begin_with_enough_countries() -> None:
    full, early = CountryWages.shipped(2022), CountryWages.shipped(1982)
    assert full.growth.shape == (69, 18)
    assert early.growth.shape[0] == 1982 - 1951 + 1
    assert early.growth.shape[1] < 18
    kept = (~np.isnan(full.growth[:32])).sum(axis=0) >= wage_trends.MIN_YEARS
    assert np.array_equal(early.growth, full.growth[:32, kept], equal_nan=True)
    assert not np.array_equal(early.posterior.mode, full.posterior.mode)
    # Before any country has enough years, the prior is all that is known.
    assert np.array_equal(CountryWages.shipped(1955).posterior.mode, wage_trends.PRIOR_MEAN)


def test_a_file_without_a_year_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wages.csv"
    file.write_text("country,year,log_real_wage\nA,1990,1\nA,1991,1.1\nA,1993,1.2\n")
    with pytest.raises(UsageError, match="1992"):
        growth_of_countries(file)


def test_the_posterior_finds_what_many_countries_show() -> None:
    growth = simulated_growth(70, 16, seed=5)
    posterior = TrendPosterior.fit(growth)
    odds = TRUE.persistence / (1 - TRUE.persistence)
    true = np.log([TRUE.common_step, odds, TRUE.own_drift, TRUE.year_shock])
    spread = np.sqrt(np.diag(posterior.root @ posterior.root.T))[:4]
    assert (np.abs(posterior.mode[:4] - true) < 3.5 * spread).all()
    assert (spread < wage_trends.PRIOR_SD[:4]).all()
