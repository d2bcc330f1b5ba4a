"""A mean that moves: what is known of it, how it is drawn, and the coverage of the wage level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from saga.files.stored_values import read_values
from saga.macro import wage_trends
from saga.macro.history import MacroHistory, sweden
from saga.macro.moving_mean import (
    GrowthTrend,
    MovingMean,
    Parameters,
    UnemploymentLevel,
    path_normals,
)
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.macro.wage_trends import CountryWages, TrendPosterior, with_moving_mean

FIXED = MacroProcess.fit(sweden())
PRIOR = TrendPosterior(wage_trends.PRIOR_MEAN, np.diag(wage_trends.PRIOR_SD / 4))
NO_COUNTRIES = CountryWages(np.empty((0, 0)), 1990, PRIOR)
MOVING = with_moving_mean(FIXED, sweden(), NO_COUNTRIES)
MEAN = read_values(MovingMean, MOVING.as_dict()["moving_mean"])


def known_mean(mean: np.ndarray, n_rows: int = 33) -> MovingMean:
    """A mean that is known and stands still: (log unemployment, growth)."""
    still = np.zeros((5, 5))
    never = np.full(5, -60.0)
    state = np.tile([mean[1], 0.0], (n_rows, 1))
    growth = GrowthTrend(never, still, state, np.zeros((n_rows, 2, 2)))
    level = UnemploymentLevel(0.0, 0.0, np.full(n_rows, mean[0]), np.zeros(n_rows))
    return MovingMean(1990, level, growth)


@pytest.mark.parametrize("origin", [1985, 2007, 2022, 2024])
def test_a_mean_that_stands_still_is_the_process_with_a_fixed_mean(origin: int) -> None:
    still = replace(FIXED, moving=known_mean(FIXED.mean))
    np.testing.assert_array_equal(still.draw(1, 9, origin, 2040), FIXED.draw(1, 9, origin, 2040))


def test_without_shocks_and_dynamics_a_path_is_its_moving_mean() -> None:
    bare = replace(MOVING, transition=np.zeros((3, 3)), innovation=np.zeros((3, 3)))
    series, mean = bare.draw(1, 50, 2022, 2040), MEAN.draw(1, 50, 2022, 2040)[:, 1:]
    np.testing.assert_allclose(
        np.log(series[..., 0]), mean[..., 0].clip(np.log(0.005), np.log(0.3))
    )
    np.testing.assert_allclose(series[..., 1], mean[..., 1], rtol=1e-12)
    np.testing.assert_array_equal(series[..., 2], np.full((50, 18), MOVING.mean[2]))


def test_a_path_does_not_depend_on_the_number_of_paths_and_years() -> None:
    few, many = MOVING.draw(1, 5, 2022, 2030), MOVING.draw(1, 50, 2022, 2060)
    np.testing.assert_array_equal(few, many[:5, :8])
    assert not np.array_equal(few, MOVING.draw(2, 5, 2022, 2030))


def test_paths_from_two_origins_share_the_shocks_of_later_years() -> None:
    """Persons with other origins live in the same future: their paths differ by what is known."""
    at_origin = MEAN.draw(1, 400, 2021, 2040)[:, 1:, 1]
    later = MEAN.draw(1, 400, 2022, 2040)[..., 1]
    steps, others = np.diff(at_origin)[:, -5:].ravel(), np.diff(later)[:, -5:].ravel()
    assert np.corrcoef(steps, others)[0, 1] > 0.98


def test_the_numbers_of_a_year_are_computed_once_for_many_origins() -> None:
    """A panel with leavers has some thirty origins, and their years overlap."""
    path_normals.cache_clear()
    for origin in (2000, 2001):
        MEAN.draw(7, 5, origin, 2010)
    # Of each part the start, and its years from 2001 on; of growth also the parameters.
    assert path_normals.cache_info().misses == (1 + 10) + (2 + 10)


def test_a_draw_does_not_know_later_years() -> None:
    def cut(values: np.ndarray) -> np.ndarray:
        return values[: 2007 - 1990 + 1]

    level, growth = MEAN.unemployment, MEAN.growth
    until = MovingMean(
        1990,
        replace(level, state_mean=cut(level.state_mean), state_sd=cut(level.state_sd)),
        replace(growth, state_mean=cut(growth.state_mean), state_root=cut(growth.state_root)),
    )
    blind = replace(MOVING, history=sweden().until(2007), moving=until)
    np.testing.assert_array_equal(MOVING.draw(1, 9, 2007, 2015), blind.draw(1, 9, 2007, 2015))
    # An origin after the cut-off knows no more, and the mean has moved on since.
    beyond = MEAN.draw(1, 4_000, 2032, 2040)[:, 0]
    at_cut_off = MEAN.draw(1, 4_000, 2022, 2040)
    np.testing.assert_array_equal(beyond, at_cut_off[:, 10])
    assert beyond[:, 0].std() > 1.2 * at_cut_off[:, 0, 0].std()


def test_scenario_rows_are_followed_and_later_years_go_on_from_the_last_one() -> None:
    rows = {2023: (0.12, -0.03, 0.01), 2024: (0.10, 0.0, 0.02)}
    other = {**rows, 2024: (0.05, 0.03, 0.04)}
    first, second = (
        MOVING.draw(1, 20, 2022, 2026, Scenario("rows", chosen)) for chosen in (rows, other)
    )
    np.testing.assert_allclose(first[:, :2], np.tile([*rows.values()], (20, 1, 1)), rtol=1e-12)
    # The same shocks and means, so states differ by the effect of the last row alone.
    apart = np.array([np.log(0.05 / 0.10), 0.03, 0.02])
    state = [np.column_stack([np.log(x[:, 2, 0]), x[:, 2, 1:]]) for x in (first, second)]
    np.testing.assert_allclose(state[1] - state[0], np.tile(FIXED.transition @ apart, (20, 1)))


def test_the_spread_of_the_mean_is_that_of_its_parameters() -> None:
    """Variance of the mean level of wages and of log unemployment, against the closed form."""
    n, years = 20_000, 20
    draws = MEAN.draw(3, n, 2022, 2022 + years)
    growth = MEAN.growth
    log_sd = wage_trends.PRIOR_SD / 4
    one = replace(growth, root=growth.root * np.array([1.0, 0.0, 1.0, 1.0, 1.0]))
    moving = replace(MEAN, growth=one)
    level = moving.draw(3, n, 2022, 2022 + years)[:, 1:, 1].sum(axis=1)
    parameters = Parameters.of(growth.mode)
    # The mean square of a log-normal standard deviation.
    step, own = (float(np.exp(2 * growth.mode[i] + 2 * log_sd[i] ** 2)) for i in (0, 2))
    persistence = float(parameters.persistence)
    ahead = np.arange(1, years + 1)
    loading = np.array([years, (persistence**ahead).sum()])
    known = loading @ growth.state_root[-1]
    from_common = step * ((years + 1 - ahead) ** 2).sum()
    remaining = np.array([(persistence ** np.arange(years + 1 - s)).sum() for s in ahead])
    from_own = own * (1 - persistence**2) * (remaining**2).sum()
    variance = known @ known + from_common + from_own
    # Log-normal variances have heavier tails: 4 standard errors of a kurtosis of about 4.
    assert level.var() == pytest.approx(variance, rel=4 * (3 / n) ** 0.5)
    of_unemployment = MEAN.unemployment
    spread = of_unemployment.state_sd[-1] ** 2 + years * of_unemployment.step**2 * np.exp(
        2 * of_unemployment.step_sd**2
    )
    assert draws[:, -1, 0].var() == pytest.approx(spread, rel=4 * (4 / n) ** 0.5)
    assert draws[:, -1, 0].mean() == pytest.approx(
        of_unemployment.state_mean[-1], abs=4 * (spread / n) ** 0.5
    )


def test_the_level_of_unemployment_is_the_normal_distribution_written_out() -> None:
    """The filter's mean and spread in the last year, against the dense joint distribution."""
    series = np.log(sweden().values[:, 0])
    years = np.arange(1, len(series) + 1)
    step = wage_trends.LEVEL_STEP**2 * np.exp(2 * wage_trends.LEVEL_STEP_SD**2)
    level = wage_trends.LEVEL_SD**2 + step * np.minimum.outer(years, years)
    # Deviations count with their long-run variance: that of a mean of n years, times n.
    n = 4_000
    autoregression = np.linalg.inv(np.eye(3) - FIXED.transition)
    total = autoregression @ FIXED.innovation @ np.random.default_rng(0).standard_normal((3, n))
    noise = (autoregression @ FIXED.innovation @ FIXED.innovation.T @ autoregression.T)[0, 0]
    assert total[0].var() == pytest.approx(noise, rel=0.1)
    seen = level + noise * np.eye(len(series))
    weights = np.linalg.solve(seen, level[-1])
    mean = wage_trends.LEVEL_MEAN + weights @ (series - wage_trends.LEVEL_MEAN)
    assert MEAN.unemployment.state_mean[-1] == pytest.approx(mean, rel=1e-8)
    variance = level[-1, -1] - weights @ level[-1]
    assert MEAN.unemployment.state_sd[-1] == pytest.approx(variance**0.5, rel=1e-8)
    assert MOVING.mean[0] == pytest.approx(mean, rel=1e-8)


def test_what_is_stored_is_what_was_fitted() -> None:
    again = MacroProcess.from_dict(MOVING.as_dict())
    np.testing.assert_array_equal(again.draw(1, 5, 2010, 2030), MOVING.draw(1, 5, 2010, 2030))
    assert again.moving is not None
    assert MOVING.mean[1] == MEAN.growth.state_mean[-1].sum()
    assert "moving_mean" not in FIXED.as_dict()


def test_countries_count_up_to_the_last_year_and_stand_beside_their_years() -> None:
    growth = np.arange(12.0).reshape(6, 2)
    wages = CountryWages(growth, 2000, PRIOR)
    joined = wages.beside(np.array([0.5, 0.6]), 2003)
    assert joined.shape == (5, 3)
    np.testing.assert_array_equal(joined[:, 1:], growth[:5])
    np.testing.assert_array_equal(joined[:, 0], [np.nan, np.nan, np.nan, 0.5, 0.6])
    later = wages.beside(np.array([0.5]), 2010)
    np.testing.assert_array_equal(later[:6, 1:], growth)
    assert np.isnan(later[6:, 1:]).all()
    assert later[10, 0] == 0.5


DYNAMICS = MacroProcess(
    MacroHistory(1990, np.empty((0, 3))),
    np.zeros(3),
    np.array([[0.7, 0.3, 0.0], [0.01, 0.2, 0.0], [0.0, 0.0, 0.3]]),
    np.diag([0.12, 0.015, 0.01]),
)
TRUE = Parameters(*np.array([0.003, 0.9, 0.008, 0.002, 1.0]))
TRUE_VALUES = np.array([np.log(0.003), np.log(9.0), np.log(0.008), np.log(0.002), 0.0])
PAST, AHEAD, WORLDS = 33, 20, 100


def simulated_world(seed: int, n_countries: int = 8) -> tuple[MacroHistory, np.ndarray, float]:
    """A history, the growth of countries up to its end, and the log wage level `AHEAD` later."""
    random = np.random.default_rng(seed)
    n = PAST + AHEAD
    common = 0.02 + 0.003 * random.standard_normal(n).cumsum()
    own = np.empty((n, n_countries + 1))
    own[0] = 0.008 * random.standard_normal(n_countries + 1)
    for t in range(1, n):
        own[t] = 0.9 * own[t - 1] + float(TRUE.own_step) * random.standard_normal(n_countries + 1)
    countries = common[:, None] + own[:, 1:] + 0.015 * random.standard_normal((n, n_countries))
    level = np.log(0.06) + 0.04 * random.standard_normal(n).cumsum()
    mean = np.column_stack([level, common + own[:, 0], np.full(n, 0.02)])
    deviation = np.zeros((n, 3))
    for t in range(1, n):
        shock = DYNAMICS.innovation @ random.standard_normal(3)
        deviation[t] = DYNAMICS.transition @ deviation[t - 1] + shock
    state = mean + deviation
    values = np.column_stack([np.exp(state[:, 0]).clip(0.005, 0.3), state[:, 1:]])
    wages = float(np.log1p(values[PAST:, 1]).sum())
    return MacroHistory(1990, values[:PAST]), countries[:PAST], wages


def covered() -> int:
    """Worlds whose wage level 20 years ahead lies in the 90 % band."""
    inside = 0
    posterior = TrendPosterior(TRUE_VALUES, np.zeros((5, 5)))
    for seed in range(WORLDS):
        history, countries, level = simulated_world(seed)
        wages = CountryWages(countries, 1990, posterior)
        process = with_moving_mean(MacroProcess.fit(history), history, wages)
        last = history.last_year
        growth = process.draw(seed, 1_000, last, last + AHEAD)[..., 1]
        lower, upper = np.quantile(np.log1p(growth).sum(axis=1), [0.05, 0.95])
        inside += bool(lower <= level <= upper)
    return inside


@pytest.mark.thorough
def test_bands_of_the_wage_level_cover_where_the_process_is_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The parameters are known, so one draw of them is all.
    monkeypatch.setattr(wage_trends, "N_DRAWS", 1)
    # 1 in 1,000 on each side; the dynamics are estimated from 33 years, which moves coverage.
    assert binom.ppf(0.001, WORLDS, 0.88) <= covered() <= binom.ppf(0.999, WORLDS, 0.93)
