"""Present values and inequality have closed forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.set_family import KindThresholds
from saga.conformal.recalibration import Cell
from saga.data.panel import Panel, PanelMeta
from saga.errors import UsageError
from saga.forecast_tables import lifetime_table
from saga.lifetime import (
    observed_past,
    past_years,
    population,
    present_value,
    realised_value,
)
from saga.paths import Paths
from saga.requests import LifetimeRequest, UnknownYears
from saga.training_records import TrainingRecords
from tests.panels import panel_of


def constant_paths(birth_years: Sequence[int], n_paths: int = 3) -> Paths:
    """Paths of 100 a year for 30 years after 2020, until age 64."""
    n = len(birth_years)
    births = np.array(birth_years)
    paths = Paths(
        np.array([f"p{i}" for i in range(n)]),
        births,
        np.full(n, 2020),
        np.full((n, 30, n_paths), 100.0, np.float32),
    )
    earnings = paths.earnings.copy()
    earnings[~paths.within_age] = np.nan
    return paths.with_earnings(earnings)


def annuity(years: int) -> float:
    """Value of 100 a year for `years` years at 2 %."""
    return float(100 * (1 - 1.02**-years) / 0.02)


def test_present_value_of_constant_earnings_is_an_annuity_to_64() -> None:
    paths = constant_paths([1986, 1966, 1956, 1950])
    np.testing.assert_allclose(
        present_value(paths)[:, 0], [annuity(30), annuity(10), 0.0, 0.0], rtol=1e-9
    )
    np.testing.assert_allclose(
        present_value(paths, rate=0.0, to_age=60)[:, 1], [2600.0, 600.0, 0.0, 0.0]
    )


def test_present_value_of_k_years_is_that_of_the_realised_years() -> None:
    paths = constant_paths([1986, 1980])
    np.testing.assert_allclose(
        present_value(paths, years=5)[:, 0], realised_value(np.full((2, 30), 100.0), years=5)
    )


def test_unknown_years_make_a_realised_value_unknown() -> None:
    assert np.isnan(realised_value(np.array([[1.0, np.nan]])))[0]
    assert realised_value(np.array([[1.0, np.nan]]), years=1)[0] == pytest.approx(1 / 1.02)


def test_from_age_adds_the_observed_past_and_discounts_to_that_age() -> None:
    paths = constant_paths([1986])  # 34 at the origin
    past = pl.DataFrame(
        {
            "person_id": ["p0"] * 22,
            "year": range(1999, 2021),
            "birth_year": [1986] * 22,
            "earnings": [100.0] * 22,
        }
    )
    history = Panel.of(past, PanelMeta(panel_id="toy"))
    # From age 20 (2006) to 64: 45 payments, the first undiscounted.
    np.testing.assert_allclose(
        present_value(paths, from_age=20, past=past_years(history, 20))[0],
        100 + annuity(44),
        rtol=1e-9,
    )
    # From an age still ahead (40): discounted to that age, years before it do not count.
    np.testing.assert_allclose(
        present_value(paths, from_age=40, past=past_years(history, 40))[0],
        100 + annuity(24),
        rtol=1e-9,
    )


# Known amounts from age 20 on of a person whose last record is at age 25 (None: a null cell; no
# entry: no row), and the sums of the six years if unknown years are null, interpolated or zero.
PASTS: dict[str, tuple[dict[int, float | None], float | None, float, float]] = {
    "every year": (dict.fromkeys(range(20, 26), 100.0), 600, 600, 600),
    "a year of zero": ({**dict.fromkeys(range(20, 26), 100.0), 22: 0.0}, 500, 500, 500),
    "an empty cell": ({**dict.fromkeys(range(20, 26), 100.0), 22: None}, None, 600, 500),
    "a year without a row": ({20: 10, 21: 20, 23: 40, 24: 50, 25: 60}, None, 210, 180),
    "every second year": ({21: 100, 23: 300, 25: 500}, None, 1600, 900),
    "a gap of years": ({20: 0, 25: 500}, None, 1500, 500),
    "a late start": ({24: 100, 25: 100}, None, 600, 200),
    "an unknown last year": ({**dict.fromkeys(range(20, 25), 100.0), 25: None}, None, 600, 500),
    "known years before": (
        {18: 100, 19: None, 22: 500, 23: 500, 24: 500, 25: 500},
        None,
        2700,
        2000,
    ),
    "years after a start at 16": ({16: 7.0, **dict.fromkeys(range(20, 26), 100.0)}, 600, 600, 600),
}


@pytest.mark.parametrize("name", PASTS)
def test_a_sum_over_unknown_years_is_unknown_unless_they_are_filled(name: str) -> None:
    amounts, *sums = PASTS[name]
    rows = [("p0", 1980 + age, 1980, amount) for age, amount in amounts.items()]
    others = [(name, 1980 + age, 1980, 1e6) for name in ("o", "q") for age in range(20, 26)]
    panel = panel_of([*rows, *others])
    paths = Paths(np.array(["p0"]), np.array([1980]), np.array([2005]), np.zeros((1, 1, 2), "f4"))
    for how, expected in zip(get_args(UnknownYears), sums, strict=True):
        past = past_years(panel, 20, how).filter(person_id="p0")
        assert past["since"].to_list() == list(range(6))
        (value,) = observed_past(past, paths, rate=0)
        assert value == (
            pytest.approx(expected) if expected is not None else pytest.approx(np.nan, nan_ok=True)
        )
        n_known = sum(amounts.get(age) is not None for age in range(20, 26))
        assert past["is_unknown"].sum() == 6 - n_known


def test_paths_that_end_before_the_last_age_are_an_error() -> None:
    with pytest.raises(UsageError, match="person p1"):
        present_value(constant_paths([1966, 1990]))
    assert present_value(constant_paths([1966, 1990]), years=30).shape == (2, 3)


def test_nan_before_age_64_makes_the_present_value_nan() -> None:
    paths = constant_paths([1986])
    earnings = paths.earnings.copy()
    earnings[0, 3, 0] = np.nan
    value = present_value(paths.with_earnings(earnings))
    assert np.isnan(value[0]).tolist() == [True, False, False]


@pytest.mark.parametrize("from_age", [None, 30, 45])
def test_the_interval_of_a_lifetime_does_not_depend_on_other_persons(from_age: int | None) -> None:
    """Below `from_age` it is central, and for others calibrated, in one block and in several.

    The columns that every table of lifetimes has come before that of `from_age`.
    """
    paths = constant_paths([1995, 1991, 1985], 50).with_earnings(
        np.random.default_rng(1).lognormal(12, 0.5, (3, 30, 50)).astype(np.float32)
    )
    paths = replace(paths, recalibrated=True)
    cell = Cell(np.empty(0), np.empty(0), 0, {0.9: 0.96}, 1_000)
    thresholds = {("present_value", k): KindThresholds({0.9: 0.96}, 1_000, 50) for k in range(31)}
    calibrator = Calibrator(
        {(1, ALL): cell},
        thresholds_of_kind=thresholds,
        origin_years={(k, ALL): 3 for k in range(31)},
    )
    rows = [("p0", 2020, 1995, 1.0), ("p1", 2020, 1991, 1.0), ("p2", 2020, 1985, 1.0)]
    panel = panel_of(rows)
    how: UnknownYears = "null" if from_age is None else "zero"
    request = LifetimeRequest(from_age=from_age, to_age=50, coverage=(0.9,), unknown_years=how)
    records = TrainingRecords(1990, 2022, 32, 16, 64)

    def table(part: Paths) -> pl.DataFrame:
        return lifetime_table(part, calibrator, panel, request, records)[0]

    together = table(paths)
    assert_frame_equal(together, pl.concat([table(paths.take(slice(k, k + 1))) for k in range(3)]))
    of_past = [] if from_age is None else ["unknown_years"]
    assert together.columns[-2 - len(of_past) :] == ["tax_mean", "net_mean", *of_past]
    is_ahead = [from_age is not None and age < from_age for age in (25, 29, 35)]
    assert (together["guarantee_90"] == "extrapolated").to_list() == is_ahead


def test_monte_carlo_errors_match_the_spread_over_repetitions() -> None:
    rng = np.random.default_rng(6)
    tables = [population(rng.lognormal(0, 0.3, (50, 40))) for _ in range(60)]
    for index, statistic in enumerate(tables[0]["statistic"]):
        values = np.array([table["value"][index] for table in tables])
        stated_error = np.mean([table["mc_error"][index] for table in tables])
        # The standard deviation of 60 repetitions is known to about 10 %; 5 such errors.
        assert values.std(ddof=1) / stated_error == pytest.approx(1, abs=0.5), statistic


def population_by_definition(values: Floats) -> Iterator[tuple[str, list[float]]]:
    """The rows of `population`, each statistic computed from its definition."""

    def gini_by_pairs(x: Floats) -> float:
        return float(np.abs(x[:, None] - x).mean() / (2 * x.mean())) if x.any() else 0.0

    def top_1_share(x: Floats) -> float:
        weights = np.clip(0.01 * len(x) - np.arange(len(x)), 0, 1)
        return float(weights @ np.sort(x)[::-1] / x.sum()) if x.any() else 0.0

    def quantile(x: Floats, q: float) -> float:
        return float(np.quantile(x, q))

    def mean(x: Floats) -> float:
        return float(np.mean(x))

    statistics: dict[str, Callable[[Floats], float]] = {
        "mean": mean,
        **{f"p{round(100 * q)}": partial(quantile, q=q) for q in (0.1, 0.5, 0.9, 0.99)},
        "gini": gini_by_pairs,
        "top_1_share": top_1_share,
    }
    m = values.shape[1]
    groups = np.array_split(np.arange(m), min(20, m))
    for name, statistic in statistics.items():
        by_path = np.array([statistic(x) for x in values.T])
        without_group = np.array(
            [statistic(np.delete(values, group, axis=1).ravel()) for group in groups]
        )
        spread = np.mean((without_group - without_group.mean()) ** 2)
        yield (
            name,
            [
                by_path.mean(),
                by_path.std(ddof=1),
                by_path.std(ddof=1) / m**0.5,
                statistic(values.ravel()),
                np.sqrt((len(groups) - 1) * spread),
            ],
        )


@pytest.mark.parametrize("shape", [(1, 2), (2, 3), (3, 20), (7, 39), (130, 4), (1, 250)])
@pytest.mark.parametrize("kind", ["continuous", "zeros", "ties", "one earner", "no earner"])
def test_population_equals_its_definition(shape: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(7)
    values = rng.lognormal(12, 1.5, shape)
    if kind == "zeros":
        values[rng.random(shape) < 0.4] = 0
    elif kind == "ties":
        values = np.ceil(values / 2e5)
    elif kind in ("one earner", "no earner"):
        values = np.zeros(shape)
        values[0, 0] = 1e6 * (kind == "one earner")
    expected_rows = population_by_definition(values)
    for row, (name, expected) in zip(population(values).rows(), expected_rows, strict=True):
        assert row[0] == name
        np.testing.assert_allclose(
            np.array(row[1:]), expected, rtol=1e-9, atol=1e-12 * abs(expected[3]), err_msg=name
        )


def test_one_path_has_no_error_and_nobody_has_no_statistic() -> None:
    assert population(np.ones((3, 1)))["mc_error"].null_count() == 7
    assert population(np.ones((0, 5)))["value"].to_list() == [None] * 7
