"""Whether a number of covered persons is plausible under split conformal calibration."""

from __future__ import annotations

from saga.calibration.fit.person_scores import rank_needed
from scipy import stats

from saga.small_groups import MIN_PERSONS

P = 1e-6  # probability that a test fails by chance


def is_plausible(
    hits: int, trials: int, n: int, coverage: float, tail: float, *, slack: int = MIN_PERSONS - 1
) -> bool:
    """Whether `hits` fits a threshold between the k-th and the (k + `slack`)-th of n scores.

    Numbers of hits are implausible if so few, or so many, have a probability below `tail`.
    """
    k = rank_needed(n, coverage)
    low, high = (stats.betabinom(trials, r, n + 1 - r) for r in (k, min(k + slack, n)))
    return bool(low.ppf(tail) <= hits <= high.isf(tail))
