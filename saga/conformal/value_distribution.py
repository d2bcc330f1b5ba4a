"""The distribution of a present value, from simulated paths.

The distribution of each year is exact in recalibrated paths; only the dependence between years is
simulated. Quantiles of simulated sums are noisy nevertheless, in the tails above all. The noise is
reduced as follows. If a path kept its rank in all years (comonotone paths), the quantiles of the
sum would be the sums of the years' quantiles, which have no noise. Let z be the normal score of a
simulated sum's rank, and g that of its rank among comonotone sums. A parabola g = a + b z + c z^2
is fitted to all positive sums of the person; b < 1 if ranks change over the years. The quantiles of
the distribution are then those of the comonotone sum at the fitted g. The probability of zero is
the share of paths without any earnings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from saga.distributions import Marginals, interpolate_rows
from saga.paths import Paths

Array = NDArray[np.float64]
_DEGREE = 2  # of the polynomial that is fitted
_MIN_POSITIVE = 20  # with fewer positive sums nothing is fitted


@dataclass(frozen=True, eq=False)
class SimulatedValues:
    """Present values (n, M) of simulated paths and of comonotone paths with the same years."""

    values: Array
    comonotone: Array

    @classmethod
    def of(cls, paths: Paths, value_of: Callable[[Paths], Array]) -> Self:
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

    def quantiles(self, p: Array | Sequence[float]) -> Array:
        """Quantiles (n, L) for probabilities (L,)."""
        return np.asarray(self.distribution.quantiles(p)[:, 0])

    def _smoothed(self) -> Array:
        """Values (n, M) in ascending order, on the fitted curve."""
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
        fitted = sum(coefficients[:, k, None] * powers[:, k] for k in range(_DEGREE + 1))
        values = interpolate_rows(np.asarray(fitted), ranks, comonotone[rows])
        values = np.where(is_positive & (values > 0), values, ordered[rows])
        ordered[rows] = np.maximum.accumulate(values, axis=1)
        return ordered
