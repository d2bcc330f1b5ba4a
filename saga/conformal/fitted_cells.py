"""Which of the fitted cells, maps and thresholds apply at a horizon, for a group of persons."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibration_table import ALL, SET, Calibration, ThresholdKind
from saga.conformal.cross_fitted import FoldCounts
from saga.conformal.intervals import Guarantee
from saga.conformal.recalibration import Cell
from saga.conformal.shifted_thresholds import CellThresholds, is_shifted, number_labels
from saga.errors import Problem, UsageError
from saga.person_forecasts import PersonForecasts

Array = NDArray[np.float64]
# Groupings whose groups may have cells; the first one that has a cell for the person is used.
MONDRIAN = ("profile", "quintile")


def is_finite(q: float | None) -> TypeGuard[float]:
    """Whether a threshold has a finite set."""
    return q is not None and q < 1


class FittedCells(Calibration):
    """A calibration with its rules for horizons and groups that have no cell of their own."""

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """The coverages for which thresholds were fitted, ascending."""
        fitted = {share for cell in self.cells.values() for share in cell.thresholds}
        fitted |= {share for kind, _, share in self.fold_counts if kind == SET}
        return tuple(sorted(fitted))

    @property
    def has_sets(self) -> bool:
        """Whether there are thresholds of nested sets, as ledgers and path bands need."""
        return self.method == "sets" and bool(self.coverage)

    @property
    def has_present_values(self) -> bool:
        """Whether there are thresholds of present values."""
        return any(kind == "present_value" for kind, _ in self.thresholds_of_kind)

    @property
    def value_paths(self) -> int:
        """Number of paths of the present values that thresholds were fitted on."""
        kinds = self.thresholds_of_kind.items()
        return max((k.n_paths or 0 for (kind, _), k in kinds if kind == "present_value"), default=0)

    @property
    def furthest_horizons(self) -> dict[float, int]:
        """Coverage -> furthest horizon whose guarantee is "assumption"; 0 without one."""
        furthest = dict.fromkeys(self.coverage, 0)
        if self.method == "cv+":
            for _, h, coverage in sorted(key for key in self.fold_counts if key[0] == SET):
                if self.counts_at(SET, h, coverage)[1] == "assumption":
                    furthest[coverage] = h
        for h in sorted(h for h, group in self.cells if group == ALL):
            for coverage in self.coverage:
                if self.cell_threshold(h, coverage)[1] == "assumption":
                    furthest[coverage] = h
        return furthest

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
        for h in range(horizon, 0, -1):
            for group in groups:
                cell = self.cells.get((h, group))
                q = None if cell is None else cell.thresholds.get(coverage)
                if q is not None:
                    return q, self.guarantee(h == horizon), (h, group)
        return None, "none", None

    @cached_property
    def _first_small_horizon(self) -> dict[float, int]:
        """Coverage -> first horizon that has outcomes, but too few for a threshold."""
        small = [
            (h, share)
            for (h, group), cell in sorted(self.cells.items())
            if group == ALL
            for share, q in cell.thresholds.items()
            if q is None or (self.method == "sets" and not is_finite(q))
        ]
        return {share: h for h, share in reversed(small)}

    def guarantee(self, observed: bool) -> Guarantee:
        """The guarantee of a threshold whose horizon has observed outcomes, or has not."""
        return "assumption" if observed and not self.extrapolated else "extrapolated"

    def counts_at(
        self, kind: str, horizon: int, coverage: float
    ) -> tuple[FoldCounts | None, Guarantee]:
        """The fold counts for a set at a horizon (or number of years), and its guarantee.

        The rules are those of `cell_threshold`.
        """
        share = coverage if kind == SET else 0.0
        fitted = [
            (h, counts)
            for (fitted_kind, h, fitted_share), counts in sorted(self.fold_counts.items())
            if (fitted_kind, fitted_share) == (kind, share) and h <= horizon
        ]
        if not fitted or not all(counts.has_sets(coverage) for _, counts in fitted):
            return None, "none"
        h, counts = fitted[-1]
        return counts, self.guarantee(h == horizon)

    def nested_thresholds(self, kind: ThresholdKind, horizon: int) -> tuple[Array, list[Guarantee]]:
        """Thresholds (L,) of one kind for all coverages, not decreasing, and their guarantees.

        `horizon` is a number of years for path bands and present values. Guarantees are those of
        `cell_threshold`, but a present value with too few outcomes is extrapolated, because there
        is no other interval for it.
        """
        q, guarantees = np.full(len(self.coverage), np.nan), list[Guarantee]()
        fitted = [
            (h, at_horizon.thresholds)
            for (fitted_kind, h), at_horizon in sorted(self.thresholds_of_kind.items())
            if fitted_kind == kind and h <= horizon
        ]
        highest = -np.inf
        for j, coverage in enumerate(self.coverage):
            by_horizon = [(h, thresholds.get(coverage)) for h, thresholds in fitted]
            finite = [(h, threshold) for h, threshold in by_horizon if is_finite(threshold)]
            has_all = len(finite) == len(by_horizon)
            if finite and (has_all or kind == "present_value"):
                last, threshold = finite[-1]
                q[j] = highest = max(highest, threshold)
                guarantees.append(self.guarantee(last == horizon and has_all))
            else:
                guarantees.append("none")
        return q, guarantees

    def coverage_columns(self, coverage: Sequence[float]) -> list[int]:
        """Index of each of `coverage` among the fitted ones; empty without calibration.

        Raises UsageError if no threshold was fitted for one of them.
        """
        unknown = [share for share in coverage if self.coverage and share not in self.coverage]
        if unknown:
            fix = "Use one of " + ", ".join(f"{share:g}" for share in self.coverage) + "."
            problem = f"coverage {unknown[0]:g} was not calibrated"
            raise UsageError(
                "no threshold for this coverage",
                [Problem("coverage-level", problem, fix, "coverage")],
            )
        return [self.coverage.index(share) for share in coverage if self.coverage]

    def threshold_group(self, horizon: int, groups: Sequence[str]) -> str | None:
        """The first of `groups` with a threshold at a horizon: outcomes move its cell."""
        for group in groups:
            cell = self.cells.get((horizon, group))
            if cell is not None and any(q is not None for q in cell.thresholds.values()):
                return group
        return None

    def move(self, horizon: int, groups: Sequence[str]) -> tuple[Array, Array] | None:
        """Knots and values of the map by which outcomes have moved the cell of `moved_cell`.

        None if nothing has moved it.
        """
        cell = self.moved_cell(horizon, groups)
        return None if cell is None else self.moves.get(cell)

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
