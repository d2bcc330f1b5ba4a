"""The map R of one cell: forecast probabilities to calibrated ones, and sorted samples of F to sorted samples of R(F)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """What one cell learnt.

    `knots` and `values` (K,): R as a piecewise linear map of [0, 1] onto itself, empty where half A (`map_n` persons) was too small.
    `thresholds`: (number of paths, level) -> q from half B (`n` persons), None where it was too small. `atom_width`: see `saga.conformal.prediction_sets`.
    """

    knots: Array
    values: Array
    map_n: int
    atom_width: float
    thresholds: Mapping[tuple[int, float], float | None]
    n: int

    @property
    def mapped(self) -> bool:
        """Whether the cell has a map of its own."""
        return len(self.knots) > 0


def calibrate_probability(u: Array, cell: Cell) -> Array:
    """R(u), same shape: the calibrated probability of a forecast probability."""
    return np.interp(u, cell.knots, cell.values) if cell.mapped else u


def map_ordered(ordered: NDArray[np.float32], cell: Cell) -> NDArray[np.float32]:
    """Sorted samples (n, M) of F -> sorted samples of R(F), float32.

    The r-th smallest becomes Q(R^-1(r / (M + 1))); Q runs through (i / (M + 1), i-th smallest), straight in logs between neighbours, with
    exponential tails in logs beyond the ends (`_tail_slope`). The atom stays an atom: with z > 0 zeros its mass R((z + 1/2) / (M + 1))
    decides how many values become exactly 0.
    """
    if not cell.mapped:
        return ordered
    m = ordered.shape[1]
    place = np.interp(np.arange(1, m + 1) / (m + 1), cell.values, cell.knots) * (m + 1)
    nearest = np.round(place)
    place = np.where(
        np.abs(place - nearest) < 1e-9, nearest, place
    )  # the identity map then gives back the very same numbers
    below = np.floor(place).astype(np.int64)
    share = place - below
    low = ordered[:, np.clip(below, 1, m) - 1]
    high = ordered[:, np.clip(below + 1, 1, m) - 1]
    low = np.where(low == 0, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ordered.astype(np.float64))
        log_low, log_high = logs[:, np.clip(below, 1, m) - 1], logs[:, np.clip(below + 1, 1, m) - 1]
        between = np.exp((1 - share) * log_low + share * log_high).astype(np.float32)
        over, under = place > m, place < 1
        between[:, over] = np.exp(logs[:, -1:] - _tail_slope(logs) * np.log(m + 1 - place[over]))
        between[:, under] = np.exp(logs[:, :1] + _tail_slope(-logs[:, ::-1]) * np.log(place[under]))
    mapped = np.where((share == 0) | ((low == high) & ~over & ~under), low, between)
    zeros = (ordered == 0).sum(axis=1)
    return np.where((place <= zeros[:, None] + 0.5) & (zeros > 0)[:, None], np.float32(0), mapped)


def _tail_slope(logs: Array) -> Array:
    # Hill's (1975) estimate from the top tenth, shape (n, 1), at most that of a Pareto index of 1.5; 0 where zeros reach into that tenth.
    k = max(2, logs.shape[1] // 10)
    if logs.shape[1] <= k:
        return np.zeros((len(logs), 1))
    slope = logs[:, -k:].mean(axis=1, keepdims=True) - logs[:, -k - 1 : -k]
    return np.where(np.isfinite(slope), np.minimum(slope, 1 / 1.5), 0.0)
