"""A cell's map R: forecast probabilities to calibrated ones, samples of F to samples of R(F)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """What was fitted for one horizon and group.

    Args:
        knots: Knots (K,) of R, a piecewise linear map of [0, 1] onto itself; empty if the map fold
            was too small.
        values: Values (K,) of R at the knots.
        map_n: Persons of the map fold.
        atom_width: See `saga.conformal.prediction_sets`.
        thresholds: (number of paths, coverage) -> q; None if the threshold fold was too small.
        n: Persons of the threshold fold.
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


def map_ordered(ordered: NDArray[np.float32], cell: Cell) -> NDArray[np.float32]:
    """Sorted samples (n, M) of F -> sorted samples of R(F), float32.

    The r-th smallest becomes Q(R^-1(r / (M + 1))). Q passes through (i / (M + 1), i-th smallest),
    linear in logs between neighbours, with exponential tails in logs beyond the ends
    (`_tail_slope`). The atom remains an atom: with z > 0 zeros, R((z + 1/2) / (M + 1)) decides how
    many values become exactly 0.
    """
    if not cell.mapped:
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
    low = np.where(low == 0, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ordered.astype(np.float64))
        log_low, log_high = logs[:, np.clip(below, 1, m) - 1], logs[:, np.clip(below + 1, 1, m) - 1]
        between = np.exp((1 - share) * log_low + share * log_high).astype(np.float32)
        over, under = position > m, position < 1
        above_all = np.log(m + 1 - position[over])
        between[:, over] = np.exp(logs[:, -1:] - _tail_slope(logs) * above_all)
        below_all = np.log(position[under])
        between[:, under] = np.exp(logs[:, :1] + _tail_slope(-logs[:, ::-1]) * below_all)
    mapped = np.where((share == 0) | ((low == high) & ~over & ~under), low, between)
    zeros = (ordered == 0).sum(axis=1)
    becomes_zero = (position <= zeros[:, None] + 0.5) & (zeros > 0)[:, None]
    return np.where(becomes_zero, np.float32(0), mapped)


def _tail_slope(logs: Array) -> Array:
    # Hill's (1975) estimate from the top tenth, (n, 1), at most that of a Pareto index of 1.5; 0 if
    # that tenth has zeros.
    k = max(2, logs.shape[1] // 10)
    if logs.shape[1] <= k:
        return np.zeros((len(logs), 1))
    slope = logs[:, -k:].mean(axis=1, keepdims=True) - logs[:, -k - 1 : -k]
    return np.where(np.isfinite(slope), np.minimum(slope, 1 / 1.5), 0.0)
