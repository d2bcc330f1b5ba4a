"""Variance components of log earnings residuals, and the Kalman filter for alpha and z.

    r_it = alpha_i + z_it + eps_it,   z_it = rho z_i,t-1 + eta_it

alpha, eta and eps have mean zero and are uncorrelated; eta and eps have a variance for each band of
ages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from saga.arrays import Array, Floats

BANDS = (20, 25, 35, 45, 55)  # ages at which the variances of the shocks may change
LAGS = 25  # longest distance in years of the autocovariances that are fitted
CALM = 0.5  # the mean of |surprise| / standard deviation assumed before the first record
MEMORY = 0.7  # weight of earlier years in that mean
MAX_SURPRISE = 3.0  # larger surprises, in standard deviations, are cut (Masreliez and Martin 1977)
TINY = 1e-4  # smallest variance, so that the filter does not divide by zero


@dataclass(frozen=True, eq=False)
class Components:
    """Persistence and variances of the parts, in squared logs.

    Args:
        rho: Persistence per year.
        alpha: Variance of the fixed effect.
        z0: Variance of z at `first_age`.
        first_age: The first age of a career.
        eta: Variances of eta by band of BANDS.
        eps: Variances of eps by band of BANDS.
        entry: Additional variance of eps in a first year back at work.
    """

    rho: float
    alpha: float
    z0: float
    first_age: int
    eta: Floats
    eps: Floats
    entry: float

    @classmethod
    def fit(cls, residual: Floats, age: NDArray[np.int64], first_years: Floats, rho: float) -> Self:
        """Estimate the variances by minimum distance given rho (Chamberlain 1984).

        Every autocovariance by age and lag is linear in the variances. They are fitted by
        non-negative least squares; the weight of a moment is its number of pairs.

        Args:
            residual: (n, T), NaN if unknown.
            age: (n, T).
            first_years: Residuals of years after one without work, which are often partial years;
                NaN if unknown.
            rho: Persistence per year.
        """
        ages = np.where(np.isnan(residual), 0, age)
        first, last = int(ages[ages > 0].min()), int(ages.max())
        bands, n_ages = len(BANDS) + 1, last - first + 1
        band = np.searchsorted(BANDS, np.arange(first, last + 1), side="right")
        # Var z at each age as a linear function of (z0, eta by band).
        var_z = np.zeros((n_ages, 1 + bands))
        var_z[0, 0] = 1.0
        for i in range(1, n_ages):
            var_z[i] = rho**2 * var_z[i - 1]
            var_z[i, 1 + band[i]] += 1.0
        design, target, weight = [], [], []
        for lag in range(min(LAGS, residual.shape[1] - 1) + 1):
            early, late = residual[:, : residual.shape[1] - lag], residual[:, lag:]
            both = ~np.isnan(early) & ~np.isnan(late)
            years = age[:, : residual.shape[1] - lag][both] - first
            count = np.bincount(years, minlength=n_ages)
            total = np.bincount(years, weights=(early * late)[both], minlength=n_ages)
            for i in np.flatnonzero(count).tolist():
                noise_of_band = np.zeros(bands)
                noise_of_band[band[i]] = float(lag == 0)
                design.append(np.concatenate([[1.0], rho**lag * var_z[i], noise_of_band]))
                target.append(total[i] / count[i])
                weight.append(np.sqrt(count[i]))
        w = np.array(weight)
        variances, _ = nnls(np.array(design) * w[:, None], np.array(target) * w)
        eps = np.maximum(variances[2 + bands :], TINY)
        first_years = first_years[~np.isnan(first_years)]
        excess = np.mean(first_years**2) - np.nanvar(residual) if len(first_years) else 0.0
        alpha, z0, eta = float(variances[0]), float(variances[1]), variances[2 : 2 + bands]
        return cls(rho, alpha, z0, first, eta, eps, max(0.0, float(excess)))


@dataclass(frozen=True, eq=False)
class Belief:
    """The normal distribution of (alpha, z) given earlier years, and the size of recent surprises.

    Args:
        alpha: Mean of alpha; all arrays have one shape, (n,) or (n, M).
        z: Mean of z.
        v_alpha: Variance of alpha.
        v_both: Covariance of alpha and z.
        v_z: Variance of z.
        scale: Exponentially weighted mean of |surprise| / expected standard deviation. Large
            shocks often follow each other, so shocks are drawn given it.
    """

    alpha: Floats
    z: Floats
    v_alpha: Floats
    v_both: Floats
    v_z: Floats
    scale: Floats

    @classmethod
    def prior(cls, parts: Components, shape: tuple[int, ...]) -> Belief:
        """The distribution before the first year of a career, at `parts.first_age`."""
        zero = np.zeros(shape)
        return cls(zero, zero, zero + parts.alpha, zero, zero + parts.z0, zero + CALM)

    def ahead(self, parts: Components, age: Array) -> Belief:
        """The distribution one year later, at `age`; unchanged up to `first_age`."""
        moved = age > parts.first_age
        eta = parts.eta[np.searchsorted(BANDS, age, side="right")]
        return Belief(
            alpha=self.alpha,
            z=np.where(moved, parts.rho * self.z, self.z),
            v_alpha=self.v_alpha,
            v_both=np.where(moved, parts.rho * self.v_both, self.v_both),
            v_z=np.where(moved, parts.rho**2 * self.v_z + eta, self.v_z),
            scale=self.scale,
        )

    def expected(self, parts: Components, age: Array, entry: Array) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the residual at `age` under this distribution.

        `entry`: whether the last known year was without work.
        """
        noise = parts.eps[np.searchsorted(BANDS, age, side="right")] + parts.entry * entry
        return self.alpha + self.z, np.sqrt(self.v_alpha + 2 * self.v_both + self.v_z + noise)

    def updated(self, surprise: Floats, is_known: Array, deviation: Floats) -> Belief:
        """The distribution given `surprise`, the residual less its mean, where `is_known`.

        `deviation` is the standard deviation of `expected`.
        """
        with_alpha, with_z = self.v_alpha + self.v_both, self.v_both + self.v_z
        standard = np.where(is_known, surprise, 0.0) / deviation
        v = np.clip(standard, -MAX_SURPRISE, MAX_SURPRISE) / deviation
        precision = is_known / deviation**2
        return Belief(
            alpha=self.alpha + with_alpha * v,
            z=self.z + with_z * v,
            v_alpha=self.v_alpha - with_alpha**2 * precision,
            v_both=self.v_both - with_alpha * with_z * precision,
            v_z=self.v_z - with_z**2 * precision,
            scale=np.where(
                is_known,
                MEMORY * self.scale + (1 - MEMORY) * np.minimum(np.abs(standard), 3.0),
                self.scale,
            ),
        )
