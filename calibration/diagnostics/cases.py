"""The persons judged, with their results, groups and calibrator: the input of every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.calibration.diagnostics.person_results import PersonResults, headline_coverage
from saga.calibration.diagnostics.verdicts import publishable

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.diagnostics_tables import QUESTIONS
from saga.keyed_random import uniform_each
from saga.requests import COVERAGE

Array = NDArray[Any]
Rows = list[dict[str, Any]]
# (Grouping, group) -> rows of its persons; None if there are too few to be shown.
Members = dict[tuple[str, str], Array | None]
# Probability of a false alarm: a verdict "watch" or "fails" in a report on a forecaster without
# fault. Each question gets an equal part, which is divided by the number of its figures.
ALPHA = 0.05
QUESTION_ALPHA = ALPHA / len(QUESTIONS)


@dataclass(frozen=True, eq=False)
class Cases:
    """Results of single persons by horizon, and the rows of each group at each horizon.

    `min_persons`: fewest persons behind a figure. `seed`: key of the simulated sampling bands.
    """

    results: Mapping[int, PersonResults]
    members: Mapping[int, Members]
    calibrator: Calibrator
    seed: int
    min_persons: int

    @classmethod
    def of(
        cls,
        results: Mapping[int, PersonResults],
        groups: pl.DataFrame | None,
        calibrator: Calibrator,
        *,
        seed: int,
        min_persons: int,
    ) -> Self:
        """`groups` has `person_id` and a text column for each grouping."""
        members = {h: _members(part.frame, groups, min_persons) for h, part in results.items()}
        return cls(results, members, calibrator, seed, min_persons)

    @property
    def coverage(self) -> tuple[float, ...]:
        """Stated coverages of the intervals."""
        return self.calibrator.coverage or COVERAGE

    @property
    def headline(self) -> float:
        """The coverage that is shown first: 90 %, or the highest."""
        return headline_coverage(self.coverage)

    def calibrated_on(self, horizon: int, grouping: str = ALL, group: str = ALL) -> int | None:
        """Number of calibration persons behind the threshold of a group; None without one."""
        cells = self.calibrator.cells
        group_cell, everybody = (cells.get((horizon, key)) for key in (f"{grouping}={group}", ALL))
        if group_cell is not None and group_cell.n_threshold:
            return group_cell.n_threshold
        if everybody is None or not everybody.n_threshold:
            return None
        rows = self.members[horizon].get((grouping, group))
        shifted = any(
            f"{grouping}={group}" in shift
            for (h, _), shift in self.calibrator.shifts.items()
            if h == horizon
        )
        if not shifted or rows is None:
            return everybody.n_threshold
        # The shift was fitted on the group's calibration persons. Their number is not stored:
        # the group's share is taken from the persons judged.
        return max(1, round(everybody.n_threshold * len(rows) / self.results[horizon].frame.height))

    def mapped_on(self, horizon: int) -> int | None:
        """Persons behind the recalibration map of a horizon; None without a map."""
        cell = self.calibrator.fitted.map_cell(horizon)
        return cell.n_map if cell else None

    def rng(self, *key: str | int) -> np.random.Generator:
        """Random numbers for a figure named by `key`, the same whatever else is computed."""
        position = uniform_each(["/".join(map(str, key))], "diagnostics", self.seed)[0]
        return np.random.default_rng(int(position * 2**53))


def _members(frame: pl.DataFrame, groups: pl.DataFrame | None, min_persons: int) -> Members:
    """Rows of everybody, then of every group of each grouping with at least two groups."""
    everybody = np.arange(frame.height)
    members: Members = {(ALL, ALL): everybody if frame.height >= min_persons else None}
    if groups is None:
        return members
    joined = frame.select("person_id").join(
        groups, on="person_id", how="left", maintain_order="left"
    )
    for grouping in (name for name in groups.columns if name != "person_id"):
        labels = np.array(joined[grouping].fill_null("").to_list(), dtype=np.str_)
        counts = {
            str(label): int(n)
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True)
        }
        names = sorted(label for label in counts if label)
        if len(names) < 2:
            continue  # there is no other group to compare it with
        shown = publishable(counts, min_persons)
        members |= {
            (grouping, label): np.flatnonzero(labels == label) if label in shown else None
            for label in names
        }
    return members
