"""Conformal sets of a present value over K years; see docs/method/lifetime-guarantee.md.

They are the sets of a year (`saga.conformal.families.year`), of the distribution of a person's
present value, which simulated paths give.

The distribution of each year is exact in recalibrated paths; only the dependence between years is
simulated. Quantiles of simulated sums are noisy nevertheless, in the tails above all. The noise is
reduced as follows. If a path kept its rank in all years (comonotone paths), the quantiles of the
sum would be the sums of the years' quantiles, which have no noise. Let z be the normal score of a
simulated sum's rank, and g that of its rank among comonotone sums. A parabola g = a + b z + c z^2
is fitted to all positive sums of the person; b < 1 if ranks change over the years. Where careers
may end soon, g has bends that no parabola has; if the sums tell so, the mean residual of the
nearest ones is added (a running mean). The quantiles of the distribution are then those of the
comonotone sum at the fitted g. The probability of zero is the share of paths without any earnings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Floats, Reals
from saga.conformal.families.set_family import probability_of_less
from saga.conformal.families.year import YearSets
from saga.distributions import Marginals, interpolate_rows
from saga.paths import Paths
from saga.requests import RATE

_DEGREE = 2  # of the polynomial that is fitted
_NEAR = 0.075  # of the positive sums, on each side, whose mean residual is added
# Kolmogorov's distance of the parabola from the sums, times the root of their number: up to
# the first no residual is added, from the second all of it. Good fits rarely reach .8.
_FITS, _MISFITS = 0.6, 1.0
_MIN_POSITIVE = 20  # with fewer positive sums nothing is fitted


@dataclass(frozen=True, eq=False)
class SimulatedValues:
    """Present values (n, M) of simulated paths and of comonotone paths with the same years."""

    values: Floats
    comonotone: Floats

    @classmethod
    def of(cls, paths: Paths, value_of: Callable[[Paths], Floats]) -> Self:
        """Values of recalibrated paths by a function from paths to values (n, M)."""
        return cls(value_of(paths), value_of(paths.comonotone()))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_paths(self) -> int:
        """M, the number of paths."""
        return int(self.values.shape[1])

    @cached_property
    def distribution(self) -> Marginals:
        """The distribution of the values, as marginals of one horizon."""
        return Marginals.from_samples(self._smoothed()[:, None], recalibrated=True)

    def quantiles(self, p: Floats | Sequence[float]) -> Floats:
        """Quantiles (n, L) for probabilities (L,)."""
        return np.asarray(self.distribution.quantiles(p)[:, 0])

    def _smoothed(self) -> Floats:
        """Values (n, M) in ascending order, on the fitted curve."""
        from scipy.special import ndtr, ndtri  # takes long to import, and forecasts need none

        m = self.n_paths
        ordered, comonotone = np.sort(self.values, axis=1), np.sort(self.comonotone, axis=1)
        scores = ndtri((np.arange(m) + 0.5) / m)
        powers = scores[:, None] ** np.arange(_DEGREE + 1)
        zeros = (ordered == 0).sum(axis=1)
        rows = np.flatnonzero((m - zeros >= _MIN_POSITIVE) & ~np.isnan(ordered[:, -1]))
        ranks = np.tile(scores, (len(rows), 1))
        g = interpolate_rows(ordered[rows], comonotone[rows], ranks)
        is_positive = np.arange(m) >= zeros[rows, None]
        # Sums over the positive values, which are the last ones. No matrix product, because its
        # bits could depend on the other persons.
        products = powers[:, :, None] * powers[:, None, :]
        left = np.cumsum(products[::-1], axis=0)[::-1][zeros[rows]]
        right = (np.where(is_positive, g, 0.0)[:, None, :] * powers.T).sum(axis=-1)
        coefficients = np.linalg.solve(left, right[..., None])[..., 0]
        fitted = np.asarray(
            sum(coefficients[:, k, None] * powers[:, k] for k in range(_DEGREE + 1))
        )
        implied = interpolate_rows(g, np.maximum.accumulate(fitted, axis=1), ranks)
        distance = np.where(is_positive, abs(ndtr(implied) - ndtr(ranks)), 0.0).max(axis=1)
        misfit = distance * m / np.sqrt(m - zeros[rows])
        share = np.clip((misfit - _FITS) / (_MISFITS - _FITS), 0.0, 1.0)[:, None]
        residuals = np.where(is_positive, g - fitted, 0.0)
        fitted += share * _means_of_near(residuals, zeros[rows, None])
        values = interpolate_rows(fitted, ranks, comonotone[rows])
        values = np.where(is_positive & (values > 0), values, ordered[rows])
        ordered[rows] = np.maximum.accumulate(values, axis=1)
        return ordered


def _means_of_near(residuals: Floats, zeros: NDArray[np.int64]) -> Floats:
    """Mean residuals (n, M) of the nearest positive sums, which follow the `zeros` (n, 1)."""
    m = residuals.shape[1]
    rank, reach = np.arange(m), (_NEAR * (m - zeros)).astype(np.int64)
    first, end = np.maximum(rank - reach, zeros), np.minimum(rank + reach + 1, m)
    sums = np.pad(np.cumsum(residuals, axis=1), ((0, 0), (1, 0)))
    totals = np.take_along_axis(sums, end, 1) - np.take_along_axis(sums, first, 1)
    return np.asarray(totals / np.maximum(end - first, 1))


class _PresentValueSets(YearSets):
    """Sets of present values; column K - 1 is the value of the first K years."""

    kind = "present_value"
    randomised = False
    of_paths = True
    always_given = True  # there is no other interval of a present value

    def ranks(self, forecasts: Paths, outcomes: Floats) -> tuple[Floats, Reals]:
        """Probabilities (n, H) of less than the realised value of the first K years, and of zero.

        NaN if one of the K outcomes is missing.
        """
        forecasts.require_recalibrated()
        less, p_zero = np.full((2, *outcomes.shape), np.nan)
        simulated = np.zeros((2, len(forecasts), forecasts.n_paths))
        earnings = np.stack([forecasts.earnings, forecasts.comonotone().earnings])
        realised = np.zeros(len(forecasts))
        for h in range(outcomes.shape[1]):
            discount = (1 + RATE) ** -(h + 1.0)
            simulated += earnings[:, :, h].astype(np.float64) * discount
            realised += outcomes[:, h] * discount
            rows = np.flatnonzero(~np.isnan(realised) & ~np.isnan(simulated[0]).any(axis=1))
            if not len(rows):
                break
            distribution = SimulatedValues(*simulated[:, rows]).distribution
            less[rows, h] = probability_of_less(distribution, realised[rows, None])[:, 0]
            p_zero[rows, h] = distribution.p_zero[:, 0]
        return less, p_zero


PRESENT_VALUE = _PresentValueSets()
