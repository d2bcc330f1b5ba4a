"""Contestants on equal terms: recalibrated alike, and each part of a bundle alone.

A bundle is recalibrated, has conformal sets, and on panels without macro series trees beside its
network; a baseline has none of it. So a lead of the bundle may be that of its calibration or of
its trees. `Recalibrated` gives any contestant the maps and thresholds that `saga calibrate` fits,
on the same calibration persons; the raw contestant is a row of its own. `RawBundle` is a bundle's
network alone, or its trees alone. `studies.fair_contest` puts the same trees beside other networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from saga.calibration.fit.split_conformal import fit_calibration
from saga.evaluation.contestants import Contestant
from saga.evaluation.scoring.year_forecasts import YearForecasts

from saga.conformal.calibrator import Calibrator
from saga.data.origins import Origins, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.requests import COVERAGE, MAX_HORIZON
from saga.trees.mixture import WEIGHTS

Part = Literal["both", "network", "trees"]
RECALIBRATED = "+cal"  # marks the name of a recalibrated contestant


@dataclass(frozen=True)
class RawBundle:
    """A bundle without maps and thresholds: as a whole, its network alone or its trees alone."""

    forecaster: Forecaster
    name: str
    part: Part = "both"

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """Blocks of at most 256 persons, sorted by id, as `origins` are."""
        del origins, n_paths, seed
        for block in self._forecaster.marginals(past, recalibrate=False, n_horizons=horizons[-1]):
            yield YearForecasts.of_marginals(block.at_horizons(horizons))

    @cached_property
    def _forecaster(self) -> Forecaster:
        bundle = self.forecaster.bundle
        if self.part == "network":
            bundle = replace(bundle, trees=None)
        elif self.part == "trees":
            weights = dict.fromkeys(bundle.config[WEIGHTS], 1.0)
            bundle = replace(bundle, config={**bundle.config, WEIGHTS: weights})
        return Forecaster(bundle)


@dataclass
class Recalibrated:
    """A contestant with maps and sets of calibration persons whom it has not learnt from.

    Columns stand for horizons: there is a cell for each horizon of the contest.

    Args:
        contestant: The contestant, raw.
        people: The calibration persons, up to the last year that may be used.
        seed: Seed of their origins and of the division into map and threshold fold.
    """

    contestant: Contestant
    people: Panel
    seed: int

    @property
    def name(self) -> str:
        """The contestant's name, marked."""
        return f"{self.contestant.name}{RECALIBRATED}"

    def forecasts(
        self, past: Panel, origins: Origins, *, horizons: Sequence[int], n_paths: int, seed: int
    ) -> Iterator[YearForecasts]:
        """The contestant's forecasts after the maps, with conformal sets."""
        calibrator = self._fit(horizons, n_paths, seed)
        for marginals in _marginals(self.contestant, past, origins, horizons, n_paths, seed):
            mapped = calibrator.recalibrate(marginals)
            sets = calibrator.intervals(mapped, COVERAGE)
            yield YearForecasts(
                mapped.person_id, mapped, sets.lower, sets.upper, sets.includes_zero
            )

    def _fit(self, horizons: Sequence[int], n_paths: int, seed: int) -> Calibrator:
        end = last_year(self.people)
        origins = draw_origins(self.people, max_horizon=MAX_HORIZON, seed=self.seed, end=end)
        past = history(self.people, origins)
        raw = Marginals.joined(
            list(_marginals(self.contestant, past, origins, horizons, n_paths, seed))
        )
        outcomes = realised_earnings(self.people, origins, list(horizons), end=end)
        return fit_calibration(raw, outcomes, seed=self.seed)


def _marginals(
    contestant: Contestant,
    past: Panel,
    origins: Origins,
    horizons: Sequence[int],
    n_paths: int,
    seed: int,
) -> Iterator[Marginals]:
    """Raw marginals of a contestant, with persons and years, which those of samples lack."""
    done = 0
    blocks = contestant.forecasts(past, origins, horizons=horizons, n_paths=n_paths, seed=seed)
    born = dict(past.frame.select("person_id", "birth_year").unique("person_id").iter_rows())
    for block in blocks:
        rows = slice(done, done + len(block))
        persons = origins.person_id[rows]
        yield replace(
            block.marginals,
            person_id=persons,
            birth_year=np.array([born[person] for person in persons.tolist()], dtype=np.int64),
            origin_year=np.asarray(origins.year[rows]),
            groups={},
        )
        done += len(block)
