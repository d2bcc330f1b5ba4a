"""Records of the futures: all columns of the panel beside the true earnings, which they leave as they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from evaluation.scoring.futures import true_futures
from saga import schema
from saga.cli import app
from saga.data.origins import origins_at
from saga.data.reading import read_panel
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.cohort_simulation import simulate_chunk, simulate_future
from saga.register.simulation.life_state import ABROAD, RESIDENT
from saga.register.simulation.parameters import Parameters
from tests.saga.register.latent_states import read_state

PERSONS, SEED = 12, 5
PLAIN = RegisterSettings(persons=PERSONS, seed=SEED, future_to=2040, future_draws=2)
WITH_RECORDS = replace(PLAIN, future_records=True)
TRUE = ["person_id", "year", "birth_year", "earnings", "exit_year", "exit_reason"]
ADDED = [name for name in schema.NAMES if name not in TRUE]
ALWAYS = ["sex", "birth_region", "entry_year"]
AT_HOME = [
    "transfers",
    "employers",
    "county",
    "marital_status",
    "children",
    "youngest_child",
]  # nothing of these is ever lost
COHORTS, EACH = range(1960, 2006, 3), 400


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture(scope="module")
def registers(tmp_path_factory) -> tuple[Path, Path]:
    """A register whose futures hold records, and the same one without."""
    folder = tmp_path_factory.mktemp("register")
    generate_register(folder / "with", WITH_RECORDS)
    generate_register(folder / "without", PLAIN)
    return folder / "with", folder / "without"


@pytest.fixture(scope="module")
def restless() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Panel and future of cohorts of which many leave, for a time or for good."""
    population = replace(
        Parameters().population,
        emigration_native=0.02,
        emigration_young=0.03,
        death_level=(-6.5, -7.0),
    )
    return lived_on(replace(Parameters(), population=population))


@pytest.fixture(scope="module")
def usual() -> tuple[pl.DataFrame, pl.DataFrame]:
    return lived_on(Parameters())


def lived_on(parameters: Parameters) -> tuple[pl.DataFrame, pl.DataFrame]:
    settings = RegisterSettings(
        persons=0,
        seed=SEED,
        future_to=2032,
        future_draws=1,
        parameters=parameters,
        future_records=True,
    )
    panels, futures = [], []
    for born in COHORTS:
        life, panel = simulate_chunk(settings, born, 0, EACH)
        panels.append(panel)
        stays = np.flatnonzero(np.isin(life.presence, (RESIDENT, ABROAD)))
        futures.append(simulate_future(settings, life.take(stays), 0, 0))
    return pl.concat(panels), pl.concat(futures)


def at_home(future: pl.DataFrame) -> pl.DataFrame:
    dead = (pl.col("exit_reason") == "dead") & (pl.col("year") >= pl.col("exit_year"))
    return future.filter(pl.col("earnings").is_not_null() & ~dead.fill_null(False))


def test_what_stands_in_a_future_without_records_is_the_same_with_them(registers):
    rich, plain = registers
    files = [path.relative_to(plain) for path in sorted(plain.glob("future/draw=*/**/*.parquet"))]
    assert files == [
        path.relative_to(rich) for path in sorted(rich.glob("future/draw=*/**/*.parquet"))
    ]
    for file in files:
        with_records = pl.read_parquet(rich / file, hive_partitioning=False)
        assert with_records.columns == TRUE + ADDED
        assert with_records.select(TRUE).equals(
            pl.read_parquet(plain / file, hive_partitioning=False)
        )
        assert with_records.select(ADDED).schema == {
            name: schema.BY_NAME[name].dtype for name in ADDED
        }
    for part in ("panel", "latent"):
        assert digests(rich / part) == digests(plain / part)
    assert (rich / "future/macro.parquet").read_bytes() == (
        plain / "future/macro.parquet"
    ).read_bytes()


def test_only_a_register_with_records_says_so(registers):
    rich, plain = (json.loads((register / "register.json").read_text()) for register in registers)
    assert rich.pop("future_records") is True
    assert rich == plain


def test_the_bytes_do_not_depend_on_the_number_of_workers(registers, tmp_path):
    generate_register(tmp_path / "two", WITH_RECORDS, workers=2)
    assert digests(tmp_path / "two") == digests(registers[0])


def test_the_command_writes_them(registers, tmp_path):
    wanted = [
        "--persons",
        str(PERSONS),
        "--seed",
        str(SEED),
        "--future-to",
        "2040",
        "--future-draws",
        "2",
        "--future-records",
    ]
    run = CliRunner().invoke(app, ["register", "generate", *wanted, "--out", str(tmp_path / "out")])
    assert run.exit_code == 0, run.stderr
    assert digests(tmp_path / "out") == digests(registers[0])


def test_the_hidden_state_is_all_that_they_need(registers):
    path = sorted((registers[0] / "latent").rglob("*.parquet"))[-1]
    life = read_state(path)
    written = pl.read_parquet(
        registers[0] / "future" / "draw=1" / path.parent.name / path.name, hive_partitioning=False
    )
    assert simulate_future(WITH_RECORDS, life, 0, 1).equals(written)


def test_readers_of_true_futures_find_the_same_outcomes(registers):
    origins = origins_at(read_panel(registers[1]), 2022)
    outcomes = [
        dict(true_futures(register, origins, [1, 10], price_year=2022)) for register in registers
    ]
    for draw in range(2):
        np.testing.assert_array_equal(outcomes[0][draw], outcomes[1][draw])


def test_nothing_is_recorded_of_the_dead_and_of_those_abroad(restless):
    _, future = restless
    there = at_home(future)
    away = future.join(there.select("person_id", "year"), on=["person_id", "year"], how="anti")
    dead = away.filter(pl.col("exit_reason") == "dead", pl.col("year") >= pl.col("exit_year"))
    gone = away.filter(pl.col("exit_reason") == "emigrated", pl.col("year") >= pl.col("exit_year"))
    assert min(dead.height, gone.height, away.height - dead.height - gone.height) > 50, (
        "too few to see anything"
    )
    for name in ADDED:
        assert away[name].null_count() == (0 if name in ALWAYS else away.height), name
    for name in AT_HOME + ALWAYS:
        assert there[name].null_count() == 0, name


def test_what_does_not_change_is_that_of_the_panel(restless):
    panel, future = restless
    seen = panel.group_by("person_id").agg(pl.col(ALWAYS).first())
    both = future.select("person_id", *ALWAYS).unique().join(seen, on="person_id", suffix="_panel")
    assert both.height > 0.9 * EACH
    for name in ALWAYS:
        assert both[name].equals(both[f"{name}_panel"].rename(name)), name


def test_schooling_unknown_in_the_panel_stays_unknown(usual):
    panel, future = usual
    native = (
        pl.col("birth_region") == "sweden"
    )  # of others it becomes known after four years in the country
    last = panel.filter(pl.col("year") == 2022, native).select(
        "person_id", known=pl.col("education_level").is_not_null()
    )
    later = at_home(future).filter(native).join(last, on="person_id")
    assert later.filter(~pl.col("known"))["person_id"].n_unique() > 10, "too few to see anything"
    assert (later["education_level"].is_not_null() == later["known"]).all()


def test_records_can_be_read_by_the_contract_of_the_panel(usual):
    there = at_home(usual[1])
    assert (
        read_panel(there, panel_id="future", prices=schema.PRICE_YEAR).frame.height == there.height
    )
    for name in ADDED:
        assert there[name].null_count() < there.height, name


def test_cells_are_lost_as_in_the_panel_but_never_late(usual):
    there, p = at_home(usual[1]), Parameters().records
    lost = {"employment_rate": p.hours_missing, "capital_income": 0.0, "earnings": 0.0}
    for year in (2027, 2032):
        rows = there.filter(pl.col("year") == year)
        for name, share in lost.items():
            error = np.sqrt(share * (1 - share) / rows.height)
            assert abs(rows[name].null_count() / rows.height - share) <= 4 * error, (name, year)


def test_money_is_deflated_by_the_prices_of_the_drawn_economy(usual):
    _, future = usual
    settings = RegisterSettings(persons=0, seed=SEED, future_to=2032, future_draws=1)
    economy = settings.world(0).economy
    prices = pl.DataFrame(
        {"year": list(economy.years), "prices": [y.prices for y in economy.years.values()]}
    )
    rows = future.join(prices.cast({"year": pl.Int32}), on="year")
    for name in [name for name in schema.MONEY if name != "earnings"]:
        hundreds = rows.select(pl.col(name) * pl.col("prices") / 100).to_series().drop_nulls()
        assert (hundreds != 0).any(), name
        assert (hundreds - hundreds.round()).abs().max() < 1e-6, name


@pytest.mark.parametrize("status", schema.MARITAL_STATUSES)
def test_the_shares_of_marital_statuses_go_on_where_the_panel_ends(usual, status):
    """A share changes from the panel's last year to the next as it did the year before, when the same people were a year younger."""
    ahead, behind = (
        couples(usual, year).select(now=pl.col("now") == status, before=pl.col("before") == status)
        for year in (2023, 2022)
    )
    assert_alike(
        *(
            rows.select(pl.col("now").cast(pl.Int8) - pl.col("before").cast(pl.Int8)).to_series()
            for rows in (ahead, behind)
        )
    )


def test_marital_statuses_go_on_person_by_person(usual):
    """As many have another status than the year before as in the panel's last year; with the statuses of others many more would."""
    ahead, behind = (couples(usual, year) for year in (2023, 2022))
    others = ahead.with_columns(pl.col("now").shuffle(SEED))
    changed = [
        rows.select(pl.col("now") != pl.col("before")).to_series()
        for rows in (ahead, behind, others)
    ]
    assert_alike(changed[0], changed[1])
    with pytest.raises(AssertionError):
        assert_alike(changed[2], changed[1])


def couples(lived: tuple[pl.DataFrame, pl.DataFrame], year: int) -> pl.DataFrame:
    """The marital status `now` in `year` and `before`, in the year before it, of everybody who was at home in both."""
    columns = ["person_id", "year", "marital_status"]
    rows = pl.concat([lived[0].select(columns), at_home(lived[1]).select(columns)])
    now, before = (rows.filter(pl.col("year") == y).drop("year") for y in (year, year - 1))
    return now.rename({"marital_status": "now"}).join(
        before.rename({"marital_status": "before"}), on="person_id"
    )


def assert_alike(a: pl.Series, b: pl.Series) -> None:
    """Means differ by no more than four standard errors, of independent draws."""
    means = [float(values.cast(pl.Float64).mean()) for values in (a, b)]
    errors = [float(values.cast(pl.Float64).std()) / np.sqrt(len(values)) for values in (a, b)]
    assert abs(means[0] - means[1]) <= 4 * np.hypot(*errors)
