"""The past growth of everybody: a known one is found, with the spread of its shocks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.training.panel_cells import cells_of, everybody_of

from saga.macro.everybody import Everybody
from saga.macro.moving_mean import GrowthTrend
from saga.macro.wage_trends import CountryWages, TrendPosterior

FIRST, N = 1991, 10_000
BY = ["age", "sex"]
NOBODY = CountryWages(np.empty((0, 0)), FIRST, TrendPosterior.fit(np.empty((0, 0))))


def cells(growth: np.ndarray, years: list[int], n: int = N) -> pl.DataFrame:
    """Cells of persons of 30 to 34, others each year, whose pay grows, and rises with age."""
    rng = np.random.default_rng(5)
    frames = []
    for year in years:
        age, sex = rng.integers(30, 35, n), rng.choice(["f", "m"], n, p=[0.3, 0.7])
        log = 0.1 * (age - 30) + 0.4 * (sex == "m") + growth[: year - FIRST].sum()
        works = rng.random(n) < 0.8
        earnings = np.where(works, np.exp(10 + log + 0.6 * rng.normal(size=n)), 0.0)
        frames.append(pl.DataFrame({"year": year, "age": age, "sex": sex, "earnings": earnings}))
    return cells_of(pl.concat(frames), ["year", *BY])


def found(growth: np.ndarray, years: list[int], n: int = N) -> Everybody:
    everybody = everybody_of(cells(growth, years, n), BY, NOBODY)
    assert everybody is not None
    return everybody


@pytest.mark.parametrize("every", [1, 2])
def test_even_growth_is_found_whatever_the_ages_and_gaps(every: int) -> None:
    """The error of a mean is .6 / sqrt(.8 * 10,000), and growth is its change over 30 years."""
    years = [*range(FIRST, FIRST + 31, every)]
    everybody = found(np.full(30, 0.012), years)
    assert everybody.last_year == FIRST + 30
    # A prior of 2 % a year, with a drift of a point, weighs against 30 years with a spread of 2 %:
    # at most as much as these.
    assert everybody.growth.state_mean[-1].sum() == pytest.approx(0.012, abs=(0.02 - 0.012) / 1.5)
    assert everybody.shock < 0.016, "8 years of judgement, and 30 without any shock"
    np.testing.assert_array_equal(everybody.implied, everybody.expected)


def test_errors_of_few_persons_are_no_shocks() -> None:
    """A mean of 400 workers has an error of 3 %, so changes of 4.5 % a year are chance."""
    rng = np.random.default_rng(2)
    growth = 0.03 * rng.normal(size=30)
    shocks, few, many = (
        found(g, [*range(FIRST, FIRST + 31)], n).shock
        for g, n in ((growth, N), (np.zeros(30), 500), (np.zeros(30), N))
    )
    assert few < 0.025
    assert many < 0.016
    assert shocks == pytest.approx(0.028, abs=3 * 0.03 / np.sqrt(60))


def test_who_becomes_older_does_not_grow() -> None:
    """Pay rises by 10 % with each year of age; only persons of one age are compared."""
    everybody = found(np.zeros(30), [*range(FIRST, FIRST + 31)])
    assert abs(everybody.growth.state_mean[-1].sum()) < 0.003


@pytest.mark.parametrize(
    ("years", "n"),
    [
        pytest.param([1991, 1992, 1993], N, id="two changes"),
        pytest.param([1991], N, id="one year"),
        pytest.param([*range(1991, 2021)], 40, id="no cell of ten workers"),
    ],
)
def test_too_few_years_or_persons_tell_nothing(years: list[int], n: int) -> None:
    assert everybody_of(cells(np.zeros(30), years, n), BY, NOBODY) is None


@pytest.mark.thorough
def test_bands_contain_the_growth_of_other_worlds() -> None:
    """Growth whose mean moves as that of countries does; 90 % of outcomes are inside."""
    prior, inside = NOBODY.posterior, []
    for world in range(40):
        truth = Everybody.expecting(
            FIRST,
            GrowthTrend(
                prior.mode, prior.root, np.array([[0.02, 0.0]]), np.diag([0.02, 0.01])[None]
            ),
            0.02,
            0.05,
            np.zeros(50),
        )
        growth = np.diff(truth.changes("earnings", world, 1, FIRST, 50)[0], prepend=0)
        # Means without error of sampling.
        index = pl.DataFrame({"year": np.arange(FIRST, FIRST + 31), "age": 30, "sex": "f"})
        index = index.with_columns(
            mean=pl.Series(np.exp(np.r_[0, growth[:30].cumsum()])),
            sd=0.0,
            persons=10_000,
            workers=8_000,
        )
        everybody = everybody_of(index, BY, NOBODY)
        assert everybody is not None
        draws = everybody.changes("earnings", 7, 400, FIRST + 30, 20) + everybody.implied[:20]
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        outcome = growth[30:].cumsum()
        inside.append((low <= outcome) & (outcome <= high))
    share = np.mean(inside, axis=0)[[0, 4, 9, 19]]
    assert (abs(share - 0.9) < 3 * np.sqrt(0.9 * 0.1 / 40)).all(), share
