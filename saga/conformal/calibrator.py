"""The calibrator: recalibrates marginals and gives their prediction sets.

`calibration` fits it. Two steps apply at each horizon, both in probability space. First, the map R
of the person's cell, fitted on the persons of the map fold, replaces the forecast F by R(F).
Second, a threshold, fitted on the persons of the threshold fold, chooses from a nested family of
sets (`saga.conformal.families`) the one that has the stated coverage. A person's cell is
that of the profile or else of the quintile of earnings, or that of all persons if these have too
few. Groups, which may overlap, shift its threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibration_table import ALL, Calibration
from saga.conformal.cross_fitted import CROSS_FITTED, CrossFittedCounts
from saga.conformal.families import PRESENT_VALUE, YEAR
from saga.conformal.families.path_band import PathBand
from saga.conformal.families.set_family import SetFamily
from saga.conformal.fitted_cells import FittedCells
from saga.conformal.intervals import Guarantee, Intervals, guarantee_of
from saga.conformal.shifted_thresholds import PersonThresholds, members_of
from saga.distributions import Marginals
from saga.errors import Problem, UsageError

Array = NDArray[np.float64]

# With fewer persons, rounding makes a threshold noticeably larger. The report warns of this,
# and groups have no cells.
MIN_CELL_PERSONS = 1_000

REASONS: dict[str, str] = {
    "finite-sample": "Holds in finite samples: these persons were drawn like the calibration "
    "persons, in the same years.",
    "assumption": "Holds if this person resembles the calibration persons (in statistics: is "
    "exchangeable with them) and conditions have not changed since then.",
    "extrapolated": "Not guaranteed: no outcome was observed this far ahead, or none under such a "
    "scenario, or paths come from another rollout, or the origin is after the calibration years. "
    "The nearest threshold is used.",
    "cross-fitted": "Cross-fitted (CV+): a stated coverage 1 - a holds about in practice, and at "
    "least 1 - 2a less a small term in the worst case, if this person resembles the calibration "
    "persons and conditions have not changed since then.",
    "none": "No interval: there are too few calibration persons, no finite interval has this "
    "coverage, the person is past age 64, or the calibration method has no interval of this kind.",
}


def reason(guarantee: str, cell: str = ALL) -> str:
    """What stands behind an interval with this `guarantee`, calibrated on persons of `cell`."""
    if cell == CROSS_FITTED and guarantee == "assumption":
        return REASONS[CROSS_FITTED]
    if cell in ("", ALL, CROSS_FITTED) or guarantee == "none":
        return REASONS[guarantee]
    return f"{REASONS[guarantee]} Calibrated on persons with {cell.replace('=', ' ')}."


class Calibrator(Calibration):
    """Applies a calibration to marginals."""

    @classmethod
    def identity(cls) -> Calibrator:
        """A calibrator that does not change forecasts and gives no intervals."""
        return cls({})

    @cached_property
    def fitted(self) -> FittedCells:
        """The cells, with the rules for those that were not fitted."""
        return FittedCells(self.cells, self.shifts, self.year, self.extrapolated)

    @cached_property
    def cross_fitted(self) -> CrossFittedCounts:
        """The counts of cross-fitting."""
        return CrossFittedCounts(self.fold_counts, self.extrapolated)

    @property
    def _found(self) -> FittedCells | CrossFittedCounts:
        """How the thresholds of the sets of a year are found."""
        return self.cross_fitted if self.fold_counts else self.fitted

    @property
    def coverage(self) -> tuple[float, ...]:
        """The coverages for which thresholds were fitted, ascending."""
        return self._found.coverage

    @property
    def has_sets(self) -> bool:
        """Whether there are thresholds of nested sets, as ledgers and path bands need."""
        return self.year is YEAR and bool(self.fitted.coverage)

    @property
    def has_present_values(self) -> bool:
        """Whether there are thresholds of present values."""
        return any(kind == PRESENT_VALUE.kind for kind, _ in self.thresholds_of_kind)

    @property
    def value_paths(self) -> int:
        """Number of paths of the present values that thresholds were fitted on."""
        return max((fitted.n_paths or 0 for fitted in self.thresholds_of_kind.values()), default=0)

    @property
    def furthest_horizons(self) -> dict[float, int]:
        """Coverage -> furthest horizon whose guarantee is "assumption"; 0 without one."""
        furthest = dict.fromkeys(self.coverage, 0)
        for h in self._found.horizons:
            for coverage in self.coverage:
                if self._found.guarantee_at(h, coverage) == "assumption":
                    furthest[coverage] = h
        return furthest

    @cached_property
    def band(self) -> PathBand:
        """The family of path bands, with the fitted scales."""
        return PathBand(self.band_scales)

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

    def nested_thresholds(self, family: SetFamily, horizon: int) -> tuple[Array, list[Guarantee]]:
        """Thresholds (L,) of one of FAMILIES for all coverages, not decreasing, and guarantees.

        `horizon` is a number of years for path bands and present values. Guarantees are those of
        `FittedCells.cell_threshold`. If the sets of the family are always given, too few outcomes
        make them extrapolated.
        """
        q, guarantees = np.full(len(self.coverage), np.nan), list[Guarantee]()
        fitted = [
            (h, at_horizon.thresholds)
            for (kind, h), at_horizon in sorted(self.thresholds_of_kind.items())
            if kind == family.kind and h <= horizon
        ]
        highest = -np.inf
        for j, coverage in enumerate(self.coverage):
            finite = [
                (h, threshold)
                for h, thresholds in fitted
                if (threshold := thresholds.get(coverage)) is not None
                and family.is_finite(threshold)
            ]
            has_all = len(finite) == len(fitted)
            if finite and (has_all or family.always_given):
                last, threshold = finite[-1]
                q[j] = highest = max(highest, threshold)
                guarantees.append(guarantee_of(last == horizon and has_all, self.extrapolated))
            else:
                guarantees.append("none")
        return q, guarantees

    def person_thresholds(self, marginals: Marginals, horizons: Sequence[int]) -> PersonThresholds:
        """Each person's thresholds of the sets of a year: those of the cell, and group shifts."""
        shape = (len(marginals), len(horizons), len(self.coverage))
        q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        cell = np.full(shape[:2], "", dtype="<U40")
        for groups, rows in self.fitted.candidate_cells(marginals):
            fitted = self.fitted.cell_thresholds(tuple(horizons), groups)
            members = members_of(marginals.groups, rows) if self.shifts else ([], [])
            shifted = fitted.for_members(members)
            q[rows] = self.year.nested(np.broadcast_to(shifted, q[rows].shape))
            guarantee[rows], cell[rows] = fitted.guarantee, fitted.cell
        return PersonThresholds(q, guarantee, cell)

    def _thresholds(
        self, family: SetFamily, marginals: Marginals, horizons: NDArray[np.int64]
    ) -> PersonThresholds:
        """The thresholds of each person and column; NaN where `horizons` is 0."""
        if family is self.year:
            return self.person_thresholds(marginals, range(1, marginals.n_horizons + 1))
        shape = (*horizons.shape, len(self.coverage))
        q, guarantee = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        for horizon in np.unique(horizons[horizons > 0]).tolist():
            at = horizons == horizon
            q[at], guarantee[at] = self.nested_thresholds(family, horizon)
        return PersonThresholds(q, guarantee, np.full(horizons.shape, ALL, dtype="<U40"))

    def recalibrate(self, marginals: Marginals) -> Marginals:
        """The marginals after the maps of the persons' cells, and their moves if there are some."""
        marginals.require_raw()
        cdf, p_zero = marginals.cdf.copy(), marginals.p_zero.copy()
        for groups, rows in self.fitted.candidate_cells(marginals):
            for h in range(marginals.n_horizons):
                cell = self.fitted.map_cell(h + 1, *groups)
                if cell is not None:
                    for values in (cdf, p_zero):
                        values[rows, h] = np.interp(values[rows, h], cell.knots, cell.values)
                moved = self.fitted.moved_cell(h + 1, groups) if self.moves else None
                if moved is not None and moved in self.moves:
                    for values in (cdf, p_zero):
                        values[rows, h] = np.interp(values[rows, h], *self.moves[moved])
        members = tuple(replace(member, recalibrated=True) for member in marginals.members)
        return replace(marginals, cdf=cdf, p_zero=p_zero, recalibrated=True, members=members)

    def intervals(self, marginals: Marginals, coverage: Sequence[float]) -> Intervals:
        """The sets of a year of recalibrated marginals, see `sets`."""
        return self.sets(self.year, marginals, coverage)

    def sets(
        self,
        family: SetFamily,
        marginals: Marginals,
        coverage: Sequence[float],
        horizons: NDArray[np.int64] | None = None,
    ) -> Intervals:
        """Sets of one family for each of `coverage`, nested, of recalibrated marginals.

        Raises UsageError if no threshold was fitted for one of the coverages. Without calibration
        every guarantee is "none".

        Args:
            family: YEAR or one of FAMILIES; path bands are those of `band`.
            marginals: Recalibrated marginals (n, H).
            coverage: Coverages, in any order.
            horizons: The horizon or number of years (n, H) whose thresholds each person and column
                has, 0: no set; None: 1..H.
        """
        marginals.require_recalibrated()
        columns = self.coverage_columns(coverage)
        if not self.coverage:
            return Intervals.none(marginals, coverage)
        if horizons is None:
            ahead = np.arange(1, marginals.n_horizons + 1)
            horizons = np.broadcast_to(ahead, marginals.p_zero.shape)
        if self.fold_counts:
            return self.cross_fitted.sets(family, marginals, horizons).at(columns)
        thresholds = self._thresholds(family, marginals, horizons)
        q, guarantee, cell = thresholds.q, thresholds.guarantee, thresholds.cell
        beyond = ~marginals.exists
        q[beyond], guarantee[beyond], cell[beyond] = np.nan, "none", ""
        # From a horizon without a finite set on, longer ones have none either.
        q = np.where(np.logical_or.accumulate(family.is_unbounded(q), axis=1), np.nan, q)
        lower, upper, zero = family.ends(marginals, q, self.coverage)
        guarantee[np.isnan(lower)] = "none"
        return Intervals(self.coverage, lower, upper, zero, guarantee, cell).at(columns)
