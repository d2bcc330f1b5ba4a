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
MIN_DISTANCE = (
    1e-6  # smallest distance of quantiles in logs, so that ranks and amounts map one to one
)
MAX_TAIL_SLOPE = 0.5  # largest slope of the upper tail, in logs per logit: Pareto index 2


@dataclass(frozen=True, eq=False)
class AtomQuantiles:
    """One distribution per person and horizon, with an atom at zero.

    Between and beyond the quantiles, log amounts are linear in the logit of the probability. This
    is exact for a logistic distribution; for a normal one the error between the outer quantiles is
    below a hundredth of a standard deviation. The tails of log amounts are exponential (amounts:
    Pareto); the slope of the upper one is at most MAX_TAIL_SLOPE.

    Args:
        zero: (n, H), probability of zero.
        logs: (n, H, 9), increasing quantiles of log positive earnings at QUANTILES.
    """

    zero: Floats
    logs: Floats

    @classmethod
    def of(cls, zero: Floats, logs: Floats) -> AtomQuantiles:
        """From quantiles that may cross; they are sorted (Chernozhukov et al. 2010)."""
        ordered = np.sort(logs, axis=-1) + MIN_DISTANCE * np.arange(len(QUANTILES))
        return cls(np.clip(zero, 0.0, 1.0), ordered)

    def at(self, grid: Array, horizons: Array) -> AtomQuantiles:
        """The distributions at `horizons` (K,) from those at `grid` (H,), both ascending.

        The probability of zero and the quantiles are interpolated linearly between grid horizons
        and constant outside the grid.
        """
        position = np.interp(horizons, grid, np.arange(len(grid)))
        low = np.minimum(position.astype(np.int64), max(len(grid) - 2, 0))
        high = np.minimum(low + 1, len(grid) - 1)
        share = position - low
        zero = self.zero[:, low] * (1 - share) + self.zero[:, high] * share
        logs = self.logs[:, low] * (1 - share)[:, None] + self.logs[:, high] * share[:, None]
        return AtomQuantiles(zero, logs)

    def amounts(self, work: Floats, rank: Floats) -> Floats:
        """Earnings (n, H, M) at two uniforms strictly inside (0, 1).

        They are 0 if `work` is below the probability of zero, otherwise the quantile `rank` of
        positive earnings.
        """
        x = logit(rank)
        logs, slopes = self.logs, self._slopes()
        value = logs[..., :1] + np.minimum(x - KNOTS[0], 0) * slopes[..., :1]
        for k in range(len(KNOTS) - 1):
            within = np.clip(x - KNOTS[k], 0, KNOTS[k + 1] - KNOTS[k])
            value = value + within * slopes[..., k + 1, None]
        value = value + np.maximum(x - KNOTS[-1], 0) * slopes[..., -1:]
        return np.where(work < self.zero[..., None], 0.0, np.exp(value))

    def ranks(self, amounts: Floats) -> Floats:
        """The rank (n, H) of each amount among positive earnings; NaN for zero and for NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.where(amounts > 0, amounts, np.nan))
        return self._positive_cdf(logs[..., None])[..., 0]

    def cdf(self, logs: Floats) -> Floats:
        """Probability (n, H, G) of zero and of log amounts up to `logs` (n, H, G)."""
        zero = self.zero[..., None]
        return zero + (1 - zero) * self._positive_cdf(logs)

    def _positive_cdf(self, at: Floats) -> Floats:
        """Probability of positive amounts up to log amounts `at`, (n, H, G)."""
        logs, slopes = self.logs[..., None, :], self._slopes()[..., None, :]
        x = KNOTS[0] + np.minimum(at - logs[..., 0], 0) / slopes[..., 0]
        for k in range(len(KNOTS) - 1):
            within = np.clip(at - logs[..., k], 0, logs[..., k + 1] - logs[..., k])
            x = x + within / slopes[..., k + 1]
        x = x + np.maximum(at - logs[..., -1], 0) / slopes[..., -1]
        return np.asarray(expit(x), dtype=np.float64)

    def _slopes(self) -> Floats:
        """Logs per logit below the first quantile, between and above the last; (n, H, 10)."""
        inner = np.diff(self.logs, axis=-1) / np.diff(KNOTS)
        return np.concatenate(
            [inner[..., :1], inner, np.minimum(inner[..., -1:], MAX_TAIL_SLOPE)], axis=-1
        )
