"""Distributions with an atom at zero, from a few quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Array = NDArray[Any]
Floats = NDArray[np.float64]
QUANTILES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
KNOTS = logit(np.array(QUANTILES))
LEAST = 1e-6  # log units between quantiles: keeps the map from ranks to amounts invertible
HEAVIEST = 0.5  # log units per logit in the upper tail: Pareto index 2, so that means exist


@dataclass(frozen=True, eq=False)
class Marginals:
    """One distribution per person and horizon.

    Between and beyond the quantiles, log amounts are linear in the logit of the probability. This
    is exact for a logistic distribution and within a hundredth of a standard deviation for a normal
    one between the outer quantiles. Tails are exponential (amounts: Pareto), the upper one at most
    HEAVIEST.

    Args:
        zero: (n, H), probability of zero.
        logs: (n, H, 9), increasing quantiles of log positive earnings at QUANTILES.
    """

    zero: Floats
    logs: Floats

    @classmethod
    def of(cls, zero: Floats, logs: Floats) -> Marginals:
        """From predictions that may cross: quantiles are sorted.

        Chernozhukov, Fernandez-Val and Galichon (2010).
        """
        ordered = np.sort(logs, axis=-1) + LEAST * np.arange(len(QUANTILES))
        return cls(np.clip(zero, 0.0, 1.0), ordered)

    def at(self, grid: Array, horizons: Array) -> Marginals:
        """The distributions at `horizons` (K,) from those at `grid` (H,), both ascending.

        Between two horizons the probability of zero and the quantiles are interpolated linearly;
        outside the grid they are those of its end.
        """
        position = np.interp(horizons, grid, np.arange(len(grid)))
        low = np.minimum(position.astype(np.int64), max(len(grid) - 2, 0))
        high = np.minimum(low + 1, len(grid) - 1)
        part = position - low
        zero = self.zero[:, low] * (1 - part) + self.zero[:, high] * part
        logs = self.logs[:, low] * (1 - part)[:, None] + self.logs[:, high] * part[:, None]
        return Marginals(zero, logs)

    def amounts(self, work: Floats, rank: Floats) -> Floats:
        """Earnings (n, H, M) at two uniforms strictly inside (0, 1).

        Zero if `work` is below the probability of zero, otherwise the amount at `rank` among
        positive earnings.
        """
        x = logit(rank)
        logs, slopes = self.logs, self._slopes()
        value = logs[..., :1] + np.minimum(x - KNOTS[0], 0) * slopes[..., :1]
        for k in range(len(KNOTS) - 1):
            value = (
                value + np.clip(x - KNOTS[k], 0, KNOTS[k + 1] - KNOTS[k]) * slopes[..., k + 1, None]
            )
        value = value + np.maximum(x - KNOTS[-1], 0) * slopes[..., -1:]
        return np.where(work < self.zero[..., None], 0.0, np.exp(value))

    def ranks(self, amounts: Floats) -> Floats:
        """The rank of each amount (n, H) among positive earnings, the inverse of `amounts`.

        NaN for zero and for NaN.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(np.where(amounts > 0, amounts, np.nan))
        logs, slopes = self.logs, self._slopes()
        x = KNOTS[0] + np.minimum(log - logs[..., 0], 0) / slopes[..., 0]
        for k in range(len(KNOTS) - 1):
            x = (
                x
                + np.clip(log - logs[..., k], 0, logs[..., k + 1] - logs[..., k])
                / slopes[..., k + 1]
            )
        x = x + np.maximum(log - logs[..., -1], 0) / slopes[..., -1]
        return np.asarray(expit(x), dtype=np.float64)

    def _slopes(self) -> Floats:
        """Log units per logit: below the first quantile, between, beyond the last; (n, H, 10)."""
        inner = np.diff(self.logs, axis=-1) / np.diff(KNOTS)
        return np.concatenate(
            [inner[..., :1], inner, np.minimum(inner[..., -1:], HEAVIEST)], axis=-1
        )
