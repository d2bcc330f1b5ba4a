"""The simulated panel: its structure, causes and effects, and the shape of its moments."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from saga import schema
from saga.register.validation.earnings_dynamics import CHANGE_YEARS, changes, signs
from saga.register.validation.level_statistics import income_2020
from saga.register.validation.register_arrays import RegisterArrays, arrays_of_panel
from saga.register.validation.social_statistics import all_social_statistics

Moments = dict[str, float]

AGE = pl.col("year") - pl.col("birth_year")


@pytest.fixture(scope="module")
def people(panel: pl.DataFrame) -> RegisterArrays:
    return arrays_of_panel(panel.sort("person_id", "year").lazy(), {"years": (1990, 2022)})


@pytest.fixture(scope="module")
def moments(people: RegisterArrays) -> Moments:
    """Key of the register's check -> value."""
    return {
        key: estimate.value
        for measure in (income_2020, all_social_statistics, signs)
        for key, estimate in measure(people)
    }


def test_all_codes_of_the_listed_classifications_occur(panel: pl.DataFrame) -> None:
    for column in schema.COLUMNS:
        if column.codes:
            assert set(panel[column.name].drop_nulls().unique()) == set(column.codes), column.name


def test_rows_are_residents_of_working_age_between_entry_and_exit(
    panel: pl.DataFrame,
) -> None:
    assert panel.select("person_id", "year").is_duplicated().sum() == 0
    assert panel.filter(~AGE.is_between(schema.MIN_AGE, schema.MAX_AGE)).is_empty()
    assert panel.filter(pl.col("year") >= pl.col("exit_year")).is_empty()
    assert panel.filter(pl.col("year") < pl.col("entry_year")).is_empty()
    assert panel.filter(pl.col("exit_year").is_null() != pl.col("exit_reason").is_null()).is_empty()
    assert panel.filter(pl.col("exit_year") > 2022).is_empty()


def test_null_zero_and_missing_row_differ(panel: pl.DataFrame) -> None:
    assert 0 < panel["earnings"].null_count() / panel.height < 0.01
    assert panel.filter(pl.col("year") < 2001)["occupation"].is_null().all()
    assert panel.filter(pl.col("year") == 1990)["capital_income"].is_null().all()
    late = panel.group_by("year").agg(share=pl.col("capital_income").is_null().mean())
    *_, before_last, last = late.sort("year")["share"]
    assert last > 0.02
    assert before_last == 0.0


def test_benefits_exist_only_with_their_cause(panel: pl.DataFrame) -> None:
    no_young_child = ~pl.col("youngest_child").is_in(["infant", "preschool", "school"])
    single = ~pl.col("marital_status").is_in(["married", "cohabiting"])
    young, widowed = AGE < 55, pl.col("marital_status") == "widowed"
    assert panel.filter(pl.col("parental_benefit") > 0, no_young_child).is_empty()
    assert panel.filter(pl.col("pension_income") > 0, young & ~widowed).is_empty()
    assert panel.filter(pl.col("spouse_earnings") > 0, single).is_empty()
    childless = pl.col("children") == "0"
    assert panel.filter((pl.col("youngest_child") == "none") != childless).is_empty()
    kinds = ("sickness_benefit", "parental_benefit", "unemployment_benefit", "disability_pension")
    parts = pl.sum_horizontal(*kinds, "housing_supplement")
    # Each amount is rounded to hundreds, so is the total.
    assert panel.filter(parts > pl.col("transfers") + 300).is_empty()


def test_levels_of_2020_are_swedish(moments: Moments) -> None:
    """Taxable income of SCB (2020); the bands allow for few and unequal cohorts."""
    assert moments["level.all.p50"] == pytest.approx(343_868, rel=0.12)
    assert moments["level.all.p90"] == pytest.approx(606_561, rel=0.12)
    assert moments["level.all.gini"] == pytest.approx(0.366, abs=0.05)
    assert moments["level.ratio.mean"] == pytest.approx(0.803, rel=0.12)


def test_the_crisis_of_the_nineties_reduces_employment(panel: pl.DataFrame) -> None:
    zero = (
        panel.filter(AGE.is_between(25, 57))
        .group_by("year")
        .agg((pl.col("earnings") == 0).mean().alias("zero"), pl.len())
        .sort("year")
    )
    share = dict(zip(zero["year"], zero["zero"], strict=True))
    crisis = np.mean([share[y] for y in (1993, 1994, 1995, 1996)])
    error = 2 * np.sqrt(crisis * (1 - crisis) / zero["len"].mean())
    assert crisis - share[1990] > 3 * error
    benefit = panel.group_by("year").agg((pl.col("unemployment_benefit") > 0).mean())
    paid = dict(benefit.iter_rows())
    assert paid[1994] > 2 * paid[1990]


def test_changes_are_peaked_and_negatively_skewed_in_the_bust(
    people: RegisterArrays, moments: Moments
) -> None:
    """Those of women are wider. Of normal changes the ratio of ranges would be 2.9."""
    for key in ("sign.kelley.bust", "sign.kelley.bust_men"):
        assert moments[key] < -0.03
    deviation = {}
    for sex in ("men", "women"):
        values = changes(people, CHANGE_YEARS, people.group(sex)).values
        low, lower, upper, high = np.quantile(values, (0.025, 0.25, 0.75, 0.975))
        assert (high - low) / (upper - lower) > 6
        deviation[sex] = values.std()
    assert 0.33 < deviation["men"] < min(0.55, deviation["women"])
