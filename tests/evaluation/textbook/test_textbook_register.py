"""Registers of a textbook process: files like the full register's, numbers of the process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.evaluation.scoring.futures import true_futures
from saga.evaluation.textbook import PROCESSES, Process
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.gkos_process import FEW_ZEROS, GkosProcess
from saga.evaluation.textbook.textbook_register import Cohort

from saga import schema
from saga.arrays import Floats
from saga.data.origins import origins_at
from saga.data.reading import read_panel
from saga.register import RegisterSettings, generate_register
from saga.register.simulation.cohort_simulation import random_stream
from tests.command_line import answer

PERSONS, SEED = 150, 4


def simulated_earnings(process: Process, persons: int, seed: int) -> Floats:
    """Real earnings (persons, ages from first to last) straight from the process."""
    rng = np.random.default_rng(seed)
    cohort = Cohort.at_start(process, 1960, np.arange(persons), rng)
    rows = cohort.simulate(1960 + process.last_age, rng)
    return rows["earnings"].to_numpy().reshape(persons, -1)


def settings_of(name: str, seed: int = SEED) -> RegisterSettings:
    return RegisterSettings(
        persons=PERSONS,
        seed=seed,
        future_to=2040,
        future_draws=2,
        latent_years=(2012,),
        process=PROCESSES[name],
    )


@pytest.fixture(scope="module", params=["gaussian", "gkos"])
def register(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = str(request.param)
    out = tmp_path_factory.mktemp("textbook") / name
    generate_register(out, settings_of(name))
    return out


def test_the_reader_returns_the_real_earnings_of_the_process(register: Path) -> None:
    panel, process = read_panel(register), PROCESSES[register.name]
    n_rows = json.loads((register / "register.json").read_text())["rows"]
    assert (panel.meta.price_year, panel.frame.height) == (2022, n_rows)
    assert panel.frame["person_id"].n_unique() == PERSONS
    for birth_year in (1940, 1980):
        rng = random_stream(SEED, 0, birth_year, 0)
        persons = process.cohort_sizes(PERSONS, 1990, 2022)[birth_year]
        cohort = Cohort.at_start(process, birth_year, np.arange(persons), rng)
        expected = cohort.simulate(2022, rng).filter(pl.col("year") >= 1990)
        rows = panel.frame.filter(pl.col("birth_year") == birth_year)
        assert rows.select("person_id", "year").equals(expected.select("person_id", "year"))
        np.testing.assert_allclose(rows["earnings"], expected["earnings"], rtol=4e-16)


def test_only_earnings_are_known_and_every_person_is_observed_every_year(register: Path) -> None:
    panel, process = read_panel(register).frame, PROCESSES[register.name]
    not_null = [name for name in schema.NAMES if panel[name].null_count() < panel.height]
    columns = ("person_id", "year", "birth_year", "earnings")
    assert not_null == [name for name in schema.NAMES if name in columns]
    assert (panel["earnings"] == 0).any() == (register.name == "gkos")
    ages = panel.select(pl.col("year") - pl.col("birth_year")).to_series()
    assert (ages.min(), ages.max()) == (process.first_age, process.last_age)
    spans = panel.group_by("person_id").agg(
        pl.len(), span=pl.col("year").max() - pl.col("year").min() + 1
    )
    assert (spans["len"] == spans["span"]).all()


def test_futures_continue_from_the_hidden_state(register: Path) -> None:
    process = PROCESSES[register.name]
    latent = pl.read_parquet(register / "latent/year=2022/birth_year=1980/part-0.parquet")
    state = latent.select(process.state_names).to_numpy().T
    cohort = Cohort(process, 1980, np.arange(latent.height), state, 2022)
    for draw in range(2):
        file = register / f"future/draw={draw}/birth_year=1980/part-0.parquet"
        written = pl.read_parquet(file, hive_partitioning=False)
        expected = cohort.copy().simulate(2040, random_stream(SEED, 2 + draw, 1980, 0))
        assert written.select(expected.columns).equals(expected)
        assert written["exit_year"].null_count() == written.height
    panel = read_panel(register)
    panel = panel.with_frame(panel.frame.filter(pl.col("birth_year") + process.last_age > 2022))
    origins = origins_at(panel, 2022)
    outcomes = dict(true_futures(register, origins, [1, 10], price_year=2022))
    assert set(outcomes) == {0, 1}
    assert not np.isnan(outcomes[0][:, 0]).any()
    assert (outcomes[0][:, 0] != outcomes[1][:, 0]).mean() > 0.5
    assert pl.read_parquet(register / "future/macro.parquet")["draw"].unique().to_list() == [0, 1]


def test_the_command_takes_the_process(tmp_path: Path) -> None:
    out = tmp_path / "register"
    options = "--persons 70 --seed 2 --years 2020-2022 --process gkos-few-zeros"
    assert answer("register generate --out", out, options)["process"] == "gkos"
    parameters = json.loads((out / "register.json").read_text())["parameters"]
    assert GkosProcess.from_dict(parameters) == FEW_ZEROS


def test_gkos_has_the_reference_moments_of_the_published_benchmark() -> None:
    """Reference: 200,000 simulated men with the benchmark parameters, by independent code.

    Tolerance: 4 standard errors of both simulations plus rounding.
    """
    persons = 40_000
    earnings = simulated_earnings(GkosProcess(), persons, 1) / GkosProcess().unit
    both = np.sqrt(1 / persons + 1 / 200_000)
    for age, share in ((25, 0.208), (40, 0.276), (60, 0.309)):
        error = abs((earnings[:, age - 25] == 0).mean() - share)
        assert error < 4 * np.sqrt(share * (1 - share)) * both + 0.0005
    # The share of a single person has a standard deviation below 0.4.
    assert abs((earnings == 0).mean() - 0.274) < 4 * 0.4 * both + 0.0005
    for age, variance in ((25, 0.46), (35, 0.60), (45, 0.81), (55, 1.10)):
        logs = np.log(earnings[:, age - 25][earnings[:, age - 25] > 1.5])
        fourth = np.mean((logs - logs.mean()) ** 4) / logs.var() ** 2
        tolerance = 4 * logs.var() * np.sqrt(fourth - 1) * both / np.sqrt(0.6) + 0.005
        assert abs(logs.var() - variance) < tolerance


def test_gaussian_logs_have_the_moments_of_the_process() -> None:
    p, persons = GaussianProcess(), 40_000
    logs = np.log(simulated_earnings(p, persons, 5))
    z = p.sd_z0**2
    for age in range(25, 61):
        z = p.rho**2 * z + p.sd_eta**2
        variance = p.sd_alpha**2 + z + p.sd_eps**2
        assert abs(logs[:, age - 25].mean() - p.mean_log(age)) < 5 * np.sqrt(variance / persons)
        assert abs(logs[:, age - 25].var() / variance - 1) < 5 * np.sqrt(2 / persons)
