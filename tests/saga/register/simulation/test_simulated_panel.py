"""The simulated panel: its structure, causes and effects, and the shape of its moments."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from saga import schema
from saga.register.simulation.economy import CPI
from saga.register.simulation.parameters import Parameters
from saga.register.validation.earnings_dynamics import recalled_moments
from saga.register.validation.level_statistics import income_2020
from saga.register.validation.register_arrays import arrays_of_panel
from saga.register.validation.social_statistics import all_social_statistics
from tests.saga.register.panels import Simulate

Moments = dict[str, float]

AGE = pl.col("year") - pl.col("birth_year")


def real_earnings(panel: pl.DataFrame) -> pl.DataFrame:
    """person_id, year, age, female, real (SEK of 2022), of rows with known earnings."""
    prices = pl.DataFrame(
        {"year": list(CPI), "prices": list(CPI.values())}, schema_overrides={"year": pl.Int32}
    )
    rows = panel.filter(pl.col("earnings").is_not_null()).join(prices, on="year")
    female, real = pl.col("sex") == "female", pl.col("earnings") / pl.col("prices")
    return rows.select("person_id", "year", age=AGE, female=female, real=real)


@pytest.fixture(scope="module")
def moments(panel: pl.DataFrame) -> Moments:
    """Key of the register's check -> value."""
    people = arrays_of_panel(panel.sort("person_id", "year").lazy(), {"years": (1990, 2022)})
    return {
        key: estimate.value
        for measure in (income_2020, all_social_statistics, recalled_moments)
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


def test_mothers_of_infants_are_on_leave_and_fathers_mostly_at_work(panel: pl.DataFrame) -> None:
    infants = panel.filter(pl.col("youngest_child") == "infant", AGE > 24)
    rate = dict(infants.group_by("sex").agg(pl.col("employment_rate").mean()).iter_rows())
    assert rate["female"] < 0.55
    assert rate["male"] > rate["female"] + 0.2


def test_shares_of_zero_earnings_lie_in_the_band_and_are_u_shaped_over_age(
    panel: pl.DataFrame,
    moments: Moments,
) -> None:
    assert 0.08 <= moments["zeros.20-64"] <= 0.22
    rows = panel.drop_nulls("earnings").filter(AGE.is_between(20, 64))
    by_age = rows.group_by("sex", age=AGE // 5 * 5).agg(zero=(pl.col("earnings") == 0).mean())
    for (_,), part in by_age.group_by("sex"):
        share = dict(part.select("age", "zero").iter_rows())
        assert 30 <= min(share, key=share.__getitem__) <= 45
        assert max(share[20], share[25]) > min(share.values()) * 1.2
        assert share[60] > min(share.values()) * 2


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


def test_changes_are_peaked_and_negatively_skewed_in_the_bust(moments: Moments) -> None:
    for sex in ("men", "women"):
        assert moments[f"grid.change1.peak.{sex}"] > 3
        bust, boom = (moments[f"grid.change1.kelley.{phase}.{sex}"] for phase in ("bust", "boom"))
        assert bust < boom - 0.03
    assert 0.33 < moments["grid.change1.std.men"] < 0.55
    assert moments["grid.change1.std.women"] > moments["grid.change1.std.men"]
    assert 0.68 < moments["grid.rank5.men"] < 0.88


def test_earnings_grow_with_the_wage_index_of_the_economy(panel: pl.DataFrame) -> None:
    """Real earnings follow the real wage index: the drift is below a quarter of its growth."""
    from saga.macro.history import sweden

    growth = np.log1p(sweden().values[:, 1])
    index = np.concatenate([[0.0], np.cumsum(growth[1:])])
    prime = real_earnings(panel).filter(pl.col("age").is_between(30, 54) & (pl.col("real") > 0))
    mean = prime.group_by("year").agg(pl.col("real").log().mean()).sort("year")["real"].to_numpy()
    drift = (mean - index)[-6:].mean() - (mean - index)[:6].mean()
    assert abs(drift) < 0.25 * index[-6:].mean()


def scar(panel: pl.DataFrame, years: int) -> float:
    """Real earnings `years` after unemployment, relative to others.

    The others have the same sex and the same earnings before.
    """
    real = real_earnings(panel)
    rows = real.join(
        panel.select("person_id", "year", "employment_rate", "unemployment_benefit"),
        on=["person_id", "year"],
    )
    rows = rows.filter(pl.col("age").is_between(27, 50))
    before = rows.select(
        "person_id", pl.col("year") + 1, real_before="real", rate_before="employment_rate"
    )
    later = real.select("person_id", pl.col("year") - years, real_later="real")
    base = (
        rows.join(before, on=["person_id", "year"])
        .filter((pl.col("rate_before") > 0.95) & (pl.col("real_before") > 150_000))
        .join(later, on=["person_id", "year"])
    )
    lost = ((pl.col("employment_rate") < 0.75) & (pl.col("unemployment_benefit") > 0)).alias("lost")
    matched = base.with_columns(lost, pay=pl.col("real_before").log().round(1)).drop_nulls("lost")
    wide = (
        matched.group_by("pay", "female", "lost")
        .agg(pl.col("real_later").mean(), pl.len())
        .pivot("lost", index=["pay", "female"], values=["real_later", "len"])
        .drop_nulls()
    )
    ratio = (wide["real_later_true"] / wide["real_later_false"]).to_numpy()
    return float(np.average(ratio, weights=wide["len_true"].to_numpy()))


def test_unemployment_leaves_a_scar_that_is_smaller_without_the_mechanism(
    panel: pl.DataFrame, simulate: Simulate
) -> None:
    assert scar(panel, 5) < 0.92
    assert scar(panel, 5) > scar(panel, 1)
    no_scars = {"careers.scar_loss": 0.0, "careers.scar_per_year": 0.0}
    without = simulate(Parameters().changed(no_scars), cohorts=range(1951, 1984, 4))
    assert scar(without, 5) > scar(panel, 5)


def penalty(panel: pl.DataFrame, sex: str, years: tuple[int, int]) -> float:
    """Earnings `years` after the first birth relative to those without it.

    An event study (Kleven, Landais & Sogaard 2019).
    """
    real = real_earnings(panel).filter(pl.col("female") == (sex == "female"))
    births = (
        panel.filter((pl.col("youngest_child") == "infant") & (pl.col("children") == "1"))
        .group_by("person_id")
        .agg(pl.col("year").min().alias("birth"))
    )
    rows = real.join(births, on="person_id").with_columns(
        (pl.col("year") - pl.col("birth")).alias("k")
    )
    rows = rows.filter(pl.col("k").is_between(-5, 12) & pl.col("age").is_between(20, 50))
    k, age, year = (rows[name].to_numpy() for name in ("k", "age", "year"))
    events = [x for x in range(-5, 13) if x != -1]
    design = np.stack(
        [k == x for x in events]
        + [age == x for x in range(20, 51)]
        + [year == x for x in range(1991, 2023)],
        axis=1,
    ).astype(float)
    effect = np.linalg.lstsq(design, rows["real"].to_numpy(), rcond=None)[0]
    without = design[:, len(events) :] @ effect[len(events) :]
    event_years = range(years[0], years[1] + 1)
    return float(np.mean([effect[events.index(x)] / without[k == x].mean() for x in event_years]))


def test_mothers_have_a_child_penalty_and_fathers_do_not(panel: pl.DataFrame) -> None:
    assert penalty(panel, "female", (0, 1)) < -0.4
    assert penalty(panel, "female", (6, 10)) < -0.08
    assert penalty(panel, "male", (0, 1)) > -0.2
    assert penalty(panel, "male", (6, 10)) > -0.08


def correlation(x: pl.Series, y: pl.Series) -> float:
    return float(np.corrcoef(x.to_numpy(), y.to_numpy())[0, 1])


def test_spouses_earnings_are_correlated(panel: pl.DataFrame) -> None:
    couples = panel.filter(
        (pl.col("spouse_earnings") > 0)
        & (pl.col("earnings") > 0)
        & AGE.is_between(35, 55)
        & (pl.col("year") > 2010)
    )
    for _, sex in couples.group_by("sex"):
        assert 0.05 < correlation(sex["earnings"].rank(), sex["spouse_earnings"].rank()) < 0.5


def test_earnings_are_higher_at_better_paying_employers(panel: pl.DataFrame) -> None:
    rows = panel.filter(
        (pl.col("employment_rate") > 0.95) & (pl.col("full_time") == 1) & (pl.col("year") == 2015)
    ).drop_nulls(["earnings", "employer_mean_earnings"])
    assert correlation(rows["earnings"].log(), rows["employer_mean_earnings"].log()) > 0.1
