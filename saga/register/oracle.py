"""The clairvoyant: forecasts of the full register by one who knows its law of motion and everybody's hidden state. A bound, not a target.

A chunk of a register is a function of (seed, birth year, chunk number, parameters), so the state at any origin is had by living the
chunk again from `register.json`; the rows that this gives must be those of the panel. From the state, lives are lived on with random
numbers that are nobody's: up to the panel's end in the economy as it was, after it in drawn economies of the same law.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from pydantic import TypeAdapter, ValidationError

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
from saga.register.simulation.life_state import RESIDENT, Floats, Ints, LifeState
from saga.register.simulation.parameters import Parameters
from saga.register.simulation.population import cohort_sizes
from saga.schema import MAX_AGE

SPARE = 3  # lives drawn for each path, so that one of them is resident nearly always
ROWS = 50_000  # lives held at once
DRAWS = (
    1 << 31
)  # macro draws of the clairvoyant are numbered from here on: no register has as many futures
COHORT = MAX_PERSONS + 1  # a person's number is the birth year and a running number


@dataclass(frozen=True)
class Chunk:
    """The persons asked for in one chunk of the register: running numbers and origin years (n,), ascending, and their known rows."""

    birth_year: int
    number: int
    serial: Ints
    origin: Ints
    known: pl.DataFrame


@dataclass(frozen=True)
class Oracle:
    """The clairvoyant forecaster of one generated register; `about` is the content of its `register.json`."""

    run: RegisterSettings
    about: dict[str, Any]
    workers: int = 1

    @classmethod
    def open(cls, directory: Path, *, workers: int = 1) -> Self:
        """The clairvoyant of the register in `directory`; `workers` is the number of processes.

        Raises InputError where there is no register of the process `full`, or where this code has other parameters than made it.
        """
        about = _about(directory)
        if about.get("process") != "full":
            fix = "Give the directory that `saga register generate` wrote, with the process full."
            raise InputError(
                "There is nothing to be clairvoyant about",
                [Problem("no-register", f"no full register in {directory}", fix)],
            )
        try:
            parameters = TypeAdapter(Parameters).validate_python(about["parameters"])
        except ValidationError:
            raise _other_code(about, "its parameters are not those of this code") from None
        if json.loads(json.dumps(asdict(parameters))) != about["parameters"]:
            raise _other_code(about, "its parameters are not those of this code")
        first, last = about["years"]
        settings = RegisterSettings(
            persons=about["persons"],
            seed=about["seed"],
            first_year=first,
            last_year=last,
            parameters=parameters,
        )
        return cls(settings, about, workers)

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[Paths]:
        """`paths` futures of everybody in `origins`, a block a chunk of the register, persons in the order of their ids.

        `past` holds their rows in real money, against which the lives are checked. Origins before the panel's last year see the economy
        and the closing employers as they were, and nothing (NaN) after that year; origins in the last year see drawn ones, path k of
        everybody the k-th. Earnings are 0 after death; at each horizon they are those of somebody resident then (or dead), which is
        what can be scored. The numbers of a person depend on `seed`, `paths` and on who else of the chunk is asked for, not on the order.

        Raises InputError where a row of `past` is not what the register's law gives.
        """
        chunks = self.chunks(past, origins)
        draw = partial(self._block, to_horizon=to_horizon, paths=paths, seed=seed)
        if self.workers == 1:
            yield from map(draw, chunks)
            return
        pool = ProcessPoolExecutor(
            self.workers,
            mp_context=get_context("spawn"),
            initializer=_leave_interrupts_to_the_parent,
        )
        try:
            yield from pool.map(draw, chunks)
        finally:
            pool.shutdown(cancel_futures=True)

    def chunks(self, past: Panel, origins: Origins) -> Iterator[Chunk]:
        """The persons of `origins` by chunk of the register, in the order of their ids; raises InputError for ids that it does not give."""
        try:
            number = origins.person_id.astype(np.int64)
        except ValueError:
            raise _other_code(self.about, "it has no such persons as the panel") from None
        order = np.lexsort((origins.year, number))
        birth_year, serial = np.divmod(number[order], COHORT)
        year = origins.year[order].astype(np.int64)
        chunks, member = np.unique(
            np.stack([birth_year, serial // CHUNK], axis=1), axis=0, return_inverse=True
        )
        for i, (born, part) in enumerate(chunks.tolist()):
            rows = member.ravel() == i
            known = past.only(origins.person_id[order][rows].tolist()).frame.select(
                "person_id", "year", "earnings"
            )
            yield Chunk(born, part, serial[rows], year[rows], known)

    def states(self, chunk: Chunk) -> dict[int, LifeState]:
        """Origin year -> the state at its end of the persons with that origin, in the chunk's order.

        Raises InputError where the rows on the way are not the known ones.
        """
        run, wanted, states = self.run, set(chunk.origin.tolist()), dict[int, LifeState]()

        def keep(year: int, life: LifeState) -> None:
            if year in wanted:
                states[year] = life.take(chunk.serial[chunk.origin == year] - chunk.number * CHUNK)

        size = cohort_sizes(
            self.about["persons"], run.first_year, run.last_year, run.parameters.population
        ).get(chunk.birth_year, 0)
        persons = min(CHUNK, size - chunk.number * CHUNK)
        if persons <= chunk.serial[-1] - chunk.number * CHUNK:
            raise _other_code(self.about, "it has no such persons as the panel")
        _, lived = simulate_chunk(run, chunk.birth_year, chunk.number, persons, keep)
        self._compare(lived, chunk.known)
        if states.keys() != wanted or not all(
            (life.presence == RESIDENT).all() for life in states.values()
        ):
            raise _other_code(self.about, "persons have no row in the year of their origin")
        return states

    def _compare(self, lived: pl.DataFrame, known: pl.DataFrame) -> None:
        """Refuses a panel with rows that the register's law does not give."""
        economy = self.run.world().economy
        prices = pl.DataFrame(
            {"year": list(economy.years), "prices": [y.prices for y in economy.years.values()]},
            schema_overrides={"year": pl.Int32},
        )
        again = lived.join(prices, on="year").select(
            "person_id", "year", again=pl.col("earnings") / pl.col("prices"), there=pl.lit(True)
        )
        rows = known.join(again, on=["person_id", "year"], how="left", maintain_order="left")
        gap = (pl.col("earnings") - pl.col("again")).abs() > 1e-6 * pl.col("again").abs()
        other = rows.filter(
            pl.col("there").is_null()
            | (pl.col("earnings").is_null() != pl.col("again").is_null())
            | gap
        )
        if other.height:
            person, year = other.select("person_id", "year").row(0)
            raise _other_code(self.about, "it has other earnings", person, year, other.height)

    def _block(self, chunk: Chunk, *, to_horizon: int, paths: int, seed: int) -> Paths:
        run, states = self.run, self.states(chunk)
        earnings = np.full((len(chunk.serial), to_horizon, paths), np.nan, np.float32)
        for origin, life in states.items():
            rows = chunk.origin == origin
            oldest = min(origin + to_horizon, life.birth_year + MAX_AGE)
            if origin == run.last_year:
                years = range(origin + 1, oldest + 1)
                worlds = _worlds(replace(run, future_to=run.last_year + to_horizon), paths, seed)
                drawn = drawn_futures(run, life, chunk.number, years, worlds, seed)
            else:
                years = range(origin + 1, min(oldest, run.last_year) + 1)
                drawn = realised_futures(run, life, chunk.number, years, paths, seed)
            earnings[rows, : len(years)] = drawn
        person = chunk.birth_year * COHORT + chunk.serial
        return Paths(
            person.astype(np.str_), np.full(len(person), chunk.birth_year), chunk.origin, earnings
        )


def is_full(directory: Path) -> bool:
    """Whether `directory` holds a generated register of the process full."""
    return _about(directory).get("process") == "full"


def realised_futures(
    run: RegisterSettings, life: LifeState, chunk: int, years: range, paths: int, seed: int
) -> Floats:
    """Real earnings (n, years, paths) of `life` lived on in the economy as it was."""
    rng = _stream(run, seed, 0, life.birth_year, chunk, years.start)
    out = np.empty((len(life), len(years), paths))
    size = max(1, ROWS // (paths * SPARE))
    for start in range(0, len(life), size):
        some = np.arange(start, min(start + size, len(life)))
        lived = given_residence(run, life.take(np.repeat(some, paths)), years, run.world(), rng)
        out[some] = lived.reshape(len(some), paths, len(years)).transpose(0, 2, 1)
    return out


def drawn_futures(
    run: RegisterSettings,
    life: LifeState,
    chunk: int,
    years: range,
    worlds: Sequence[World],
    seed: int,
) -> Floats:
    """Real earnings (n, years, worlds) of `life` lived on in drawn economies, path k of everybody in the k-th."""
    out = np.empty((len(life), len(years), len(worlds)))
    for k, world in enumerate(worlds):
        rng = _stream(run, seed, 1, life.birth_year, chunk, k)
        out[:, :, k] = given_residence(run, life, years, world, rng)
    return out


def given_residence(
    run: RegisterSettings, life: LifeState, years: range, world: World, rng: np.random.Generator
) -> Floats:
    """Real earnings (n, years) of `life` (left untouched) lived on in `world`, each year's given that the person is resident then, or dead.

    Lives are drawn until each year has one that is not abroad in it; the first such life gives the year's earnings. A path that goes
    abroad is so made of two lives, each with the law of residents in its years.
    """
    out = np.full((len(life), len(years)), np.nan)
    missing = np.arange(len(life))
    while len(missing) and len(years):
        lives = simulate_years(run, life.take(np.repeat(missing, SPARE)), years, world, rng)
        drawn = np.where(lives.dead, 0.0, lives.earnings).reshape(len(missing), SPARE, len(years))
        for spare in range(SPARE):
            out[missing] = np.where(np.isnan(out[missing]), drawn[:, spare], out[missing])
        missing = np.flatnonzero(np.isnan(out).any(axis=1))
    return out


def _about(directory: Path) -> dict[str, Any]:
    file = directory / "register.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


@lru_cache(maxsize=1)
def _worlds(run: RegisterSettings, paths: int, seed: int) -> tuple[World, ...]:
    return tuple(run.world(DRAWS * (1 + seed) + k) for k in range(paths))


def _stream(run: RegisterSettings, seed: int, *key: int) -> np.random.Generator:
    """The clairvoyant's own random stream of a chunk: none of the register's, which have another tag."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence((run.seed, 0x666F72, seed, *key)))
    )


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _other_code(
    about: dict[str, Any],
    why: str,
    person: str | None = None,
    year: int | None = None,
    count: int = 1,
) -> InputError:
    made = ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    first, last = about["years"]
    fix = (
        f"It was made with {made or 'unknown versions'}. Make it anew with this code: `saga register generate --persons {about['persons']} "
        f"--seed {about['seed']} --years {first}-{last} --out DIR`, or leave the clairvoyant out."
    )
    problem = Problem(
        "other-register",
        f"{about['register_id']} and this panel or code do not agree: {why}",
        fix,
        None,
        person,
        year,
        count,
    )
    return InputError("The register's lives cannot be lived again", [problem])
