"""Trends that countries lived through, resampled: growth of real wages, and ratios between groups.

Nobody knows whether a trend goes on, bends or stops, and no model of it is assumed here. A drawn
trend is a chain of stretches of realised series, each from a year of a country to the end of its
series. Growth continues with what came after a like past elsewhere (a nearest-neighbour bootstrap;
Lall and Sharma 1996, Water Resources Research 32:679). Ratios continue with the steps of the ratio
of women's to men's pay of any country and year. No other ratio of groups has long published series
in many countries, so its steps also stand for ratios by education, age and attachment to work;
there they have a random sign.

A forecaster that is judged on these trends must not have seen the countries: its prior is to be
fitted without `COUNTRIES` (`studies.group_futures`). Histories from number `FOR_TRAINING` on
resample other countries, so that a network may learn from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import polars as pl

from saga.arrays import Floats

# Every second one of the countries with wages, in the order of their names, without Sweden.
COUNTRIES = ("AUS", "CHE", "DEU", "ESP", "FRA", "IRL", "LUX", "SVN", "USA")
FOR_TRAINING = 100_000
OTHER_COUNTRIES = ("BEL", "CHL", "DNK", "EST", "HUN", "LTU", "POL")
PAST_YEARS = 20  # of growth, whose mean says which stretches have a like past
SHORTEST = 10  # years of a stretch
LIKENESS = 0.01  # difference of two pasts at which the weight of a stretch has fallen to 61 %
PER_CENT = 100
REACH = 2  # the trend of a series in a year is the mean step of so many years on either side


@dataclass(frozen=True)
class GroupChanges:
    """Changes of log pay between groups since trends are drawn; 0 before.

    Attributes:
        women: Of women relative to men.
        tertiary: Of persons with tertiary education relative to others.
        young: Of persons of 22 relative to those of 42, and of these relative to those of 62.
        attachment: Change in the year of women's attachment to work relative to men's, in log pay.
    """

    women: float = 0.0
    tertiary: float = 0.0
    young: float = 0.0
    attachment: float = 0.0


def countries_of(history: int | None) -> tuple[str, ...]:
    """The countries whose trends are resampled in a drawn history and after it."""
    return COUNTRIES if history is None or history < FOR_TRAINING else OTHER_COUNTRIES


def draw_growth(
    past: Floats, n_years: int, key: tuple[int, ...], countries: tuple[str, ...] = COUNTRIES
) -> Floats:
    """Trend growth of real wages (n_years,) after yearly growth `past`, at least 20 years."""
    means, stretches = _growth_stretches(countries)
    rng, growth = _random(key), past[-PAST_YEARS:].tolist()
    while len(growth) < PAST_YEARS + n_years:
        unlikeness = (means - np.mean(growth[-PAST_YEARS:])) / LIKENESS
        weights = np.exp(-0.5 * unlikeness**2)
        growth += stretches[rng.choice(len(means), p=weights / weights.sum())].tolist()
    return np.array(growth[PAST_YEARS : PAST_YEARS + n_years])


def draw_ratio(
    n_years: int, key: tuple[int, ...], countries: tuple[str, ...] = COUNTRIES
) -> Floats:
    """Yearly changes (n_years,) of the log ratio of women's to men's pay."""
    rng, steps = _random(key), list[float]()
    trends = _ratio_trends(countries)
    while len(steps) < n_years:
        country = trends[rng.integers(len(trends))]
        steps += country[rng.integers(len(country) - SHORTEST + 1) :].tolist()
    return np.array(steps[:n_years])


def draw_group_trends(
    years: range,
    before: GroupChanges,
    key: tuple[int, ...],
    countries: tuple[str, ...] = COUNTRIES,
) -> dict[int, GroupChanges]:
    """The trends of `years`, of which those known the year before are `before`.

    The first years do not depend on their number.
    """
    signs = _random(key).choice((-1.0, 1.0), 3)
    steps = [draw_ratio(len(years), (*key, group), countries) for group in range(4)]
    women, tertiary, young = (np.cumsum(each) for each in steps[:3])
    return {
        year: GroupChanges(
            before.women + women[i],
            before.tertiary + signs[0] * tertiary[i],
            before.young + signs[1] * young[i],
            signs[2] * steps[3][i],
        )
        for i, year in enumerate(years)
    }


@cache
def _growth_stretches(countries: tuple[str, ...]) -> tuple[Floats, list[Floats]]:
    """Mean growth of each stretch's past (n_stretch,), and its trend year by year."""
    pairs = [
        (steps[year - PAST_YEARS : year].mean(), _trend(steps)[year:])
        for steps in _steps("real_wages_of_countries", pl.col("log_real_wage"), countries)
        for year in range(PAST_YEARS, len(steps) - SHORTEST + 1)
    ]
    return np.array([mean for mean, _ in pairs]), [stretch for _, stretch in pairs]


@cache
def _ratio_trends(countries: tuple[str, ...]) -> list[Floats]:
    ratio = (1 - pl.col("gap_percent") / PER_CENT).log()
    return [_trend(steps) for steps in _steps("gender_pay_gap_of_countries", ratio, countries)]


def _steps(table: str, log_level: pl.Expr, countries: tuple[str, ...]) -> list[Floats]:
    """Yearly steps of each country's log level, on straight lines between years with a figure."""
    file = resources.files("saga.data").joinpath("tables", f"{table}.csv")
    rows = pl.read_csv(file.read_bytes(), comment_prefix="#").sort("year")
    series = (rows.filter(country=country) for country in countries)
    return [
        np.diff(
            np.interp(
                np.arange(each["year"][0], each["year"][-1] + 1),
                each["year"],
                each.select(log_level).to_series(),
            )
        )
        for each in series
    ]


def _trend(steps: Floats) -> Floats:
    around = (steps[max(0, i - REACH) : i + REACH + 1] for i in range(len(steps)))
    return np.array([near.mean() for near in around])


def _random(key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
