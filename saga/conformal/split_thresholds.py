"""Thresholds from the scores of one fold: which of them apply to a person, and the sets they give.

The sets of a year have thresholds by horizon and cell, shifted for the groups of the person, which
may overlap. All other families have one threshold per horizon for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.families.set_family import KindThresholds, SetFamily
from saga.conformal.families.year import YEAR
from saga.conformal.intervals import Intervals, latest
from saga.conformal.recalibration import Cell
from saga.data.groups import Labels, pair_groupings
from saga.distributions import Marginals
from saga.person_forecasts import PersonForecasts
from saga.training_records import Guarantee

Words = NDArray[np.str_]
_Fitted = list[tuple[int, str | None, int]]
_OfGroups = tuple[Floats, Words, Words, dict[str, Floats]]
Label = TypeVar("Label", str, tuple[str, ...])
# Which groups n persons belong to: the names of all groups, such as "sex=female"; and one array
# (n,) per grouping, the position of each person's group among the names.
Members = tuple[list[str], list[NDArray[np.int64]]]
# Groupings whose groups may have cells; the first one that has a cell for the person is used.
MONDRIAN = ("profile", "quintile")
# Shifts raise no threshold above it, because a threshold above 1 would give an unbounded set.
MAX_SHIFTED = 0.999


@dataclass(frozen=True, eq=False)
class SplitThresholds:
    """Cells by horizon and group, with the rules for horizons and groups that have none.

    The arguments are those of `saga.conformal.calibrator.Calibrator`; `year` is the family of the
    sets of a year.
    """

    cells: Mapping[tuple[int, str], Cell]
    shifts: Mapping[tuple[int, float], Mapping[str, float]]
    thresholds_of_kind: Mapping[tuple[str, int], KindThresholds] = field(default_factory=dict)
    origin_years: Mapping[tuple[int, str], int] = field(default_factory=dict)
    year: SetFamily = YEAR
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
                if cell is not None and len(cell.knots):
                    return cell
        return None

    def cell_threshold(
        self, horizon: int, coverage: float, groups: Sequence[str] = (ALL,)
    ) -> tuple[float | None, Guarantee, tuple[int, str] | None]:
        """The threshold of the sets of a year at a horizon, its guarantee, and its cell's key.

        The cell is that of the first of `groups` with a threshold, at the horizon that `latest`
        finds. From the first horizon with too few outcomes of all persons on there is none.
        """
        has_sets = self.year.extrapolates or horizon in self.horizons
        fitted = self._fitted(coverage, tuple(groups)) if has_sets else []
        key, guarantee = latest(fitted, horizon, self.extrapolated)
        q = None if key is None else self.cells[key].thresholds[coverage]
        return q, guarantee, key

    @cached_property
    def _fitted(self) -> Callable[[float, tuple[str, ...]], _Fitted]:
        """`_find_fitted`, found once and then stored."""
        return cache(self._find_fitted)

    def _find_fitted(self, coverage: float, groups: tuple[str, ...]) -> _Fitted:
        """Each horizon, the first of `groups` with a finite threshold, and its origin years."""
        used = [
            (h, self.threshold_group(h, groups, coverage) if self._is_finite(h, coverage) else None)
            for h in self.horizons
        ]
        return [(h, group, self.origin_years.get((h, group or ALL), 0)) for h, group in used]

    def _is_finite(self, horizon: int, coverage: float) -> bool:
        """Whether there is a finite set for all persons at a horizon with outcomes."""
        return self.year.is_finite(self.cells[horizon, ALL].thresholds.get(coverage))

    def threshold_group(
        self, horizon: int, groups: Sequence[str], coverage: float | None = None
    ) -> str | None:
        """The first of `groups` with a threshold at a horizon, of `coverage` or else of any."""
        shares = self.coverage if coverage is None else (coverage,)
        for group in groups:
            cell = self.cells.get((horizon, group))
            if cell is not None and any(cell.thresholds.get(share) is not None for share in shares):
                return group
        return None

    def moved_cell(self, horizon: int, groups: Sequence[str]) -> tuple[int, str] | None:
        """The horizon and group of the cell whose move applies at a horizon."""
        for h in range(horizon, 0, -1):
            group = self.threshold_group(h, groups)
            if group is not None:
                return h, group
        return None

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

    def person_thresholds(
        self, marginals: Marginals, horizons: Sequence[int]
    ) -> tuple[Floats, Words, Words]:
        """Each person's thresholds of the sets of a year: those of the cell, and group shifts.

        Thresholds (n, H, L), NaN without one, which do not decrease with the coverage; their
        guarantees (n, H, L); and the names of their cells (n, H).
        """
        shape = (len(marginals), len(horizons), len(self.coverage))
        q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cell = np.full(shape[:2], "", dtype="<U40")
        for groups, rows in self.candidate_cells(marginals):
            of_cell, guarantee[rows], cell[rows], effects = self._of_groups(tuple(horizons), groups)
            members = members_of(marginals.groups, rows) if self.shifts else ([], [])
            shifted = of_cell + sum_effects(effects, members, of_cell.shape)
            shifted = np.minimum(shifted, np.maximum(of_cell, MAX_SHIFTED))
            q[rows] = self.year.nested(np.broadcast_to(shifted, q[rows].shape))
        return q, guarantee, cell

    @cached_property
    def _of_groups(self) -> Callable[[tuple[int, ...], tuple[str, ...]], _OfGroups]:
        """`_find_of_groups`, found once and then stored."""
        return cache(self._find_of_groups)

    def _find_of_groups(self, horizons: tuple[int, ...], groups: tuple[str, ...]) -> _OfGroups:
        """The results of `cell_threshold` for persons of `groups`, before shifts.

        Thresholds (H, L), NaN without one; guarantees (H, L); names of cells (H,); and by name of a
        group, how much it shifts the thresholds, (H, L). If a coverage has no threshold, higher
        ones have none either, because sets are nested.
        """
        shape = (len(horizons), len(self.coverage))
        q, guarantees = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cells, effects = np.full(shape[0], "", dtype="<U40"), dict[str, Floats]()
        for i, horizon in enumerate(horizons):
            for j, share in enumerate(self.coverage):
                threshold, guarantee, key = self.cell_threshold(horizon, share, groups)
                if threshold is None or key is None:
                    break
                q[i, j], guarantees[i, j], cells[i] = threshold, guarantee, key[1]
                of_group = self.shifts.get((key[0], share), {}) if is_shifted(key[1]) else {}
                for group, effect in of_group.items():
                    effects.setdefault(group, np.zeros(shape))[i, j] = effect
        return q, guarantees, cells, effects

    def nested_thresholds(self, family: SetFamily, horizon: int) -> tuple[Floats, list[Guarantee]]:
        """Thresholds (L,) of one of FAMILIES for all coverages, not decreasing, and guarantees.

        `horizon` is a number of years for path bands and present values. Guarantees are those of
        `latest`.
        """
        q, guarantees = np.full(len(self.coverage), np.nan), list[Guarantee]()
        of_family = [
            (h, fitted.thresholds)
            for (kind, h), fitted in sorted(self.thresholds_of_kind.items())
            if kind == family.kind
        ]
        highest = -np.inf
        for j, coverage in enumerate(self.coverage):
            finite = [
                (
                    h,
                    thresholds[coverage] if family.is_finite(thresholds.get(coverage)) else None,
                    self.origin_years.get((h, ALL), 0),
                )
                for h, thresholds in of_family
            ]
            nearest, guarantee = latest(
                finite, horizon, self.extrapolated, always=family.always_given
            )
            if nearest is not None:
                q[j] = highest = max(highest, nearest[1])
            guarantees.append(guarantee)
        return q, guarantees

    def sets(
        self, family: SetFamily, marginals: Marginals, horizons: NDArray[np.int64]
    ) -> Intervals:
        """Sets for all coverages, of recalibrated marginals; nested.

        `horizons` (n, H) are those whose thresholds each person and column has; 0: no set.
        """
        if family is self.year:
            ahead = range(1, marginals.n_horizons + 1)
            q, guarantee, cell = self.person_thresholds(marginals, ahead)
        else:
            shape = (*horizons.shape, len(self.coverage))
            q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
            cell = np.full(horizons.shape, ALL, dtype="<U40")
            for horizon in np.unique(horizons[horizons > 0]).tolist():
                at = horizons == horizon
                q[at], guarantee[at] = self.nested_thresholds(family, horizon)
        beyond = ~marginals.exists
        q[beyond], guarantee[beyond], cell[beyond] = np.nan, "none", ""
        # From a horizon without a finite set on, longer ones have none either.
        q = np.where(np.logical_or.accumulate(family.is_unbounded(q), axis=1), np.nan, q)
        lower, upper, zero = family.ends(marginals, q, self.coverage)
        guarantee[np.isnan(lower)] = "none"
        return Intervals(self.coverage, lower, upper, zero, guarantee, cell)


def is_shifted(cell: str) -> bool:
    """Whether the threshold of a cell is shifted for groups of persons.

    The thresholds of profiles are not: records of a profile lack the columns that define groups.
    """
    return not cell.startswith("profile=")


def sum_effects(effects: Mapping[str, Floats], members: Members, shape: tuple[int, ...]) -> Floats:
    """Sums of the effects of the persons' groups, (n, *shape), or (1, *shape) without groups."""
    names, by_grouping = members
    total = np.zeros((1, *shape))
    if effects and names:
        without = np.zeros(shape)
        effect = np.array([effects.get(name, without) for name in names])
        for index in by_grouping:  # in this order, so that rounding does not depend on the batch
            total = total + effect[index]
    return total


def members_of(groups: Labels, rows: NDArray[np.int64]) -> Members:
    """The groups of `rows` in all groupings and pairs of them, and each row's group by grouping."""
    labels_by_grouping = pair_groupings({name: labels[rows] for name, labels in groups.items()})
    names, by_grouping = list[str](), list[NDArray[np.int64]]()
    for name, labels in labels_by_grouping.items():
        distinct, index = number_labels(labels.tolist())
        by_grouping.append(index + len(names))
        names += [f"{name}={label}" for label in distinct]
    return names, by_grouping


def number_labels(labels: Sequence[Label]) -> tuple[list[Label], NDArray[np.int64]]:
    """The distinct labels in order, and the index among them of each label."""
    distinct = sorted(set(labels))
    if len(distinct) == 1:
        return distinct, np.zeros(len(labels), dtype=np.int64)
    number = {label: i for i, label in enumerate(distinct)}
    return distinct, np.array([number[label] for label in labels], dtype=np.int64)
