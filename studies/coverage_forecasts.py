"""Persons and forecasts of the coverage study: persons by role, and raw forecasts in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saga.data.groups import Grouping
from saga.data.origins import Origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import assign_parts
from saga.distributions import Marginals
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.macro.scenarios import Scenario

Array = NDArray[np.float64]
YEARS = 10
_PART_PERSONS = 2_000


@dataclass(frozen=True, eq=False)
class Part:
    """Some persons: records up to the origin, raw marginals (n, YEARS), outcomes (n, YEARS)."""

    past: Panel
    marginals: Marginals
    outcomes: Array


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons with their groups at the origin, and outcomes (n, YEARS)."""

    person_id: NDArray[np.str_]
    groups: Mapping[str, NDArray[np.str_]]
    outcomes: Array

    @classmethod
    def of(cls, part: Part) -> Persons:
        """The persons of a part."""
        return cls(part.marginals.person_id, part.marginals.groups, part.outcomes)

    @classmethod
    def joined(cls, parts: Sequence[Persons]) -> Persons:
        """Consecutive blocks of persons as one."""
        names = parts[0].groups
        return cls(
            np.concatenate([part.person_id for part in parts]),
            {name: np.concatenate([part.groups[name] for part in parts]) for name in names},
            np.concatenate([part.outcomes for part in parts]),
        )


def persons_by_role(
    panel: Panel, trained_on: str | None, seed: int, n_persons: int | None
) -> dict[str, list[str]]:
    """Persons of the roles "cut" (cut-offs of groups), "calibration" and "test", in keyed order.

    "cut" are the bundle's training persons if it was trained on the panel, otherwise a tenth of it.
    """
    unseen, training = unseen_and_training(panel, trained_on, seed)
    tenth = 0 if training else len(unseen) // 10
    cut, rest = training or unseen[:tenth], unseen[tenth:]
    half = min(len(rest) // 2, n_persons or len(rest))
    return {"cut": cut, "calibration": rest[:half], "test": rest[-half:]}


def unseen_and_training(
    panel: Panel, trained_on: str | None, seed: int
) -> tuple[list[str], list[str]]:
    """Persons that the bundle has not seen, in keyed order, and its training persons."""
    ids = panel.persons()
    training: list[str] = []
    if panel.meta.panel_id == trained_on:
        parts = dict(zip(ids, assign_parts(trained_on, ids), strict=True))
        training = [person for person in ids if parts[person] == "train"]
        ids = [person for person in ids if parts[person] in ("calibration", "test")]
    return [ids[i] for i in np.argsort(uniform_each(ids, "coverage-side", seed))], training


def forecast_parts(
    forecaster: Forecaster,
    panel: Panel,
    ids: list[str],
    choose_origins: Callable[[Panel], Origins],
    grouping: Grouping,
    scenario: Scenario | None = None,
) -> Iterator[Part]:
    """Parts of at most 2,000 of the persons `ids`, labelled by `grouping` at their origins."""
    end = last_year(panel)
    for start in range(0, len(ids), _PART_PERSONS):
        persons = panel.only(ids[start : start + _PART_PERSONS])
        origins = choose_origins(persons)
        past = history(persons, origins)
        blocks = forecaster.marginals(past, scenario, recalibrate=False)
        raw = Marginals.joined([replace(block.first(YEARS), groups={}) for block in blocks])
        labels = grouping.labels(past, origins)
        outcomes = realised_earnings(persons, origins, range(1, YEARS + 1), end=end)
        yield Part(past, replace(raw, groups=labels), outcomes)
