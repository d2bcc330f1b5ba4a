"""Which of the fitted cells, maps and thresholds apply at a horizon, for a group of persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibration_table import ALL
from saga.conformal.families.set_family import SetFamily
from saga.conformal.families.year import YEAR
from saga.conformal.intervals import Guarantee, guarantee_of
from saga.conformal.recalibration import Cell
from saga.conformal.shifted_thresholds import CellThresholds, is_shifted, number_labels
from saga.person_forecasts import PersonForecasts

Array = NDArray[np.float64]
# Groupings whose groups may have cells; the first one that has a cell for the person is used.
MONDRIAN = ("profile", "quintile")


@dataclass(frozen=True, eq=False)
class FittedCells:
    """Cells by horizon and group, with the rules for horizons and groups that have none.

    The arguments are those of `saga.conformal.calibration_table.Calibration`; `family` is that of
    the sets of a year.
    """

    cells: Mapping[tuple[int, str], Cell]
    shifts: Mapping[tuple[int, float], Mapping[str, float]]
    family: SetFamily = YEAR
    extrapolated: bool = False

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """The coverages for which thresholds were fitted, ascending."""
        return tuple(sorted({share for cell in self.cells.values() for share in cell.thresholds}))

    @cached_property
    def horizons(self) -> list[int]:
        """The horizons with cells of all persons, ascending."""
        return sorted(h for h, group in self.cells if group == ALL)

    def guarantee_at(self, horizon: int, coverage: float) -> Guarantee:
        """The guarantee of the sets of a year for all persons."""
        return self.cell_threshold(horizon, coverage)[1]

    def map_cell(self, horizon: int, *groups: str) -> Cell | None:
        """The cell whose map applies at a horizon, or None.

        It is the cell of the first of `groups` (default ALL) that has a map, at the horizon or else
        at the nearest shorter one.
        """
        for h in range(horizon, 0, -1):
            for group in groups or (ALL,):
                cell = self.cells.get((h, group))
                if cell is not None and cell.has_map:
                    return cell
        return None

    def cell_threshold(
        self, horizon: int, coverage: float, groups: Sequence[str] = (ALL,)
    ) -> tuple[float | None, Guarantee, tuple[int, str] | None]:
        """The threshold at a horizon, its guarantee, and the key of its cell.

        The cell is that of the first of `groups` with a threshold. Beyond the horizons with
        outcomes, the longest shorter horizon is used and the guarantee is "extrapolated". From the
        first horizon with too few outcomes on there is no threshold: a longer horizon never has a
        stronger guarantee than a shorter one with outcomes.
        """
        if horizon >= self._first_small_horizon.get(coverage, np.inf):
            return None, "none", None
        shortest = 0 if self.family.extrapolates else horizon - 1
        for h in range(horizon, shortest, -1):
            for group in groups:
                cell = self.cells.get((h, group))
                q = None if cell is None else cell.thresholds.get(coverage)
                if q is not None:
                    return q, guarantee_of(h == horizon, self.extrapolated), (h, group)
        return None, "none", None

    @cached_property
    def _first_small_horizon(self) -> dict[float, int]:
        """Coverage -> first horizon that has outcomes, but too few for a threshold."""
        small = [
            (h, share)
            for (h, group), cell in sorted(self.cells.items())
            if group == ALL
            for share, q in cell.thresholds.items()
            if not self.family.is_finite(q)
        ]
        return {share: h for h, share in reversed(small)}

    def threshold_group(self, horizon: int, groups: Sequence[str]) -> str | None:
        """The first of `groups` with a threshold at a horizon: outcomes move its cell."""
        for group in groups:
            cell = self.cells.get((horizon, group))
            if cell is not None and any(q is not None for q in cell.thresholds.values()):
                return group
        return None

    def moved_cell(self, horizon: int, groups: Sequence[str]) -> tuple[int, str] | None:
        """The horizon and group of the cell whose move applies at a horizon."""
        for h in range(horizon, 0, -1):
            group = self.threshold_group(h, groups)
            if group is not None:
                return h, group
        return None

    def cell_thresholds(self, horizons: tuple[int, ...], groups: tuple[str, ...]) -> CellThresholds:
        """The thresholds of persons of `groups`, found once and then stored."""
        if (horizons, groups) not in self._known_thresholds:
            self._known_thresholds[horizons, groups] = self._find_thresholds(horizons, groups)
        return self._known_thresholds[horizons, groups]

    @cached_property
    def _known_thresholds(self) -> dict[tuple[tuple[int, ...], tuple[str, ...]], CellThresholds]:
        return {}

    def _find_thresholds(self, horizons: Sequence[int], groups: Sequence[str]) -> CellThresholds:
        """The thresholds of `cell_threshold` for all horizons and coverages.

        If a coverage has no threshold, higher ones have none either, because sets are nested.
        """
        shape = (len(horizons), len(self.coverage))
        q, guarantees = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cells, effects = np.full(shape[0], "", dtype="<U40"), dict[str, Array]()
        for i, horizon in enumerate(horizons):
            for j, share in enumerate(self.coverage):
                threshold, guarantee, key = self.cell_threshold(horizon, share, groups)
                if threshold is None or key is None:
                    break
                q[i, j], guarantees[i, j], cells[i] = threshold, guarantee, key[1]
                of_group = self.shifts.get((key[0], share), {}) if is_shifted(key[1]) else {}
                for group, effect in of_group.items():
                    effects.setdefault(group, np.zeros(shape))[i, j] = effect
        return CellThresholds(q, guarantees, cells, effects)

    def candidate_cells(
        self, forecasts: PersonForecasts
    ) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Groups whose cells may apply, the preferred one first, with the rows of their persons."""
        names = [name for name in MONDRIAN if name in forecasts.groups] if self._is_grouped else []
        if not names or not len(forecasts):
            return [((ALL,), np.arange(len(forecasts)))]
        labels = list(zip(*(forecasts.groups[name].tolist() for name in names), strict=True))
        distinct, index = number_labels(labels)
        return [
            (
                (*(f"{name}={label}" for name, label in zip(names, of_person, strict=True)), ALL),
                np.flatnonzero(index == i),
            )
            for i, of_person in enumerate(distinct)
        ]

    @cached_property
    def _is_grouped(self) -> bool:
        """Whether there are cells of groups."""
        return {group for _, group in self.cells} != {ALL}
