"""Persons and forecasts of the coverage study: persons by role, and raw forecasts in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping
from saga.data.origins import Origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.macro.scenarios import Scenario

Array = NDArray[np.float64]
YEARS = 10
_BLOCK_PERSONS = 2_000


@dataclass(frozen=True, eq=False)
class ForecastBlock:
    """n persons: records up to the origin, raw marginals (n, YEARS), outcomes (n, YEARS).

    The groups of `marginals` are those of the study, `bundle_groups` those of the bundle's own
    calibration, whose cut-offs are its own.
    """

    past: Panel
    marginals: Marginals
    outcomes: Array
    bundle_groups: Mapping[str, NDArray[np.str_]]

    def shipped(self, calibrator: Calibrator) -> Marginals:
        """The marginals recalibrated by the bundle's own calibrator."""
        return calibrator.recalibrate(replace(self.marginals, groups=dict(self.bundle_groups)))


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons with their groups at the origin, and outcomes (n, YEARS)."""

    person_id: NDArray[np.str_]
    groups: Mapping[str, NDArray[np.str_]]
    outcomes: Array

    @classmethod
    def of(cls, block: ForecastBlock) -> Persons:
        """The persons of a block."""
        return cls(block.marginals.person_id, block.marginals.groups, block.outcomes)

    @classmethod
    def joined(cls, blocks: Sequence[Persons]) -> Persons:
        """Consecutive blocks of persons as one."""
        names = blocks[0].groups
        return cls(
            np.concatenate([block.person_id for block in blocks]),
            {name: np.concatenate([block.groups[name] for block in blocks]) for name in names},
            np.concatenate([block.outcomes for block in blocks]),
        )


def persons_by_role(
    panel: Panel, trained_on: str | None, seed: int, n_persons: int | None
) -> dict[str, list[str]]:
    """Persons of the roles "grouping", "calibration" and "test", in keyed order.

    The persons of "grouping" give the cut-offs between groups of earnings: the bundle's training
    persons if it was trained on the panel, otherwise a tenth of the panel. The order is that of
    random numbers keyed by person and seed.
    """
    if panel.meta.panel_id == trained_on:
        training = persons_of(panel, "train")
        everybody = [*persons_of(panel, "calibration"), *persons_of(panel, "test")]
    else:
        training, everybody = [], panel.persons()
    keys = uniform_each(everybody, "coverage-side", seed)
    unseen = [everybody[i] for i in np.argsort(keys)]
    tenth = 0 if training else len(unseen) // 10
    grouping, rest = training or unseen[:tenth], unseen[tenth:]
    half = min(len(rest) // 2, n_persons or len(rest))
    return {"grouping": grouping, "calibration": rest[:half], "test": rest[-half:]}


def forecast_blocks(
    forecaster: Forecaster,
    panel: Panel,
    ids: list[str],
    choose_origins: Callable[[Panel], Origins],
    grouping: Grouping,
    scenario: Scenario | None = None,
) -> Iterator[ForecastBlock]:
    """Blocks of at most 2,000 of the persons `ids`, labelled by `grouping` at their origins."""
    end = last_year(panel)
    for start in range(0, len(ids), _BLOCK_PERSONS):
        persons = panel.only(ids[start : start + _BLOCK_PERSONS])
        origins = choose_origins(persons)
        past = history(persons, origins)
        blocks = forecaster.marginals(past, scenario, recalibrate=False, n_horizons=YEARS)
        raw = Marginals.joined([block.first(YEARS) for block in blocks])
        labels = grouping.labels(past, origins)
        outcomes = realised_earnings(persons, origins, range(1, YEARS + 1), end=end)
        yield ForecastBlock(past, replace(raw, groups=labels), outcomes, raw.groups)
