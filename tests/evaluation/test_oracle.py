"""The clairvoyant reproduces the register, and its forecasts are calibrated.

With another process than the register's they are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from saga.evaluation.scoring.ensemble_scores import pit
from saga.register.oracle import Oracle, clairvoyant, is_full
from scipy import stats

from saga.data.origins import Origins, origins_at, realised_earnings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError
from saga.paths import Paths
from saga.register import RegisterSettings, generate_register
from saga.register.simulation import cohort_simulation
from saga.register.simulation.cohort_simulation import simulate_chunk, simulate_future
from saga.register.simulation.life_state import LifeState
from saga.register.simulation.parameters import Parameters, switch_off
from saga.register.simulation.population import cohort_sizes
from saga.scores import pit_uniforms
from tests.saga.register.register_files import read_state

PERSONS, SEED = 30_000, 5
COHORTS = (1950, 1960, 1970, 1980, 1985)
HORIZONS = (1, 3, 10)
RARE = 1e-4  # a uniform PIT has such a p-value once in ten thousand tests

OraclePanel = tuple[Oracle, Panel]
Futures = tuple[Origins, NDArray[np.float32]]


def clairvoyant_of(parameters: Parameters) -> OraclePanel:
    """The clairvoyant of a register of 30,000 persons, and the rows of a few of its cohorts."""
    settings = RegisterSettings(persons=PERSONS, seed=SEED, parameters=parameters)
    sizes = cohort_sizes(PERSONS, 1990, 2022, parameters.population)
    rows = pl.concat([simulate_chunk(settings, born, 0, sizes[born])[1] for born in COHORTS])
    metadata = {"register_id": "test", "persons": PERSONS, "seed": SEED, "years": [1990, 2022]}
    return Oracle(settings, metadata), read_panel(rows, panel_id="test")


@pytest.fixture(scope="module")
def standard() -> OraclePanel:
    return clairvoyant_of(Parameters())


def forecast(
    clairvoyant: Oracle,
    panel: Panel,
    origins: Origins,
    *,
    to_horizon: int = max(HORIZONS),
    n_paths: int = 19,
    seed: int = 0,
) -> Paths:
    blocks = list(
        clairvoyant.blocks(panel, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed)
    )
    return Paths(
        np.concatenate([block.person_id for block in blocks]),
        np.concatenate([block.birth_year for block in blocks]),
        np.concatenate([block.origin_year for block in blocks]),
        np.concatenate([block.earnings for block in blocks]),
    )


def in_time_p_value(clairvoyant: Oracle, panel: Panel) -> float:
    """Smallest p-value over horizons of a uniform PIT, for all persons of 2012.

    Macro is realised, so the persons are independent.
    """
    origins = origins_at(panel, 2012)
    paths = forecast(clairvoyant, panel, origins)
    outcomes = realised_earnings(panel, origins, list(HORIZONS)).astype(np.float32)
    columns = np.array(HORIZONS) - 1
    u = pit(paths.earnings[:, columns], outcomes, pit_uniforms(paths)[:, columns])
    counts = [np.histogram(column[~np.isnan(column)], bins=20, range=(0, 1))[0] for column in u.T]
    assert min(count.sum() for count in counts) > 500
    return min(float(stats.chisquare(count).pvalue) for count in counts)


@pytest.mark.thorough
def test_in_time_the_pit_is_uniform_at_every_horizon(standard: OraclePanel) -> None:
    assert in_time_p_value(*standard) > RARE


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", ["transitory_shocks", "heavy_tails"])
def test_without_a_mechanism_the_pit_is_not_uniform(
    standard: OraclePanel, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    wrong = switch_off(Parameters(), [mechanism])
    monkeypatch.setattr(
        clairvoyant,
        "simulate_years",
        lambda settings, *state: cohort_simulation.simulate_years(
            replace(settings, parameters=wrong), *state
        ),
    )
    assert in_time_p_value(*standard) < RARE


@pytest.fixture(scope="module")
def with_many_emigrants() -> OraclePanel:
    """A register that half of the young leave, for a time or for good."""
    rates = {"population.emigration_native": 0.08, "population.emigration_young": 0.08}
    return clairvoyant_of(Parameters().changed(rates))


@pytest.mark.thorough
def test_forecasts_are_those_of_residents_if_many_emigrate(
    with_many_emigrants: OraclePanel,
) -> None:
    clairvoyant, panel = with_many_emigrants
    paths = forecast(clairvoyant, panel, origins_at(panel, 2012))
    assert np.isfinite(paths.earnings[paths.within_age & (paths.years <= 2022)]).all()
    assert in_time_p_value(clairvoyant, panel) > RARE


DRAWS, PATHS_PER_DRAW, YEARS_AHEAD = 40, 9, 3  # true futures, paths against each, years


def cohort_origins(panel: Panel, born: int, year: int) -> Origins:
    persons = [person for person in panel.persons() if person.startswith(str(born))]
    return origins_at(panel.only(persons), year)


@pytest.fixture(scope="module")
def futures(standard: OraclePanel) -> Futures:
    """A cohort of 2022 and its outcomes (draw, n, year) in 40 macro futures of the register."""
    clairvoyant, panel = standard
    origins = cohort_origins(panel, 1985, 2022)
    (chunk,) = clairvoyant.chunks(panel, origins)
    settings = replace(clairvoyant.settings, future_to=2022 + YEARS_AHEAD, future_draws=DRAWS)
    state = clairvoyant.states(chunk)[2022]
    outcomes = [
        simulate_future(settings, state, 0, draw)["earnings"].fill_null(np.nan).to_numpy()
        for draw in range(DRAWS)
    ]
    shape = (DRAWS, len(origins), YEARS_AHEAD)
    return origins, np.stack(outcomes).reshape(shape).astype(np.float32)


def forward_p_value(
    clairvoyant: Oracle, panel: Panel, origins: Origins, outcomes: NDArray[np.float32]
) -> float:
    """Smallest p-value of a PIT with the mean and the spread of a uniform one.

    Each true future is compared with paths of its own, so that an effect of the future on all
    persons is one draw: the test counts macro futures, not persons.
    """
    paths = forecast(
        clairvoyant, panel, origins, to_horizon=YEARS_AHEAD, n_paths=DRAWS * PATHS_PER_DRAW
    )
    v = pit_uniforms(paths)
    by_draw = np.split(paths.earnings, DRAWS, axis=-1)
    u = np.stack(
        [pit(samples, realised, v) for samples, realised in zip(by_draw, outcomes, strict=True)]
    )
    centre, spread = np.nanmean(u, axis=1), np.nanmean(np.abs(u - 0.5), axis=1)
    tests = stats.ttest_1samp(centre, 0.5), stats.ttest_1samp(spread, 0.25)
    return float(min(test.pvalue.min() for test in tests))


@pytest.mark.thorough
def test_forward_the_pit_is_uniform_over_macro_futures(
    standard: OraclePanel, futures: Futures
) -> None:
    assert forward_p_value(*standard, *futures) > RARE


@pytest.mark.thorough
def test_forward_the_pit_is_not_uniform_if_the_macro_process_is_wrong(
    standard: OraclePanel, futures: Futures, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Parameters().changed({"economy.growth_sd": 0.04})
    drawn_worlds = clairvoyant.drawn_worlds
    monkeypatch.setattr(
        clairvoyant,
        "drawn_worlds",
        lambda settings, *key: drawn_worlds(replace(settings, parameters=wrong), *key),
    )
    assert forward_p_value(*standard, *futures) < RARE


@pytest.mark.thorough
def test_numbers_do_not_depend_on_order_blocks_or_processes(standard: OraclePanel) -> None:
    clairvoyant, panel = standard
    early, late = cohort_origins(panel, 1960, 2005), cohort_origins(panel, 1985, 2022)
    origins = concatenate(early, late)
    shuffled = origins.take(np.random.default_rng(0).permutation(len(origins)))
    paths = forecast(clairvoyant, panel, origins, to_horizon=2, n_paths=3)
    for other in (
        forecast(clairvoyant, panel, shuffled, to_horizon=2, n_paths=3),
        forecast(replace(clairvoyant, workers=2), panel, shuffled, to_horizon=2, n_paths=3),
    ):
        assert other.person_id.tolist() == paths.person_id.tolist() == sorted(origins.person_id)
        assert np.array_equal(other.earnings, paths.earnings, equal_nan=True)
    expected = paths.earnings[paths.birth_year == 1960]
    alone = forecast(clairvoyant, panel, early, to_horizon=2, n_paths=3)
    assert np.array_equal(alone.earnings, expected, equal_nan=True)
    other_seed = forecast(clairvoyant, panel, early, to_horizon=2, n_paths=3, seed=1).earnings
    positive = (other_seed > 0) & (expected > 0)
    assert (other_seed[positive] != expected[positive]).mean() > 0.99


def concatenate(*parts: Origins) -> Origins:
    return Origins(
        np.concatenate([part.person_id for part in parts]),
        np.concatenate([part.year for part in parts]),
    )


@pytest.mark.thorough
def test_the_simulation_reproduces_the_saved_states(tmp_path: Path) -> None:
    out = tmp_path / "register"
    generate_register(out, RegisterSettings(persons=30, seed=SEED, latent_years=(2002, 2012)))
    clairvoyant, panel = Oracle.open(out), read_panel(out)
    by_year = [origins_at(panel, year) for year in (2002, 2012, 2022)]
    n_compared = 0
    for chunk in clairvoyant.chunks(panel, concatenate(*by_year)):
        for year, state in clairvoyant.states(chunk).items():
            folder = out / "latent" / f"year={year}" / f"birth_year={chunk.birth_year}"
            saved = read_state(folder / "part-0.parquet")
            saved = saved.take(np.searchsorted(saved.person, chunk.serial[chunk.origin == year]))
            for field in fields(LifeState):
                values = getattr(state, field.name), getattr(saved, field.name)
                assert np.array_equal(*values), field.name
            n_compared += len(state)
    assert n_compared == sum(len(origins) for origins in by_year) > 30


def test_a_register_of_other_code_is_refused_with_the_command_that_generates_it_again(
    register_dir: Path, register_panel: Panel, tmp_path: Path
) -> None:
    metadata = json.loads((register_dir / "register.json").read_text())
    origins = origins_at(register_panel, 2022).take(slice(0, 3))

    def message(change: Callable[[dict[str, Any]], object]) -> str:
        changed = json.loads(json.dumps(metadata))
        change(changed)
        (tmp_path / "register.json").write_text(json.dumps(changed))
        with pytest.raises(InputError) as error:
            forecast(Oracle.open(tmp_path), register_panel, origins, to_horizon=1, n_paths=2)
        return str(error.value)

    other_seed = message(lambda changed: changed.update(seed=8))
    assert "other earnings" in other_seed or "no such persons" in other_seed
    assert "saga register generate --persons 2000 --seed 8" in other_seed

    def careers(changed: dict[str, Any]) -> dict[str, Any]:
        parameters: dict[str, Any] = changed["parameters"]["careers"]
        return parameters

    assert "parameters" in message(lambda changed: careers(changed).update(unheard_of=1.0))
    assert "parameters" in message(lambda changed: careers(changed).pop("base"))
    assert "other earnings" in message(lambda changed: careers(changed).update(base=13.5))
    assert "full register" in message(lambda changed: changed.update(process="gaussian"))
    assert is_full(register_dir)
    assert not is_full(register_dir / "panel")
    unknown = Origins(np.array(["Anna"]), np.array([2022]))
    with pytest.raises(InputError, match="no such persons"):
        forecast(Oracle.open(register_dir), register_panel, unknown, to_horizon=1, n_paths=2)
