"""Conformalised quantile intervals, and the names of the calibration methods.

Romano, Patterson and Candes (2019): the interval between two quantiles of the forecast is moved
outward by q, an order statistic of max(lower quantile - outcome, outcome - upper quantile).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.distributions import Marginals
from saga.requests import CalibrationMethod

METHODS: dict[CalibrationMethod, str] = {
    "sets": "prediction sets from recalibrated forecasts, thresholds by group",
    "cqr": "conformalised quantile regression, one threshold per horizon for everybody",
    "cv+": "cross-fitted prediction sets, from members that have not seen the person",
}
Array = NDArray[np.float64]


def central_probabilities(coverage: Sequence[float]) -> Array:
    """Probabilities (2, L) of the quantiles that leave (1 - coverage) / 2 on each side."""
    return np.array([[(1 - share) / 2, (1 + share) / 2] for share in coverage]).T


def conformalised_intervals(
    marginals: Marginals, q: Array, coverage: Sequence[float]
) -> tuple[Array, Array]:
    """Ends (n, H, L), in money, of the intervals, one for each of `coverage`.

    The amount `q` (n, H, L) is added on both sides. Ends below 0 become 0. If a negative q is so
    large that the ends would cross, both are the middle. `coverage` must ascend, and each interval
    contains those of lower coverage. NaN where `q` is.
    """
    low, high = (marginals.quantiles(p) for p in central_probabilities(coverage))
    middle = (low + high) / 2
    lower, upper = np.minimum(low - q, middle), np.maximum(high + q, middle)
    lower, upper = np.fmin.accumulate(lower, axis=-1), np.fmax.accumulate(upper, axis=-1)
    lower, upper = (np.where(np.isnan(q), np.nan, end) for end in (lower, upper))
    return np.maximum(lower, 0.0), np.maximum(upper, 0.0)
