"""The clairvoyant: forecasts of the full register from its true process and hidden states.

It is a bound for other forecasters, not a target that they can reach.

A chunk of a register is a function of (seed, birth year, chunk number, parameters). The state at an
origin is therefore obtained by simulating the chunk again from `register.json`; the rows of this
simulation must equal those of the panel. From this state the years after the origin are simulated
with random numbers that the register does not use: up to the end of the panel under realised macro,
after it under macro futures drawn from the register's process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from saga.arrays import Floats, Ints
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.paths import Paths
from saga.register.simulation.cohort_simulation import (
    CHUNK,
    RegisterSettings,
    World,
    simulate_chunk,
    simulate_years,
)
from saga.register.simulation.generation import MAX_PERSONS
from saga.register.simulation.life_state import LifeState, Presence
from saga.register.simulation.parameters import Parameters
from saga.register.simulation.population import cohort_sizes
from saga.schema import MAX_AGE
from saga.simulation.worker_process import run_task, worker_pool

CANDIDATES = 3  # simulations per path, of which at least one is nearly always resident in a year
BLOCK_ROWS = 50_000  # simulations held in memory at once
FIRST_DRAW = 1 << 31  # number of the first macro draw; no register has as many futures
COHORT = MAX_PERSONS + 1  # a person's number is birth year * COHORT + serial number
TOLERANCE = 1e-6  # relative difference of earnings between panel and simulation
STREAM_TAG = 0x666F72  # separates the clairvoyant's random streams from those of the register
REALISED, DRAWN = 0, 1  # keys of the streams under realised macro and under drawn macro futures


@dataclass(frozen=True)
class Chunk:
    """The selected persons of one chunk of the register.

    Attributes:
        birth_year: Birth year of the cohort.
        number: Number of the chunk in its cohort.
        serial: Serial numbers of the persons in the cohort, ascending (n,).
        origin: Their origin years (n,).
        panel_rows: Their rows of the panel: `person_id`, `year`, real `earnings`.
    """

    birth_year: int
    number: int
    serial: Ints
    origin: Ints
    panel_rows: pl.DataFrame


@dataclass(frozen=True)
class Oracle:
    """The clairvoyant forecaster of one generated register.

    Attributes:
        settings: Definition of the register.
        metadata: Content of its `register.json`.
        workers: Number of processes.
    """

    settings: RegisterSettings
    metadata: dict[str, Any]
    workers: int = 1

    @classmethod
    def open(cls, directory: Path, *, workers: int = 1) -> Self:
        """The clairvoyant of the register in `directory`.

        Raises InputError if there is no register of the process `full`, or if it was generated
        with parameters that this version does not have.
        """
        metadata = _read_metadata(directory)
        if metadata.get("process") != "full":
            fix = "Give the directory that `saga register generate` wrote, with the process full."
            raise InputError(
                "The clairvoyant needs a register of the process full",
                [Problem("no-register", f"no full register in {directory}", fix)],
            )
        reason = "its parameters are not those of this code"
        try:
            parameters = Parameters(metadata["parameters"])
        except ValueError:
            raise _mismatch(metadata, reason) from None
        if json.loads(json.dumps(parameters.as_dict())) != metadata["parameters"]:
            raise _mismatch(metadata, reason)
        first_year, last_year = metadata["years"]
        settings = RegisterSettings(
            persons=metadata["persons"],
            seed=metadata["seed"],
            first_year=first_year,
            last_year=last_year,
            parameters=parameters,
            history=metadata.get("history"),
        )
        return cls(settings, metadata, workers)

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        """Futures of all persons of `origins`, one block per chunk of the register.

        Persons are in the order of their ids. Origins before the last year of the panel have
        realised macro and the realised closings of employers, and NaN after that year. Origins in
        the last year have drawn macro futures; path k of every person has the k-th. Earnings are 0
        after death. At each horizon they are conditioned on residence or death in that year, as the
        scored outcomes are. The numbers of a person depend on `seed`, `n_paths` and the other
        selected persons of the chunk, not on the order of persons.

        Args:
            past: Rows of the persons in real money, which the simulation must reproduce.
            origins: Persons and their origin years.
            to_horizon: Last horizon.
            n_paths: Futures per person.
            seed: Seed of the futures.

        Raises:
            InputError: If the simulation does not reproduce a row of `past`.
        """
        chunks = self.chunks(past, origins)
        simulate = partial(self._block, to_horizon=to_horizon, n_paths=n_paths, seed=seed)
        if self.workers == 1:
            yield from map(simulate, chunks)
            return
        with worker_pool(self.workers, simulate) as pool:
            yield from pool.map(run_task, chunks)

    def chunks(self, past: Panel, origins: Origins) -> Iterator[Chunk]:
        """The persons of `origins` by chunk of the register, in the order of their ids.

        Raises InputError for ids that the register cannot have.
        """
        try:
            number = origins.person_id.astype(np.int64)
        except ValueError:
            raise _mismatch(self.metadata, "it has no such persons as the panel") from None
        order = np.lexsort((origins.year, number))
        birth_year, serial = np.divmod(number[order], COHORT)
        year = origins.year[order].astype(np.int64)
        chunks, member = np.unique(
            np.stack([birth_year, serial // CHUNK], axis=1), axis=0, return_inverse=True
        )
        for i, (born, chunk) in enumerate(chunks.tolist()):
            rows = member.ravel() == i
            persons = past.only(origins.person_id[order][rows].tolist())
            panel_rows = persons.frame.select("person_id", "year", "earnings")
            yield Chunk(born, chunk, serial[rows], year[rows], panel_rows)

    def states(self, chunk: Chunk) -> dict[int, LifeState]:
        """Origin year -> the state at its end of the persons with that origin.

        Raises InputError if the simulated rows differ from those of the panel.
        """
        settings, origin_years = self.settings, set(chunk.origin.tolist())
        states: dict[int, LifeState] = {}
        index = chunk.serial - chunk.number * CHUNK

        def save(year: int, state: LifeState) -> None:
            if year in origin_years:
                states[year] = state.take(index[chunk.origin == year])

        sizes = cohort_sizes(
            settings.persons,
            settings.first_year,
            settings.last_year,
            settings.parameters.population,
        )
        n_persons = min(CHUNK, sizes.get(chunk.birth_year, 0) - chunk.number * CHUNK)
        if n_persons <= index[-1]:
            raise _mismatch(self.metadata, "it has no such persons as the panel")
        _, rows = simulate_chunk(settings, chunk.birth_year, chunk.number, n_persons, save)
        self._check_rows(rows, chunk.panel_rows)
        resident = all((state.presence == Presence.RESIDENT).all() for state in states.values())
        if states.keys() != origin_years or not resident:
            raise _mismatch(self.metadata, "persons have no row in the year of their origin")
        return states

    def _check_rows(self, simulated: pl.DataFrame, panel_rows: pl.DataFrame) -> None:
        years = self.settings.world().economy.years
        prices = pl.DataFrame(
            {"year": list(years), "prices": [macro.prices for macro in years.values()]},
            schema_overrides={"year": pl.Int32},
        )
        real = simulated.join(prices, on="year").select(
            "person_id",
            "year",
            simulated=pl.col("earnings") / pl.col("prices"),
            is_simulated=pl.lit(True),
        )
        rows = panel_rows.join(real, on=["person_id", "year"], how="left", maintain_order="left")
        panel, simulation = pl.col("earnings"), pl.col("simulated")
        different = rows.filter(
            pl.col("is_simulated").is_null()
            | (panel.is_null() != simulation.is_null())
            | ((panel - simulation).abs() > TOLERANCE * simulation.abs())
        )
        if different.height:
            person, year = different.select("person_id", "year").row(0)
            raise _mismatch(self.metadata, "it has other earnings", person, year, different.height)

    def _block(self, chunk: Chunk, *, to_horizon: int, n_paths: int, seed: int) -> Paths:
        settings, last_year = self.settings, self.settings.last_year
        earnings = np.full((len(chunk.serial), to_horizon, n_paths), np.nan, np.float32)
        for origin, state in self.states(chunk).items():
            end = min(origin + to_horizon, state.birth_year + MAX_AGE)
            if origin == last_year:
                years = range(origin + 1, end + 1)
                with_futures = replace(settings, future_to=last_year + to_horizon)
                worlds = drawn_worlds(with_futures, n_paths, seed)
                futures = drawn_futures(settings, state, chunk.number, years, worlds, seed)
            else:
                years = range(origin + 1, min(end, last_year) + 1)
                futures = realised_futures(settings, state, chunk.number, years, n_paths, seed)
            earnings[chunk.origin == origin, : len(years)] = futures
        person = chunk.birth_year * COHORT + chunk.serial
        birth_year = np.full(len(person), chunk.birth_year)
        return Paths(person.astype(np.str_), birth_year, chunk.origin, earnings)


def is_full(directory: Path) -> bool:
    """Whether `directory` contains a generated register of the process full."""
    return _read_metadata(directory).get("process") == "full"


def realised_futures(
    settings: RegisterSettings,
    state: LifeState,
    chunk: int,
    years: range,
    n_paths: int,
    seed: int,
) -> Floats:
    """Real earnings (n, years, n_paths) after `state` under realised macro.

    Args:
        settings: Definition of the register.
        state: State at the origin, which is not changed.
        chunk: Number of the chunk.
        years: Years to simulate.
        n_paths: Futures per person.
        seed: Seed of the futures.
    """
    rng = _random_stream(settings, seed, REALISED, state.birth_year, chunk, years.start)
    futures = np.empty((len(state), len(years), n_paths))
    size = max(1, BLOCK_ROWS // (n_paths * CANDIDATES))
    for start in range(0, len(state), size):
        rows = np.arange(start, min(start + size, len(state)))
        repeated = state.take(np.repeat(rows, n_paths))
        earnings = simulate_residents(settings, repeated, years, settings.world(), rng)
        by_person = earnings.reshape(len(rows), n_paths, len(years))
        futures[rows] = by_person.transpose(0, 2, 1)
    return futures


def drawn_futures(
    settings: RegisterSettings,
    state: LifeState,
    chunk: int,
    years: range,
    worlds: Sequence[World],
    seed: int,
) -> Floats:
    """Real earnings (n, years, worlds) after `state` under drawn macro futures.

    Args:
        settings: Definition of the register.
        state: State at the origin, which is not changed.
        chunk: Number of the chunk.
        years: Years to simulate.
        worlds: Macro futures; path k of every person has the k-th.
        seed: Seed of the futures.
    """
    futures = np.empty((len(state), len(years), len(worlds)))
    for k, world in enumerate(worlds):
        rng = _random_stream(settings, seed, DRAWN, state.birth_year, chunk, k)
        futures[:, :, k] = simulate_residents(settings, state, years, world, rng)
    return futures


@lru_cache(maxsize=1)
def drawn_worlds(settings: RegisterSettings, n_paths: int, seed: int) -> tuple[World, ...]:
    """The macro futures of the clairvoyant, one per path."""
    return tuple(settings.world(FIRST_DRAW * (1 + seed) + k) for k in range(n_paths))


def simulate_residents(
    settings: RegisterSettings,
    state: LifeState,
    years: range,
    world: World,
    rng: np.random.Generator,
) -> Floats:
    """Real earnings (n, years) after `state`, conditioned on residence or death in each year.

    Each person is simulated several times, until no year is abroad in all simulations. A year is
    taken from the first simulation that is not abroad in it. A path that goes abroad thus combines
    two simulations, each with the distribution of residents in its years.

    Args:
        settings: Definition of the register.
        state: State at the origin, which is not changed.
        years: Years to simulate.
        world: Macro and employers.
        rng: Random numbers.
    """
    earnings = np.full((len(state), len(years)), np.nan)
    incomplete = np.arange(len(state))
    while len(incomplete) and len(years):
        repeated = state.take(np.repeat(incomplete, CANDIDATES))
        ledger = simulate_years(settings, repeated, years, world, rng)
        candidates = np.where(ledger.dead, 0.0, ledger.earnings)
        candidates = candidates.reshape(len(incomplete), CANDIDATES, len(years))
        for k in range(CANDIDATES):
            missing = np.isnan(earnings[incomplete])
            earnings[incomplete] = np.where(missing, candidates[:, k], earnings[incomplete])
        incomplete = np.flatnonzero(np.isnan(earnings).any(axis=1))
    return earnings


def _read_metadata(directory: Path) -> dict[str, Any]:
    file = directory / "register.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _random_stream(settings: RegisterSettings, seed: int, *key: int) -> np.random.Generator:
    sequence = np.random.SeedSequence((settings.seed, STREAM_TAG, seed, *key))
    return np.random.Generator(np.random.Philox(sequence))


def _mismatch(
    metadata: dict[str, Any],
    reason: str,
    person: str | None = None,
    year: int | None = None,
    count: int = 1,
) -> InputError:
    """The error for a register that cannot be simulated again."""
    versions = ", ".join(f"{name} {v}" for name, v in metadata.get("versions", {}).items())
    first_year, last_year = metadata["years"]
    fix = (
        f"It was generated with {versions or 'unknown versions'}. Generate it again with this "
        f"code: `saga register generate --persons {metadata['persons']} "
        f"--seed {metadata['seed']} --years {first_year}-{last_year} --out DIR`, or leave the "
        "clairvoyant out."
    )
    problem = Problem(
        "other-register",
        f"{metadata['register_id']} and this panel or code do not agree: {reason}",
        fix,
        person_id=person,
        year=year,
        count=count,
    )
    return InputError("The register cannot be simulated again", [problem])
