"""Prediction sets, (n, H, L): as a calibrator publishes them, or as they follow from samples alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Sets:
    """{0} where `includes_zero`, and [lower, upper] of positive amounts, real SEK; arrays (n, H, L), one level on the last axis.

    Both ends are 0 where the set is {0} alone, NaN where no interval is given.
    """

    lower: Array
    upper: Array
    includes_zero: Array

    def at(self, horizons: Array) -> Sets:
        """The sets of some horizons (indices on the second axis)."""
        return Sets(
            self.lower[:, horizons], self.upper[:, horizons], self.includes_zero[:, horizons]
        )


def sample_sets(samples: Array, levels: Sequence[float]) -> Sets:
    """Sets that hold each level exactly if outcome and samples (n, H, M) are exchangeable, zeros included.

    Zero enters where the level cannot be reached without it (its share exceeds 1 - level); the positive part is central and holds
    the rest of the level, with the order statistics at (m + 1) q of the m positive samples, the rank that makes the coverage
    right on average (the extremes where m is too small). A share of zeros above the level gives {0}.
    """
    ordered = np.sort(samples.astype(np.float64), axis=-1)
    missing = np.isnan(ordered[..., -1])
    count = ordered.shape[-1]
    zeros = (ordered == 0).sum(axis=-1)
    positive = count - zeros
    share = zeros / count
    lower: list[Array] = []
    upper: list[Array] = []
    included: list[Array] = []
    for level in levels:
        needs = share > 1 - level
        inside = np.where(needs, level - share, level) / np.maximum(1 - share, 1 / count)
        only_zero = share >= level
        for ends, q in ((lower, (1 - inside) / 2), (upper, (1 + inside) / 2)):
            rank = np.clip(q * (positive + 1) - 1, 0, np.maximum(positive - 1, 0)) + np.minimum(
                zeros, count - 1
            )
            below = rank.astype(np.int64)
            low = np.take_along_axis(ordered, below[..., None], axis=-1)[..., 0]
            high = np.take_along_axis(
                ordered, np.minimum(below + 1, count - 1)[..., None], axis=-1
            )[..., 0]
            end = np.where(only_zero, 0.0, low + (rank - below) * (high - low))
            ends.append(np.where(missing, np.nan, end))
        included.append(needs & ~missing)
    return Sets(np.stack(lower, -1), np.stack(upper, -1), np.stack(included, -1))
