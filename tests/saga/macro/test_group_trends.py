"""The economy of groups: its draws, what a scenario tells, and the coverage of ratios."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saga.errors import UsageError
from saga.macro.group_trends import (
    GroupSeries,
    GroupTrends,
    TrendParameters,
    filter_ratios,
    prior_of_countries,
)
from saga.macro.scenarios import Scenario, scenario_from

MODE, ROOT = prior_of_countries(2022)
SHARES = np.array([0.4, 0.6, 0.3, 0.5, 0.2])
COLUMNS = [("sex", ["female", "male"]), ("education_level", ["low", "middle", "high"])]


def trends_of(level: np.ndarray, trend: np.ndarray, trend_sd: np.ndarray) -> GroupTrends:
    """Series of effects that are known in the years from 1990 on, (n_year, 5) each."""
    series = GroupSeries(level, trend, trend_sd, SHARES, np.zeros((30, 5)))
    frame = GroupTrends(COLUMNS, 1990, MODE, ROOT, {"earnings": series, "odds": series})
    centred = replace(series, level=frame.centred(level, SHARES))
    return replace(frame, series={"earnings": centred, "odds": centred})


NOW = np.tile([-0.15, 0.1, -0.2, 0.0, 0.3], (33, 1))
TRENDS = trends_of(NOW, np.zeros((33, 5)), np.full((33, 5), 0.003))
WOMEN_TO_MEN = TRENDS.contrast("female/male")


def drawn_ratio(trends: GroupTrends, n_years: int, scenario: Scenario | None = None) -> np.ndarray:
    """Log ratios of women to men (2000, n_years + 1) from 2022 on."""
    changes = trends.changes("earnings", 1, 2000, 2022, n_years, scenario) @ WOMEN_TO_MEN
    now = trends.series["earnings"].level[-1] @ WOMEN_TO_MEN
    ratio: np.ndarray = np.c_[np.full(2000, now), now + changes]
    return ratio


def test_groups_add_up_to_the_whole_on_every_path() -> None:
    changes = TRENDS.changes("earnings", 1, 50, 2022, 30)
    for levels in (slice(0, 2), slice(2, 5)):
        np.testing.assert_allclose(changes[..., levels] @ SHARES[levels], 0, atol=1e-12)


def test_a_path_does_not_depend_on_the_number_of_paths_and_years() -> None:
    few, many = (TRENDS.changes("odds", 1, n, 2022, years) for n, years in ((5, 8), (50, 40)))
    np.testing.assert_array_equal(few, many[:5, :8])
    assert not np.array_equal(few, TRENDS.changes("odds", 2, 5, 2022, 8))


def test_the_trend_of_the_network_is_put_away() -> None:
    own = np.arange(1, 31)[:, None] * np.array([0.004, -0.003, 0, 0, 0])
    series = {name: replace(each, implied=own) for name, each in TRENDS.series.items()}
    without, beside = (
        t.changes("earnings", 1, 9, 2022, 35) for t in (TRENDS, replace(TRENDS, series=series))
    )
    np.testing.assert_allclose(beside[:, :30], without[:, :30] - own)
    np.testing.assert_allclose(beside[:, 30:], without[:, 30:] - own[-1])


def test_a_told_ratio_holds_and_the_draws_lead_to_it() -> None:
    closes = scenario_from([{"year": 2040, "female/male": 1.0}], None)
    free, told = drawn_ratio(TRENDS, 25), drawn_ratio(TRENDS, 25, closes)
    np.testing.assert_allclose(told[:, 18], 0, atol=1e-12)
    # Half way there, paths differ as a bridge does: less than without the end, but not zero.
    assert 0.3 < told[:, 9].std() / free[:, 9].std() < 0.9
    steps = np.diff(told[:, 18:], axis=1), np.diff(free[:, 18:], axis=1)
    np.testing.assert_allclose(*steps, atol=1e-12)


def test_told_ratios_of_several_columns_hold_together_and_move_nothing_else() -> None:
    rows = [{"year": 2030, "low/high": 0.5, "middle/high": 0.8, "odds:female/male": 1.3}]
    told = scenario_from(rows, None)
    changes = TRENDS.changes("earnings", 1, 20, 2022, 8, told)
    level = TRENDS.series["earnings"].level[-1] + changes[:, -1]
    for name in ("low/high", "middle/high"):
        np.testing.assert_allclose(level @ TRENDS.contrast(name), np.log(rows[0][name]))
    np.testing.assert_allclose(level[:, 2:] @ SHARES[2:], 0, atol=1e-12)
    free = TRENDS.changes("earnings", 1, 20, 2022, 8)
    np.testing.assert_allclose(changes[..., :2], free[..., :2], atol=1e-12)
    odds = TRENDS.series["odds"].level[-1] + TRENDS.changes("odds", 1, 20, 2022, 8, told)[:, -1]
    np.testing.assert_allclose(odds @ WOMEN_TO_MEN, np.log(1.3))


@pytest.mark.parametrize("name", ["female/man", "low/male", "female/female", "a/b/c"])
def test_a_scenario_that_names_no_two_groups_is_refused_with_the_groups(name: str) -> None:
    with pytest.raises(UsageError, match=r"'.*'.*sex: female, male; education_level: low"):
        TRENDS.check_ratios([name])


@pytest.mark.parametrize(
    "names", ["female/male male/female", "low/high middle/high middle/low", "odds:a/b odds:b/a"]
)
def test_ratios_of_a_scenario_that_could_not_all_hold_are_refused(names: str) -> None:
    """Each would lead the draws to its own years, and none of them would hold."""
    *kept, last = names.replace("a/b", "low/high").replace("b/a", "high/low").split()
    TRENDS.check_ratios([*kept, last.removeprefix("odds:") if "odds" in last else f"odds:{last}"])
    with pytest.raises(UsageError, match=f"'{last}' follows from its other columns"):
        TRENDS.check_ratios([*kept, last])


def world(kind: str, rng: np.random.Generator) -> np.ndarray:
    """A log ratio of women to men in 53 years: it narrows for 33 of them, and then goes its way."""
    pace = {"goes on": 0.006, "stops": 0.0, "bends": -0.003}[kind]
    drift = np.r_[np.full(33, 0.006), np.full(20, pace)]
    return -0.45 + np.cumsum(drift + 0.008 * rng.normal(size=53))


def bands_contain(trends_sd: float, steps: float) -> float:
    """How often 90 % bands from the 33rd year contain the ratios 5, 10 and 20 years later."""
    p = TrendParameters.of(MODE)
    half = replace(p, trend_step=p.trend_step / np.sqrt(2), level_step=p.level_step / np.sqrt(2))
    rng, inside = np.random.default_rng(7), []
    for kind in ("goes on", "stops", "bends") * 8:
        truth = world(kind, rng)
        effects = truth[:33, None] * np.array([0.6, -0.4])
        errors = np.full((33, 2), 0.004)
        mean, covariance, _ = filter_ratios(effects, errors, half, np.full(2, p.pull))
        level, trend = NOW.copy(), np.zeros((33, 5))
        level[:, :2], trend[:, :2] = np.moveaxis(mean, 2, 0)
        sd = np.full((33, 5), trends_sd * np.sqrt(covariance[-1, 0, 1, 1]))
        known = replace(trends_of(level, trend, sd), mode=MODE + np.array([0, steps, steps, 0, 0]))
        ratio = drawn_ratio(known, 20)
        low, high = np.quantile(ratio[:, [5, 10, 20]], (0.05, 0.95), axis=0)
        later = truth[32 + np.array([5, 10, 20])]
        inside.append((low <= later) & (later <= high))
    return float(np.mean(inside))


def test_bands_of_a_ratio_cover_whether_its_trend_goes_on_stops_or_bends() -> None:
    assert bands_contain(1.0, 0.0) >= 0.85
    # A trend that is known and goes on evenly is far too sure of itself.
    assert bands_contain(0.0, -3.0) < 0.5


def test_in_worlds_of_the_process_bands_cover_as_stated() -> None:
    ratio = drawn_ratio(TRENDS, 20)
    low, high = np.quantile(ratio[:1000], (0.05, 0.95), axis=0)
    inside = ((low <= ratio[1000:]) & (ratio[1000:] <= high))[:, [5, 10, 20]].mean(axis=0)
    np.testing.assert_allclose(inside, 0.9, atol=4 * np.sqrt(0.9 * 0.1 / 1000) * np.sqrt(2))


def test_the_prior_is_what_gaps_of_countries_did() -> None:
    """A gap narrowed by .04 in ten years from .2, give or take .05; a trend goes on in part."""
    p = TrendParameters.of(MODE)
    at_a_fifth = trends_of(NOW * 0.8, np.zeros((33, 5)), np.full((33, 5), 0.003))
    change = drawn_ratio(at_a_fifth, 10)[:, -1] + 0.2
    assert 0.02 < change.mean() < 0.06
    assert 0.04 < change.std() < 0.08
    assert 0.1 < sum(p.persistence**k for k in range(1, 11)) / 10 < 0.45


def test_the_prior_can_leave_countries_out() -> None:
    mode, _ = prior_of_countries(2022, frozenset({"USA", "AUS"}))
    assert not np.array_equal(mode, MODE)


def test_json_keeps_the_draws() -> None:
    again = GroupTrends.from_dict(TRENDS.as_dict())
    np.testing.assert_allclose(
        again.changes("earnings", 1, 9, 2022, 9),
        TRENDS.changes("earnings", 1, 9, 2022, 9),
        atol=1e-4,
    )
    assert again.ratios()["male/female"] == pytest.approx(np.exp(0.25), abs=1e-3)
