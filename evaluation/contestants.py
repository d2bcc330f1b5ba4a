"""The contestants: the bundle, fitted baselines and the clairvoyant, with one interface."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np
import polars as pl
import torch

from evaluation.protocol import Baseline
from evaluation.scoring.gap import BOUND
from evaluation.scoring.sample_sets import PredictionSets, sets_from_samples
from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.files.atomic import commit, digest_json
from saga.forecaster import Forecaster
from saga.macro.scenarios import Scenario
from saga.paths import Paths
from saga.register.oracle import Oracle
from saga.requests import COVERAGE, Draws

BLOCK = 256  # persons whose paths are in memory at once
Blocks = Iterator[tuple[Paths, PredictionSets]]


class Contestant(Protocol):
    """Anything that forecasts paths and prediction sets, a block of persons at a time."""

    @property
    def name(self) -> str:
        """The contestant's row in the tables."""
        ...

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Paths (n, H, M) and sets (n, H, L) at COVERAGE, blocks in the order of `origins`."""
        ...


@dataclass(frozen=True)
class BundleContestant:
    """The bundle: recalibrated paths and the intervals of its calibrator.

    `scenario` is the macro scenario that paths are conditioned on. Raise `version` when the same
    bundle may forecast other numbers.
    """

    version: ClassVar[int] = 1
    forecaster: Forecaster
    name: str = "saga"
    scenario: Scenario | None = None

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Blocks of the forecaster, which sorts persons by id; `origins` are sorted likewise."""
        del origins  # they are the last years of `past`
        draws = Draws(n_paths, seed, self.scenario)
        for block in self.forecaster.blocks(past, draws, to_horizon=to_horizon):
            sets = self.forecaster.calibrator.intervals(block, COVERAGE)
            yield block, PredictionSets(sets.lower, sets.upper, sets.includes_zero)


@dataclass(frozen=True)
class BaselineContestant:
    """A fitted baseline: its paths, and the prediction sets that follow from them."""

    baseline: Baseline

    @property
    def name(self) -> str:
        """The baseline's row in the tables."""
        return self.baseline.name

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Blocks of at most 256 persons."""
        for start in range(0, len(origins), BLOCK):
            in_block = origins.take(slice(start, start + BLOCK))
            paths = self.baseline.simulate(
                past.only(in_block.person_id.tolist()),
                in_block,
                to_horizon=to_horizon,
                n_paths=n_paths,
                seed=seed,
            )
            yield paths, sets_from_samples(paths.earnings, COVERAGE)


@dataclass(frozen=True)
class Clairvoyant:
    """The forecaster that knows a generated register's process and hidden states.

    Its score is a bound that other forecasters cannot attain. Raise `version` when the oracle may
    give other numbers for the same register.
    """

    version: ClassVar[int] = 1
    oracle: Oracle
    name: str = BOUND

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Blocks of the oracle, which sorts persons by id; `origins` are sorted likewise."""
        for block in self.oracle.blocks(
            past, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed
        ):
            yield block, sets_from_samples(block.earnings, COVERAGE)


@dataclass
class LazyContestant:
    """A contestant that is loaded or fitted only when its first forecast is needed.

    If its scores are stored, it is not built at all.

    Args:
        name: its row in the tables.
        key: digest of all inputs of its forecasts except the setting; None: unknown, so its scores
            are not reused.
        build: loads or fits the contestant.
        fits: directory where the built contestant is pickled; None: it is not stored.
        only_setting: the only setting it takes part in; None: all.
        seconds: time of `build`, 0 before it.
    """

    name: str
    key: str | None
    build: Callable[[], Contestant]
    fits: Path | None = None
    only_setting: str | None = None
    seconds: float = 0.0
    _contestant: Contestant | None = field(default=None, repr=False)

    @classmethod
    def of(cls, contestant: Contestant) -> Self:
        """`contestant` itself if it is lazy, otherwise wrapped, without a key."""
        if isinstance(contestant, cls):
            return contestant
        return cls(contestant.name, None, lambda: contestant, _contestant=contestant)

    def open(self) -> Contestant:
        """The contestant itself."""
        if self._contestant is None:
            self._contestant, self.seconds = self._load() if self.fits else self._timed_build()
        return self._contestant

    def _timed_build(self) -> tuple[Contestant, float]:
        start = time.perf_counter()
        return self.build(), time.perf_counter() - start

    def _load(self) -> tuple[Contestant, float]:
        assert self.fits is not None
        inputs = {
            "key": self.key,
            "python": sys.version_info[:2],
            "libraries": [f"{m.__name__} {m.__version__}" for m in (np, pl, torch)],
        }
        file = self.fits / f"{self.name}-{digest_json(inputs)[:20]}.pickle"
        if not file.is_file():
            built = self._timed_build()
            self.fits.mkdir(parents=True, exist_ok=True)
            commit(file, lambda part: part.write_bytes(pickle.dumps(built)))
        stored: tuple[Contestant, float] = pickle.loads(file.read_bytes())
        return stored

    @property
    def opened(self) -> Contestant | None:
        """The contestant if it has been built."""
        return self._contestant

    def close(self) -> None:
        """Releases the built contestant; the next forecast builds it again."""
        self._contestant = None

    def blocks(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Blocks:
        """Blocks of the contestant."""
        return self.open().blocks(past, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed)
