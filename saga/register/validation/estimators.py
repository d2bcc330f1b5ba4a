"""Statistics of persons with standard errors from influence functions.

An `Estimate` has a value and, for each person of the register, the first-order effect of that
person on it. The standard error is the root of the sum of squares of these effects. Persons are
therefore the unit even if they are observed in several years. A figure computed from several
estimates (a ratio, a difference between groups or years, Kelley's skewness) gets its error by the
delta method with all covariances. For means, shares and the Gini coefficient this is the usual
linearised variance. For quantiles it is the interval of Woodruff (1952): the density is taken from
the data between the quantiles one binomial standard error below and above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats, Ints

NORMAL_CROW_SIDDIQUI = 2.91  # ratio of the quantile ranges of a normal variable


@dataclass(frozen=True)
class Estimate:
    """A statistic with the effect of each person on it.

    Attributes:
        value: The statistic.
        influence: First-order effect of each person (n_persons,).
        n: Number of persons from whose data it is computed.
    """

    value: float
    influence: Floats
    n: int

    @property
    def se(self) -> float:
        """Standard error over persons."""
        return float(np.sqrt((self.influence**2).sum()))

    def __add__(self, other: Estimate) -> Estimate:
        return combine(lambda v: v[0] + v[1], self, other)

    def __sub__(self, other: Estimate) -> Estimate:
        return combine(lambda v: v[0] - v[1], self, other)

    def __truediv__(self, other: Estimate) -> Estimate:
        return combine(lambda v: v[0] / v[1], self, other)


def combine(function: Callable[[Floats], float], *parts: Estimate) -> Estimate:
    """A smooth function of estimates; NaN if a part is NaN.

    Its influence follows by the chain rule, with central differences as derivatives.
    """
    values = np.array([part.value for part in parts])
    total = np.zeros_like(parts[0].influence)
    # A person in several parts counts once; one without influence counts in a part's `n`.
    in_any_part = int(np.count_nonzero(np.any([part.influence != 0 for part in parts], axis=0)))
    n = max([in_any_part, *(part.n for part in parts)])
    if not np.isfinite(values).all():
        return Estimate(float("nan"), total, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        for k, part in enumerate(parts):
            step = 1e-5 * max(abs(values[k]), 1e-3)
            above, below = values.copy(), values.copy()
            above[k] += step
            below[k] -= step
            total += (function(above) - function(below)) / (2.0 * step) * part.influence
        return Estimate(float(function(values)), total, n)


def mean_of(*parts: Estimate) -> Estimate:
    """Mean of estimates."""
    return combine(lambda v: float(v.mean()), *parts)


@dataclass(frozen=True)
class Sample:
    """Observations of persons; a person may occur more than once.

    Statistics of fewer than two observations are NaN.

    Attributes:
        values: Observations (m,).
        person: The person of each observation, from 0 to `n_persons` - 1 (m,).
        n_persons: Number of persons in the register.
    """

    values: Floats
    person: Ints
    n_persons: int

    @property
    def too_small(self) -> bool:
        """Whether there are fewer than two observations."""
        return len(self.values) < 2

    def where(self, mask: NDArray[np.bool_]) -> Sample:
        """The observations at `mask`."""
        return Sample(self.values[mask], self.person[mask], self.n_persons)

    def estimate(self, value: float, effect: Floats) -> Estimate:
        """The estimate with this value; `effect` (m,) is m times each observation's effect on it.

        A constant in `effect` does not matter.
        """
        if self.too_small:
            return Estimate(float("nan"), np.zeros(self.n_persons), len(effect))
        centred = (effect - effect.mean()) / len(effect)
        influence = np.bincount(self.person, centred, self.n_persons).astype(np.float64)
        n = int(np.count_nonzero(np.bincount(self.person, minlength=self.n_persons)))
        return Estimate(value, influence, n)

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
        """Quantiles at `shares`.

        Their influence is (p - 1{x <= q}) / f(q), with the density f from Woodruff's interval.
        """
        if self.too_small:
            return [self.mean() for _ in shares]
        p = np.asarray(shares)
        width = np.sqrt(p * (1.0 - p) / len(self.values))
        ends = np.concatenate([p, np.clip(p - width, 0.0, 1.0), np.clip(p + width, 0.0, 1.0)])
        quantile, low, high = np.quantile(self.values, ends).reshape(3, -1)
        inverse_density = (high - low) / (2.0 * width)
        return [
            self.estimate(float(q), -s * (self.values <= q))
            for q, s in zip(quantile, inverse_density, strict=True)
        ]

    def mean_between(self, low: float, high: float) -> Estimate:
        """Mean between two quantiles, such as `mean_between(.99, 1)` for the top 1 %.

        Its influence is the value, censored at the two quantiles, over `high` - `low`.
        """
        ordered = np.sort(self.values)
        if self.too_small:
            return self.mean()
        first = min(round(low * len(ordered)), len(ordered) - 1)
        last = max(round(high * len(ordered)), first + 1)
        censored = np.clip(self.values, ordered[first], ordered[last - 1])
        return self.estimate(float(ordered[first:last].mean()), censored / (high - low))

    def gini(self) -> Estimate:
        """Gini coefficient of non-negative values, zeros counted; NaN if all are zero.

        Its influence is that of Cowell and Flachaire (2007).
        """
        if self.too_small or not self.values.any():
            return Estimate(float("nan"), np.zeros(self.n_persons), len(self.values))
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
        return combine(
            lambda q: float((q[2] + q[0] - 2.0 * q[1]) / (q[2] - q[0])),
            *self.quantiles((0.1, 0.5, 0.9)),
        )


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def correlation(x: Floats, y: Sequence[Estimate]) -> Estimate:
    """Correlation of fixed numbers `x`, such as unemployment by year, with estimates."""
    return combine(lambda v: float(np.corrcoef(x, v)[0, 1]), *y)


def slope(x: Floats, y: Sequence[Estimate]) -> Estimate:
    """Least-squares slope of estimates on the fixed numbers `x`."""
    weight = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return combine(lambda v: float(weight @ v), *y)
