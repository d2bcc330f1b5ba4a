"""What must be true of the simulated lives: structure, causes and consequences, and the shape of the moments."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from saga import schema
from saga.register.simulation.economy import CPI
from saga.register.simulation.parameters import Parameters
from saga.register.validation.descriptive_statistics import by_age
from saga.register.validation.earnings_dynamics import recalled_moments
from saga.register.validation.level_statistics import income_2020, zeros
from saga.register.validation.register_arrays import arrays_of_panel

AGE = pl.col("year") - pl.col("birth_year")


def real_earnings(panel: pl.DataFrame) -> pl.DataFrame:
    """person_id, year, age, female, real (SEK of 2022), of rows with known earnings."""
    prices = pl.DataFrame(
        {"year": list(CPI), "prices": list(CPI.values())}, schema_overrides={"year": pl.Int32}
    )
    known = panel.filter(pl.col("earnings").is_not_null()).join(prices, on="year")
    female, real = (
        (pl.col("sex") == "female").alias("female"),
        (pl.col("earnings") / pl.col("prices")).alias("real"),
    )
    return known.select("person_id", "year", AGE.alias("age"), female, real)


@pytest.fixture(scope="module")
def moments(panel):
    """Key of the register's check -> value."""
    people = arrays_of_panel(panel.sort("person_id", "year").lazy(), {"years": (1990, 2022)})
    measured = {
        key: estimate.value
        for measure in (income_2020, zeros, recalled_moments)
        for key, estimate in measure(people)
    }
    return measured | {row.key: estimate.value for row, estimate in by_age(people)}


def test_every_column_has_its_type_its_codes_and_its_range(panel):
    assert dict(panel.schema) == schema.polars_schema()
    for column in schema.COLUMNS:
        known = panel[column.name].drop_nulls()
        assert len(known) > 0, column.name
        if column.codes:
            assert set(known.unique()) <= set(column.codes), column.name
        if column.pattern:
            assert known.str.contains(column.pattern).all(), column.name
        if column.minimum is not None:
            assert known.min() >= column.minimum, column.name
        if column.maximum is not None:
            assert known.max() <= column.maximum, column.name
        if column.static and column.name != "person_id":
            assert (
                panel.group_by("person_id").agg(pl.col(column.name).n_unique())[column.name].max()
                == 1
            ), column.name


def test_all_codes_of_the_listed_classifications_occur(panel):
    for column in schema.COLUMNS:
        if column.codes:
            assert set(panel[column.name].drop_nulls().unique()) == set(column.codes), column.name


def test_rows_are_residents_of_working_age_once_a_year_from_entry_to_exit(panel):
    assert panel.select("person_id", "year").is_duplicated().sum() == 0
    assert panel.filter(~AGE.is_between(schema.MIN_AGE, schema.MAX_AGE)).is_empty()
    assert panel.filter(pl.col("year") >= pl.col("exit_year")).is_empty()
    assert panel.filter(pl.col("year") < pl.col("entry_year")).is_empty()
    assert panel.filter(pl.col("exit_year").is_null() != pl.col("exit_reason").is_null()).is_empty()
    assert panel.filter(pl.col("exit_year") > 2022).is_empty()


def test_some_lives_have_gaps_from_years_abroad(panel):
    spans = panel.group_by("person_id").agg(
        (pl.col("year").max() - pl.col("year").min() + 1 - pl.len()).alias("gap")
    )
    assert 0.01 < (spans["gap"] > 0).mean() < 0.25


def test_a_null_a_zero_and_a_missing_row_are_three_things(panel):
    assert 0 < panel["earnings"].null_count() / panel.height < 0.01
    assert (
        panel.filter(pl.col("year") < 2001)["occupation"].null_count()
        == panel.filter(pl.col("year") < 2001).height
    )
    assert (
        panel.filter(pl.col("year") == 1990)["capital_income"].null_count()
        == panel.filter(pl.col("year") == 1990).height
    )
    late = (
        panel.group_by("year")
        .agg(pl.col("capital_income").is_null().mean().alias("share"))
        .sort("year")["share"]
    )
    assert late[-1] > 0.02
    assert late[-2] == 0.0


def test_work_and_pay_agree(panel):
    known = panel.filter(pl.col("earnings").is_not_null())
    assert known.filter((pl.col("earnings") > 0) != (pl.col("employers") > 0)).is_empty()
    assert known.filter(
        (pl.col("employment_rate") == 0.0) & (pl.col("earnings") > 20_000)
    ).is_empty()
    assert known.filter(
        (pl.col("occupation").is_not_null())
        & (pl.col("earnings") == 0)
        & (pl.col("employment_rate") > 0.2)
    ).is_empty()


def test_benefits_exist_only_where_their_cause_does(panel):
    assert panel.filter(
        (pl.col("parental_benefit") > 0)
        & ~pl.col("youngest_child").is_in(["infant", "preschool", "school"])
    ).is_empty()
    assert panel.filter(
        (pl.col("pension_income") > 0) & (AGE < 55) & (pl.col("marital_status") != "widowed")
    ).is_empty()
    assert panel.filter(
        (pl.col("spouse_earnings") > 0) & ~pl.col("marital_status").is_in(["married", "cohabiting"])
    ).is_empty()
    assert panel.filter(
        (pl.col("youngest_child") == "none") != (pl.col("children") == "0")
    ).is_empty()
    parts = pl.sum_horizontal(
        "sickness_benefit",
        "parental_benefit",
        "unemployment_benefit",
        "disability_pension",
        "housing_supplement",
    )
    # Each amount is rounded to hundreds, so is the total.
    assert panel.filter(parts > pl.col("transfers") + 300).is_empty()


def test_mothers_of_infants_are_on_leave_and_fathers_mostly_at_work(panel):
    infants = panel.filter(
        (pl.col("youngest_child") == "infant")
        & (pl.col("employment_rate").is_not_null())
        & (AGE > 24)
    )
    rate = dict(infants.group_by("sex").agg(pl.col("employment_rate").mean()).iter_rows())
    assert rate["female"] < 0.55
    assert rate["male"] > rate["female"] + 0.2


def test_zero_shares_lie_in_the_band_and_are_u_shaped_over_age(moments):
    assert 0.08 <= moments["zeros.20-64"] <= 0.22
    for sex in ("women", "men"):
        share = {first: moments[f"zeros.{sex}.{first}-{first + 4}"] for first in range(20, 65, 5)}
        assert 30 <= min(share, key=share.__getitem__) <= 45
        assert max(share[20], share[25]) > min(share.values()) * 1.2
        assert share[60] > min(share.values()) * 2


def test_levels_of_2020_are_swedish(moments):
    """Wide bands: taxable income in the published order of size (SCB 2020), with the sampling error of few and unequal cohorts."""
    assert moments["level.all.p50"] == pytest.approx(343_868, rel=0.12)
    assert moments["level.all.p90"] == pytest.approx(606_561, rel=0.12)
    assert moments["level.all.gini"] == pytest.approx(0.366, abs=0.05)
    assert moments["level.ratio.mean"] == pytest.approx(0.803, rel=0.12)


def test_the_nineties_crisis_takes_work_away(panel):
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
    benefit = (
        panel.group_by("year")
        .agg((pl.col("unemployment_benefit") > 0).mean().alias("share"))
        .sort("year")
    )
    paid = dict(zip(benefit["year"], benefit["share"], strict=True))
    assert paid[1994] > 2 * paid[1990]


def test_changes_are_peaked_heavy_tailed_and_skewed_down_in_the_bust(moments):
    for sex in ("men", "women"):
        assert moments[f"grid.change1.peak.{sex}"] > 3
        assert (
            moments[f"grid.change1.kelley.bust.{sex}"]
            < moments[f"grid.change1.kelley.boom.{sex}"] - 0.03
        )
    assert 0.33 < moments["grid.change1.std.men"] < 0.55
    assert moments["grid.change1.std.women"] > moments["grid.change1.std.men"]
    assert 0.68 < moments["grid.rank5.men"] < 0.88


def test_earnings_grow_with_the_wage_index_of_the_economy(panel):
    """Real earnings over the real wage index move only by cycle and composition: less than a quarter of its growth."""
    from saga.macro.history import sweden

    growth = np.log1p(sweden().values[:, 1])
    index = np.concatenate([[0.0], np.cumsum(growth[1:])])
    prime = real_earnings(panel).filter(pl.col("age").is_between(30, 54) & (pl.col("real") > 0))
    mean = prime.group_by("year").agg(pl.col("real").log().mean()).sort("year")["real"].to_numpy()
    drift = (mean - index)[-6:].mean() - (mean - index)[:6].mean()
    assert abs(drift) < 0.25 * index[-6:].mean()


def scar(panel: pl.DataFrame, years: int) -> float:
    """Real earnings `years` after a year of unemployment relative to those of matched others (same sex and earnings before)."""
    real = real_earnings(panel)
    rows = real.join(
        panel.select("person_id", "year", "employment_rate", "unemployment_benefit"),
        on=["person_id", "year"],
    )
    rows = rows.filter(pl.col("age").is_between(27, 50))
    before = rows.select(
        "person_id",
        (pl.col("year") + 1).cast(pl.Int32).alias("year"),
        pl.col("real").alias("r0"),
        pl.col("employment_rate").alias("e0"),
    )
    later = real.select(
        "person_id",
        (pl.col("year") - years).cast(pl.Int32).alias("year"),
        pl.col("real").alias("rk"),
    )
    base = (
        rows.join(before, on=["person_id", "year"])
        .filter((pl.col("e0") > 0.95) & (pl.col("r0") > 150_000))
        .join(later, on=["person_id", "year"])
    )
    lost = ((pl.col("employment_rate") < 0.75) & (pl.col("unemployment_benefit") > 0)).alias("lost")
    cells = base.with_columns(lost, pl.col("r0").log().round(1).alias("level")).drop_nulls("lost")
    wide = (
        cells.group_by("level", "female", "lost")
        .agg(pl.col("rk").mean(), pl.len())
        .pivot("lost", index=["level", "female"], values=["rk", "len"])
        .drop_nulls()
    )
    return float(
        (wide["rk_true"] / wide["rk_false"] * wide["len_true"]).sum() / wide["len_true"].sum()
    )


def test_a_year_of_unemployment_leaves_a_scar_and_without_scars_it_is_smaller(panel, simulate):
    assert scar(panel, 5) < 0.92
    assert scar(panel, 5) > scar(panel, 1)
    careers = replace(Parameters().careers, scar_loss=0.0, scar_per_year=0.0)
    assert scar(
        simulate(replace(Parameters(), careers=careers), cohorts=range(1951, 1984, 4)), 5
    ) > scar(panel, 5)


def penalty(panel: pl.DataFrame, sex: str, years: tuple[int, int]) -> float:
    """Earnings 'years' after the first birth relative to the path without it (event study: Kleven, Landais & Sogaard 2019)."""
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
    return float(
        np.mean(
            [
                effect[events.index(x)] / without[k == x].mean()
                for x in range(years[0], years[1] + 1)
            ]
        )
    )


def test_the_child_penalty_is_the_mothers(panel):
    assert penalty(panel, "female", (0, 1)) < -0.4
    assert penalty(panel, "female", (6, 10)) < -0.08
    assert penalty(panel, "male", (0, 1)) > -0.2
    assert penalty(panel, "male", (6, 10)) > -0.08


def test_spouses_earnings_go_together(panel):
    couples = panel.filter(
        (pl.col("spouse_earnings") > 0)
        & (pl.col("earnings") > 0)
        & AGE.is_between(35, 55)
        & (pl.col("year") > 2010)
    )
    for _, sex in couples.group_by("sex"):
        assert (
            0.05
            < np.corrcoef(
                sex["earnings"].rank().to_numpy(), sex["spouse_earnings"].rank().to_numpy()
            )[0, 1]
            < 0.5
        )


def test_better_paying_employers_pay_better(panel):
    rows = panel.filter(
        (pl.col("employment_rate") > 0.95) & (pl.col("full_time") == 1) & (pl.col("year") == 2015)
    ).drop_nulls(["earnings", "employer_mean_earnings"])
    assert (
        np.corrcoef(
            rows["earnings"].log().to_numpy(), rows["employer_mean_earnings"].log().to_numpy()
        )[0, 1]
        > 0.1
    )
