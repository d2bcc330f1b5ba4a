"""The calibrator: recalibrates marginals and gives their prediction sets.

`calibration` fits it. Two steps apply at each horizon, both in probability space. First, the map R
of the person's cell, fitted on the persons of the map fold, replaces the forecast F by R(F).
Second, a threshold, fitted on the persons of the threshold fold, chooses from a nested family of
sets (`saga.conformal.prediction_sets`) the one that has the stated coverage. A person's cell is
that of the profile or else of the quintile of earnings, or that of all persons if these have too
few. Groups, which may overlap, shift its threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibration_table import ALL, SET, Calibration, ThresholdKind
from saga.conformal.cross_fitted import FoldCounts, Scorer, cross_fitted_sets
from saga.conformal.prediction_sets import set_ends, set_scores
from saga.conformal.quantile_intervals import conformalised_intervals
from saga.conformal.recalibration import Cell
from saga.data.groups import Labels, pair_groupings
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.scores import covered

Array = NDArray[np.float64]
Label = TypeVar("Label", str, tuple[str, ...])
# The groups of all groupings, such as "sex=female", and for each grouping the index (n,) among
# them of each person's group.
Members = tuple[list[str], list[NDArray[np.int64]]]
# Groups of candidate cells, the rows of their persons, and the members of shifting groups.
Memberships = list[tuple[tuple[str, ...], NDArray[np.int64], Members]]
Guarantee = Literal["finite-sample", "assumption", "extrapolated", "none"]

# Groupings whose groups may have cells; the first one that has a cell for the person is used.
MONDRIAN = ("profile", "quintile")
# With fewer persons, rounding makes a threshold noticeably larger. The report warns of this,
# and groups have no cells.
MIN_CELL_PERSONS = 1_000
CROSS_FITTED = "cross-fitted"  # the cell of sets that use the scores of all folds
_MAX_SHIFTED = 0.999  # shifts raise no threshold above it: beyond 1 there is no finite set

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: these persons were drawn like the calibration "
    "persons, in the same years.",
    "assumption": "Holds if this person is exchangeable with the calibration persons and "
    "conditions have not changed since then.",
    "extrapolated": "Not guaranteed: no outcome was observed this far ahead, or none under such a "
    "scenario, or paths come from another rollout, or the origin is after the calibration years. "
    "The nearest threshold is used.",
    "cross-fitted": "Cross-fitted (CV+): a stated coverage 1 - a holds about in practice, and at "
    "least 1 - 2a less a small term in the worst case, if this person is exchangeable with the "
    "calibration persons and conditions have not changed since then.",
    "none": "No interval: there are too few calibration persons, no finite interval has this "
    "coverage, the person is past age 64, or the calibration method has no interval of this kind.",
}


def is_shifted(cell: str) -> bool:
    """Whether groups shift the threshold of a cell.

    Not if the cell is a profile: such records lack the columns that define most groups.
    """
    return not cell.startswith("profile=")


def is_finite(q: float | None) -> TypeGuard[float]:
    """Whether a threshold has a finite set."""
    return q is not None and q < 1


def reason(guarantee: str, cell: str = ALL) -> str:
    """What stands behind an interval with this `guarantee`, calibrated on persons of `cell`."""
    if cell == CROSS_FITTED and guarantee == "assumption":
        return REASONS[CROSS_FITTED]
    if cell in ("", ALL, CROSS_FITTED) or guarantee == "none":
        return REASONS[guarantee]
    return f"{REASONS[guarantee]} Calibrated on persons with {cell.replace('=', ' ')}."


@dataclass(frozen=True, eq=False)
class Intervals:
    """Prediction sets: [lower, upper] of positive amounts, and {0} if `includes_zero`.

    Arrays (n, H, L) in real money of the panel, one L per `coverage`. `lower` and `upper` are NaN
    if `guarantee` is "none", and 0 if the set is {0} alone. `cell` (n, H) names the persons whose
    outcomes were used: "all", "cross-fitted" (all, each by the member that has not seen the
    person), a group such as "quintile=2", or "" without interval.
    """

    coverage: tuple[float, ...]
    lower: Array
    upper: Array
    includes_zero: NDArray[np.bool_]
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]

    @classmethod
    def none(cls, marginals: Marginals, coverage: Sequence[float]) -> Intervals:
        """No intervals."""
        shape = (*marginals.p_zero.shape, len(coverage))
        missing, zero = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        guarantee, cell = np.full(shape, "none"), np.full(shape[:2], "")
        return cls(tuple(coverage), missing, missing, zero, guarantee, cell)

    def at(self, columns: Sequence[int]) -> Intervals:
        """The intervals of some of the coverages, by their index."""
        return replace(
            self,
            coverage=tuple(self.coverage[j] for j in columns),
            lower=self.lower[..., columns],
            upper=self.upper[..., columns],
            includes_zero=self.includes_zero[..., columns],
            guarantee=self.guarantee[..., columns],
        )

    def covered(self, outcomes: Array) -> Array:
        """Whether each outcome (n, H) is in its set, 1 or 0 (n, H, L); NaN if either is missing."""
        return covered(outcomes[:, :, None], self.lower, self.upper, self.includes_zero)


@dataclass(frozen=True, eq=False)
class PersonThresholds:
    """Thresholds of n persons at H horizons.

    `q` (n, H, L) is for the calibrator's coverage and does not decrease with it, NaN without
    threshold; `guarantee` (n, H, L); `cell` (n, H) is the cell's name.
    """

    q: Array
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class _CellThresholds:
    """Thresholds of the persons of some groups at H horizons, before shifts.

    `q` (H, L) is NaN without threshold; `guarantee` (H, L); `cell` (H,) is the cell's name.
    `effects` are the shifts (H, L) by group, 0 where groups do not shift the cell's threshold.
    """

    q: Array
    guarantee: NDArray[np.str_]
    cell: NDArray[np.str_]
    effects: dict[str, Array]

    @classmethod
    def of(
        cls, calibrator: Calibrator, horizons: Sequence[int], groups: Sequence[str]
    ) -> _CellThresholds:
        """Those of `Calibrator.cell_threshold`.

        Sets are nested, so without a threshold there is none of higher coverage either.
        """
        shape = (len(horizons), len(calibrator.coverage))
        q, guarantees = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cells, effects = np.full(shape[0], "", dtype="<U40"), dict[str, Array]()
        for i, horizon in enumerate(horizons):
            for j, share in enumerate(calibrator.coverage):
                threshold, guarantee, key = calibrator.cell_threshold(horizon, share, groups)
                if threshold is None or key is None:
                    break
                q[i, j], guarantees[i, j], cells[i] = threshold, guarantee, key[1]
                of_group = calibrator.shifts.get((key[0], share), {}) if is_shifted(key[1]) else {}
                for group, effect in of_group.items():
                    effects.setdefault(group, np.zeros(shape))[i, j] = effect
        return cls(q, guarantees, cells, effects)

    def shift(self, members: Members) -> Array:
        """Sums of the effects of the persons' groups, (n, H, L) or (1, H, L)."""
        names, by_grouping = members
        total = np.zeros((1, *self.q.shape))
        if self.effects and names:
            without = np.zeros(self.q.shape)
            effect = np.array([self.effects.get(name, without) for name in names])
            for index in by_grouping:  # in order, so that one person alone has the same bits
                total = total + effect[index]
        return total


class Calibrator(Calibration):
    """Applies a calibration to marginals."""

    @classmethod
    def identity(cls) -> Calibrator:
        """A calibrator that does not change forecasts and gives no intervals."""
        return cls({})

    @cached_property
    def coverage(self) -> tuple[float, ...]:
        """Coverage for which thresholds were fitted, ascending."""
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
                if self.counts_at(SET, h, coverage)[0] is not None:
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
        first horizon with too few outcomes on there is no threshold: a longer horizon never has
        more guarantee than a shorter one with outcomes.
        """
        if horizon >= self._first_small_horizon.get(coverage, np.inf):
            return None, "none", None
        for h in range(horizon, 0, -1):
            for key in ((h, group) for group in groups):
                q = self.cells[key].thresholds.get(coverage) if key in self.cells else None
                if q is not None:
                    return q, self._guarantee(h == horizon), key
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

    def _guarantee(self, observed: bool) -> Guarantee:
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
        return counts, self._guarantee(h == horizon)

    def cross_fitted(
        self, kind: str, marginals: Marginals, scorer: Callable[[float], Scorer], years: int = 0
    ) -> Intervals:
        """Cross-fitted sets of one kind, for all fitted coverages.

        Args:
            kind: "set" or a kind of limit.
            marginals: Recalibrated marginals with those of the members.
            scorer: The scores of the kind for a coverage.
            years: Number of years of path bands; 0: each horizon has counts of its own.
        """
        horizons = [years or h + 1 for h in range(marginals.n_horizons)]
        fitted = [[self.counts_at(kind, h, share) for h in horizons] for share in self.coverage]
        lower, upper, zero = cross_fitted_sets(
            marginals,
            [scorer(share) for share in self.coverage],
            [[counts for counts, _ in by_horizon] for by_horizon in fitted],
            self.coverage,
            bounded=kind != "at_least",
        )
        guarantee = np.array([[g for _, g in by_horizon] for by_horizon in fitted], dtype="<U13")
        guarantee = np.where(np.isnan(lower), "none", guarantee.T)
        cell = np.where((guarantee != "none").any(axis=2), CROSS_FITTED, "").astype(np.str_)
        return Intervals(self.coverage, lower, upper, zero, guarantee, cell)

    def candidate_cells(
        self, marginals: Marginals
    ) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """Row numbers of persons by the groups whose cells may apply, the preferred one first."""
        names = [name for name in MONDRIAN if name in marginals.groups] if self._is_grouped else []
        if not names or not len(marginals):
            return [((ALL,), np.arange(len(marginals)))]
        labels = list(zip(*(marginals.groups[name].tolist() for name in names), strict=True))
        distinct, index = _numbered(labels)
        return [
            (
                (*(f"{name}={label}" for name, label in zip(names, labels, strict=True)), ALL),
                np.flatnonzero(index == i),
            )
            for i, labels in enumerate(distinct)
        ]

    @cached_property
    def _is_grouped(self) -> bool:
        """Whether there are cells of groups."""
        return {group for _, group in self.cells} != {ALL}

    def person_thresholds(self, marginals: Marginals, horizons: Sequence[int]) -> PersonThresholds:
        """Each person's thresholds: those of the cell plus the shifts of the groups.

        Raises UsageError if the calibration has no prediction sets.
        """
        if self.method != "sets":
            problem = Problem(
                "calibration-method",
                f"its method is {self.method}",
                "Calibrate the bundle with `saga calibrate --method sets`.",
            )
            raise UsageError("The bundle's calibration has no prediction sets", [problem])
        shape = (len(marginals), len(horizons), len(self.coverage))
        q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cell = np.full(shape[:2], "", dtype="<U40")
        for groups, rows, members in self.memberships(marginals):
            fitted = self._cell_thresholds(tuple(horizons), groups)
            shifted = fitted.q + fitted.shift(members)
            shifted = np.minimum(shifted, np.maximum(fitted.q, _MAX_SHIFTED))
            q[rows] = np.maximum.accumulate(np.broadcast_to(shifted, q[rows].shape), axis=2)
            guarantee[rows], cell[rows] = fitted.guarantee, fitted.cell
        return PersonThresholds(q, guarantee, cell)

    def _cell_thresholds(
        self, horizons: tuple[int, ...], groups: tuple[str, ...]
    ) -> _CellThresholds:
        """The thresholds of persons of `groups`, which are kept for the next persons."""
        if (horizons, groups) not in self._known_thresholds:
            fitted = _CellThresholds.of(self, horizons, groups)
            self._known_thresholds[horizons, groups] = fitted
        return self._known_thresholds[horizons, groups]

    @cached_property
    def _known_thresholds(
        self,
    ) -> dict[tuple[tuple[int, ...], tuple[str, ...]], _CellThresholds]:
        return {}

    def memberships(self, marginals: Marginals) -> Memberships:
        """The rows of `candidate_cells` with the members of the groups that shift thresholds."""
        return [
            (groups, rows, members_of(marginals.groups, rows) if self.shifts else ([], []))
            for groups, rows in self.candidate_cells(marginals)
        ]

    def shift(self, members: Members, horizon: int, coverage: Sequence[float]) -> Array:
        """Sums of the shifts of the groups of n persons, (n, L) with one of L per `coverage`.

        (1, L) zeros without groups or shifts.
        """
        groups, by_grouping = members
        total = np.zeros((1, len(coverage)))
        effects = [self.shifts.get((horizon, share)) for share in coverage]
        if not any(effects):
            return total
        effect = np.array(
            [[of.get(group, 0.0) if of else 0.0 for of in effects] for group in groups]
        )
        for index in by_grouping:  # in order, so that one person alone has the same bits
            total = total + effect[index]
        return total

    def nested_thresholds(self, kind: ThresholdKind, horizon: int) -> tuple[Array, list[Guarantee]]:
        """Thresholds (L,) of one kind for all coverage, not decreasing, and their guarantees.

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
                guarantees.append(self._guarantee(last == horizon and has_all))
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
        """The first of `groups` with a threshold at a horizon: outcomes there move its cell."""
        for group in groups:
            cell = self.cells.get((horizon, group))
            if cell is not None and any(q is not None for q in cell.thresholds.values()):
                return group
        return None

    def move(self, horizon: int, groups: Sequence[str]) -> tuple[Array, Array] | None:
        """The move of a cell at a horizon, or else at the nearest shorter one; None without."""
        cell = self.moved_cell(horizon, groups)
        return None if cell is None else self.moves.get(cell)

    def moved_cell(self, horizon: int, groups: Sequence[str]) -> tuple[int, str] | None:
        """The horizon and group of the cell whose move applies at a horizon."""
        for h in range(horizon, 0, -1):
            group = self.threshold_group(h, groups)
            if group is not None:
                return h, group
        return None

    def recalibrate(self, marginals: Marginals) -> Marginals:
        """The marginals after the maps of the persons' cells, and their moves if there are some."""
        marginals.require_raw()
        cdf, p_zero = marginals.cdf.copy(), marginals.p_zero.copy()
        for groups, rows in self.candidate_cells(marginals):
            for h in range(marginals.n_horizons):
                cell = self.map_cell(h + 1, *groups)
                if cell is not None:
                    for values in (cdf, p_zero):
                        values[rows, h] = np.interp(values[rows, h], cell.knots, cell.values)
                move = self.move(h + 1, groups) if self.moves else None
                if move is not None:
                    for values in (cdf, p_zero):
                        values[rows, h] = np.interp(values[rows, h], *move)
        members = tuple(replace(member, recalibrated=True) for member in marginals.members)
        return replace(marginals, cdf=cdf, p_zero=p_zero, recalibrated=True, members=members)

    def intervals(self, marginals: Marginals, coverage: Sequence[float]) -> Intervals:
        """Prediction sets of recalibrated marginals for each of `coverage`, nested.

        Raises UsageError if no threshold was fitted for one of them. Without calibration every
        guarantee is "none".
        """
        marginals.require_recalibrated()
        columns = self.coverage_columns(coverage)
        if not self.coverage:
            return Intervals.none(marginals, coverage)
        if self.method == "cqr":
            return self._quantile_intervals(marginals, coverage)
        if self.method == "cv+":
            return self.cross_fitted(SET, marginals, _set_scorer).at(columns)
        thresholds = self.person_thresholds(marginals, range(1, marginals.n_horizons + 1))
        beyond = ~marginals.exists
        q, guarantee, cell = thresholds.q, thresholds.guarantee, thresholds.cell
        q[beyond], guarantee[beyond], cell[beyond] = np.nan, "none", ""
        # From a horizon without a finite set on, longer ones have none either.
        q = np.where(np.logical_or.accumulate(q >= 1, axis=1), np.nan, q)
        lower, upper, zero = set_ends(marginals, q, self.coverage)
        guarantee[np.isnan(lower)] = "none"
        return Intervals(self.coverage, lower, upper, zero, guarantee, cell).at(columns)

    def _quantile_intervals(self, marginals: Marginals, coverage: Sequence[float]) -> Intervals:
        shape = (*marginals.p_zero.shape, len(self.coverage))
        q = np.full(shape, np.nan)
        for h in range(marginals.n_horizons):
            cell = self.cells.get((h + 1, ALL))
            if cell is not None:
                q[:, h] = np.array([cell.thresholds[c] for c in self.coverage], np.float64)
        lower, upper = conformalised_intervals(marginals, q, self.coverage)
        has_interval = ~np.isnan(lower)
        guarantee = np.where(has_interval, self._guarantee(True), "none").astype("<U13")
        cells = np.where(has_interval.any(axis=2), ALL, "").astype(np.str_)
        zero = has_interval & (lower <= 0)
        every = Intervals(self.coverage, lower, upper, zero, guarantee, cells)
        return every.at(self.coverage_columns(coverage))


def _set_scorer(coverage: float) -> Scorer:
    return lambda member, amounts: set_scores(member, amounts, coverage)


def members_of(groups: Labels, rows: NDArray[np.int64]) -> Members:
    """The groups of `rows` in all groupings and pairs of them, and each row's group by grouping."""
    labels_by_grouping = pair_groupings({name: labels[rows] for name, labels in groups.items()})
    names, by_grouping = list[str](), list[NDArray[np.int64]]()
    for name, labels in labels_by_grouping.items():
        distinct, index = _numbered(labels.tolist())
        by_grouping.append(index + len(names))
        names += [f"{name}={label}" for label in distinct]
    return names, by_grouping


def _numbered(labels: Sequence[Label]) -> tuple[list[Label], NDArray[np.int64]]:
    """The distinct labels in order, and the index among them of each label."""
    distinct = sorted(set(labels))
    if len(distinct) == 1:
        return distinct, np.zeros(len(labels), dtype=np.int64)
    number = {label: i for i, label in enumerate(distinct)}
    return distinct, np.array([number[label] for label in labels], dtype=np.int64)
