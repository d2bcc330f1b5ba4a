"""The contestants: the bundle, fitted baselines and the clairvoyant, with one interface."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from saga.evaluation.protocol import Baseline, HasDistributions
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.evaluation.scoring.year_forecasts import YearForecasts
from saga.register.oracle import Oracle

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.forecaster import Forecaster
from saga.macro.scenarios import Scenario
from saga.paths import Paths
from saga.requests import COVERAGE, Draws

BLOCK = 256  # persons whose paths are in memory at once


class Contestant(Protocol):
    """Anything that forecasts single years, a block of persons at a time."""

    @property
    def name(self) -> str:
        """The contestant's row in the tables."""
        ...

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Forecasts at `horizons`, in blocks of persons in the order of `origins`."""
        ...


@runtime_checkable
class PathContestant(Contestant, Protocol):
    """A contestant that also simulates paths, which lifetimes need."""

    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        """Paths (n, H, M), in blocks of persons in the order of `origins`."""
        ...


class SampledContestant(ABC):
    """A contestant whose forecasts of single years are the samples of its paths."""

    @abstractmethod
    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        """Paths (n, H, M), in blocks of persons in the order of `origins`."""

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Forecasts whose sets are of the bundle's family, without a calibration."""
        columns = np.asarray(horizons) - 1
        for block in self.paths(past, origins, to_horizon=horizons[-1], n_paths=n_paths, seed=seed):
            yield YearForecasts.of_samples(block.person_id, block.earnings[:, columns])


@dataclass(frozen=True)
class BundleContestant:
    """The bundle: recalibrated marginals, the sets of its calibrator, and rank-mapped paths.

    `scenario` is the macro scenario that forecasts are conditioned on. Raise `version` when the
    same bundle may forecast other numbers.
    """

    version: ClassVar[int] = 2
    forecaster: Forecaster
    name: str = "saga"
    scenario: Scenario | None = None

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Forecasts without paths; persons are sorted by id, as `origins` are."""
        del origins, n_paths, seed  # origins are the last years of `past`
        for block in self.forecaster.marginals(past, self.scenario):
            marginals = block.first(horizons[-1])
            sets = self.forecaster.calibrator.intervals(marginals, COVERAGE)
            h = np.asarray(horizons) - 1
            yield YearForecasts(
                block.person_id,
                marginals.at_horizons(horizons),
                sets.lower[:, h],
                sets.upper[:, h],
                sets.includes_zero[:, h],
            )

    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        """Paths that are rank-mapped to the recalibrated marginals, in the same order."""
        del origins
        draws = Draws(n_paths, seed, self.scenario)
        return self.forecaster.blocks(past, draws, to_horizon=to_horizon)


@dataclass(frozen=True)
class BaselineContestant(SampledContestant):
    """A fitted baseline; single years are scored by its distributions if it has some."""

    baseline: Baseline

    @property
    def name(self) -> str:
        """The baseline's row in the tables."""
        return self.baseline.name

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Blocks of at most 256 persons."""
        if not isinstance(self.baseline, HasDistributions):
            yield from super().forecasts(
                past, origins, horizons=horizons, n_paths=n_paths, seed=seed
            )
            return
        for records, in_block in _blocks(past, origins):
            marginals = self.baseline.distributions(records, in_block)
            yield YearForecasts.of_marginals(marginals.at_horizons(horizons))

    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        """Blocks of at most 256 persons."""
        for records, in_block in _blocks(past, origins):
            yield self.baseline.simulate(
                records, in_block, to_horizon=to_horizon, n_paths=n_paths, seed=seed
            )


def _blocks(past: Panel, origins: Origins) -> Iterator[tuple[Panel, Origins]]:
    for start in range(0, len(origins), BLOCK):
        in_block = origins.take(slice(start, start + BLOCK))
        yield past.only(in_block.person_id.tolist()), in_block


@dataclass(frozen=True)
class Clairvoyant(SampledContestant):
    """The forecaster that knows a generated register's process and hidden states.

    Its score is a bound that other forecasters cannot attain. Raise `version` when the oracle may
    give other numbers for the same register.
    """

    version: ClassVar[int] = 1
    oracle: Oracle
    name: str = CLAIRVOYANT

    def paths(
        self, past: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Iterator[Paths]:
        """Blocks of the oracle, which sorts persons by id; `origins` are sorted likewise."""
        return self.oracle.blocks(past, origins, to_horizon=to_horizon, n_paths=n_paths, seed=seed)


@dataclass
class LazyContestant:
    """A contestant that is loaded or fitted only when its first forecast is needed.

    If its scores are stored, it is not built at all.

    Args:
        name: Its row in the tables.
        key: Digest of all inputs of its forecasts except the setting; None: unknown, so its scores
            are not reused.
        build: Loads or fits the contestant.
        only_setting: The only setting it takes part in; None: all.
        seconds: Time of `build`, 0 before it.
    """

    name: str
    key: str | None
    build: Callable[[], Contestant]
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
            start = time.perf_counter()
            self._contestant = self.build()
            self.seconds = time.perf_counter() - start
        return self._contestant

    @property
    def opened(self) -> Contestant | None:
        """The contestant if it has been built."""
        return self._contestant

    def close(self) -> None:
        """Release the built contestant; the next forecast builds it again."""
        self._contestant = None

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Forecasts of the contestant."""
        return self.open().forecasts(past, origins, horizons=horizons, n_paths=n_paths, seed=seed)
