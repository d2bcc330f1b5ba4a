"""Conformalised quantile intervals, and the names of the calibration methods.

Romano, Patterson and Candes (2019): the interval between two quantiles of the forecast is moved
outward by q, an order statistic of max(lower quantile - outcome, outcome - upper quantile).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.requests import CalibrationMethod

METHODS: dict[CalibrationMethod, str] = {
    "sets": "nested prediction sets from recalibrated forecasts, thresholds by group",
    "cqr": "conformalised quantile regression, one threshold per horizon for everybody",
}
Array = NDArray[np.float64]


def central_quantiles(samples: NDArray[np.floating], coverage: float) -> tuple[Array, Array]:
    """The quantiles of samples (n, M) that leave (1 - coverage) / 2 on each side, both (n,)."""
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    lower, upper = np.quantile(samples.astype(np.float64), tails, axis=-1)
    return lower, upper


def conformalised_intervals(
    samples: NDArray[np.floating], q: Array, coverage: Sequence[float]
) -> tuple[Array, Array]:
    """Ends (n, L) in SEK of the intervals of samples (n, M), one for each of `coverage`.

    `q` (L,) in SEK is added on both sides. Ends below 0 become 0. If a negative q is so large that
    the ends would cross, both are the middle. `coverage` must ascend, and each interval contains
    those of lower coverage.
    """
    ends = np.array([central_quantiles(samples, share) for share in coverage])
    middle = ends.mean(axis=1).T
    lower = np.minimum(ends[:, 0].T - q, middle)
    upper = np.maximum(ends[:, 1].T + q, middle)
    lower, upper = np.fmin.accumulate(lower, axis=1), np.fmax.accumulate(upper, axis=1)
    return np.maximum(lower, 0.0), np.maximum(upper, 0.0)
