"""Who takes part in the contest: the bundle, fitted baselines and the clairvoyant, behind one interface."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
import torch

from evaluation.protocol import Baseline
from evaluation.scoring.gap import BOUND
from evaluation.scoring.metrics import LEVELS
from evaluation.scoring.sample_sets import Sets, sample_sets
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.files.atomic import commit, digest_json
from saga.forecaster import Forecaster
from saga.macro.scenarios import Scenario
from saga.paths import Paths
from saga.register.oracle import Oracle
from saga.requests import Draws

BLOCK = 256  # persons whose paths are held at once


class Contestant(Protocol):
    """Anything that forecasts paths and sets for origins, a block of persons at a time, in the order of `origins`."""

    @property
    def name(self) -> str:
        """The contestant's row in the table."""
        ...

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Paths (n, H, M) and sets (n, H, L) at LEVELS for consecutive blocks of persons."""
        ...


@dataclass(frozen=True)
class Model:
    """The bundle: recalibrated paths, and the intervals that its calibrator publishes. `scenario` is the economy that it is told."""

    forecaster: Forecaster
    name: str = "saga"
    scenario: Scenario | None = None

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the forecaster, which sorts persons by id as origins are."""
        for block in self.forecaster.blocks(
            past, Draws(paths, seed, self.scenario), to_horizon=to_horizon
        ):
            published = self.forecaster.calibrator.intervals(block, LEVELS)
            yield block, Sets(published.lower, published.upper, published.includes_zero)


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline: its paths, and sets from those paths."""

    baseline: Baseline

    @property
    def name(self) -> str:
        """The baseline's row in the table."""
        return self.baseline.name

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of at most 256 persons."""
        for start in range(0, len(origins), BLOCK):
            some = origins.take(slice(start, start + BLOCK))
            block = self.baseline.simulate(
                past.only(some.person_id.tolist()),
                some,
                to_horizon=to_horizon,
                n_paths=paths,
                seed=seed,
            )
            yield block, sample_sets(block.earnings, LEVELS)


@dataclass(frozen=True)
class Clairvoyant:
    """The forecaster that knows a generated register's law and hidden states: a bound for the others, not attainable."""

    oracle: Oracle
    name: str = BOUND

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the oracle, which sorts persons by id as origins are."""
        for block in self.oracle.blocks(
            past, origins, to_horizon=to_horizon, paths=paths, seed=seed
        ):
            yield block, sample_sets(block.earnings, LEVELS)


@dataclass
class Entrant:
    """A contestant that is made (loaded, fitted) when it is first questioned, so that one whose scores are kept costs nothing.

    `key` names all that its answers depend on beside the question; `seconds` is what making it took, 0 before. What is made is kept as a
    pickle in the folder `fits`, if there is one: a fit of half an hour serves scores and lifetimes, today's and tomorrow's. `only` names
    the one setting that it is questioned in; None: in all.
    """

    name: str
    key: str
    make: Callable[[], Contestant]
    fits: Path | None = None
    only: str | None = None
    seconds: float = 0.0
    _made: Contestant | None = field(default=None, repr=False)

    def open(self) -> Contestant:
        """The contestant itself."""
        if self._made is None:
            self._made, self.seconds = self._kept() if self.fits else self._timed()
        return self._made

    def _timed(self) -> tuple[Contestant, float]:
        start = time.perf_counter()
        return self.make(), time.perf_counter() - start

    def _kept(self) -> tuple[Contestant, float]:
        assert self.fits is not None
        about = {
            "key": self.key,
            "python": sys.version_info[:2],
            "libraries": [f"{m.__name__} {m.__version__}" for m in (np, pl, torch)],
        }
        file = self.fits / f"{self.name}-{digest_json(about)[:20]}.pickle"
        if not file.is_file():
            made = self._timed()
            self.fits.mkdir(parents=True, exist_ok=True)
            commit(file, lambda part: part.write_bytes(pickle.dumps(made)))
        found: tuple[Contestant, float] = pickle.loads(file.read_bytes())
        return found

    @property
    def opened(self) -> Contestant | None:
        """The contestant where it has been made."""
        return self._made

    def close(self) -> None:
        """Lets go of what was made; it is made anew if it is asked again."""
        self._made = None

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, paths: int, seed: int
    ) -> Iterator[tuple[Paths, Sets]]:
        """Blocks of the contestant."""
        return self.open().blocks(past, origins, to_horizon=to_horizon, paths=paths, seed=seed)
