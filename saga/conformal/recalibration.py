"""Recalibration of samples with the map R of a calibrator's cell.

R maps forecast probabilities to calibrated ones. If F is the forecast's CDF, R(F) is the CDF of the
recalibrated forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """The map R and the thresholds fitted for one horizon and group.

    Args:
        knots: Knots (K,) of R, a piecewise linear map of [0, 1] onto itself; empty if the map fold
            was too small.
        values: Values (K,) of R at the knots.
        n_map: Number of persons in the map fold.
        atom_width: Width on the scale of t by which the probability of zero is divided to obtain a
            density (`saga.conformal.prediction_sets`).
        thresholds: Threshold q by number of paths and coverage; None if the threshold fold was too
            small.
        n_threshold: Number of persons in the threshold fold.
    """

    knots: Array
    values: Array
    n_map: int
    atom_width: float
    thresholds: Mapping[tuple[int, float], float | None]
    n_threshold: int

    @property
    def has_map(self) -> bool:
        """Whether a map was fitted for the cell."""
        return len(self.knots) > 0


def map_ordered(ordered: NDArray[np.float32], cell: Cell) -> NDArray[np.float32]:
    """Map sorted samples (n, M) of F to sorted samples of R(F), float32.

    The r-th smallest sample becomes Q(R^-1(r / (M + 1))). Q is the quantile function of the
    samples: Q(i / (M + 1)) is the i-th smallest sample, log Q is linear between neighbours, and
    beyond the outermost samples the tails are exponential in logs (`_tail_slope`). Zeros remain
    exact zeros: if k > 0 samples are zero, R((k + 1/2) / (M + 1)) decides how many values become 0.
    """
    if not cell.has_map:
        return ordered
    m = ordered.shape[1]
    position = np.interp(np.arange(1, m + 1) / (m + 1), cell.values, cell.knots) * (m + 1)
    # Rounded to whole numbers, so that the identity map returns exactly the same samples.
    nearest = np.round(position)
    position = np.where(np.abs(position - nearest) < 1e-9, nearest, position)
    below = np.floor(position).astype(np.int64)
    share = position - below
    low = ordered[:, np.clip(below, 1, m) - 1]
    high = ordered[:, np.clip(below + 1, 1, m) - 1]
    low = np.where(low == 0, high, low)  # there is no interpolation between zero and an amount
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ordered.astype(np.float64))
        log_low, log_high = logs[:, np.clip(below, 1, m) - 1], logs[:, np.clip(below + 1, 1, m) - 1]
        between = np.exp((1 - share) * log_low + share * log_high).astype(np.float32)
        above_samples, below_samples = position > m, position < 1
        upper_tail = np.log(m + 1 - position[above_samples])
        between[:, above_samples] = np.exp(logs[:, -1:] - _tail_slope(logs) * upper_tail)
        lower_tail = np.log(position[below_samples])
        between[:, below_samples] = np.exp(logs[:, :1] + _tail_slope(-logs[:, ::-1]) * lower_tail)
    inside = ~above_samples & ~below_samples
    mapped = np.where((share == 0) | ((low == high) & inside), low, between)
    zeros = (ordered == 0).sum(axis=1)
    becomes_zero = (position <= zeros[:, None] + 0.5) & (zeros > 0)[:, None]
    return np.where(becomes_zero, np.float32(0), mapped)


def _tail_slope(logs: Array) -> Array:
    """Inverse Pareto index (n, 1) of the upper tail, from the top tenth of the samples.

    Hill's (1975) estimate, at most 1 / 1.5; it is 0 if that tenth contains zeros.
    """
    k = max(2, logs.shape[1] // 10)
    if logs.shape[1] <= k:
        return np.zeros((len(logs), 1))
    slope = logs[:, -k:].mean(axis=1, keepdims=True) - logs[:, -k - 1 : -k]
    return np.where(np.isfinite(slope), np.minimum(slope, 1 / 1.5), 0.0)
