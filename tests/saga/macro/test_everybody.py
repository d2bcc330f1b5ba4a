"""Draws of the growth of everybody: keyed by path, around what is known, as wide as stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saga.files.stored_values import read_values
from saga.macro.everybody import Everybody
from saga.macro.moving_mean import GrowthTrend
from saga.macro.wage_trends import PRIOR_MEAN

LAST, GROWTH, H = 2020, 0.013, 30
YEARS = np.arange(1, H + 1)
# Parameters that are known, and nearly no steps: growth is GROWTH, but for the shocks of years.
STILL = np.array([-20.0, 2.0, -20.0, -20.0, 0.0])
KNOWN = GrowthTrend(STILL, np.zeros((5, 5)), np.array([[GROWTH, 0.0]]), np.zeros((1, 2, 2)))
SHOCK = 0.02
OWN = np.linspace(0.01, 0.01 * H, H)
BESIDE = replace(Everybody.expecting(LAST, KNOWN, SHOCK, 0.04, OWN), start_sd=0.01)
N = 20_000
SPREAD = SHOCK / (1 + GROWTH) * np.sqrt(YEARS)
RTOL = 4 / np.sqrt(2 * N)


def test_a_path_does_not_depend_on_the_number_of_paths_and_years() -> None:
    for statistic in ("earnings", "odds"):
        few, many = (BESIDE.changes(statistic, 1, n, LAST, h) for n, h in ((5, 8), (50, 40)))
        np.testing.assert_array_equal(few, many[:5, :8])
        assert not np.array_equal(few, BESIDE.changes(statistic, 2, 5, LAST, 8))


def test_after_the_last_year_growth_is_that_which_is_expected() -> None:
    draws = BESIDE.changes("earnings", 3, N, LAST, H)
    spread = np.hypot(0.01, SPREAD)
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=RTOL)
    growth = np.log(np.exp(draws).mean(axis=0)) - 0.01**2 / 2
    # Of the expected growth, too, a mean of 4,096 draws.
    error = 4 * spread[-1] * np.sqrt(1 / N + 1 / 4_096)
    np.testing.assert_allclose(growth, YEARS * np.log1p(GROWTH) - OWN, atol=error)
    odds = BESIDE.changes("odds", 3, N, LAST, H)
    np.testing.assert_allclose(odds.std(axis=0), 0.04 * np.sqrt(YEARS), rtol=RTOL)
    assert abs(odds.mean(axis=0)).max() < 4 * 0.04 * np.sqrt(H / N)
    assert abs(np.corrcoef(draws[:, 0], odds[:, 0])[0, 1]) < 4 / np.sqrt(N)
    falling = replace(KNOWN, state_mean=np.array([[GROWTH, 0.02]]))
    mean = GROWTH + 0.02 * falling.parameters(0, 1).persistence
    expected = Everybody.expecting(LAST, falling, 0.0, 0.04, OWN).expected
    np.testing.assert_allclose(expected[0], np.log1p(mean), atol=1e-6)


def test_in_the_years_of_the_panel_the_growth_is_that_of_the_network() -> None:
    """Ten of the years are after the last one, and from there the growth is replaced."""
    draws = BESIDE.changes("earnings", 3, N, LAST - 20, H)
    growth = np.log(np.exp(draws).mean(axis=0))
    error = 4 * SPREAD[-1] * np.sqrt(1 / N + 1 / 4_096)
    np.testing.assert_allclose(growth[:20], 0, atol=error)
    after = YEARS[:10] * np.log1p(GROWTH) - 0.01 * YEARS[:10] + 0.01**2 / 2
    np.testing.assert_allclose(growth[20:], after, atol=error)
    np.testing.assert_allclose(draws.std(axis=0)[:20], SPREAD[:20], rtol=RTOL)


def test_a_later_origin_knows_no_more_and_goes_on_with_the_draws() -> None:
    now, later = (BESIDE.changes("earnings", 1, 9, LAST + o, 20) for o in (0, 3))
    drawn = (each + OWN[:20] for each in (now, later))
    of_now, of_later = (np.c_[np.zeros(9), each] for each in drawn)
    np.testing.assert_allclose(np.diff(of_now)[:, 4:], np.diff(of_later)[:, 1:-3], atol=1e-12)


def test_beyond_the_curves_they_go_on() -> None:
    draws = BESIDE.changes("earnings", 3, N, LAST, 45).mean(axis=0)
    pace = np.log1p(GROWTH) - SHOCK**2 / 2 - 0.01
    np.testing.assert_allclose(draws[44], 45 * pace, atol=0.01)


def test_a_network_that_expects_the_same_keeps_its_mean() -> None:
    trend = replace(KNOWN, mode=PRIOR_MEAN)
    everybody = Everybody.expecting(LAST, trend, SHOCK, 0.04, OWN)
    everybody = replace(everybody, implied=everybody.expected)
    draws = everybody.changes("earnings", 9, N, LAST, H)
    error = draws[:, -1].std() * np.sqrt(1 / N + 1 / 4_096)
    np.testing.assert_allclose(np.log(np.exp(draws).mean(axis=0)), 0, atol=4 * error)
    assert draws[:, -1].std() > 2 * draws[:, 4].std()


def test_everybody_is_written_and_read() -> None:
    again = read_values(Everybody, BESIDE.as_dict())
    one, other = (each.changes("earnings", 1, 3, LAST, 9) for each in (again, BESIDE))
    np.testing.assert_allclose(one, other, atol=3e-6)  # six decimals


@pytest.mark.parametrize("statistic", ["earnings", "odds"])
def test_paths_beside_other_seeds_are_others(statistic: str) -> None:
    one, two = (BESIDE.changes(statistic, seed, 2_000, LAST, 1)[:, 0] for seed in (1, 2))
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(2_000)
