"""Intervals of a year's earnings given that they are positive: central in that distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saga.arrays import Floats, Reals
from saga.conformal.families.set_family import ROUNDING, Ends, SetFamily, quantiles_at
from saga.distributions import Marginals


class _PositiveIntervals(SetFamily):
    """Intervals of positive earnings; zero has no score."""

    kind = "positive"
    randomised = False

    def ranks(self, forecasts: Marginals, outcomes: Floats) -> tuple[Floats, Reals]:
        """See `SetFamily.ranks`; NaN for zero."""
        less, p_zero = super().ranks(forecasts, outcomes)
        return np.where(outcomes > 0, less, np.nan), p_zero

    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """See `SetFamily.rank_scores`."""
        given_positive = (less - p_zero) / np.maximum(1 - p_zero, ROUNDING)
        return np.abs(2 * np.clip(given_positive, 0.0, 1.0) - 1)

    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """See `SetFamily.ends`. The two tails are shares of the probability to be positive."""
        p_zero, tail = marginals.p_zero[..., None], (1 - q) / 2
        tail = np.where(tail > 0, tail, np.nan)
        lower = quantiles_at(marginals, p_zero + (1 - p_zero) * np.maximum(tail, ROUNDING))
        upper = quantiles_at(marginals, p_zero + (1 - p_zero) * (1 - tail))
        return lower, upper, np.zeros(lower.shape, dtype=np.bool_)


POSITIVE = _PositiveIntervals()
