"""One-sided limits of a year's earnings, and intervals of earnings given that they are positive.

Each kind is a family of nested sets. The score of an outcome is the smallest q whose set contains
it, as in `saga.conformal.prediction_sets`. Thresholds are fitted on the threshold fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibrator import Calibrator
from saga.conformal.prediction_sets import grow
from saga.paths import Paths

Array = NDArray[np.float64]
_ROUNDING = 1e-9  # probability by which limits are rounded outward


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits in real SEK, arrays (n, H, L), one L per coverage.

    With a probability equal to the coverage, earnings are at least `at_least`; likewise, they are
    at most `at_most`, and, if positive, in [`positive_lower`, `positive_upper`]. A limit is NaN if
    its guarantee is "none".
    """

    at_least: Array
    at_most: Array
    positive_lower: Array
    positive_upper: Array
    guarantee: NDArray[np.str_]
    positive_guarantee: NDArray[np.str_]


def forecast_probability(ordered: NDArray[np.float32], outcomes: Array, scale: float) -> Array:
    """The forecast CDF at each outcome (n,), for sorted samples (n, M).

    It is i / (M + 1) at the i-th smallest sample and linear in t = log(earnings + scale) between
    samples, hence continuous for positive amounts. Above the largest sample the distance in t is
    added to M / (M + 1).
    """
    t, position = _knots(ordered, scale), np.log(outcomes + scale)
    count = ordered.shape[1]
    above = (t <= position[:, None]).sum(axis=1)
    rows, below = np.arange(len(t)), np.clip(above - 1, 0, count)
    low, high = t[rows, below], t[rows, np.minimum(below + 1, count)]
    share = np.where(below < count, (position - low) / np.where(high > low, high - low, 1.0), 0.0)
    beyond = np.where(below == count, position - low, 0.0)
    return np.asarray((below + share) / (count + 1) + beyond, dtype=np.float64)


def forecast_quantile(ordered: NDArray[np.float32], q: float, scale: float) -> Array:
    """Amount (n,) in SEK at forecast probability q, 0 for q <= 0.

    The inverse of `forecast_probability`.
    """
    t = _knots(ordered, scale)
    count = ordered.shape[1]
    position = max(q, 0.0) * (count + 1)
    below = min(int(position), count)
    with np.errstate(over="ignore"):
        if below == count:
            return np.asarray(scale * np.expm1(t[:, -1] + q - count / (count + 1) - np.log(scale)))
        between = t[:, below] + (position - below) * (t[:, below + 1] - t[:, below])
        # Unlike exp(t) - scale, this form is exactly 0 at the t of zero, so that zero is not below
        # a limit of zero.
        amounts = np.maximum(scale * np.expm1(between - np.log(scale)), 0.0)
        return np.asarray(amounts, dtype=np.float64)


def _knots(ordered: NDArray[np.float32], scale: float) -> Array:
    zero = np.zeros(len(ordered), dtype=np.float32)
    return np.log(np.column_stack([zero, ordered]).astype(np.float64) + scale)


def limit_scores(
    calibrator: Calibrator, paths: Paths, horizon: int, outcomes: Array
) -> dict[str, Array]:
    """Scores of outcomes (n,) at a horizon, by kind of limit; NaN if a kind does not apply.

    `paths` are recalibrated.
    """
    paths.require_recalibrated()
    ordered, scale = np.sort(paths.earnings[:, horizon - 1], axis=1), calibrator.scale
    observed = ~np.isnan(outcomes) & ~np.isnan(ordered).any(axis=1)
    scores = {kind: np.full(len(paths), np.nan) for kind in ("at_least", "at_most", "positive")}
    below = forecast_probability(ordered[observed], outcomes[observed], scale)
    scores["at_least"][observed] = 1 - below
    # Zero is below every upper limit.
    scores["at_most"][observed] = np.where(outcomes[observed] == 0, 0.0, below)
    positive = observed & (np.nan_to_num(outcomes) > 0)
    sets = grow(ordered[positive], scale).positive()
    scores["positive"][positive] = sets.score(outcomes[positive])
    return scores


def one_sided_limits(calibrator: Calibrator, paths: Paths, coverage: Sequence[float]) -> Limits:
    """Limits of recalibrated `paths` for each of `coverage`.

    Raises UsageError if no threshold was fitted for one of them.
    """
    paths.require_recalibrated()
    columns = calibrator.coverage_columns(coverage)
    shape = (len(paths), paths.n_horizons, len(coverage))
    at_least, at_most, positive_lower, positive_upper = np.full((4, *shape), np.nan)
    guarantee, positive_guarantee = np.full((2, *shape), "none", dtype="<U13")
    for h in range(paths.n_horizons if calibrator.has_sets else 0):
        alive = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
        ordered = np.sort(paths.earnings[alive, h], axis=1)
        q_least, guarantees = calibrator.nested_thresholds("at_least", h + 1, paths.n_paths)
        q_most, _ = calibrator.nested_thresholds("at_most", h + 1, paths.n_paths)
        q_positive, positive_guarantees = calibrator.nested_thresholds(
            "positive", h + 1, paths.n_paths
        )
        sets = grow(ordered, calibrator.scale).positive()
        for index, j in enumerate(columns):
            if j is None:
                continue
            if guarantees[j] != "none":
                at_least[alive, h, index] = forecast_quantile(
                    ordered, 1 - q_least[j] - _ROUNDING, calibrator.scale
                )
                at_most[alive, h, index] = forecast_quantile(
                    ordered, q_most[j] + _ROUNDING, calibrator.scale
                )
                guarantee[alive, h, index] = guarantees[j]
            if positive_guarantees[j] != "none":
                lower, upper, _ = sets.set_at(q_positive[j])
                rows = alive[upper > 0]
                positive_lower[rows, h, index] = lower[upper > 0]
                positive_upper[rows, h, index] = upper[upper > 0]
                positive_guarantee[rows, h, index] = positive_guarantees[j]
    return Limits(at_least, at_most, positive_lower, positive_upper, guarantee, positive_guarantee)
