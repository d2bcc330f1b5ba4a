"""Prediction sets (n, H, L): those of a calibrator, or those that follow from samples alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """The union of {0}, if `includes_zero`, and the interval [lower, upper] of positive amounts.

    Arrays (n, H, L), real money, coverage on the last axis. Both ends are 0 if the set is only {0},
    and NaN if there is no interval.
    """

    lower: Array
    upper: Array
    includes_zero: Array

    def at(self, horizons: Array) -> PredictionSets:
        """The sets at `horizons`, indices on the second axis."""
        return PredictionSets(
            self.lower[:, horizons], self.upper[:, horizons], self.includes_zero[:, horizons]
        )


def sets_from_samples(samples: Array, coverage: Sequence[float]) -> PredictionSets:
    """Sets with this coverage on average if the outcome and samples (n, H, M) are exchangeable.

    A set includes zero if the share of zeros exceeds 1 - coverage, because the coverage cannot be
    reached without it. The positive part is a central interval with the rest of the coverage. Its
    ends are the order statistics at (m + 1) q of the m positive samples, or the extremes if m is
    too small. If the share of zeros reaches the coverage, the set is {0}.
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
    for nominal in coverage:
        needs_zero = share > 1 - nominal
        inside = np.where(needs_zero, nominal - share, nominal) / np.maximum(1 - share, 1 / count)
        only_zero = share >= nominal
        for ends, q in ((lower, (1 - inside) / 2), (upper, (1 + inside) / 2)):
            rank = np.clip(q * (positive + 1) - 1, 0, np.maximum(positive - 1, 0)) + np.minimum(
                zeros, count - 1
            )
            below = rank.astype(np.int64)
            low, high = (
                np.take_along_axis(ordered, np.minimum(index, count - 1)[..., None], axis=-1)[
                    ..., 0
                ]
                for index in (below, below + 1)
            )
            end = np.where(only_zero, 0.0, low + (rank - below) * (high - low))
            ends.append(np.where(missing, np.nan, end))
        included.append(needs_zero & ~missing)
    return PredictionSets(np.stack(lower, -1), np.stack(upper, -1), np.stack(included, -1))
