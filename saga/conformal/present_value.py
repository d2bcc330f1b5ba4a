"""Conformal intervals of a present value over K years; see docs/method/lifetime-guarantee.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.conformal.prediction_sets import NestedSets, grow
from saga.paths import Paths
from saga.requests import RATE

Array = NDArray[np.float64]
# Width by which the probability of a present value of 0 is divided (see `prediction_sets`).
ATOM_WIDTH = 0.05


@dataclass(frozen=True, eq=False)
class ValueIntervals:
    """Intervals of present values.

    `lower` and `upper` (n, L) are in SEK, NaN if `guarantee` (n, L) is "none".
    """

    lower: Array
    upper: Array
    guarantee: NDArray[np.str_]

    @classmethod
    def none(cls, n_persons: int, n_coverage: int) -> ValueIntervals:
        """No intervals."""
        missing = np.full((n_persons, n_coverage), np.nan)
        return cls(missing, missing, np.full((n_persons, n_coverage), "none"))

    @classmethod
    def central(cls, values: Array, coverage: Sequence[float]) -> ValueIntervals:
        """Central intervals of simulated values (n, M); their guarantee is "extrapolated"."""
        ends = np.quantile(values, [[(1 - c) / 2, (1 + c) / 2] for c in coverage], axis=1)
        guarantee = np.full((len(values), len(coverage)), "extrapolated")
        return cls(ends[:, 0].T, ends[:, 1].T, guarantee)

    def moved(self, by: Array, factor: Array) -> ValueIntervals:
        """The intervals of `factor` x value + `by`; `by` and `factor` have shape (n,).

        They add the observed past and discount to another year.
        """
        lower, upper = (end * factor[:, None] + by[:, None] for end in (self.lower, self.upper))
        return ValueIntervals(lower, upper, self.guarantee)


def value_sets(values: Array, years: int, scale: float, rate: float) -> NestedSets:
    """Nested sets of simulated present values (n, M) over `years`.

    The scale of the sets is that of a year times the present value of 1 SEK per year.
    """
    annuity = float(((1 + rate) ** -np.arange(1.0, years + 1)).sum())
    return grow(np.sort(values, axis=1), scale * annuity).with_atom(ATOM_WIDTH)


def value_scores(calibrator: Calibrator, paths: Paths, outcomes: Array) -> Array:
    """Score of the realised present value of the first K years in column K - 1 of (n, H).

    `paths` are recalibrated. NaN if one of the K outcomes is missing.
    """
    paths.require_recalibrated()
    scores = np.full(outcomes.shape, np.nan)
    simulated, realised = np.zeros((len(paths), paths.n_paths)), np.zeros(len(paths))
    for h in range(outcomes.shape[1]):
        discount = (1 + RATE) ** -(h + 1.0)
        simulated += paths.earnings[:, h].astype(np.float64) * discount
        realised += outcomes[:, h] * discount
        rows = np.flatnonzero(~np.isnan(realised) & ~np.isnan(simulated).any(axis=1))
        if not len(rows):
            break
        sets = value_sets(simulated[rows], h + 1, calibrator.scale, RATE)
        scores[rows, h] = sets.hull_score(realised[rows])
    return scores


def value_intervals(
    calibrator: Calibrator,
    values: Array,
    years: NDArray[np.int64],
    coverage: Sequence[float],
    rate: float,
) -> ValueIntervals:
    """Intervals of simulated present values.

    The guarantee is "assumption" if outcomes over so many years were observed and `rate` is the
    rate of the calibration; otherwise it is "extrapolated". With fewer observed years, the
    threshold of the largest observed number is used. Raises UsageError if no threshold was fitted
    for one of `coverage`.

    Args:
        calibrator: The calibrator.
        values: Simulated present values (n, M).
        years: Number of years of each value (n,).
        coverage: Coverage of the intervals.
        rate: Discount rate of the values.
    """
    columns = calibrator.coverage_columns(coverage)
    lower, upper = np.full((2, len(values), len(coverage)), np.nan)
    guarantee = np.full(lower.shape, "none", dtype="<U13")
    for n_years in np.unique(years).tolist():
        q, guarantees = calibrator.nested_thresholds("present_value", n_years, values.shape[1])
        rows = np.flatnonzero(years == n_years)
        sets = value_sets(values[rows], n_years, calibrator.scale, rate)
        for index, j in enumerate(columns):
            if j is not None and guarantees[j] != "none":
                lower[rows, index], upper[rows, index] = sets.hull_at(float(q[j]))
                guarantee[rows, index] = guarantees[j] if rate == RATE else "extrapolated"
    return ValueIntervals(lower, upper, guarantee)
