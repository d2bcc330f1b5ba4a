"""The study of bias told the economy: its standard errors, and the ratios that it tells."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from saga.macro.group_trends import PRIOR_MEAN, PRIOR_SD, GroupSeries, GroupTrends
from studies.told_bias import bias_of, told_ratios

SHARES = np.array([0.5, 0.5, 0.5, 0.5])
COLUMNS = [("sex", ["female", "male"]), ("age", ["age_22", "age_62"])]


def test_errors_of_persons_and_of_futures_both_count() -> None:
    """Standardised by its error the bias of many samples has a deviation of one."""
    random, ratios = np.random.default_rng(1), []
    for _ in range(400):
        outcomes = np.full((12, 150), 10.0)
        outcomes[:, :20] = np.nan  # they add nothing
        error = random.normal(size=(12, 150)) + random.normal(0, 1, 150)
        error += random.normal(0, 0.1, (12, 1))
        bias, se = bias_of(outcomes * 1.02 + error, outcomes)
        ratios.append((bias - 0.02) / se)
    assert np.std(ratios) == pytest.approx(1, abs=3 / np.sqrt(2 * 400) + 0.05)
    assert abs(np.mean(ratios)) < 3 / np.sqrt(400)


def test_the_told_ratios_are_those_of_the_future_at_equal_ages() -> None:
    random, n = np.random.default_rng(2), 40_000
    level = np.tile([-0.1, 0.1, 0.05, -0.05], (33, 1))
    series = GroupSeries(level, 0 * level, 0 * level, SHARES, np.zeros((30, 4)))
    trends = GroupTrends(COLUMNS, 1990, PRIOR_MEAN, np.diag(PRIOR_SD), {"earnings": series})
    female, age = random.random(n) < 0.5, random.integers(20, 65, n)

    def log_pay(at: np.ndarray, years: int) -> np.ndarray:
        """Women gain 1 % a year on men, and persons of 22 on those of 62."""
        profile = 0.05 * at - 0.0005 * at**2 + 0.01 * years * (62 - at) / 40
        return np.asarray(profile + (0.01 * years - 0.2) * female + random.normal(0, 0.3, n))

    people = pl.DataFrame({"sex": np.where(female, "female", "male"), "age": age})
    now = people.with_columns(earnings=pl.Series(np.exp(log_pay(age, 0))))
    outcomes = np.stack([np.exp(log_pay(age + h, h)) for h in (1, 10)], axis=1)
    outcomes = np.insert(outcomes, [1] * 8, outcomes[:, :1], axis=1)
    outcomes[age + 10 > 64, 9] = np.nan
    young = age <= 60
    told = told_ratios(trends, now, people.filter(young), outcomes[young])
    error = 4 * 0.3 / np.sqrt(n / 8)  # of a difference of cells' means, drawn to the ends
    expected = {"male/female": 0.2 - 0.1, "age_62/age_22": -0.1 - 0.1}
    assert {name: np.log(ratio) for name, ratio in told[2032].items()} == pytest.approx(
        expected, abs=error
    )
