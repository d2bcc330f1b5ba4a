"""Conditional quantile functions: linear in features at TAUS, with exponential tails.

Arellano, Blundell and Bonhomme (2017, section 5): Q(tau | x) = x'b(tau) at the L probabilities
TAUS, interpolated linearly in tau. Beyond the first and the last of these quantiles there are
exponential tails, each with a rate of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from saga.arrays import Floats

TAUS = np.array([0.01, 0.03, 0.07, 0.15, 0.25, 0.375, 0.5, 0.625, 0.75, 0.85, 0.93, 0.97, 0.99])
APART = 1e-6  # smallest distance of quantiles; crossing ones are sorted (Chernozhukov et al. 2010)
STEPS = 12  # largest number of Newton steps


@dataclass(frozen=True, eq=False)
class QuantileDistribution:
    """`weights` (L, K): coefficients at TAUS; `below`, `above`: rates of the exponential tails."""

    weights: Floats
    below: float
    above: float

    @classmethod
    def normal(cls, features: int, sd: float) -> Self:
        """A normal distribution that does not depend on the features, to start an estimation."""
        weights = np.zeros((len(TAUS), features))
        weights[:, 0] = sd * ndtri(TAUS)
        return cls(weights, 3 / sd, 3 / sd)

    def refit(self, x: Floats, y: Floats) -> Self:
        """Fit `y` (n,) given features `x` (n, K); the search starts from these coefficients."""
        weights = quantile_regressions(x, y, self.weights)
        low, high = x @ weights[0], x @ weights[-1]
        under, over = (low - y)[y < low], (y - high)[y > high]
        rates = (
            1 / max(float(tail.mean()), 1e-3) if len(tail) else rate
            for tail, rate in ((under, self.below), (over, self.above))
        )
        return type(self)(weights, *rates)

    def knots(self, x: Floats) -> Floats:
        """Quantiles at TAUS given features (n, K): (n, L), increasing."""
        ordered = np.sort(x @ self.weights.T, axis=-1)
        return np.asarray(np.maximum.accumulate(ordered, axis=-1) + APART * np.arange(len(TAUS)))

    def cdf(self, y: Floats, knots: Floats) -> Floats:
        """P(Y <= y) at `y` (E,) for each distribution with quantiles `knots` (R, L): (R, E)."""
        inside = np.stack([np.interp(y, quantiles, TAUS) for quantiles in knots])
        low, high = knots[:, :1] - y, y - knots[:, -1:]
        lower = TAUS[0] * np.exp(-self.below * np.maximum(low, 0.0))
        upper = 1 - (1 - TAUS[-1]) * np.exp(-self.above * np.maximum(high, 0.0))
        return np.where(high > 0, upper, np.where(low > 0, lower, inside))

    def mean_weights(self) -> Floats:
        """The mean as coefficients of the features (K,), the constant first."""
        share = np.zeros(len(TAUS))
        gaps = np.diff(TAUS)
        share[:-1] += gaps / 2
        share[1:] += gaps / 2
        share[0] += TAUS[0]
        share[-1] += 1 - TAUS[-1]
        mean = share @ self.weights
        mean[0] += (1 - TAUS[-1]) / self.above - TAUS[0] / self.below
        return np.asarray(mean)

    def tail(self, u: Floats) -> Floats:
        """How far the draw at uniform `u` is beyond the outermost quantile; negative if below.

        0 between the outermost quantiles.
        """
        low = np.log(np.minimum(u / TAUS[0], 1.0)) / self.below
        high = np.log(np.maximum((1 - TAUS[-1]) / (1 - u), 1.0)) / self.above
        return np.asarray(low + high)


def locate_quantile(u: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The interval of TAUS of each uniform, 0 .. L - 2, and the position in it (0 to 1).

    Outside TAUS the position is the end of the outermost interval.
    """
    level = np.clip(np.searchsorted(TAUS, u, side="right") - 1, 0, len(TAUS) - 2)
    return level, np.clip((u - TAUS[level]) / (TAUS[level + 1] - TAUS[level]), 0.0, 1.0)


def quantile_regressions(x: Floats, y: Floats, start: Floats) -> Floats:
    """Coefficients (L, K) at TAUS of linear quantile regressions of `y` (n,) on `x` (n, K).

    The search starts from `start` (L, K). The check function is smoothed by a logistic kernel whose
    bandwidth is ((K + log n) / n)^(2/5) times the scale of the residuals (Fernandes, Guerre and
    Horta 2021; He et al. 2023), and minimised by damped Newton steps. This is much faster than
    linear programming for a hundred thousand rows; the bias is small against the sampling error.
    """
    n, k = x.shape
    spread = float(np.quantile(np.abs(y - x @ start[len(TAUS) // 2]), 0.5)) / 0.6745
    h = max(spread * ((k + np.log(n)) / n) ** 0.4, 1e-5)
    ridge = 1e-6 * np.eye(k) * n / max(spread, 1e-5)
    coefficients = np.empty_like(start)
    for row, tau in enumerate(TAUS):
        b = start[row].copy()
        loss = _smoothed(y - x @ b, tau, h)
        for _ in range(STEPS):
            p = expit((y - x @ b) / h)  # smoothed probability of a positive residual
            gradient = x.T @ (1 - tau - p)
            curvature = (x * (p * (1 - p) / h)[:, None]).T @ x + ridge
            move = np.linalg.solve(curvature, gradient)
            size = 1.0
            while (lower := _smoothed(y - x @ (b - size * move), tau, h)) > loss and size > 1e-3:
                size /= 2
            if lower >= loss:
                break
            b, gain, loss = b - size * move, loss - lower, lower
            if gain < 1e-7 * n * spread:
                break
        coefficients[row] = b
    return coefficients


def _smoothed(residual: Floats, tau: float, h: float) -> float:
    """The sum of the check function convolved with a logistic density of scale h."""
    scaled: Any = residual / h
    return float(np.sum((tau - 1) * residual + h * np.logaddexp(0.0, scaled)))
