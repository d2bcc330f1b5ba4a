"""The clairvoyant knows the truth: its lives are the register's, its forecasts are calibrated, and with a wrong law they are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluation.baselines import CarryForward, GroupQuantiles
from evaluation.contest import Contest, ContestOptions
from evaluation.contestants import BaselineContestant, Clairvoyant
from evaluation.scoring.gap import BOUND, GAP
from saga.data.origins import Origins, origins_at, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.errors import InputError
from saga.paths import Paths
from saga.register import RegisterSettings, generate_register, oracle
from saga.register.oracle import Oracle, is_full
from saga.register.simulation import cohort_simulation
from saga.register.simulation.cohort_simulation import simulate_chunk, simulate_future
from saga.register.simulation.life_state import LifeState
from saga.register.simulation.mechanisms import switch_off
from saga.register.simulation.parameters import Parameters
from saga.register.simulation.population import cohort_sizes
from saga.scores import pit, pit_uniforms
from tests.saga.register.latent_states import read_state

PERSONS, SEED = 30_000, 5
COHORTS = (1950, 1960, 1970, 1980, 1985)
HORIZONS = (1, 3, 10)
RARE = 1e-4  # a uniform PIT looks this odd once in ten thousand looks


def known(parameters: Parameters) -> tuple[Oracle, Panel]:
    """The clairvoyant of a register of 30,000 and the rows of a few of its cohorts."""
    run = RegisterSettings(persons=PERSONS, seed=SEED, parameters=parameters)
    sizes = cohort_sizes(PERSONS, 1990, 2022, parameters.population)
    rows = pl.concat([simulate_chunk(run, born, 0, sizes[born])[1] for born in COHORTS])
    about = {"register_id": "test", "persons": PERSONS, "seed": SEED, "years": [1990, 2022]}
    return Oracle(run, about), read_panel(rows, panel_id="test")


@pytest.fixture(scope="module")
def world() -> tuple[Oracle, Panel]:
    return known(Parameters())


def ahead(
    seer: Oracle,
    panel: Panel,
    origins: Origins,
    *,
    to_horizon: int = max(HORIZONS),
    paths: int = 19,
    seed: int = 0,
) -> Paths:
    blocks = list(seer.blocks(panel, origins, to_horizon=to_horizon, paths=paths, seed=seed))
    names = ("person_id", "birth_year", "origin_year", "earnings")
    return Paths(*(np.concatenate([getattr(block, name) for block in blocks]) for name in names))


def in_time_p(seer: Oracle, panel: Panel) -> dict[int, float]:
    """Horizon -> p of a uniform PIT, everybody of 2012 against what came true. The realised macro is given, so persons are independent."""
    origins = origins_at(panel, 2012)
    made = ahead(seer, panel, origins)
    outcomes = realised_earnings(panel, origins, list(HORIZONS)).astype(np.float32)
    columns = np.array(HORIZONS) - 1
    u = pit(made.earnings[:, columns], outcomes, pit_uniforms(made)[:, columns])
    counts = [np.histogram(column[~np.isnan(column)], bins=20, range=(0, 1))[0] for column in u.T]
    assert min(count.sum() for count in counts) > 500
    return {
        h: float(stats.chisquare(count).pvalue) for h, count in zip(HORIZONS, counts, strict=True)
    }


def living_by(monkeypatch: pytest.MonkeyPatch, wrong: Parameters) -> None:
    """Lets the clairvoyant live lives on by another law than that which made them."""
    monkeypatch.setattr(
        oracle,
        "simulate_years",
        lambda run, *state: cohort_simulation.simulate_years(
            replace(run, parameters=wrong), *state
        ),
    )


def test_in_time_the_pit_is_uniform_at_every_horizon(world):
    assert min(in_time_p(*world).values()) > RARE


@pytest.mark.parametrize("mechanism", ["transitory_shocks", "heavy_tails"])
def test_without_a_mechanism_the_pit_is_not_uniform(world, monkeypatch, mechanism):
    living_by(monkeypatch, switch_off(Parameters(), [mechanism]))
    assert min(in_time_p(*world).values()) < RARE


@pytest.fixture(scope="module")
def restless() -> tuple[Oracle, Panel]:
    """A register that half of the young leave for a time or for good."""
    population = replace(Parameters().population, emigration_native=0.08, emigration_young=0.08)
    return known(replace(Parameters(), population=population))


def test_forecasts_are_those_of_residents_where_many_leave(restless):
    seer, panel = restless
    made = ahead(seer, panel, origins_at(panel, 2012))
    assert np.isfinite(made.earnings[made.within_age & (made.years <= 2022)]).all()
    assert min(in_time_p(seer, panel).values()) > RARE


def test_years_abroad_counted_as_zeros_would_not_pass(restless, monkeypatch):
    def at_home_or_nothing(run, life, years, world, rng):
        lives = cohort_simulation.simulate_years(run, life.copy(), years, world, rng)
        return np.nan_to_num(np.where(lives.dead, 0.0, lives.earnings))

    monkeypatch.setattr(oracle, "given_residence", at_home_or_nothing)
    assert min(in_time_p(*restless).values()) < RARE


DRAWS, EACH, AHEAD = 40, 9, 3  # true futures, clairvoyant paths against each, years


@pytest.fixture(scope="module")
def futures(world) -> tuple[Origins, np.ndarray]:
    """A cohort of 2022 and what becomes of it (draw, n, year) in 40 macro futures of the register's own."""
    seer, panel = world
    origins = origins_at(
        panel.only([person for person in panel.persons() if person.startswith("1985")]), 2022
    )
    (chunk,) = seer.chunks(panel, origins)
    run = replace(seer.run, future_to=2022 + AHEAD, future_draws=DRAWS)
    life = seer.states(chunk)[2022]
    rows = [
        simulate_future(run, life, 0, draw)["earnings"].fill_null(np.nan).to_numpy()
        for draw in range(DRAWS)
    ]
    return origins, np.stack(rows).reshape(DRAWS, len(origins), AHEAD).astype(np.float32)


def forward_p(seer: Oracle, panel: Panel, origins: Origins, outcomes: np.ndarray) -> float:
    """The smallest p of a PIT with the mean and the spread of a uniform one. Each true future has its own clairvoyant futures, so that
    what it does to everybody is one draw: the test counts macro futures, not persons."""
    made = ahead(seer, panel, origins, to_horizon=AHEAD, paths=DRAWS * EACH)
    v = pit_uniforms(made)
    u = np.stack(
        [pit(made.earnings[..., k * EACH : (k + 1) * EACH], outcomes[k], v) for k in range(DRAWS)]
    )
    centre, spread = np.nanmean(u, axis=1), np.nanmean(np.abs(u - 0.5), axis=1)
    return float(
        min(
            stats.ttest_1samp(centre, 0.5).pvalue.min(),
            stats.ttest_1samp(spread, 0.25).pvalue.min(),
        )
    )


def test_forward_the_pit_is_uniform_over_macro_futures(world, futures):
    assert forward_p(*world, *futures) > RARE


def test_in_economies_of_another_law_it_is_not(world, futures, monkeypatch):
    other = replace(Parameters(), economy=replace(Parameters().economy, growth_mean=0.04))
    worlds = oracle._worlds
    monkeypatch.setattr(
        oracle, "_worlds", lambda run, *rest: worlds(replace(run, parameters=other), *rest)
    )
    assert forward_p(*world, *futures) < RARE


def test_path_k_of_everybody_lives_in_the_same_macro_future(world):
    """With wage growth that swings wildly after 2022 the paths of two cohorts rise and fall together."""
    seer, panel = world
    wild = replace(Parameters(), economy=replace(Parameters().economy, growth_sd=0.3))
    origins = origins_at(panel, 2022)
    born = np.array([int(person[:4]) for person in origins.person_id])
    origins = origins.take(np.isin(born, (1980, 1985)))
    made = ahead(
        replace(seer, run=replace(seer.run, parameters=wild)),
        panel,
        origins,
        to_horizon=1,
        paths=40,
    )
    means = [
        np.log(np.maximum(made.earnings[made.birth_year == b, 0], 24_150)).mean(axis=0)
        for b in (1980, 1985)
    ]
    assert np.corrcoef(*means)[0, 1] > 0.9


def test_the_numbers_do_not_depend_on_the_order_the_blocks_or_the_number_of_processes(world):
    seer, panel = world
    early = origins_at(
        panel.only([person for person in panel.persons() if person.startswith("1960")]), 2005
    )
    late = origins_at(
        panel.only([person for person in panel.persons() if person.startswith("1985")]), 2022
    )
    origins = _together(early, late)
    shuffled = origins.take(np.random.default_rng(0).permutation(len(origins)))
    made = ahead(seer, panel, origins, to_horizon=2, paths=3)
    for other in (
        ahead(seer, panel, shuffled, to_horizon=2, paths=3),
        ahead(replace(seer, workers=2), panel, shuffled, to_horizon=2, paths=3),
    ):
        assert other.person_id.tolist() == made.person_id.tolist() == sorted(origins.person_id)
        assert np.array_equal(other.earnings, made.earnings, equal_nan=True)
    alone = made.birth_year == 1960
    some = origins.take(np.char.startswith(origins.person_id, "1960"))
    assert np.array_equal(
        ahead(seer, panel, some, to_horizon=2, paths=3).earnings,
        made.earnings[alone],
        equal_nan=True,
    )
    again = ahead(seer, panel, some, to_horizon=2, paths=3, seed=1).earnings
    positive = (again > 0) & (made.earnings[alone] > 0)
    assert (again[positive] != made.earnings[alone][positive]).mean() > 0.99


def _together(*parts: Origins) -> Origins:
    return Origins(
        np.concatenate([part.person_id for part in parts]),
        np.concatenate([part.year for part in parts]),
    )


def test_a_life_that_is_lived_again_has_the_state_that_was_saved(tmp_path):
    out = tmp_path / "register"
    generate_register(out, RegisterSettings(persons=30, seed=SEED, latent_years=(2002, 2012)))
    seer, panel = Oracle.open(out), read_panel(out)
    years = [origins_at(panel, year) for year in (2002, 2012, 2022)]
    compared = 0
    for chunk in seer.chunks(panel, _together(*years)):
        for year, lived in seer.states(chunk).items():
            file = (
                out
                / "latent"
                / f"year={year}"
                / f"birth_year={chunk.birth_year}"
                / "part-0.parquet"
            )
            saved = read_state(file)
            saved = saved.take(np.searchsorted(saved.person, chunk.serial[chunk.origin == year]))
            for field in fields(LifeState):
                assert np.array_equal(getattr(lived, field.name), getattr(saved, field.name)), (
                    field.name
                )
            compared += len(lived)
    assert compared == sum(len(origins) for origins in years) > 30


def test_a_register_of_other_code_is_refused_with_the_way_to_mend_it(
    register_dir: Path, register_panel: Panel, tmp_path: Path
):
    about = json.loads((register_dir / "register.json").read_text())
    origins = origins_at(register_panel, 2022).take(slice(0, 3))

    def refused(change: Callable[[dict[str, object]], object]) -> str:
        other = json.loads(json.dumps(about))
        change(other)
        (tmp_path / "register.json").write_text(json.dumps(other))
        with pytest.raises(InputError) as error:
            list(
                Oracle.open(tmp_path).blocks(register_panel, origins, to_horizon=1, paths=2, seed=0)
            )
        return str(error.value)

    message = refused(lambda other: other.update(seed=8))
    assert "other earnings" in message or "no such persons" in message
    assert f"numpy {np.__version__}" in message
    assert "saga register generate --persons 2000 --seed 8" in message
    assert "parameters" in refused(
        lambda other: other["parameters"]["careers"].update(unheard_of=1.0)
    )
    assert "parameters" in refused(lambda other: other["parameters"]["careers"].pop("base"))
    assert "other earnings" in refused(
        lambda other: other["parameters"]["careers"].update(base=13.5)
    )
    assert "full register" in refused(lambda other: other.update(process="gaussian"))
    assert is_full(register_dir)
    assert not is_full(register_dir / "panel")
    strangers = Origins(np.array(["Anna"]), np.array([2022]))
    with pytest.raises(InputError, match="no such persons"):
        list(
            Oracle.open(register_dir).blocks(
                register_panel, strangers, to_horizon=1, paths=2, seed=0
            )
        )


def test_in_the_contest_nobody_comes_near_the_clairvoyant(world, tmp_path):
    seer, panel = world
    training = panel.only(persons_of(panel, "train"))
    baselines = [
        BaselineContestant(baseline.fit(training, seed=0))
        for baseline in (CarryForward(), GroupQuantiles())
    ]
    table = Contest(panel, ContestOptions(horizons=(1, 5), n_paths=40)).run(
        [Clairvoyant(seer), *baselines], tmp_path
    )
    whole = table.filter(pl.col("group") == "all")
    for metric in ("crps_log", "crps_sek", "pinball_log"):
        for horizon in (1, 5):
            values = dict(
                whole.filter(metric=metric, horizon=horizon).select("model", "value").iter_rows()
            )
            assert values[BOUND] < min(values["carry"], values["groupq"]), (metric, horizon)
    closed = whole.filter(metric=GAP)
    assert set(closed["model"]) == {"carry"}  # from the reference, groupq, to the bound
    assert (closed["value"] < 1).all()
    assert "clairvoyant (bound)" in (tmp_path / "tables.md").read_text()
