"""Prediction sets of a year's earnings: one interval per person, horizon and coverage.

With F the recalibrated marginal, p0 its probability of zero and a = 1 - coverage, the set is

    [F^-1(a / 2), F^-1(1 - a / 2)] without zero   if p0 < a / 2,
    [0, F^-1(1 - a)]                              if a / 2 <= p0 < 1 - a,
    {0}                                           if p0 >= 1 - a.

It contains 1 - a of the person's own distribution, or more if p0 forces it to, and zero if and only
if the quantile of a / 2 is zero. Conformal calibration replaces a inside each form: the score of an
outcome is the smallest q such that the set with a = 1 - q contains it. The form itself depends on
the coverage and on p0 alone. `docs/decisions/prediction-sets.md` compares this family with others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.distributions import Marginals

Array = NDArray[np.float64]
_ROUNDING = 1e-9  # probability by which ends are rounded outward
SMALLEST_AMOUNT = 1.0  # unit of the currency; the lower end of a set without zero


def starts_at_zero(p_zero: NDArray[np.floating], coverage: float) -> NDArray[np.bool_]:
    """Whether the set of this coverage contains zero, shape of `p_zero`."""
    return np.asarray(np.asarray(p_zero, dtype=np.float64) >= (1 - coverage) / 2)


def set_scores(
    marginals: Marginals, outcomes: Array, coverage: float, uniforms: Array | None = None
) -> Array:
    """Score of each outcome (n, H) for sets of this coverage: the smallest q that contains it.

    1 for zero earnings if the set does not contain zero: then only the set of all amounts does.

    With `uniforms` (n, H), the score of zero in a set that contains it is a random part of its
    probability instead of 0. Under the forecast the score of every person is then uniform.
    Thresholds are fitted on such scores: otherwise persons who certainly lie in their set, because
    of the atom, would make the sets of all others too small. No score gets smaller, so coverage is
    kept.
    """
    less = probability_of_less(marginals, outcomes)
    scores = scores_of(less, marginals.p_zero_like(outcomes), coverage)
    if uniforms is not None:
        is_inside = (outcomes == 0) & starts_at_zero(marginals.p_zero, coverage)
        scores = np.where(is_inside, uniforms * marginals.p_zero, scores)
    return scores


def probability_of_less(marginals: Marginals, outcomes: Array) -> Array:
    """Forecast probability of less earnings than each outcome (n, H): 0 for zero; NaN if unknown.

    With `p_zero` it gives the score of the outcome for every coverage.
    """
    up_to = marginals.probability(outcomes)
    return np.where((outcomes == 0) & ~np.isnan(up_to), 0.0, up_to)


def scores_of(less: Array, p_zero: NDArray[np.floating], coverage: float) -> Array:
    """Scores of outcomes from `probability_of_less` and `p_zero`, of shapes that broadcast."""
    return np.where(starts_at_zero(p_zero, coverage), less, np.abs(2 * less - 1))


def set_ends(
    marginals: Marginals, q: Array, coverage: Sequence[float]
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Ends (n, H, L) in money, and whether zero belongs to the set; one of L per coverage.

    `coverage` ascends and `q` (n, H, L) must not decrease with it; each set then contains those of
    lower coverage. NaN if `q` is NaN, or 1 or above, which no finite set reaches. Below 0 the set
    is that of 0, because none is smaller.
    """
    q = np.where(q < 1, np.maximum(q, 0.0), np.nan)
    zero = np.stack([starts_at_zero(marginals.p_zero, share) for share in coverage], axis=-1)
    tail = np.nan_to_num(np.where(zero, 1 - q, (1 - q) / 2))
    both = np.concatenate([tail - _ROUNDING, 1 - tail + _ROUNDING], axis=-1)
    lower, upper = np.split(marginals.quantiles(both), 2, axis=-1)
    lower = np.where(zero, 0.0, np.maximum(lower, SMALLEST_AMOUNT))
    missing = np.isnan(q)
    lower, upper = np.where(missing, np.inf, lower), np.where(missing, -np.inf, upper)
    lower = np.where(missing, np.nan, np.minimum.accumulate(lower, axis=-1))
    upper = np.where(missing, np.nan, np.maximum.accumulate(upper, axis=-1))
    return lower, upper, zero & ~missing


def central_scores(marginals: Marginals, outcomes: Array) -> Array:
    """Score of each outcome (n, H) in central sets: the smallest q whose set contains it.

    The central set of q lies between the quantiles of (1 - q) / 2 and (1 + q) / 2. It contains zero
    if the lower quantile is zero. Such sets are nested over all q, as path bands need.
    """
    below = marginals.probability(outcomes)
    return (
        np.where(
            outcomes == 0,
            np.maximum(1 - 2 * marginals.p_zero_like(outcomes), 0.0),
            np.abs(2 * below - 1),
        )
        + 0 * below
    )


def central_ends(marginals: Marginals, q: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Ends (n, H, L) in money of the central sets of `q` (n, H, L), and whether zero is inside.

    NaN if `q` is NaN, or 1 or above.
    """
    q = np.where(q < 1, q, np.nan)
    lower = marginals.quantiles((1 - np.nan_to_num(q)) / 2 - _ROUNDING)
    upper = marginals.quantiles((1 + np.nan_to_num(q)) / 2 + _ROUNDING)
    lower, upper = (np.where(np.isnan(q), np.nan, end) for end in (lower, upper))
    return lower, upper, lower == 0
