"""Distributions with an atom at zero from a few quantiles: what a table of quantile models says about a person's later earnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Array = NDArray[Any]
Floats = NDArray[np.float64]
LEVELS = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
KNOTS = logit(np.array(LEVELS))
LEAST = 1e-6  # log units between neighbouring quantiles: keeps the map from levels to amounts invertible
HEAVIEST = 0.5  # log units a logit in the upper tail: a Pareto tail of index 2, so that means of amounts exist


@dataclass(frozen=True, eq=False)
class Marginals:
    """One distribution a person and horizon: `zero` (n, H), the probability of zero, and `logs` (n, H, 9), quantiles of log amounts.

    `logs` are those of positive earnings at LEVELS, increasing. Between them and beyond them log amounts are linear in the logit of
    the level: exact for a logistic distribution, within a hundredth of a standard deviation for a normal one between the outer levels, and
    exponential in the tails (amounts: Pareto), the upper one no heavier than HEAVIEST.
    """

    zero: Floats
    logs: Floats

    @classmethod
    def of(cls, zero: Floats, logs: Floats) -> Marginals:
        """From predictions that may cross: quantiles are rearranged into order (Chernozhukov, Fernandez-Val and Galichon 2010)."""
        ordered = np.sort(logs, axis=-1) + LEAST * np.arange(len(LEVELS))
        return cls(np.clip(zero, 0.0, 1.0), ordered)

    def at(self, grid: Array, horizons: Array) -> Marginals:
        """The distributions at `horizons` (K,) from those at `grid` (H,), both ascending.

        Between two horizons the probability of zero and the quantiles are interpolated linearly in the horizon; before the first and after
        the last one they stay.
        """
        place = np.interp(horizons, grid, np.arange(len(grid)))
        low = np.minimum(place.astype(np.int64), max(len(grid) - 2, 0))
        high = np.minimum(low + 1, len(grid) - 1)
        part = place - low
        zero = self.zero[:, low] * (1 - part) + self.zero[:, high] * part
        logs = self.logs[:, low] * (1 - part)[:, None] + self.logs[:, high] * part[:, None]
        return Marginals(zero, logs)

    def amounts(self, work: Floats, place: Floats) -> Floats:
        """Earnings (n, H, M) at two uniform levels strictly inside (0, 1) each: zero where `work` is below its probability, else the amount
        at `place` among positive earnings."""
        x = logit(place)
        logs, slopes = self.logs, self._slopes()
        value = logs[..., :1] + np.minimum(x - KNOTS[0], 0) * slopes[..., :1]
        for k in range(len(KNOTS) - 1):
            value = (
                value + np.clip(x - KNOTS[k], 0, KNOTS[k + 1] - KNOTS[k]) * slopes[..., k + 1, None]
            )
        value = value + np.maximum(x - KNOTS[-1], 0) * slopes[..., -1:]
        return np.where(work < self.zero[..., None], 0.0, np.exp(value))

    def places(self, amounts: Floats) -> Floats:
        """The level of each amount (n, H) among positive earnings, the inverse of `amounts`; NaN for zero and for NaN."""
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
        """Log units a logit: below the first level, between levels, beyond the last; (n, H, 10)."""
        inner = np.diff(self.logs, axis=-1) / np.diff(KNOTS)
        return np.concatenate(
            [inner[..., :1], inner, np.minimum(inner[..., -1:], HEAVIEST)], axis=-1
        )
