"""What training records span, and what a forecast may say beyond.

With the shipped bundle, whose records span 32 years at ages 16 to 64, and the same bundle as if its
records spanned less: numbers must not depend on it, rows and labels must.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga.data.origins import MIN_HISTORY
from saga.data.panel import Panel, PanelMeta
from saga.errors import InputError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest
from saga.small_groups import MIN_PERSONS
from saga.training_records import TrainingRecords, guarantee_of
from tests import panels

SHIPPED = Path(__file__).parents[2] / "bundles/small"
COHORT = TrainingRecords(2015, 2022, 7, 23, 37)  # eight years of persons born in 1985-92
HORIZONS = (1, 5, 7, 8, 20)


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster.load(SHIPPED, threads=1)


@pytest.fixture(scope="module")
def of_cohort(forecaster: Forecaster) -> Forecaster:
    other = copy.copy(forecaster)
    other.records = COHORT
    return other


def panel_of(*persons: tuple[str, int, range]) -> Panel:
    """Persons with their birth year and the years of their records."""
    rows = [
        (name, year, born, 300_000.0 + 2_000 * (year - years[0]))
        for name, born, years in persons
        for year in years
    ]
    return panels.panel_of(rows, meta=PanelMeta("cohort", currency="SEK", price_year=2022))


YOUNG = panel_of(("a", 1990, range(2015, 2023)), ("b", 1986, range(2017, 2023)))


# --- what records span ---


def test_a_span_is_what_ten_persons_share_and_unknown_earnings_are_no_outcomes() -> None:
    """The truth is known: ten persons with records of 2005-12 at ages 25-32."""
    several = [(f"p{i}", 1980, range(2005, 2013)) for i in range(MIN_PERSONS)]
    truth = TrainingRecords(2005, 2012, 7, 25, 32)
    assert TrainingRecords.of(panel_of(*several)) == truth
    stray = TrainingRecords.of(panel_of(*several, ("q", 1950, range(1990, 2013))))
    assert stray == replace(truth, first_year=1990)
    panel = panel_of(*[(name, born, range(2005, 2016)) for name, born, _ in several])
    unknown = pl.when(pl.col("year") <= 2012).then("earnings").alias("earnings")
    late = TrainingRecords.of(panel.with_frame(panel.frame.with_columns(unknown)))
    assert late == replace(truth, last_year=2015)


SPANS = st.builds(
    lambda a, b, c, d, e: TrainingRecords(min(a, b), max(a, b), c, min(d, e), max(d, e)),
    *[st.integers(1950, 2030)] * 2,
    st.integers(1, 40),
    *[st.integers(16, 64)] * 2,
)


@settings(deadline=None)
@given(SPANS, SPANS)
def test_two_spans_together_contain_what_either_contains(
    one: TrainingRecords, other: TrainingRecords
) -> None:
    both = one.joined(other)
    assert both == other.joined(one)
    assert both.joined(one) == both
    years, ages, ahead = np.arange(1940, 2040), np.arange(10, 70)[:, None], np.arange(1, 45)
    for part in (one, other):
        assert (both.contain(years) >= part.contain(years)).all()
        assert (both.reach(ages, ahead) >= part.reach(ages, ahead)).all()


@given(st.integers(0, 40), st.booleans())
def test_outcomes_of_one_origin_year_promise_nothing(origin_years: int, extrapolated: bool) -> None:
    promised = guarantee_of(origin_years, extrapolated) == "assumption"
    assert promised == (origin_years > 1 and not extrapolated)


# --- the shipped bundle ---


def test_the_shipped_counts_are_those_of_its_years(forecaster: Forecaster) -> None:
    """An origin has three years of records, and its outcome lies within the panel."""
    records = forecaster.records
    n_years = records.last_year - records.first_year + 1
    for (horizon, _), counted in forecaster.calibrator.origin_years.items():
        assert counted == n_years - (MIN_HISTORY - 1) - horizon
    assert forecaster.calibrator.tested_horizons[0.9][-1] == n_years - MIN_HISTORY - 1


# --- rows beyond the span ---


def test_rows_beyond_the_span_are_left_out_and_named_and_others_do_not_change(
    forecaster: Forecaster, of_cohort: Forecaster
) -> None:
    """A record of eight years says nothing of eight years ahead, nor of ages above 37."""
    request = ForecastRequest(horizons=HORIZONS, limits=True, bands=5)
    whole = forecaster.forecast(YOUNG, request).table
    result = of_cohort.forecast(YOUNG, request)
    is_inside = (pl.col("horizon") <= 7) & (
        pl.col("year") - pl.col("person_id").replace_strict({"a": 1990, "b": 1986}) <= 37
    )
    inside = whole.filter(is_inside)
    assert inside.height == 3  # a: 1, 5 years ahead; 7 years ahead is age 39; b: 1
    numbers = [name for name in whole.columns if "band" not in name]
    assert result.table.select(numbers).equals(inside.select(numbers))
    assert "beyond-span" in {w.code for w in result.warnings}


def test_beyond_span_returns_these_rows_as_extrapolated(
    forecaster: Forecaster, of_cohort: Forecaster
) -> None:
    request = ForecastRequest(horizons=HORIZONS, beyond_span=True, limits=True, bands=20)
    whole, result = (f.forecast(YOUNG, request) for f in (forecaster, of_cohort))
    labels = [name for name in whole.table.columns if name.startswith("guarantee_")]
    assert result.table.drop(labels).equals(whole.table.drop(labels))
    beyond = result.table.filter(pl.col("horizon") > 7)
    assert beyond.height > 0
    assert set(np.ravel(beyond.select(labels).to_numpy())) <= {"extrapolated", "none"}
    assert "beyond-span" in {w.code for w in result.warnings}
    assert "beyond-span" not in {w.code for w in whole.warnings}


def test_a_person_with_no_year_inside_is_listed_and_nobody_is_an_error(
    of_cohort: Forecaster,
) -> None:
    old = ("old", 1960, range(2015, 2023))
    both = panel_of(("young", 1990, range(2015, 2023)), old)
    result = of_cohort.forecast(both, ForecastRequest(horizons=(1, 2)))
    assert set(result.table["person_id"]) == {"young"}
    (problem,) = result.left_out
    assert (problem.rule, problem.person_id, problem.column) == (
        "beyond-span",
        "old",
        "beyond_span",
    )
    with pytest.raises(InputError, match="Nobody"):
        of_cohort.forecast(panel_of(old), ForecastRequest())
    beyond = of_cohort.forecast(panel_of(old), ForecastRequest(horizons=(1,), beyond_span=True))
    assert beyond.table.height == 1
    assert not beyond.left_out


def test_a_lifetime_beyond_the_span_is_extrapolated_and_says_so(
    forecaster: Forecaster, of_cohort: Forecaster
) -> None:
    draws, near = (
        Draws(forecaster.calibrator.value_paths, 0),
        panel_of(("a", 1990, range(2015, 2023))),
    )
    for to_age, inside in ((37, True), (38, False)):
        request = LifetimeRequest(to_age=to_age)
        whole, result = (f.lifetime(near, request, draws) for f in (forecaster, of_cohort))
        assert result.table.drop("guarantee_90").equals(whole.table.drop("guarantee_90"))
        assert whole.table["guarantee_90"].to_list() == ["assumption"]
        assert result.table["guarantee_90"].to_list() == [
            "assumption" if inside else "extrapolated"
        ]
        assert ("beyond-span" in {w.code for w in result.warnings}) != inside
