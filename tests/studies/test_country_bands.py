"""The bands that are judged on countries: coverage where the truth is known, and their scale."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest
from scipy.stats import binom

from saga.macro import wage_trends
from saga.macro.history import sweden, sweden_as_published
from saga.macro.process import MacroProcess
from saga.macro.wage_trends import (
    TrendPosterior,
    country_spreads,
    growth_of_countries,
    growth_trends,
    with_moving_mean,
)
from studies.country_bands import growth_futures
from tests.saga.macro.test_wage_trends import simulated_growth

WORLDS = 60


def covered(fixed_mean: bool) -> int:
    """Simulated worlds whose level 20 years ahead is inside its 90 % band."""
    inside = 0
    known = TrendPosterior(
        np.array([np.log(0.003), np.log(9.0), np.log(0.008), np.log(0.004), 0.0]), np.zeros((5, 5))
    )
    for seed in range(WORLDS):
        growth = simulated_growth(65, 6, seed=100 + seed)
        past, future = growth[:45], growth[45:].sum(axis=0)
        # One country a world: countries of a world share its common trend.
        country = seed % 6
        (trend,) = growth_trends(past, known, [country], first_row=44)
        futures = growth_futures(trend, country_spreads(past)[country], seed, 2000, 20)
        levels = futures.sum(axis=1)
        if fixed_mean:
            levels = 20 * past[:, country].mean() + past[:, country].std() * 20**0.5 * (
                (levels - levels.mean()) / levels.std()
            )
        lower, upper = np.quantile(levels, [0.05, 0.95])
        inside += bool(lower <= future[country] <= upper)
    return inside


def test_bands_of_the_level_cover_where_the_process_is_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The parameters are known, so one draw of them is all.
    monkeypatch.setattr(wage_trends, "N_DRAWS", 1)
    # 1 in 1,000 on each side; spreads are estimated, which takes some coverage.
    assert binom.ppf(0.001, WORLDS, 0.88) <= covered(False) <= binom.ppf(0.999, WORLDS, 0.92)
    # A process with a fixed mean, as in a stationary autoregression, is too sure of itself.
    assert covered(True) < binom.ppf(0.001, WORLDS, 0.88)


def test_the_macro_process_is_as_unsure_of_the_level_as_the_bands_that_were_judged() -> None:
    """20 years ahead in Sweden: standard deviations of the log wage level within a quarter."""
    published = sweden_as_published()
    fixed = MacroProcess.fit(sweden(), dynamics=published)
    process = with_moving_mean(fixed, published)
    table = resources.files("saga.data").joinpath("tables", "real_wages_of_countries.csv")
    with table.open("rb") as file:
        growth, countries, _ = growth_of_countries(file)
    country = countries.index("SWE")
    posterior = wage_trends.CountryWages.shipped(2022).posterior
    (trend,) = growth_trends(growth, posterior, [country], first_row=len(growth) - 1)
    futures = growth_futures(trend, country_spreads(growth)[country], 0, 4_000, 20)

    def spread(of: MacroProcess) -> float:
        drawn = of.draw(0, 4_000, 2022, 2042)[..., 1]
        return float(np.log1p(drawn).sum(axis=1).std())

    judged = float(futures.sum(axis=1).std())
    assert spread(process) == pytest.approx(judged, rel=0.25)
    assert spread(fixed) < 0.75 * spread(process)
