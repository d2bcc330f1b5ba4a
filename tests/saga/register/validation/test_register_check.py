"""`saga register check`: standard errors against repeated samples, measures against known truth, a broken register is caught."""

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from saga.cli import app
from saga.errors import InputError, UsageError
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.economy import CPI
from saga.register.simulation.generation import generate_register
from saga.register.validation import register_arrays as people_module
from saga.register.validation.earnings_dynamics import changes
from saga.register.validation.estimators import Estimate, Sample, correlation, slope
from saga.register.validation.fertility import EVENT, event_study, first_births
from saga.register.validation.level_statistics import income_2020, paper_sample
from saga.register.validation.linear_benchmark import FixedEffectsAR1, against_linear
from saga.register.validation.register_arrays import People, read_register
from saga.register.validation.register_check import (
    IS_TARGET,
    format_markdown,
    format_text,
    check_register,
    passed,
    provenance,
)
from saga.register.validation.register_report import write_report
from saga.register.validation.targets import targets
from tests.saga.register.panels import panel_of


def sample(values, persons=None) -> Sample:
    values = np.asarray(values, float)
    return Sample(values, np.arange(len(values)), persons or len(values))


STATISTICS = {
    "mean": Sample.mean,
    "share": lambda s: s.share(s.values > 1.5),
    "variance": Sample.variance,
    "median": lambda s: s.quantiles((0.5,))[0],
    "P90/P10": lambda s: (lambda low, high: high / low)(*s.quantiles((0.1, 0.9))),
    "decile mean": lambda s: s.between(0.3, 0.4),
    "top 5 %": lambda s: s.between(0.95, 1.0),
    "Gini": Sample.gini,
    "spread": Sample.spread,
    "Kelley": Sample.kelley,
    "Crow-Siddiqui": Sample.crow_siddiqui,
}


@pytest.mark.parametrize("name", STATISTICS)
def test_the_standard_error_is_the_spread_over_repeated_samples(name):
    """400 samples of 1,500 log-normal values: the spread of a statistic is known to 1 / sqrt(800) = 3.5 %; 4 such errors and a bias of
    order n ** -1/2 in the density that quantiles rest on are allowed for."""
    rng = np.random.default_rng(7)
    found = [STATISTICS[name](sample(np.exp(0.6 * rng.standard_normal(1_500)))) for _ in range(400)]
    spread = np.std([estimate.value for estimate in found])
    assert np.mean([estimate.se for estimate in found]) == pytest.approx(spread, rel=0.18)


def test_statistics_agree_with_their_definitions():
    x = np.random.default_rng(1).gamma(2.0, size=801)
    s = sample(x)
    assert s.gini().value == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()))
    assert [q.value for q in s.quantiles((0.1, 0.5))] == pytest.approx(np.quantile(x, (0.1, 0.5)))
    assert s.between(0.0, 1.0).value == pytest.approx(x.mean())
    assert s.mean().se == pytest.approx(x.std() / np.sqrt(len(x)))
    assert (s.mean() - s.mean()).se == pytest.approx(0.0)
    years = np.arange(5.0)
    means = [sample(x[i::5], 801).mean() for i in range(5)]
    assert slope(years, means).value == pytest.approx(
        np.polyfit(years, [m.value for m in means], 1)[0]
    )
    assert correlation(years, means).value == pytest.approx(
        np.corrcoef(years, [m.value for m in means])[0, 1]
    )


def test_shape_statistics_of_known_distributions():
    rng = np.random.default_rng(0)
    normal = sample(rng.standard_normal(200_000))
    assert abs(normal.crow_siddiqui().value) < 0.05
    assert abs(normal.kelley().value) < 0.02
    assert sample(rng.exponential(size=200_000)).gini().value == pytest.approx(0.5, abs=0.005)
    assert sample([0.0, 0.0, 0.0, 1.0]).gini().value == pytest.approx(0.75)


def test_a_change_is_real_and_dated_by_its_second_year(tmp_path):
    who = {"birth_year": 1970, "sex": "male", "birth_region": "sweden"}
    rows = [
        {**who, "person_id": str(i), "year": 2000 + k, "earnings": 100_000.0 * (1 + k)}
        for i in range(2)
        for k in (0, 1)
    ]
    write_register(tmp_path, rows, (2000, 2001))
    people = read_register(tmp_path)
    expected = np.log(2.0 * CPI[2000] / CPI[2001])
    assert changes(people, [2001]).mean().value == pytest.approx(expected, rel=1e-5)
    assert changes(people, [2000]).empty


def test_persons_are_the_unit():
    """A person counted three times tells no more than once."""
    x = np.random.default_rng(2).standard_normal(500)
    once, thrice = sample(x), Sample(np.tile(x, 3), np.tile(np.arange(500), 3), 500)
    for statistic in (Sample.mean, Sample.variance):
        assert statistic(thrice).se == pytest.approx(statistic(once).se)
        assert statistic(thrice).n == 500
    # The quantile's density is taken from a narrower window when there are more observations.
    assert thrice.spread().se == pytest.approx(once.spread().se, rel=0.25)


def test_nothing_to_measure_is_not_a_number():
    for statistic in STATISTICS.values():
        assert np.isnan(statistic(sample([], 10)).value)


@pytest.fixture(scope="module")
def register(tmp_path_factory):
    """4,000 persons on disk."""
    directory = tmp_path_factory.mktemp("check") / "register"
    generate_register(directory, RegisterSettings(persons=4_000, seed=4))
    return directory


@pytest.fixture(scope="module")
def table(register):
    return check_register(register, paper=True, descriptive=True)


def write_register(directory, rows: list[dict[str, object]], years=(1990, 2022)) -> None:
    """A register with the given rows; columns not named are null, benefits 0."""
    frame = panel_of(rows)
    for (born,), part in frame.group_by(["birth_year"]):
        path = directory / "panel" / f"birth_year={born}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        part.write_parquet(path)
    about = {
        "process": "full",
        "persons": frame["person_id"].n_unique(),
        "years": list(years),
        "seed": 0,
        "parameters": {},
    }
    (directory / "register.json").write_text(json.dumps(about))


def test_taxable_income_is_that_of_residents_of_the_whole_year(tmp_path):
    """Study aid and other tax-free transfers stand in `transfers` alone and do not count; whoever came in 2020 does not either."""
    base = {"birth_year": 1980, "sex": "female", "birth_region": "sweden", "transfers": 90_000.0}
    taxable = {
        "earnings": 100.0,
        "sickness_benefit": 20.0,
        "parental_benefit": 3.0,
        "unemployment_benefit": 0.4,
        "disability_pension": 5_000.0,
    }
    rows = [
        {**base, "person_id": str(i), "year": year, **taxable, "pension_income": 60_000.0}
        for i in range(4)
        for year in (2019, 2020)
    ]
    rows.append({**base, "person_id": "9", "year": 2020, **taxable, "pension_income": 1e9})
    write_register(tmp_path, rows, (2019, 2020))
    found = dict(income_2020(read_register(tmp_path)))
    assert found["level.all.mean"].value == pytest.approx(65_123.4)
    assert found["level.women.mean"].n == 4
    assert np.isnan(found["level.men.mean"].value)


def test_paid_leave_counts_as_employment(tmp_path):
    """Half a year of work at 300,000 a year: 60,000 of parental pay is a quarter of a year (80 %); all year on leave after such a year."""
    who = {"person_id": "1", "birth_year": 1985, "sex": "female", "birth_region": "sweden"}
    rows = [
        {
            **who,
            "year": 2019,
            "earnings": 150_000.0,
            "parental_benefit": 60_000.0,
            "employment_rate": 0.5,
        },
        {
            **who,
            "year": 2020,
            "earnings": 0.0,
            "parental_benefit": 240_000.0,
            "employment_rate": 0.0,
        },
        {
            **who,
            "year": 2021,
            "earnings": 0.0,
            "parental_benefit": 90_000.0,
            "employment_rate": 0.0,
        },
    ]
    write_register(tmp_path, rows, (2019, 2021))
    assert read_register(tmp_path).employed[0].tolist() == pytest.approx([0.75, 1.0, 0.0], abs=1e-3)


def test_absence_and_gaps_are_not_zeros(register):
    people = read_register(register)
    panel = pl.read_parquet(register / "panel" / "**" / "*.parquet", hive_partitioning=False)
    assert people.present.sum() == panel.height
    assert np.isfinite(people.earnings).sum() == panel["earnings"].count()
    assert np.nansum(people.earnings, dtype=float) == pytest.approx(
        panel["earnings"].sum(), rel=1e-6
    )
    assert len(people) == panel["person_id"].n_unique()
    assert people.female.sum() == panel.filter(pl.col("sex") == "female")["person_id"].n_unique()


def test_every_target_is_measured_unless_it_says_why_not(table):
    aimed = table.filter(IS_TARGET)
    assert aimed["key"].to_list() == [target.key for target in targets()]
    assert set(aimed.filter(pl.col("value").is_null())["key"]) == {
        t.key for t in targets() if "Not rebuilt" in t.source
    }
    assert set(aimed.filter("enforced")["verdict"]) <= {"inside", "outside"}
    assert set(table.filter(~pl.col("enforced"))["verdict"]) == {"reported"}
    assert table["key"].is_duplicated().sum() == 0
    assert passed(table) == (table.filter("enforced")["verdict"] == "inside").all()


def test_a_verdict_is_where_the_value_lies(table):
    for row in table.filter("enforced").iter_rows(named=True):
        below, above = (
            row["low"] is not None and row["value"] < row["low"],
            row["high"] is not None and row["value"] > row["high"],
        )
        assert (row["verdict"] == "outside") == (below or above), row["key"]


def test_a_broken_register_is_told_from_a_good_one(register, tmp_path, table):
    """Doubled earnings move the mean out of its band, swapped sexes the differences between them."""
    names = {
        "doubled": (pl.col("earnings") * 2.0),
        "swapped": pl.when(pl.col("sex") == "male")
        .then(pl.lit("female"))
        .otherwise(pl.lit("male"))
        .alias("sex"),
    }
    for name, change in names.items():
        shutil.copytree(register, tmp_path / name)
        for file in (tmp_path / name / "panel").rglob("*.parquet"):
            pl.read_parquet(file, hive_partitioning=False).with_columns(change).write_parquet(file)
    doubled = check_register(tmp_path / "doubled", only=("level.all.mean",))
    assert doubled["verdict"].to_list() == ["outside"]
    swapped = check_register(tmp_path / "swapped", only=("wage_ratio", "level.ratio"))
    straight = table.filter(pl.col("key").is_in(swapped["key"].implode()))
    assert (swapped["value"] * straight["value"]).to_list() == pytest.approx(
        [1.0] * swapped.height, rel=0.02
    )
    assert not passed(swapped)


def test_a_register_of_other_years_is_checked_on_what_it_has(tmp_path):
    """Without the years of a target it is unmeasured, and the check says no."""
    generate_register(
        tmp_path / "register",
        RegisterSettings(persons=1_500, seed=1, first_year=2014, last_year=2019),
    )
    found = check_register(tmp_path / "register", descriptive=True)
    verdict = dict(found.select("key", "verdict").iter_rows())
    assert verdict["level.all.mean"] == verdict["gap44"] == verdict["sign.jump.men"] == "unmeasured"
    assert verdict["employment.all.35-44"] in ("inside", "outside")
    assert not passed(found)


def test_a_large_register_is_measured_on_every_second_person(register, monkeypatch):
    everybody = read_register(register)
    monkeypatch.setattr(people_module, "MOST", 2_000)
    half = read_register(register)
    assert len(half) == pytest.approx(len(everybody) / 2, abs=100)  # one left over a file
    assert np.isfinite(half.earnings).sum() == pytest.approx(
        np.isfinite(everybody.earnings).sum() / 2, rel=0.05
    )


def linear_people(rho: float, shock: float, effect: float, n: int = 6_000) -> People:
    """Persons of 25-57 with log earnings of a known AR(1) with fixed effects around a common level."""
    rng = np.random.default_rng(5)
    years = range(1990, 2023)
    x = shock / np.sqrt(1 - rho**2) * rng.standard_normal(n)
    mu = effect * rng.standard_normal(n)
    logs = np.empty((n, len(years)))
    for t in range(len(years)):
        x = rho * x + shock * rng.standard_normal(n) if t else x
        logs[:, t] = 12.6 + mu + x
    shape, prices = (n, len(years)), np.array([CPI[year] for year in years])
    nothing = np.zeros(shape, bool)
    earnings = (np.exp(logs) * prices).astype(np.float32)
    born = (1965 - np.arange(n) % 3).astype(np.int16)
    female = np.arange(n) % 2 == 0
    zero, none = np.zeros(shape, np.int8), np.zeros(shape, np.uint16)
    partner, work = np.full(shape, np.nan, np.float32), np.ones(shape, np.float16)
    return People(
        {"seed": 1},
        years,
        born,
        female,
        ~female,
        ~nothing,
        earnings,
        earnings,
        work,
        nothing,
        zero,
        zero,
        born + 16,
        partner,
        zero,
        none,
    )


def test_the_linear_process_is_recovered_and_its_twin_is_like_it():
    people = linear_people(0.7, 0.15, 0.3)
    fitted = FixedEffectsAR1.fit(people)
    assert (fitted.rho, fitted.shock, fitted.effect) == pytest.approx((0.7, 0.15, 0.3), abs=0.015)
    found = dict(against_linear(people))
    for word in ("peak", "fading_bottom", "fading_top"):
        for whose in ("register", "fitted"):
            estimate = found[f"ar1.{word}.{whose}"]
            assert abs(estimate.value) < 4 * estimate.se, (word, whose)
    assert found["ar1.kurtosis.register"].value == pytest.approx(
        3.0, abs=4 * found["ar1.kurtosis.register"].se
    )


def test_a_linear_process_fitted_to_the_register_has_neither_its_peaks_nor_its_asymmetry(register):
    found = dict(against_linear(read_register(register)))
    for word in ("peak", "kurtosis", "fading_bottom", "fading_top"):
        difference: Estimate = found[f"ar1.{word}.register"] - found[f"ar1.{word}.fitted"]
        assert abs(difference.value) > 5 * difference.se, word
    assert found["ar1.peak.register"].value > found["ar1.peak.fitted"].value + 3
    assert found["ar1.kurtosis.fitted"].value == pytest.approx(3.0, abs=0.3)


def test_the_event_study_finds_a_known_loss():
    """Earnings grow with age and year and fall by 60,000 at the first birth: nothing before, that much after, for whoever gives birth."""
    people = linear_people(0.5, 0.0001, 0.0001, 900)
    first = 1996 + np.arange(900) % 17
    years = np.array(people.years)
    level = (
        200_000
        + 3_000 * (years[None, :] - people.born[:, None])
        + 1_000 * (years - 1990)
        + 5_000 * np.random.default_rng(3).standard_normal((900, 1))
    )
    real = level - 60_000 * (years >= first[:, None])
    people.earnings[:] = real * np.array([CPI[year] for year in people.years])
    people.child[:] = np.where(years < first[:, None], 0, np.where(years == first[:, None], 1, 2))
    assert (first_births(people) == first).all()
    study = event_study(people, first_births(people), people.female)
    for k in EVENT:
        estimate = study.effect[EVENT.index(k)]
        assert estimate.value == pytest.approx(-60_000 if k >= 0 else 0, abs=4 * estimate.se + 1)
        assert estimate.se < 2_000
    assert study.relative(5).value == pytest.approx(
        -60_000 / study.without[EVENT.index(5)], rel=0.05
    )


def test_the_papers_selection_needs_ten_years_and_five_with_earnings(tmp_path):
    who = {"birth_year": 1980, "sex": "male", "birth_region": "sweden"}
    lives = {
        "kept": [(year, 1.0) for year in range(2000, 2011)],
        "gap of two": [(year, 1.0) for year in range(2000, 2011) if year not in (2004, 2005)],
        "gap of three": [
            (year, 1.0) for year in range(2000, 2011) if year not in (2004, 2005, 2006)
        ],
        "four positive": [(year, float(year > 2006)) for year in range(2000, 2011)],
        "too young": [(year, 1.0) for year in range(1996, 2005)],
    }
    rows = [
        {**who, "person_id": name, "year": year, "earnings": amount}
        for name, life in lives.items()
        for year, amount in life
    ]
    write_register(tmp_path, rows, (1996, 2010))
    people = read_register(tmp_path)
    names = sorted(lives)
    assert {name for name, kept in zip(names, people.selected, strict=True) if kept} == {
        "kept",
        "gap of two",
    }
    assert dict(paper_sample(people))["paper.years"].value == pytest.approx(10.0)


def test_the_command_prints_writes_and_answers_with_its_exit_code(register, tmp_path, table):
    run = CliRunner().invoke(
        app,
        [
            "register",
            "check",
            str(register),
            "--only",
            "level",
            "--only",
            "zeros",
            "--markdown",
            str(tmp_path / "t.md"),
        ],
    )
    assert run.exit_code == int(
        not passed(table.filter(pl.col("key").str.contains(r"^(level|zeros)\.")))
    )
    assert "zeros.20-64" in run.stdout
    assert "paper." not in run.stdout
    assert (tmp_path / "t.md").read_text().count("\n") == 2 + table["key"].str.contains(
        r"^(level|zeros)\.(all|women|men|ratio|20)"
    ).sum() - table["key"].str.contains(r"^zeros\.(women|men)").sum()
    answer = CliRunner().invoke(
        app, ["register", "check", str(register), "--only", "paper", "--sample", "paper", "--json"]
    )
    assert {row["key"] for row in json.loads(answer.stdout)["targets"]} >= {
        "paper.zeros",
        "paper.years",
    }
    assert answer.exit_code == 0


def test_what_cannot_be_checked_is_refused_with_a_reason(tmp_path, register):
    with pytest.raises(InputError, match="cannot be checked"):
        check_register(tmp_path)
    write_register(
        tmp_path,
        [{"person_id": "1", "birth_year": 1985, "sex": "female", "earnings": 1.0, "year": 2021}],
    )
    with pytest.raises(InputError, match="too small"):
        check_register(tmp_path)
    with pytest.raises(UsageError, match="No target begins with nonsense"):
        check_register(register, only=("nonsense",))


def test_text_and_markdown_hold_every_aimed_row(table):
    aimed = table.filter(IS_TARGET)
    text, page = format_text(table), format_markdown(table)
    assert all(key in text and f"`{key}`" in page for key in aimed["key"])


def test_the_report_is_one_page_that_needs_nothing_else(table, register, tmp_path):
    page = tmp_path / "report.html"
    write_report(table, page, provenance(register))
    text = page.read_text(encoding="utf-8")
    assert (
        text.count("<svg ")
        == text.count('role="img" aria-label=')
        == text.count("<figcaption")
        == 11
    )
    assert set(re.findall(r"https?://[^\"'\s<)]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "<script" not in text
    for row in table.filter(IS_TARGET).iter_rows(named=True):
        assert f"<code>{row['key']}</code>" in text
    outside = table.filter(pl.col("verdict") == "outside").height
    assert text.count('<td class="outside">') == outside
    assert "saga-register-4-4000" in text


def test_a_report_on_a_part_draws_what_it_has(register, tmp_path):
    answer = CliRunner().invoke(
        app,
        [
            "register",
            "check",
            str(register),
            "--only",
            "gap44",
            "--report",
            str(tmp_path / "r.html"),
        ],
    )
    assert answer.exit_code in (0, 1)
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count("<svg ") >= 5
