"""Conformalised quantile intervals, of the calibration method "cqr".

Romano, Patterson and Candes (2019): the interval between two quantiles of the forecast is moved
outward by q, an order statistic of max(lower quantile - outcome, outcome - upper quantile). q is an
amount. `saga.calibration.fit.cqr` fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from saga.arrays import Floats, Reals
from saga.conformal.families.set_family import Ends, SetFamily
from saga.distributions import Marginals


def central_probabilities(coverage: Sequence[float]) -> Floats:
    """Probabilities (2, L) of the quantiles that leave (1 - coverage) / 2 on each side."""
    return np.array([[(1 - share) / 2, (1 + share) / 2] for share in coverage]).T


class _ConformalisedQuantiles(SetFamily):
    """Intervals between two quantiles, moved outward by an amount, for each horizon alone."""

    kind = "cqr"
    by_coverage = True
    extrapolates = False

    def scores(self, forecasts: Marginals, outcomes: Floats, coverage: float) -> Floats:
        """How far each outcome (n, H) is outside the two quantiles; negative inside."""
        low, high = (forecasts.quantiles(p)[..., 0] for p in central_probabilities((coverage,)))
        return np.maximum(low - outcomes, outcomes - high)

    def rank_scores(self, less: Floats, p_zero: Reals, coverage: float) -> Floats:
        """Raises TypeError: a rank says nothing about amounts."""
        raise TypeError("scores of quantile intervals are amounts")

    def nested(self, q: Floats) -> Floats:
        """The same amounts, because the quantiles differ."""
        return q

    def is_unbounded(self, q: Floats | float) -> Any:
        """No amount is too large."""
        return np.zeros(np.shape(q), dtype=np.bool_)

    def ends(self, marginals: Marginals, q: Floats, coverage: Sequence[float]) -> Ends:
        """Ends (n, H, L) in money of the intervals, for ascending coverages.

        Ends below 0 become 0. If a negative q is so large that the ends would cross, both are the
        middle. Each interval contains those of lower coverage. NaN where `q` is.
        """
        low, high = (marginals.quantiles(p) for p in central_probabilities(coverage))
        middle = (low + high) / 2
        lower, upper = np.minimum(low - q, middle), np.maximum(high + q, middle)
        lower, upper = np.fmin.accumulate(lower, axis=-1), np.fmax.accumulate(upper, axis=-1)
        lower, upper = (np.where(np.isnan(q), np.nan, end) for end in (lower, upper))
        lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
        return lower, upper, lower == 0


QUANTILE_INTERVALS = _ConformalisedQuantiles()
