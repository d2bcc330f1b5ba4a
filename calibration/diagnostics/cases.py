"""The judged persons with their groups and the calibrator that served them: what every table of the diagnostics is computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from calibration.diagnostics.person_results import Judged
from calibration.diagnostics.verdicts import QUESTIONS, publishable
from saga.conformal.calibrator import ALL, Calibrator
from saga.keyed_random import uniform_each
from saga.requests import COVERAGE

Array = NDArray[Any]
Rows = list[dict[str, Any]]
Cells = dict[
    tuple[str, str], Array | None
]  # (grouping, group) -> rows of its persons; None where too few are in it to be shown
ALPHA = 0.05  # probability that a forecaster without fault gets any light but green, over the whole report
SHARE = ALPHA / len(QUESTIONS)  # of it for one question, which shares it among its figures


@dataclass(frozen=True, eq=False)
class Cases:
    """Un-averaged results by horizon, the rows of each group at each horizon, and the fewest persons `min_cell` behind a figure."""

    judged: Mapping[int, Judged]
    cells: Mapping[int, Cells]
    calibrator: Calibrator
    seed: int
    min_cell: int

    @classmethod
    def of(
        cls,
        judged: Mapping[int, Judged],
        groups: pl.DataFrame | None,
        calibrator: Calibrator,
        *,
        seed: int,
        min_cell: int,
    ) -> Self:
        """`groups` has `person_id` and a text column a grouping."""
        return cls(
            judged,
            {h: _cells(one.frame, groups, min_cell) for h, one in judged.items()},
            calibrator,
            seed,
            min_cell,
        )

    @property
    def levels(self) -> tuple[float, ...]:
        """Coverage levels of the intervals."""
        return self.calibrator.coverage or COVERAGE

    def calibrated_on(self, horizon: int, grouping: str = ALL, group: str = ALL) -> int | None:
        """Persons behind the threshold that serves these persons: the luck of their draw is in the band."""
        own, everybody = (
            self.calibrator.cells.get((horizon, key)) for key in (f"{grouping}={group}", ALL)
        )
        if own is not None and own.n:
            return own.n
        if everybody is None or not everybody.n:
            return None
        rows = self.cells[horizon].get((grouping, group))
        shifted = any(
            f"{grouping}={group}" in shift
            for (h, _), shift in self.calibrator.shifts.items()
            if h == horizon
        )
        if not shifted or rows is None:
            return everybody.n
        # A shift of its own was fitted on the group's calibration persons: about the same share of all as here.
        return max(1, round(everybody.n * len(rows) / self.judged[horizon].frame.height))

    def mapped_on(self, horizon: int) -> int | None:
        """Persons behind the recalibration map of a horizon; None where there is none."""
        cell = self.calibrator.map_cell(horizon)
        return cell.map_n if cell else None

    def rng(self, *key: str | int) -> np.random.Generator:
        """The stream of chance that a figure is held against, named by `key`: the same whatever else is computed."""
        place = uniform_each(["/".join(map(str, key))], "diagnostics", self.seed)[0]
        return np.random.default_rng(int(place * 2**53))


def _cells(frame: pl.DataFrame, groups: pl.DataFrame | None, min_cell: int) -> Cells:
    """Everybody first, then every group of every grouping."""
    everybody = np.arange(frame.height)
    cells: Cells = {(ALL, ALL): everybody if frame.height >= min_cell else None}
    if groups is None:
        return cells
    joined = frame.select("person_id").join(
        groups, on="person_id", how="left", maintain_order="left"
    )
    for grouping in (name for name in groups.columns if name != "person_id"):
        labels = np.array(joined[grouping].fill_null("").to_list(), dtype=np.str_)
        counts = {
            str(label): int(n)
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True)
        }
        named = sorted(label for label in counts if label)
        if len(named) < 2:
            continue  # the same persons as everybody
        shown = publishable(counts, min_cell)
        cells |= {
            (grouping, label): np.flatnonzero(labels == label) if label in shown else None
            for label in named
        }
    return cells
