"""The check of a register agrees with known truth and detects a broken register."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.errors import InputError, UsageError
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.economy import CPI
from saga.register.simulation.generation import generate_register
from saga.register.validation.earnings_dynamics import changes
from saga.register.validation.fertility import EVENT_YEARS, event_study, first_births
from saga.register.validation.level_statistics import income_2020, paper_sample
from saga.register.validation.register_arrays import RegisterArrays, read_register
from saga.register.validation.register_check import (
    check_register,
    passed,
    targets,
)
from tests.command_line import answer, run
from tests.saga.register.panels import Row, panel_of


@pytest.fixture(scope="module")
def register(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,000 persons on disk."""
    directory = tmp_path_factory.mktemp("check") / "register"
    generate_register(directory, RegisterSettings(persons=4_000, seed=4))
    return directory


@pytest.fixture(scope="module")
def table(register: Path) -> pl.DataFrame:
    return check_register(register, paper=True)


def write_register(directory: Path, rows: list[Row], years: tuple[int, int] = (1990, 2022)) -> None:
    """A register with the given rows; of the columns not named, benefits are 0, others null."""
    frame = panel_of(rows)
    for (born,), part in frame.group_by(["birth_year"]):
        path = directory / "panel" / f"birth_year={born}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        part.write_parquet(path)
    metadata = {
        "process": "full",
        "persons": frame["person_id"].n_unique(),
        "years": list(years),
        "seed": 0,
        "parameters": {},
    }
    (directory / "register.json").write_text(json.dumps(metadata))


def test_a_change_is_real_and_dated_by_its_second_year(tmp_path: Path) -> None:
    person: Row = {"birth_year": 1970, "sex": "male", "birth_region": "sweden"}
    rows: list[Row] = [
        {**person, "person_id": str(i), "year": 2000 + k, "earnings": 100_000.0 * (1 + k)}
        for i in range(2)
        for k in (0, 1)
    ]
    write_register(tmp_path, rows, (2000, 2001))
    arrays = read_register(tmp_path)
    expected = np.log(2.0 * CPI[2000] / CPI[2001])
    assert changes(arrays, [2001]).mean().value == pytest.approx(expected, rel=1e-5)
    assert changes(arrays, [2000]).too_small


def test_taxable_income_is_that_of_residents_of_the_whole_year(tmp_path: Path) -> None:
    """Tax-free transfers (column `transfers`) and immigrants of 2020 do not count."""
    base: Row = {
        "birth_year": 1980,
        "sex": "female",
        "birth_region": "sweden",
        "transfers": 90_000.0,
        "earnings": 100.0,
        "sickness_benefit": 20.0,
        "parental_benefit": 3.0,
        "unemployment_benefit": 0.4,
        "disability_pension": 5_000.0,
    }
    rows: list[Row] = [
        {**base, "person_id": str(i), "year": year, "pension_income": 60_000.0}
        for i in range(4)
        for year in (2019, 2020)
    ]
    rows.append({**base, "person_id": "9", "year": 2020, "pension_income": 1e9})
    write_register(tmp_path, rows, (2019, 2020))
    estimates = dict(income_2020(read_register(tmp_path)))
    assert estimates["level.all.mean"].value == pytest.approx(65_123.4)
    assert estimates["level.women.mean"].n == 4
    assert np.isnan(estimates["level.men.mean"].value)


def test_paid_leave_counts_as_employment(tmp_path: Path) -> None:
    """Parental benefit counts as the weeks of leave that it pays for.

    After half a year of work at 300,000 a year, 60,000 of benefit is a quarter of a year: benefits
    replace 80 %. A year of leave after such a year counts as a whole year.
    """
    person: Row = {"person_id": "1", "birth_year": 1985, "sex": "female", "birth_region": "sweden"}
    rows: list[Row] = [
        {
            **person,
            "year": year,
            "earnings": earnings,
            "parental_benefit": benefit,
            "employment_rate": rate,
        }
        for year, earnings, benefit, rate in (
            (2019, 150_000.0, 60_000.0, 0.5),
            (2020, 0.0, 240_000.0, 0.0),
            (2021, 0.0, 90_000.0, 0.0),
        )
    ]
    write_register(tmp_path, rows, (2019, 2021))
    employed = read_register(tmp_path).employed[0].tolist()
    assert employed == pytest.approx([0.75, 1.0, 0.0], abs=1e-3)


@pytest.mark.thorough
def test_absence_and_gaps_are_not_zeros(register: Path) -> None:
    arrays = read_register(register)
    panel = pl.read_parquet(register / "panel" / "**" / "*.parquet", hive_partitioning=False)
    assert arrays.present.sum() == panel.height
    assert np.isfinite(arrays.earnings).sum() == panel["earnings"].count()
    total = np.nansum(arrays.earnings, dtype=float)
    assert total == pytest.approx(panel["earnings"].sum(), rel=1e-6)
    assert len(arrays) == panel["person_id"].n_unique()
    assert arrays.female.sum() == panel.filter(pl.col("sex") == "female")["person_id"].n_unique()


@pytest.mark.thorough
def test_every_target_is_measured_unless_it_states_why_not(table: pl.DataFrame) -> None:
    assert table["key"].to_list() == [target.key for target in targets()]
    assert set(table.filter(pl.col("value").is_null())["key"]) == {
        target.key for target in targets() if "Not rebuilt" in target.source
    }
    assert set(table.filter("enforced")["verdict"]) <= {"inside", "outside"}
    assert set(table.filter(~pl.col("enforced"))["verdict"]) == {"reported"}
    assert table["key"].is_duplicated().sum() == 0
    assert passed(table) == (table.filter("enforced")["verdict"] == "inside").all()


@pytest.mark.thorough
def test_a_broken_register_is_detected(register: Path, tmp_path: Path, table: pl.DataFrame) -> None:
    """Doubled earnings move the mean out of its band, swapped sexes the differences."""
    other_sex = pl.when(pl.col("sex") == "male").then(pl.lit("female")).otherwise(pl.lit("male"))
    breaks = {"doubled": pl.col("earnings") * 2.0, "swapped": other_sex.alias("sex")}
    for name, change in breaks.items():
        shutil.copytree(register, tmp_path / name)
        for file in (tmp_path / name / "panel").rglob("*.parquet"):
            pl.read_parquet(file, hive_partitioning=False).with_columns(change).write_parquet(file)
    doubled = check_register(tmp_path / "doubled", only=("level.all.mean",))
    assert doubled["verdict"].to_list() == ["outside"]
    checked = run("register check", tmp_path / "doubled", "--only level.all.mean")
    assert checked.exit_code == 1
    swapped = check_register(tmp_path / "swapped", only=("wage_ratio", "level.ratio"))
    intact = table.filter(pl.col("key").is_in(swapped["key"].implode()))
    product = (swapped["value"] * intact["value"]).to_list()
    assert product == pytest.approx([1.0] * swapped.height, rel=0.02)
    assert not passed(swapped)


@pytest.mark.thorough
def test_targets_of_years_that_the_register_lacks_are_unmeasured(tmp_path: Path) -> None:
    """A register with unmeasured targets does not pass."""
    generate_register(
        tmp_path / "register",
        RegisterSettings(persons=1_500, seed=1, first_year=2014, last_year=2019),
    )
    table = check_register(tmp_path / "register")
    verdict = dict(table.select("key", "verdict").iter_rows())
    assert verdict["level.all.mean"] == verdict["gap44"] == verdict["sign.jump.men"] == "unmeasured"
    assert verdict["employment.all.35-44"] in ("inside", "outside")
    assert not passed(table)


def linear_register(rho: float, shock: float, effect: float, n: int = 6_000) -> RegisterArrays:
    """Persons of 25-57 with log earnings of an AR(1) with fixed effects around a common level."""
    rng = np.random.default_rng(5)
    years = range(1990, 2023)
    x = shock / np.sqrt(1 - rho**2) * rng.standard_normal(n)
    mu = effect * rng.standard_normal(n)
    logs = np.empty((n, len(years)))
    for t in range(len(years)):
        x = rho * x + shock * rng.standard_normal(n) if t else x
        logs[:, t] = 12.6 + mu + x
    shape, prices = (n, len(years)), np.array([CPI[year] for year in years])
    earnings = (np.exp(logs) * prices).astype(np.float32)
    birth_year = (1965 - np.arange(n) % 3).astype(np.int16)
    female = np.arange(n) % 2 == 0
    return RegisterArrays(
        metadata={"seed": 1},
        years=years,
        birth_year=birth_year,
        female=female,
        foreign=~female,
        present=np.ones(shape, bool),
        earnings=earnings,
        taxable=earnings,
        employed=np.ones(shape, np.float16),
        full_job=np.zeros(shape, bool),
        education=np.zeros(shape, np.int8),
        youngest_child=np.zeros(shape, np.int8),
        entry_year=birth_year + np.int16(16),
        partner_earnings=np.full(shape, np.nan, np.float32),
        industry=np.zeros(shape, np.int8),
        flags=np.zeros(shape, np.uint16),
    )


def test_the_event_study_recovers_a_known_loss() -> None:
    """Earnings grow with age and year and fall by 60,000 at the first birth, and not before."""
    arrays = linear_register(0.5, 0.0001, 0.0001, 900)
    birth = 1996 + np.arange(900) % 17
    years = np.array(arrays.years)
    level = (
        200_000
        + 3_000 * (years[None, :] - arrays.birth_year[:, None])
        + 1_000 * (years - 1990)
        + 5_000 * np.random.default_rng(3).standard_normal((900, 1))
    )
    real = level - 60_000 * (years >= birth[:, None])
    arrays.earnings[:] = real * np.array([CPI[year] for year in arrays.years])
    after_birth = np.where(years == birth[:, None], 1, 2)
    arrays.youngest_child[:] = np.where(years < birth[:, None], 0, after_birth)
    assert (first_births(arrays) == birth).all()
    study = event_study(arrays, first_births(arrays), arrays.female)
    assert study is not None
    for k, estimate in zip(EVENT_YEARS, study.effect, strict=True):
        assert estimate.value == pytest.approx(-60_000 if k >= 0 else 0, abs=4 * estimate.se + 1)
        assert estimate.se < 2_000
    predicted = study.predicted[EVENT_YEARS.index(5)]
    assert study.relative(5).value == pytest.approx(-60_000 / predicted, rel=0.05)


def test_the_papers_selection_needs_ten_years_and_five_with_earnings(tmp_path: Path) -> None:
    person: Row = {"birth_year": 1980, "sex": "male", "birth_region": "sweden"}
    decade = range(2000, 2011)
    earnings_by_year: dict[str, dict[int, float]] = {
        "complete": dict.fromkeys(decade, 1.0),
        "gap of two": {year: 1.0 for year in decade if year not in (2004, 2005)},
        "gap of three": {year: 1.0 for year in decade if year not in (2004, 2005, 2006)},
        "four positive": {year: float(year > 2006) for year in decade},
        "too young": dict.fromkeys(range(1996, 2005), 1.0),
    }
    rows: list[Row] = [
        {**person, "person_id": name, "year": year, "earnings": amount}
        for name, amounts in earnings_by_year.items()
        for year, amount in amounts.items()
    ]
    write_register(tmp_path, rows, (1996, 2010))
    arrays = read_register(tmp_path)
    names = np.array(sorted(earnings_by_year))
    assert set(names[arrays.in_paper_sample].tolist()) == {"complete", "gap of two"}
    assert dict(paper_sample(arrays))["paper.years"].value == pytest.approx(10.0)


@pytest.mark.thorough
def test_the_command_prints_and_writes_the_table_and_sets_the_exit_code(
    register: Path, tmp_path: Path, table: pl.DataFrame
) -> None:
    page = tmp_path / "table.md"
    result = run("register check", register, "--only level --only zeros --markdown", page)
    selected = table.filter(pl.col("key").str.contains(r"^(level|zeros)\."))
    assert result.exit_code == int(not passed(selected))
    assert "zeros.20-64" in result.stdout
    assert "paper." not in result.stdout
    assert page.read_text().count("\n| `") == selected.height
    for key in selected["key"]:
        assert key in result.stdout
        assert f"`{key}`" in page.read_text()
    of_paper = answer("register check", register, "--only paper --sample paper")
    assert {row["key"] for row in of_paper["targets"]} >= {"paper.zeros", "paper.years"}


@pytest.mark.thorough
def test_a_check_that_is_impossible_is_refused_with_a_reason(
    tmp_path: Path, register: Path
) -> None:
    with pytest.raises(InputError, match="cannot be checked"):
        check_register(tmp_path)
    row: Row = {"person_id": "1", "birth_year": 1985, "sex": "female", "earnings": 1.0}
    write_register(tmp_path, [{**row, "year": 2021}])
    with pytest.raises(InputError, match="too small"):
        check_register(tmp_path)
    with pytest.raises(UsageError, match="No target begins with nonsense"):
        check_register(register, only=("nonsense",))
