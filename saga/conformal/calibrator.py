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
from dataclasses import replace

import numpy as np

from saga.conformal.calibration_table import ALL, SET
from saga.conformal.cross_fitted import Scorer, cross_fitted_sets
from saga.conformal.fitted_cells import FittedCells
from saga.conformal.intervals import Intervals
from saga.conformal.prediction_sets import set_ends, set_scores
from saga.conformal.quantile_intervals import conformalised_intervals
from saga.conformal.shifted_thresholds import PersonThresholds, members_of
from saga.distributions import Marginals
from saga.errors import Problem, UsageError

# With fewer persons, rounding makes a threshold noticeably larger. The report warns of this,
# and groups have no cells.
MIN_CELL_PERSONS = 1_000
CROSS_FITTED = "cross-fitted"  # the cell of sets that use the scores of all folds

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


class Calibrator(FittedCells):
    """Applies a calibration to marginals."""

    @classmethod
    def identity(cls) -> Calibrator:
        """A calibrator that does not change forecasts and gives no intervals."""
        return cls({})

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
        for groups, rows in self.candidate_cells(marginals):
            fitted = self.cell_thresholds(tuple(horizons), groups)
            members = members_of(marginals.groups, rows) if self.shifts else ([], [])
            shifted = fitted.for_members(members)
            q[rows] = np.maximum.accumulate(np.broadcast_to(shifted, q[rows].shape), axis=2)
            guarantee[rows], cell[rows] = fitted.guarantee, fitted.cell
        return PersonThresholds(q, guarantee, cell)

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
        guarantee = np.where(has_interval, self.guarantee(True), "none").astype("<U13")
        cells = np.where(has_interval.any(axis=2), ALL, "").astype(np.str_)
        zero = has_interval & (lower <= 0)
        every = Intervals(self.coverage, lower, upper, zero, guarantee, cells)
        return every.at(self.coverage_columns(coverage))


def _set_scorer(coverage: float) -> Scorer:
    return lambda member, amounts: set_scores(member, amounts, coverage)
