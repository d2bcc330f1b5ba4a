"""Conformal intervals of a present value over K years; see docs/method/lifetime-guarantee.md.

They are the sets of `saga.conformal.prediction_sets`, of the distribution of a person's present
value (`saga.conformal.value_distribution`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.conformal.prediction_sets import set_ends, set_scores
from saga.conformal.quantile_intervals import central_probabilities
from saga.conformal.value_distribution import SimulatedValues
from saga.paths import Paths
from saga.requests import RATE

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ValueIntervals:
    """Intervals of present values.

    `lower` and `upper` (n, L) are in real money of the panel, NaN if `guarantee` (n, L) is "none".
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
    def central(cls, values: SimulatedValues, coverage: Sequence[float]) -> ValueIntervals:
        """Central intervals of simulated values; their guarantee is "extrapolated"."""
        lower, upper = (values.quantiles(p) for p in central_probabilities(coverage))
        return cls(lower, upper, np.full(lower.shape, "extrapolated"))

    def moved(self, by: Array) -> ValueIntervals:
        """The intervals after `by` (n, 1), the observed past, is added to the values."""
        return ValueIntervals(self.lower + by, self.upper + by, self.guarantee)


def value_scores(paths: Paths, outcomes: Array, coverage: float) -> Array:
    """Score of the realised present value of the first K years in column K - 1 of (n, H).

    `paths` are recalibrated. NaN if one of the K outcomes is missing.
    """
    paths.require_recalibrated()
    scores = np.full(outcomes.shape, np.nan)
    simulated = np.zeros((2, len(paths), paths.n_paths))  # of the paths, and of sorted earnings
    earnings = np.stack([paths.earnings, paths.comonotone().earnings])
    realised = np.zeros(len(paths))
    for h in range(outcomes.shape[1]):
        discount = (1 + RATE) ** -(h + 1.0)
        simulated += earnings[:, :, h].astype(np.float64) * discount
        realised += outcomes[:, h] * discount
        rows = np.flatnonzero(~np.isnan(realised) & ~np.isnan(simulated[0]).any(axis=1))
        if not len(rows):
            break
        distribution = SimulatedValues(*simulated[:, rows]).distribution
        scores[rows, h] = set_scores(distribution, realised[rows, None], coverage)[:, 0]
    return scores


def value_intervals(
    calibrator: Calibrator,
    values: SimulatedValues,
    years: NDArray[np.int64],
    coverage: Sequence[float],
    rate: float,
) -> ValueIntervals:
    """Intervals of simulated present values.

    The guarantee is "assumption" if outcomes over so many years were observed, `rate` is the rate
    of the calibration, and there are at least as many paths as in the calibration; otherwise it is
    "extrapolated". If fewer years were observed, the threshold of the largest observed number is
    used. Raises UsageError if no threshold was fitted for one of `coverage`.

    Args:
        calibrator: The calibrator.
        values: Simulated present values.
        years: Number of years of each value (n,).
        coverage: Coverage of the intervals.
        rate: Discount rate of the values.
    """
    columns = calibrator.coverage_columns(coverage)
    if not calibrator.coverage:
        return ValueIntervals.none(len(values), len(coverage))
    q = np.full((len(values), len(calibrator.coverage)), np.nan)
    guarantee = np.full(q.shape, "none", dtype="<U13")
    for n_years in np.unique(years).tolist():
        thresholds, guarantees = calibrator.nested_thresholds("present_value", n_years)
        rows = np.flatnonzero(years == n_years)
        q[rows], guarantee[rows] = thresholds, guarantees
    if rate != RATE or values.n_paths < calibrator.value_paths:
        guarantee[guarantee == "assumption"] = "extrapolated"
    lower, upper, _ = set_ends(values.distribution, q[:, None], calibrator.coverage)
    guarantee[np.isnan(lower[:, 0])] = "none"
    return ValueIntervals(lower[:, 0, columns], upper[:, 0, columns], guarantee[:, columns])
