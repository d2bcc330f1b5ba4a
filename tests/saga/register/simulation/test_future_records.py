"""Records of futures: the true earnings with the other columns of the panel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga import schema
from saga.data.reading import read_panel
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.cohort_simulation import simulate_chunk, simulate_future
from saga.register.simulation.life_state import Presence
from saga.register.simulation.parameters import Parameters
from tests.saga.register.register_files import digests, read_state

Simulated = tuple[pl.DataFrame, pl.DataFrame]  # panel and future

PERSONS, SEED = 12, 5
PLAIN = RegisterSettings(persons=PERSONS, seed=SEED, future_to=2040, future_draws=2)
WITH_RECORDS = replace(PLAIN, future_records=True)
PLAIN_COLUMNS = ["person_id", "year", "birth_year", "earnings", "exit_year", "exit_reason"]
ADDED_COLUMNS = [name for name in schema.NAMES if name not in PLAIN_COLUMNS]
LASTING = ["sex", "birth_region", "entry_year"]
NOT_NULL = ["transfers", "employers", "county", "marital_status", "children", "youngest_child"]
COHORTS, COHORT_SIZE = range(1960, 2006, 3), 400


@pytest.fixture(scope="module")
def registers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A register whose futures have records, and the same one without."""
    folder = tmp_path_factory.mktemp("register")
    generate_register(folder / "with", WITH_RECORDS)
    generate_register(folder / "without", PLAIN)
    return folder / "with", folder / "without"


@pytest.fixture(scope="module")
def mobile() -> Simulated:
    """Panel and future of cohorts of which many persons die or leave, for a time or for good."""
    rates = {
        "population.emigration_native": 0.02,
        "population.emigration_young": 0.03,
        "population.death_level": (-6.5, -7.0),
    }
    return simulate_cohorts(Parameters().changed(rates))


@pytest.fixture(scope="module")
def usual() -> Simulated:
    return simulate_cohorts(Parameters())


def simulate_cohorts(parameters: Parameters) -> Simulated:
    settings = replace(
        WITH_RECORDS, persons=0, future_to=2032, future_draws=1, parameters=parameters
    )
    panels, futures = [], []
    for born in COHORTS:
        life, panel = simulate_chunk(settings, born, 0, COHORT_SIZE)
        panels.append(panel)
        stays = np.flatnonzero(np.isin(life.presence, (Presence.RESIDENT, Presence.ABROAD)))
        futures.append(simulate_future(settings, life.take(stays), 0, 0))
    return pl.concat(panels), pl.concat(futures)


def residents(future: pl.DataFrame) -> pl.DataFrame:
    dead = (pl.col("exit_reason") == "dead") & (pl.col("year") >= pl.col("exit_year"))
    return future.filter(pl.col("earnings").is_not_null() & ~dead.fill_null(False))


@pytest.mark.thorough
def test_records_do_not_change_the_other_columns_of_a_future(registers: tuple[Path, Path]) -> None:
    rich, plain = registers
    files, expected_files = (
        [path.relative_to(folder) for path in sorted(folder.glob("future/draw=*/**/*.parquet"))]
        for folder in registers
    )
    assert files == expected_files
    types = {name: schema.BY_NAME[name].dtype for name in ADDED_COLUMNS}
    for file in files:
        with_records, expected = (
            pl.read_parquet(folder / file, hive_partitioning=False) for folder in registers
        )
        assert with_records.columns == PLAIN_COLUMNS + ADDED_COLUMNS
        assert with_records.select(PLAIN_COLUMNS).equals(expected)
        assert with_records.select(ADDED_COLUMNS).schema == types
    for part in ("panel", "latent"):
        assert digests(rich / part) == digests(plain / part)
    macro = "future/macro.parquet"
    assert (rich / macro).read_bytes() == (plain / macro).read_bytes()


def test_records_can_be_simulated_from_the_hidden_state_alone(registers: tuple[Path, Path]) -> None:
    path = sorted((registers[0] / "latent").rglob("*.parquet"))[-1]
    life = read_state(path)
    file = registers[0] / "future" / "draw=1" / path.parent.name / path.name
    written = pl.read_parquet(file, hive_partitioning=False)
    assert simulate_future(WITH_RECORDS, life, 0, 1).equals(written)


@pytest.mark.thorough
def test_nothing_is_recorded_of_the_dead_and_the_absent(mobile: Simulated) -> None:
    _, future = mobile
    resident_rows = residents(future)
    away = future.join(resident_rows, on=["person_id", "year"], how="anti")
    dead, emigrated = (
        away.filter(pl.col("year") >= pl.col("exit_year"), exit_reason=reason).height
        for reason in ("dead", "emigrated")
    )
    assert min(dead, emigrated, away.height - dead - emigrated) > 50, "too few persons"
    for name in ADDED_COLUMNS:
        assert away[name].null_count() == (0 if name in LASTING else away.height), name
    for name in NOT_NULL + LASTING:
        assert resident_rows[name].null_count() == 0, name


@pytest.mark.thorough
def test_records_can_be_read_by_the_contract_of_the_panel(usual: Simulated) -> None:
    resident_rows = residents(usual[1])
    panel = read_panel(resident_rows, panel_id="future", prices=schema.PRICE_YEAR)
    assert panel.frame.height == resident_rows.height
    for name in ADDED_COLUMNS:
        assert resident_rows[name].null_count() < resident_rows.height, name


@pytest.mark.thorough
def test_amounts_are_deflated_by_the_prices_of_the_drawn_economy(usual: Simulated) -> None:
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
        assert np.abs((hundreds - hundreds.round()).to_numpy()).max() < 1e-6, name


@pytest.mark.thorough
def test_marital_statuses_of_a_person_continue(usual: Simulated) -> None:
    """As many persons change status as in the last year of the panel.

    If statuses were shuffled between persons, many more would.
    """
    ahead, behind = (status_pairs(usual, year) for year in (2023, 2022))
    shuffled = ahead.with_columns(pl.col("after").shuffle(SEED))
    changed = [
        rows.select(pl.col("after") != pl.col("before")).to_series()
        for rows in (ahead, behind, shuffled)
    ]
    assert_alike(changed[0], changed[1])
    with pytest.raises(AssertionError):
        assert_alike(changed[2], changed[1])


def status_pairs(simulated: Simulated, year: int) -> pl.DataFrame:
    """Marital status in `year` (`after`) and the year before (`before`) of residents in both."""
    columns = ["person_id", "year", "marital_status"]
    rows = pl.concat([simulated[0].select(columns), residents(simulated[1]).select(columns)])
    after, before = (rows.filter(pl.col("year") == y).drop("year") for y in (year, year - 1))
    return after.rename({"marital_status": "after"}).join(
        before.rename({"marital_status": "before"}), on="person_id"
    )


def assert_alike(a: pl.Series, b: pl.Series) -> None:
    """Means of independent draws differ by no more than four standard errors."""
    numbers = [values.cast(pl.Float64).to_numpy() for values in (a, b)]
    means = [values.mean() for values in numbers]
    errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in numbers]
    assert abs(means[0] - means[1]) <= 4 * np.hypot(*errors)
