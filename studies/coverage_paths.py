"""Persons and paths of the coverage study: persons by role, and simulated paths on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saga.data.groups import Grouping
from saga.data.origins import Origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import assign_parts
from saga.files.atomic import commit, commit_json, read_json
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.paths import Paths
from saga.requests import Draws

Array = NDArray[np.float64]
YEARS = 10
_PART_PERSONS, _BLOCK_PERSONS = 10_000, 4_000
_GROUP = "group_"  # prefix of the arrays of groups


@dataclass(frozen=True)
class Sample:
    """Raw paths of persons with their groups, and their outcomes (n, YEARS)."""

    paths: Paths
    outcomes: Array

    def blocks(self) -> Iterator[tuple[slice, Paths, Array]]:
        """Rows, raw paths and outcomes of a few thousand persons at a time."""
        for start in range(0, len(self.paths), _BLOCK_PERSONS):
            rows = slice(start, start + _BLOCK_PERSONS)
            yield rows, self.paths.take(rows), self.outcomes[rows]


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


def open_folder(folder: Path, about: dict[str, object]) -> None:
    """Make the folder of this run's paths; exit if it has those of another run."""
    folder.mkdir(parents=True, exist_ok=True)
    earlier = read_json(folder / "run.json")
    if earlier not in (None, about):
        differing = ", ".join(name for name, value in about.items() if earlier.get(name) != value)
        sys.exit(
            f"{folder} has the paths of another run: {differing} differ. Give the arguments of "
            "that run, or another --out."
        )
    commit_json(folder / "run.json", about)


def simulate_sample(
    forecaster: Forecaster,
    panel: Panel,
    ids: list[str],
    choose_origins: Callable[[Panel], Origins],
    *,
    grouping: Grouping,
    folder: Path,
    draws: Draws,
) -> Sample:
    """Raw paths of these persons; parts that are already in the folder are read.

    Args:
        forecaster: simulates the paths.
        panel: records of the persons.
        ids: persons, in the order of the result.
        choose_origins: gives the origins of a part of the persons.
        grouping: labels the persons at their origins.
        folder: directory of the parts.
        draws: number of paths, seed and scenario.
    """
    end = last_year(panel)
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(ids), _PART_PERSONS):
        file = folder / f"{start:07d}.npz"
        if not file.exists():
            persons = panel.only(ids[start : start + _PART_PERSONS])
            origins = choose_origins(persons)
            past = history(persons, origins)
            paths = forecaster.simulate(past, draws, to_horizon=YEARS, recalibrate=False)
            labels = grouping.labels(past, origins)
            arrays: dict[str, NDArray[np.generic]] = {
                "person_id": paths.person_id,
                "birth_year": paths.birth_year,
                "origin_year": paths.origin_year,
                "earnings": paths.earnings,
                "outcomes": realised_earnings(persons, origins, range(1, YEARS + 1), end=end),
                **{_GROUP + name: values for name, values in labels.items()},
            }
            _write_arrays(file, arrays)
        parts.append(dict(np.load(file)))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    groups = {
        name.removeprefix(_GROUP): values
        for name, values in joined.items()
        if name.startswith(_GROUP)
    }
    paths = Paths(
        joined["person_id"],
        joined["birth_year"],
        joined["origin_year"],
        joined["earnings"],
        groups,
        conditioned=draws.scenario is not None,
    )
    return Sample(paths, joined["outcomes"])


def _write_arrays(file: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    def write(part: Path) -> None:
        with part.open("wb") as handle:  # given a name, numpy would append a suffix
            np.savez(handle, **arrays)  # type: ignore[arg-type]  # numpy's stub lacks the arrays

    commit(file, write)
