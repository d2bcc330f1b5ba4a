"""Statistics of persons with their standard errors: every estimate carries its influence function.

An `Estimate` holds a value and, for each person of the register, the first-order effect of that person on it. The standard error
is the root of the sum of squares of these effects, so persons are the unit even where they are observed in several years, and what
is computed from several estimates (ratios, differences over groups or years, Kelley's skewness) gets its error by the delta method
with all covariances. For means, shares and the Gini coefficient this is the usual linearised variance; for quantiles it is
Woodruff's (1952) interval, the density taken from the data between the quantiles one binomial standard error to either side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """A statistic: `value`, the effect of each person on it (`influence`, (persons,)) and `n`, the persons it rests on."""

    value: float
    influence: Floats
    n: int

    @property
    def se(self) -> float:
        """Standard error over persons."""
        return float(np.sqrt((self.influence**2).sum()))

    def __add__(self, other: Estimate) -> Estimate:
        return smooth(lambda v: v[0] + v[1], self, other)

    def __sub__(self, other: Estimate) -> Estimate:
        return smooth(lambda v: v[0] - v[1], self, other)

    def __truediv__(self, other: Estimate) -> Estimate:
        return smooth(lambda v: v[0] / v[1], self, other)


def smooth(function: Callable[[Floats], float], *parts: Estimate) -> Estimate:
    """A smooth function of estimates, its influence by the chain rule (central differences); NaN if a part is."""
    values = np.array([part.value for part in parts])
    total = np.zeros_like(parts[0].influence)
    together = int(np.count_nonzero(np.any([part.influence != 0 for part in parts], axis=0)))
    n = max([together, *(part.n for part in parts)])
    if not np.isfinite(values).all():
        return Estimate(float("nan"), total, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        for k, part in enumerate(parts):
            step = 1e-5 * max(abs(values[k]), 1e-3)
            up, down = values.copy(), values.copy()
            up[k] += step
            down[k] -= step
            total += (function(up) - function(down)) / (2.0 * step) * part.influence
        return Estimate(float(function(values)), total, n)


@dataclass(frozen=True)
class Sample:
    """Observations `values` (m,) of the persons `person` (m,), numbered 0 to `persons` - 1; a person may occur more than once.

    Statistics of fewer than two observations are NaN.
    """

    values: Floats
    person: Ints
    persons: int

    @property
    def empty(self) -> bool:
        """Whether there is too little to measure."""
        return len(self.values) < 2

    def where(self, mask: NDArray[np.bool_]) -> Sample:
        """The observations at `mask`."""
        return Sample(self.values[mask], self.person[mask], self.persons)

    def estimate(self, value: float, effect: Floats) -> Estimate:
        """The estimate with `value` and effect of each observation `effect` (m,), relative to one over m."""
        if self.empty:
            return Estimate(float("nan"), np.zeros(self.persons), len(effect))
        centred = (effect - effect.mean()) / len(effect)
        influence = np.bincount(self.person, centred, self.persons).astype(np.float64)
        return Estimate(
            value,
            influence,
            int(np.count_nonzero(np.bincount(self.person, minlength=self.persons))),
        )

    def mean(self) -> Estimate:
        """Mean."""
        return self.estimate(_mean(self.values), self.values)

    def share(self, mask: NDArray[np.bool_]) -> Estimate:
        """Share of the observations at `mask`."""
        return self.estimate(_mean(mask), mask.astype(np.float64))

    def variance(self) -> Estimate:
        """Variance."""
        square = (self.values - _mean(self.values)) ** 2
        return self.estimate(_mean(square), square)

    def quantiles(self, shares: Sequence[float]) -> list[Estimate]:
        """Quantiles, with the influence (p - 1{x <= q}) / f(q) and the density f from Woodruff's interval."""
        if self.empty:
            return [self.mean() for _ in shares]
        p = np.asarray(shares)
        width = np.sqrt(p * (1.0 - p) / len(self.values))
        ends = np.concatenate([p, np.clip(p - width, 0.0, 1.0), np.clip(p + width, 0.0, 1.0)])
        at, low, high = np.quantile(self.values, ends).reshape(3, -1)
        spread = (high - low) / (2.0 * width)  # 1 / f(q)
        return [
            self.estimate(float(q), -s * (self.values <= q))
            for q, s in zip(at, spread, strict=True)
        ]

    def between(self, low: float, high: float) -> Estimate:
        """Mean between two quantiles (shares): a decile's mean, or that of the top 1 % as `between(.99, 1)`.

        Influence: the value censored at the two quantiles, over the width.
        """
        ordered = np.sort(self.values)
        if self.empty:
            return self.mean()
        first = min(round(low * len(ordered)), len(ordered) - 1)
        last = max(round(high * len(ordered)), first + 1)
        ends = ordered[first], ordered[last - 1]
        return self.estimate(
            float(ordered[first:last].mean()), np.clip(self.values, *ends) / (high - low)
        )

    def gini(self) -> Estimate:
        """Gini coefficient of non-negative values, zeros counted (influence: Cowell and Flachaire 2007)."""
        if self.empty or not self.values.any():
            return Estimate(float("nan"), np.zeros(self.persons), len(self.values))
        order = np.argsort(self.values, kind="stable")
        x, n = self.values[order], len(order)
        mean, rank = x.mean(), np.arange(1, n + 1) / n
        value = 2.0 * (x * (rank - 0.5 / n)).mean() / mean - 1.0
        above = (x.sum() - np.cumsum(x)) / n
        effect = np.empty(n)
        effect[order] = (2.0 * (x * rank + above) - (value + 1.0) * x) / mean
        return self.estimate(float(value), effect)

    def spread(self) -> Estimate:
        """P90 - P10."""
        low, high = self.quantiles((0.1, 0.9))
        return high - low

    def kelley(self) -> Estimate:
        """Kelley skewness: (P90 + P10 - 2 P50) / (P90 - P10)."""
        return smooth(
            lambda q: float((q[2] + q[0] - 2.0 * q[1]) / (q[2] - q[0])),
            *self.quantiles((0.1, 0.5, 0.9)),
        )

    def crow_siddiqui(self) -> Estimate:
        """Excess Crow-Siddiqui kurtosis: (P97.5 - P2.5) / (P75 - P25) - 2.91, 0 for a normal distribution."""
        return smooth(
            lambda q: float((q[3] - q[0]) / (q[2] - q[1]) - 2.91),
            *self.quantiles((0.025, 0.25, 0.75, 0.975)),
        )


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def correlation(x: Floats, y: Sequence[Estimate]) -> Estimate:
    """Correlation of fixed numbers `x` (years' unemployment, say) with estimates of the same years."""
    return smooth(lambda v: float(np.corrcoef(x, v)[0, 1]), *y)


def slope(x: Floats, y: Sequence[Estimate]) -> Estimate:
    """Least-squares slope of estimates on the fixed numbers `x`."""
    weight = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return smooth(lambda v: float(weight @ v), *y)
