"""One-sided limits of a year's earnings, and intervals of earnings given that they are positive.

Each kind is a family of nested sets. The score of an outcome is the smallest q whose set contains
it, as in `saga.conformal.prediction_sets`. Thresholds are fitted on the threshold fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.conformal.calibration_table import ThresholdKind
from saga.conformal.calibrator import Calibrator
from saga.conformal.cross_fitted import Scorer
from saga.distributions import Marginals

Array = NDArray[np.float64]
_ROUNDING = 1e-9  # probability by which limits are rounded outward


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits in real money of the panel, arrays (n, H, L), one L per coverage.

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


def limit_scores(
    marginals: Marginals, outcomes: Array, uniforms: Array | None = None
) -> dict[ThresholdKind, Array]:
    """Scores of outcomes (n, H) by kind of limit; NaN if a kind does not apply.

    The marginals are recalibrated. Intervals of positive earnings are central in the distribution
    given positive earnings. `uniforms` (n, H) as in `saga.conformal.prediction_sets.set_scores`.
    """
    marginals.require_recalibrated()
    below = marginals.probability(outcomes)
    given_positive = _given_positive(below, marginals.p_zero_like(outcomes))
    # Zero is below every upper limit, and above a lower limit of zero.
    at_most, at_least = np.where(outcomes == 0, 0.0, below), below
    if uniforms is not None:
        at_most = at_least = np.where(outcomes == 0, uniforms * below, below)
    return {
        "at_least": 1 - at_least,
        "at_most": np.where(np.isnan(below), np.nan, at_most),
        "positive": np.where(outcomes > 0, np.abs(2 * given_positive - 1), np.nan),
    }


def one_sided_limits(
    calibrator: Calibrator, marginals: Marginals, coverage: Sequence[float]
) -> Limits:
    """Limits of recalibrated marginals for each of `coverage`.

    Raises UsageError if no threshold was fitted for one of them.
    """
    marginals.require_recalibrated()
    columns = calibrator.coverage_columns(coverage)
    if calibrator.method == "cv+":
        return _cross_fitted_limits(calibrator, marginals, columns)
    shape = (*marginals.p_zero.shape, len(coverage))
    if not calibrator.has_sets:
        missing, none = np.full(shape, np.nan), np.full(shape, "none", dtype="<U13")
        return Limits(missing, missing, missing, missing, none, none)
    kinds: tuple[ThresholdKind, ...] = ("at_least", "at_most", "positive")
    q = {kind: np.full(shape[1:], np.nan) for kind in kinds}
    guarantee = {kind: np.full(shape, "none", dtype="<U13") for kind in kinds}
    for kind in kinds:
        for h in range(marginals.n_horizons):
            thresholds, guarantees = calibrator.nested_thresholds(kind, h + 1)
            q[kind][h] = thresholds[columns]
            guarantee[kind][:, h] = np.array(guarantees)[columns]
    # In two tails, as shares of the probability of positive earnings.
    p_zero, tail = marginals.p_zero[..., None], (1 - q["positive"]) / 2
    tail = np.where(tail > 0, tail, np.nan)
    at_least = _quantiles(marginals, 1 - q["at_least"] - _ROUNDING)
    at_most = _quantiles(marginals, q["at_most"] + _ROUNDING)
    lower = _quantiles(marginals, p_zero + (1 - p_zero) * np.maximum(tail, _ROUNDING))
    upper = _quantiles(marginals, p_zero + (1 - p_zero) * (1 - tail))
    missing = np.isnan(at_least) | np.isnan(at_most)
    at_least, at_most = (np.where(missing, np.nan, limit) for limit in (at_least, at_most))
    guarantee["at_least"][missing] = "none"
    guarantee["positive"][np.isnan(lower)] = "none"
    return Limits(at_least, at_most, lower, upper, guarantee["at_least"], guarantee["positive"])


def _cross_fitted_limits(
    calibrator: Calibrator, marginals: Marginals, columns: Sequence[int]
) -> Limits:
    kinds: tuple[ThresholdKind, ...] = ("at_least", "at_most", "positive")
    least, most, positive = (
        calibrator.cross_fitted(kind, marginals, _limit_scorer(kind)).at(columns) for kind in kinds
    )
    return Limits(
        least.lower,
        most.upper,
        positive.lower,
        positive.upper,
        np.where(most.guarantee == "none", "none", least.guarantee),
        positive.guarantee,
    )


def _limit_scorer(kind: ThresholdKind) -> Callable[[float], Scorer]:
    return lambda _: lambda member, amounts: limit_scores(member, amounts)[kind]


def _given_positive(below: Array, p_zero: NDArray[np.floating]) -> Array:
    """Probability (n, H) given positive earnings, from that of all earnings."""
    share: Array = (below - p_zero) / np.maximum(1 - p_zero, _ROUNDING)
    return np.clip(share, 0.0, 1.0)


def _quantiles(marginals: Marginals, p: Array) -> Array:
    """Quantiles (n, H, L) at probabilities (n, H, L) or (H, L); NaN where they are."""
    p = np.broadcast_to(p, (*marginals.p_zero.shape, p.shape[-1]))
    return np.asarray(np.where(np.isnan(p), np.nan, marginals.quantiles(np.nan_to_num(p))))
