"""Intervals for a present value over K years, conformalised as a sum: see docs/method/lifetime-guarantee.md."""

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
ATOM_WIDTH = 0.05  # of the value 0, a life without earnings, on the scale of the sets; see `saga.conformal.prediction_sets`


@dataclass(frozen=True, eq=False)
class ValueIntervals:
    """`lower`, `upper` (n, L) in SEK, NaN where `guarantee` (n, L) is "none"."""

    lower: Array
    upper: Array
    guarantee: NDArray[np.str_]

    @classmethod
    def none(cls, persons: int, levels: int) -> ValueIntervals:
        """No interval for anybody."""
        unknown = np.full((persons, levels), np.nan)
        return cls(unknown, unknown, np.full((persons, levels), "none"))

    @classmethod
    def central(cls, values: Array, levels: Sequence[float]) -> ValueIntervals:
        """The central intervals of simulated values (n, M), which promise nothing: "extrapolated"."""
        ends = np.quantile(values, [[(1 - c) / 2, (1 + c) / 2] for c in levels], axis=1)
        return cls(ends[:, 0].T, ends[:, 1].T, np.full((len(values), len(levels)), "extrapolated"))

    def moved(self, by: Array, factor: Array) -> ValueIntervals:
        """The intervals of `factor` x value + `by`, both (n,): what is already known is added, and all discounted to another year."""
        lower, upper = (end * factor[:, None] + by[:, None] for end in (self.lower, self.upper))
        return ValueIntervals(lower, upper, self.guarantee)


def value_sets(values: Array, years: int, scale: float, rate: float) -> NestedSets:
    """The nested sets grown from simulated present values (n, M) over `years`; the scale is that of so many years."""
    annuity = float(((1 + rate) ** -np.arange(1.0, years + 1)).sum())
    return grow(np.sort(values, axis=1), scale * annuity).with_atom(ATOM_WIDTH)


def value_scores(calibrator: Calibrator, paths: Paths, outcomes: Array) -> Array:
    """Column K - 1 of (n, H): the score of the realised present value of the first K years among those of recalibrated paths.

    NaN unless all K outcomes are known.
    """
    paths.require_recalibrated()
    scores = np.full(outcomes.shape, np.nan)
    total, truth = np.zeros((len(paths), paths.n_paths)), np.zeros(len(paths))
    for h in range(outcomes.shape[1]):
        discount = (1 + RATE) ** -(h + 1.0)
        total += paths.earnings[:, h].astype(np.float64) * discount
        truth += outcomes[:, h] * discount
        known = np.flatnonzero(~np.isnan(truth) & ~np.isnan(total).any(axis=1))
        if not len(known):
            break
        scores[known, h] = value_sets(total[known], h + 1, calibrator.scale, RATE).hull_score(
            truth[known]
        )
    return scores


def value_intervals(
    calibrator: Calibrator,
    values: Array,
    years: NDArray[np.int64],
    levels: Sequence[float],
    rate: float,
) -> ValueIntervals:
    """Intervals of the present values of the next `years` (n,) years, simulated as `values` (n, M) at `rate`.

    "assumption" where lives of so many years have been observed at this rate, "extrapolated" beyond: the threshold of the most years
    observed then serves. Raises UsageError for a level that no threshold was fitted for.
    """
    columns = calibrator.coverage_columns(levels)
    lower, upper = np.full((2, len(values), len(levels)), np.nan)
    guarantee = np.full(lower.shape, "none", dtype="<U13")
    for own in np.unique(years).tolist():
        q, promises = calibrator.nested_thresholds("present_value", own, values.shape[1])
        rows = np.flatnonzero(years == own)
        family = value_sets(values[rows], own, calibrator.scale, rate)
        for index, j in enumerate(columns):
            if j is not None and promises[j] != "none":
                lower[rows, index], upper[rows, index] = family.hull_at(float(q[j]))
                guarantee[rows, index] = promises[j] if rate == RATE else "extrapolated"
    return ValueIntervals(lower, upper, guarantee)
