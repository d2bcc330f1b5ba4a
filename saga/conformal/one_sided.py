"""One year seen otherwise: limits that earnings stay above, or below, and the interval of earnings given that there are any.

Each is a nested family of sets with a score, the smallest q whose set holds the outcome, as in `saga.conformal.prediction_sets`; thresholds come from half B.
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
_ROUNDING = 1e-9  # limits are rounded outward by so much probability


@dataclass(frozen=True, eq=False)
class Limits:
    """Arrays (n, H, L), real SEK: with the chance of the level, earnings are at least `at_least`; with that chance, at most `at_most`; and
    earnings above 0 lie in [`positive_lower`, `positive_upper`]. NaN where the guarantee (of the same shape) is "none"."""

    at_least: Array
    at_most: Array
    positive_lower: Array
    positive_upper: Array
    guarantee: NDArray[np.str_]
    positive_guarantee: NDArray[np.str_]


def forecast_probability(ordered: NDArray[np.float32], outcomes: Array, scale: float) -> Array:
    """Forecast probability of at most the outcome (n,), for sorted samples (n, M): in [0, M / (M + 1)], continuous for positive amounts.

    Samples are at i / (M + 1), straight in t = log(earnings + scale) between; above the largest the distance in t is added.
    """
    t, position = _knots(ordered, scale), np.log(outcomes + scale)
    count = ordered.shape[1]
    above = (t <= position[:, None]).sum(axis=1)
    rows, below = np.arange(len(t)), np.clip(above - 1, 0, count)
    low, high = t[rows, below], t[rows, np.minimum(below + 1, count)]
    share = np.where(below < count, (position - low) / np.where(high > low, high - low, 1.0), 0.0)
    return np.asarray(
        (below + share) / (count + 1) + np.where(below == count, position - low, 0.0),
        dtype=np.float64,
    )


def forecast_quantile(ordered: NDArray[np.float32], q: float, scale: float) -> Array:
    """The amount (n,) in SEK at forecast probability q: the inverse of `place`, 0 for q <= 0."""
    t = _knots(ordered, scale)
    count = ordered.shape[1]
    at = max(q, 0.0) * (count + 1)
    below = min(int(at), count)
    with np.errstate(over="ignore"):
        if below == count:
            return np.asarray(scale * np.expm1(t[:, -1] + q - count / (count + 1) - np.log(scale)))
        between = t[:, below] + (at - below) * (t[:, below + 1] - t[:, below])
        # Not exp(t) - scale: where t is that of zero this is 0 to the last bit, whatever the scale, and zero is not below its own limit.
        return np.asarray(
            np.maximum(scale * np.expm1(between - np.log(scale)), 0.0), dtype=np.float64
        )


def _knots(ordered: NDArray[np.float32], scale: float) -> Array:
    return np.log(
        np.column_stack([np.zeros(len(ordered), dtype=np.float32), ordered]).astype(np.float64)
        + scale
    )


def limit_scores(
    calibrator: Calibrator, paths: Paths, horizon: int, outcomes: Array
) -> dict[str, Array]:
    """Scores of the outcomes (n,) of recalibrated paths at a horizon, by kind of limit; NaN where the kind does not apply."""
    paths.require_recalibrated()
    ordered, scale = np.sort(paths.earnings[:, horizon - 1], axis=1), calibrator.scale
    known = ~np.isnan(outcomes) & ~np.isnan(ordered).any(axis=1)
    scores = {kind: np.full(len(paths), np.nan) for kind in ("at_least", "at_most", "positive")}
    below = forecast_probability(ordered[known], outcomes[known], scale)
    scores["at_least"][known] = 1 - below
    scores["at_most"][known] = np.where(
        outcomes[known] == 0, 0.0, below
    )  # zero is in every set of this family
    earned = known & (np.nan_to_num(outcomes) > 0)
    scores["positive"][earned] = grow(ordered[earned], scale).positive().score(outcomes[earned])
    return scores


def one_sided_limits(calibrator: Calibrator, paths: Paths, levels: Sequence[float]) -> Limits:
    """Limits of recalibrated `paths` at each of `levels`. Raises UsageError for a level that no threshold was fitted for."""
    paths.require_recalibrated()
    columns = calibrator.coverage_columns(levels)
    shape = (len(paths), paths.n_horizons, len(levels))
    least, most, low, high = np.full((4, *shape), np.nan)
    guarantee, given_positive = np.full((2, *shape), "none", dtype="<U13")
    for h in range(paths.n_horizons if calibrator.has_sets else 0):
        alive = np.flatnonzero(~np.isnan(paths.earnings[:, h]).any(axis=1))
        ordered = np.sort(paths.earnings[alive, h], axis=1)
        above, promises = calibrator.nested_thresholds("at_least", h + 1, paths.n_paths)
        below, _ = calibrator.nested_thresholds("at_most", h + 1, paths.n_paths)
        inside, promises_positive = calibrator.nested_thresholds("positive", h + 1, paths.n_paths)
        family = grow(ordered, calibrator.scale).positive()
        for index, j in enumerate(columns):
            if j is None:
                continue
            if promises[j] != "none":
                least[alive, h, index] = forecast_quantile(
                    ordered, 1 - above[j] - _ROUNDING, calibrator.scale
                )
                most[alive, h, index] = forecast_quantile(
                    ordered, below[j] + _ROUNDING, calibrator.scale
                )
                guarantee[alive, h, index] = promises[j]
            if promises_positive[j] != "none":
                lower, upper, _ = family.at(inside[j])
                some = upper > 0
                low[alive[some], h, index], high[alive[some], h, index] = lower[some], upper[some]
                given_positive[alive[some], h, index] = promises_positive[j]
    return Limits(least, most, low, high, guarantee, given_positive)
