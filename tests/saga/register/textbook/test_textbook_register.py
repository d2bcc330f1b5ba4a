"""Registers of a textbook process: the files are those of the full register, and the numbers follow the law that is written down."""

import hashlib
import json
from dataclasses import asdict
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
from saga.register.simulation.cohort_simulation import CHUNK, random_stream
from saga.register.textbook.gaussian_ar1 import GaussianProcess
from saga.register.textbook.gkos_process import FEW_ZEROS, GkosProcess
from saga.register.textbook.textbook_register import PROCESSES, Cohort, Process, cohort_sizes

PERSONS, SEED = 150, 4


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def lives(process: Process, persons: int, seed: int) -> np.ndarray:
    """Real earnings (persons, ages from first to last) straight from the law."""
    rng = np.random.default_rng(seed)
    rows = Cohort.found(process, 1960, np.arange(persons), rng).live(1960 + process.last_age, rng)
    return rows["earnings"].to_numpy().reshape(persons, -1)


@pytest.fixture(scope="module", params=["gaussian", "gkos"])
def register(request, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("textbook") / request.param
    generate_register(
        out,
        RegisterSettings(
            persons=PERSONS,
            seed=SEED,
            future_to=2040,
            future_draws=2,
            latent_years=(2012,),
            process=PROCESSES[request.param],
        ),
    )
    return out


def test_the_bytes_do_not_depend_on_the_number_of_workers(register, tmp_path):
    settings = RegisterSettings(
        persons=PERSONS,
        seed=SEED,
        future_to=2040,
        future_draws=2,
        latent_years=(2012,),
        process=PROCESSES[register.name],
    )
    generate_register(tmp_path / "two", settings, workers=2)
    assert digests(tmp_path / "two") == digests(register)
    generate_register(
        tmp_path / "other",
        RegisterSettings(persons=PERSONS, seed=SEED + 1, process=PROCESSES[register.name]),
    )
    assert digests(tmp_path / "other" / "panel") != digests(register / "panel")


def test_the_reader_gives_back_the_real_earnings_of_the_process(register):
    panel, process = read_panel(register), PROCESSES[register.name]
    assert (panel.meta.price_year, panel.frame.height) == (
        2022,
        json.loads((register / "register.json").read_text())["rows"],
    )
    assert panel.frame["person_id"].n_unique() == PERSONS
    for birth_year in (1940, 1980):
        rng = random_stream(SEED, 0, birth_year, 0)
        persons = cohort_sizes(process, PERSONS, 1990, 2022)[birth_year]
        true = (
            Cohort.found(process, birth_year, np.arange(persons), rng)
            .live(2022, rng)
            .filter(pl.col("year") >= 1990)
        )
        seen = panel.frame.filter(pl.col("birth_year") == birth_year)
        assert seen.select("person_id", "year").equals(true.select("person_id", "year"))
        np.testing.assert_allclose(seen["earnings"], true["earnings"], rtol=4e-16)


def test_only_earnings_are_known_and_everybody_is_seen_every_year(register):
    panel, process = read_panel(register).frame, PROCESSES[register.name]
    known = [name for name in schema.NAMES if panel[name].null_count() < panel.height]
    assert known == [
        name for name in schema.NAMES if name in ("person_id", "year", "birth_year", "earnings")
    ]
    assert (panel["earnings"] == 0).any() == (register.name == "gkos")
    ages = panel.select(pl.col("year") - pl.col("birth_year")).to_series()
    assert (ages.min(), ages.max()) == (process.first_age, process.last_age)
    spans = panel.group_by("person_id").agg(
        pl.len(), span=pl.col("year").max() - pl.col("year").min() + 1
    )
    assert (spans["len"] == spans["span"]).all()


def test_futures_go_on_from_the_hidden_state(register):
    process = PROCESSES[register.name]
    latent = pl.read_parquet(register / "latent/year=2022/birth_year=1980/part-0.parquet")
    state = latent.select(process.state_names).to_numpy().T
    cohort = Cohort(process, 1980, np.arange(latent.height), state, 2022)
    for draw in range(2):
        written = pl.read_parquet(
            register / f"future/draw={draw}/birth_year=1980/part-0.parquet", hive_partitioning=False
        )
        again = cohort.copy().live(2040, random_stream(SEED, 2 + draw, 1980, 0))
        assert written.select(again.columns).equals(again)
        assert written["exit_year"].null_count() == written.height
    panel = read_panel(register)
    panel = panel.with_frame(panel.frame.filter(pl.col("birth_year") + process.last_age > 2022))
    origins = origins_at(panel, 2022)
    outcomes = dict(true_futures(register, origins, [1, 10], price_year=2022))
    assert set(outcomes) == {0, 1}
    assert not np.isnan(outcomes[0][:, 0]).any()
    assert (outcomes[0][:, 0] != outcomes[1][:, 0]).mean() > 0.5
    assert pl.read_parquet(register / "future/macro.parquet")["draw"].unique().to_list() == [0, 1]


def test_the_register_names_its_process_and_parameters(register):
    about, process = json.loads((register / "register.json").read_text()), PROCESSES[register.name]
    assert (about["process"], about["register_id"]) == (
        register.name,
        f"saga-{register.name}-{SEED}-{PERSONS}",
    )
    assert type(process).from_dict(about["parameters"]) == process


def test_the_command_takes_the_process(tmp_path):
    options = [
        "--persons",
        "70",
        "--seed",
        "2",
        "--years",
        "2020-2022",
        "--process",
        "gkos-few-zeros",
        "--json",
    ]
    result = CliRunner().invoke(
        app, ["register", "generate", "--out", str(tmp_path / "register"), *options]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["process"] == "gkos"
    assert (
        GkosProcess.from_dict(
            json.loads((tmp_path / "register/register.json").read_text())["parameters"]
        )
        == FEW_ZEROS
    )


def test_cohorts_are_of_equal_size():
    sizes = cohort_sizes(GkosProcess(), 100_000, 1990, 2022)
    assert (min(sizes), max(sizes), sum(sizes.values())) == (1930, 1997, 100_000)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert max(sizes.values()) < CHUNK


def test_gkos_has_the_reference_moments_of_the_published_benchmark():
    """Reference: 200,000 simulated men from the benchmark row, independent code; tolerance 4 standard errors of both plus rounding."""
    persons = 40_000
    earnings = lives(GkosProcess(), persons, 1) / GkosProcess().unit
    both = np.sqrt(1 / persons + 1 / 200_000)
    for age, share in ((25, 0.208), (40, 0.276), (60, 0.309)):
        assert (
            abs((earnings[:, age - 25] == 0).mean() - share)
            < 4 * np.sqrt(share * (1 - share)) * both + 0.0005
        )
    assert (
        abs((earnings == 0).mean() - 0.274) < 4 * 0.4 * both + 0.0005
    )  # a person's own share has a sd below 0.4
    for age, variance in ((25, 0.46), (35, 0.60), (45, 0.81), (55, 1.10)):
        logs = np.log(earnings[:, age - 25][earnings[:, age - 25] > 1.5])
        fourth = np.mean((logs - logs.mean()) ** 4) / logs.var() ** 2
        assert (
            abs(logs.var() - variance)
            < 4 * logs.var() * np.sqrt(fourth - 1) * both / np.sqrt(0.6) + 0.005
        )


def test_fewer_zeros_is_about_one_in_ten():
    assert abs((lives(FEW_ZEROS, 20_000, 2) == 0).mean() - 0.10) < 0.01


def test_reading_the_rate_as_a_scale_would_leave_no_zeros():
    """The known mistake: lambda is a rate. With its inverse there are almost none."""
    wrong = GkosProcess(rate=1 / GkosProcess().rate)
    assert (lives(wrong, 2_000, 3) == 0).mean() < 0.001


def test_gaussian_logs_have_the_moments_of_the_law():
    p, persons = GaussianProcess(), 40_000
    logs = np.log(lives(p, persons, 5))
    z = p.sd_z0**2
    for age in range(25, 61):
        z = p.rho**2 * z + p.sd_eta**2
        variance = p.sd_alpha**2 + z + p.sd_eps**2
        assert abs(logs[:, age - 25].mean() - p.mean_log(age)) < 5 * np.sqrt(variance / persons)
        assert abs(logs[:, age - 25].var() / variance - 1) < 5 * np.sqrt(2 / persons)


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_parameters_survive_json(process):
    assert type(process).from_dict(json.loads(json.dumps(asdict(process)))) == process
