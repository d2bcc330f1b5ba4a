"""The calibrator: recalibrates simulated paths and gives their prediction sets.

`calibration` fits it. Two steps apply at each horizon, both in probability space. First, the map R
of the person's cell, fitted on the persons of the map fold, replaces the forecast F by R(F). Every
path keeps its rank (ensemble copula coupling: Schefzik, Thorarinsdottir and Gneiting 2013), so the
dependence between years does not change. Second, a threshold, fitted on the persons of the
threshold fold, chooses from a nested family of sets (`saga.conformal.prediction_sets`) the one that
has the stated coverage. A person's cell is that of the profile or else of the quintile of earnings,
or that of all persons if these have too few. Groups, which may overlap, shift its threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibration_table import ALL, Calibration, ThresholdKind
from saga.conformal.prediction_sets import grow
from saga.conformal.quantile_intervals import conformalised_intervals
from saga.conformal.recalibration import Cell, map_ordered
from saga.data.groups import Labels, pair_groupings
from saga.errors import Problem, UsageError
from saga.paths import Paths
from saga.scores import covered

Array = NDArray[np.float64]
# For each grouping: its name, its labels, and the index (n,) of each person's label.
Members = list[tuple[str, list[str], NDArray[np.int64]]]
Guarantee = Literal["finite-sample", "assumption", "extrapolated", "none"]

# Groupings whose groups may have cells; the first one that has a cell for the person is used.
MONDRIAN = ("profile", "quintile")
# With fewer persons, rounding makes a threshold noticeably larger. The report warns of this,
# and groups have no cells.
MIN_CELL_PERSONS = 1_000

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: these persons were drawn like the calibration "
    "persons, in the same years.",
    "assumption": "Holds if this person is exchangeable with the calibration persons and "
    "conditions have not changed since then.",
    "extrapolated": "Not guaranteed: no outcome was observed this far ahead, or none for paths "
    "simulated in this way (another rollout, a scenario). The nearest threshold is used.",
    "none": "No interval: there are too few calibration persons or too few paths, the person is "
    "past age 64, or the calibration method has no interval of this kind.",
}


def is_shifted(cell: str) -> bool:
    """Whether groups shift the threshold of a cell.

    Not if the cell is a profile: such records lack the columns that define most groups.
    """
    return not cell.startswith("profile=")


def reason(guarantee: str, cell: str = ALL) -> str:
    """What stands behind an interval with this `guarantee`, calibrated on persons of `cell`."""
    if cell in ("", ALL) or guarantee == "none":
        return REASONS[guarantee]
    return f"{REASONS[guarantee]} Calibrated on persons with {cell.replace('=', ' ')}."


@dataclass(frozen=True, eq=False)
class Intervals:
    """Prediction sets: [lower, upper] of positive amounts, and {0} if `includes_zero`.

    Arrays (n, H, L) in real SEK, one L per `coverage`. `lower` and `upper` are NaN if `guarantee`
    is "none", and 0 if the set is {0} alone. `cell` (n, H) names the persons whose outcomes were
    used: "all", a group such as "quintile=2", or "" without interval.
    """

    coverage: tuple[float, ...]
    lower: Array
    upper: Array
    includes_zero: NDArray[np.bool_]
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]

    def covered(self, outcomes: Array) -> Array:
        """Whether each outcome (n, H) is in its set, 1 or 0 (n, H, L); NaN if either is missing."""
        return covered(outcomes[:, :, None], self.lower, self.upper, self.includes_zero)


@dataclass(frozen=True, eq=False)
class PersonThresholds:
    """Thresholds of persons at one horizon.

    `q` (n, L) is for the calibrator's coverage and does not decrease with it, NaN without
    threshold; `guarantee` (n, L); `cell` (n,) is the cell's name; `atom_width` (n,) is explained in
    `saga.conformal.prediction_sets`.
    """

    q: Array
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]
    atom_width: Array


class Calibrator(Calibration):
    """Applies a calibration to simulated paths."""

    @classmethod
    def identity(cls) -> Calibrator:
        """A calibrator that does not change paths and gives no intervals."""
        return cls({})

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """Coverage for which thresholds were fitted, ascending."""
        return tuple(
            sorted({share for cell in self.cells.values() for _, share in cell.thresholds})
        )

    @cached_property
    def path_counts(self) -> tuple[int, ...]:
        """Numbers of paths for which thresholds were fitted, ascending."""
        return tuple(sorted({m for cell in self.cells.values() for m, _ in cell.thresholds}))

    @property
    def has_sets(self) -> bool:
        """Whether there are thresholds of nested sets, as ledgers and path bands need."""
        return self.method == "sets" and bool(self.coverage)

    @property
    def furthest_horizons(self) -> dict[float, int]:
        """Coverage -> furthest horizon with a threshold fitted on all persons; 0 without one."""
        furthest = dict.fromkeys(self.coverage, 0)
        for (h, group), cell in self.cells.items():
            for (_, coverage), q in cell.thresholds.items():
                if group == ALL and q is not None:
                    furthest[coverage] = max(furthest[coverage], h)
        return furthest

    def fitted_path_count(self, n_paths: int) -> int | None:
        """The fitted number of paths used for `n_paths`: the largest that is not above it.

        Fewer paths make noisier sets, which need a larger q. Coverage is therefore at least as
        stated. With fewer paths than the smallest fitted number there is no threshold: None.
        """
        return max((fitted for fitted in self.path_counts if fitted <= n_paths), default=None)

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
        self, horizon: int, coverage: float, n_paths: int, groups: Sequence[str] = (ALL,)
    ) -> tuple[float | None, Guarantee, tuple[int, str] | None]:
        """The threshold for sets from `n_paths` paths, its guarantee, and the key of its cell.

        The cell is that of the first of `groups` with a threshold. A horizon with too few outcomes
        has none. At a horizon without any outcome, the longest shorter one with a threshold is
        used, and the guarantee is "extrapolated".
        """
        fitted = self.fitted_path_count(n_paths)
        if fitted is None:
            return None, "none", None
        for h in range(horizon, 0, -1):
            keys = [
                (h, group)
                for group in groups
                if (h, group) in self.cells and self.cells[h, group].n_threshold > 0
            ]
            for key in keys:
                q = self.cells[key].thresholds.get((fitted, coverage))
                if q is not None:
                    return q, self._guarantee(h == horizon), key
            if keys and h == horizon:
                return None, "none", None
        return None, "none", None

    def _guarantee(self, observed: bool) -> Guarantee:
        return "assumption" if observed and not self.extrapolated else "extrapolated"

    def candidate_cells(self, paths: Paths) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Row numbers of persons by the groups whose cells may apply, the preferred one first."""
        grouped = {group for _, group in self.cells} != {ALL}
        names = [name for name in MONDRIAN if name in paths.groups] if grouped else []
        if not names or not len(paths):
            return [((ALL,), np.arange(len(paths)))]
        combinations, index = np.unique(
            np.stack([paths.groups[name] for name in names], axis=1), axis=0, return_inverse=True
        )
        return [
            (
                (*(f"{name}={label}" for name, label in zip(names, labels, strict=True)), ALL),
                np.flatnonzero(index.ravel() == i),
            )
            for i, labels in enumerate(combinations.tolist())
        ]

    def person_thresholds(self, paths: Paths, horizon: int) -> PersonThresholds:
        """Each person's threshold at `horizon`: that of the cell plus the shifts of the groups.

        Raises UsageError if the calibration has no nested sets.
        """
        if self.method != "sets":
            problem = Problem(
                "calibration-method",
                f"its method is {self.method}",
                "Calibrate the bundle with `saga calibrate --method sets`.",
            )
            raise UsageError("The bundle's calibration has no nested sets", [problem])
        shape = (len(paths), len(self.coverage))
        q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cell, width = np.full(len(paths), "", dtype=object), np.full(len(paths), np.nan)
        for groups, rows in self.candidate_cells(paths):
            highest, members = np.full(len(rows), -np.inf), members_of(paths.groups, rows)
            for j, coverage in enumerate(self.coverage):
                cell_q, cell_guarantee, key = self.cell_threshold(
                    horizon, coverage, paths.n_paths, groups
                )
                if cell_q is None or key is None:
                    continue
                shift = self.shift(members, key[0], coverage) if is_shifted(key[1]) else 0.0
                highest = np.maximum(highest, cell_q + shift)
                q[rows, j], guarantee[rows, j] = highest, cell_guarantee
                cell[rows], width[rows] = key[1], self.cells[key].atom_width
        return PersonThresholds(q, guarantee, cell.astype(np.str_), width)

    def shift(self, members: Members, horizon: int, coverage: float) -> Array | float:
        """Sum of the shifts of the groups of some persons, one number each; 0 without shifts."""
        effects = self.shifts.get((horizon, coverage), {})
        total: Array | float = 0.0
        for name, labels, index in members if effects else ():
            by_label = np.array([effects.get(f"{name}={label}", 0.0) for label in labels])
            total = total + by_label[index]
        return total

    def nested_thresholds(
        self, kind: ThresholdKind, horizon: int, n_paths: int
    ) -> tuple[Array, list[Guarantee]]:
        """Thresholds (L,) of one kind for every coverage, not decreasing, and their guarantees.

        `horizon` is a number of years for path bands and present values. A horizon with too few
        outcomes has no threshold, except for present values: theirs are then extrapolated, because
        there is no other interval.
        """
        q, guarantees = np.full(len(self.coverage), np.nan), list[Guarantee]()
        highest, fitted = -np.inf, self.fitted_path_count(n_paths)
        for j, coverage in enumerate(self.coverage):
            guarantee: Guarantee = "none"
            for h in range(horizon, 0, -1):
                at_horizon = self.thresholds_of_kind.get((kind, h))
                if at_horizon is None:
                    continue
                threshold = (
                    None if fitted is None else at_horizon.thresholds.get((fitted, coverage))
                )
                if threshold is not None:
                    q[j] = highest = max(highest, threshold)
                    guarantee = self._guarantee(h == horizon)
                    break
                if at_horizon.n > 0 and h == horizon and kind != "present_value":
                    break
            guarantees.append(guarantee)
        return q, guarantees

    def coverage_columns(self, coverage: Sequence[float]) -> list[int | None]:
        """Index of each of `coverage` among the fitted ones; all None without calibration.

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
        return [self.coverage.index(share) if self.coverage else None for share in coverage]

    def recalibrate(self, paths: Paths) -> Paths:
        """The paths under the recalibrated forecasts; every path keeps its rank.

        Zeros are ranked by the path's total earnings, then by its number. The result is
        deterministic and, bit for bit, independent of the other persons.
        """
        paths.require_raw()
        if not any(cell.has_map for cell in self.cells.values()):
            return replace(paths, recalibrated=True)
        total = np.zeros((len(paths), paths.n_paths))
        for h in range(paths.n_horizons):
            total += np.nan_to_num(paths.earnings[:, h])
        by_total = np.argsort(total, axis=1, kind="stable")
        result = paths.earnings.copy()
        for h in range(paths.n_horizons):
            values = np.take_along_axis(paths.earnings[:, h], by_total, axis=1)
            order = np.argsort(values, axis=1, kind="stable")
            mapped = self.map_samples(paths, h + 1, np.take_along_axis(values, order, axis=1))
            np.put_along_axis(
                result[:, h], np.take_along_axis(by_total, order, axis=1), mapped, axis=1
            )
        return replace(paths, earnings=result, recalibrated=True)

    def map_samples(
        self, paths: Paths, horizon: int, ordered: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Sorted samples (n, M) at `horizon` after the maps of the persons' cells, sorted."""
        mapped = ordered.copy()
        for groups, rows in self.candidate_cells(paths):
            cell = self.map_cell(horizon, *groups)
            if cell is not None:
                mapped[rows] = map_ordered(ordered[rows], cell)
        return mapped

    def intervals(self, paths: Paths, coverage: Sequence[float]) -> Intervals:
        """Prediction sets of recalibrated `paths` for each of `coverage`, nested.

        Raises UsageError if no threshold was fitted for one of them. Without calibration every
        guarantee is "none".
        """
        paths.require_recalibrated()
        columns = self.coverage_columns(coverage)
        if self.method == "cqr":
            return self._quantile_intervals(paths, coverage)
        shape = (len(paths), paths.n_horizons, len(coverage))
        lower, upper = np.full(shape, np.nan), np.full(shape, np.nan)
        zero, guarantee = np.zeros(shape, dtype=np.bool_), np.full(shape, "none", dtype="<U13")
        cell = np.full(shape[:2], "", dtype=object)
        for h in range(paths.n_horizons if self.coverage else 0):
            thresholds = self.person_thresholds(paths, h + 1)
            in_range = ~np.isnan(paths.earnings[:, h]).any(axis=1)
            rows = np.flatnonzero(in_range & ~np.isnan(thresholds.atom_width))
            if not len(rows):
                continue
            growth = grow(np.sort(paths.earnings[rows, h], axis=1), self.scale)
            sets = growth.with_atom(thresholds.atom_width[rows])
            cell[rows, h] = thresholds.cell[rows]
            for index, column in enumerate(columns):
                q = thresholds.q[rows, column]
                has_threshold = ~np.isnan(q)
                for values, end in zip((lower, upper, zero), sets.set_at(q), strict=True):
                    values[rows[has_threshold], h, index] = end[has_threshold]
                guarantee[rows, h, index] = thresholds.guarantee[rows, column]
        return Intervals(tuple(coverage), lower, upper, zero, guarantee, cell.astype(np.str_))

    def _quantile_intervals(self, paths: Paths, coverage: Sequence[float]) -> Intervals:
        fitted = self.fitted_path_count(paths.n_paths)
        lower, upper = np.full((2, len(paths), paths.n_horizons, len(coverage)), np.nan)
        for h in range(paths.n_horizons):
            cell = self.cells.get((h + 1, ALL))
            rows = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
            if cell is None or fitted is None or not len(rows):
                continue
            q = np.array([cell.thresholds[fitted, share] for share in self.coverage], np.float64)
            ends = conformalised_intervals(paths.earnings[rows, h], q, self.coverage)
            for index, share in enumerate(coverage):
                j = self.coverage.index(share)
                if not np.isnan(q[j]):
                    lower[rows, h, index], upper[rows, h, index] = (end[:, j] for end in ends)
        has_interval = ~np.isnan(lower)
        guarantee = np.where(has_interval, self._guarantee(True), "none").astype("<U13")
        cells = np.where(has_interval.any(axis=2), ALL, "").astype(np.str_)
        zero = has_interval & (lower <= 0)
        return Intervals(tuple(coverage), lower, upper, zero, guarantee, cells)


def members_of(groups: Labels, rows: NDArray[np.int64]) -> Members:
    """Groupings and their pairs, the distinct labels in `rows`, and each row's label index."""
    labels_by_grouping = pair_groupings({name: labels[rows] for name, labels in groups.items()})
    members = []
    for name, labels in labels_by_grouping.items():
        distinct, index = np.unique(labels, return_inverse=True)
        members.append((name, distinct.tolist(), index))
    return members
