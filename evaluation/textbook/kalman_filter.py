"""The Kalman filter of the Gaussian process over (alpha, z); any years may be missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from scipy.special import ndtri

from saga.arrays import Floats


@dataclass(frozen=True)
class GaussianForecast:
    """The joint normal distribution of log SEK at horizons 1..H.

    Attributes:
        mean: Means (n, H).
        covariance: Covariances (n, H, H).
    """

    mean: Floats
    covariance: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviation at each horizon, (n, H)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))


class KalmanFilter:
    """Filters records of a Gaussian process (Kalman 1960).

    It has the methods of `saga.evaluation.textbook.particle_filter.GkosFilter`.
    """

    draw_uniforms = 2  # uniforms per draw of a state

    def __init__(self, process: GaussianProcess) -> None:
        self.process = process

    def posterior(self, earnings: Floats, age: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Mean (n, 2) and covariance (n, 2, 2) of (alpha, z) at the origins.

        Args:
            earnings: Positive real SEK at ages `first_age`, `first_age` + 1, ... (n, A), NaN if
                unknown. Values after the origin are not used.
            age: Age at the origin (n,).
        """
        p, n = self.process, len(earnings)
        mean = np.zeros((n, 2))
        covariance = np.tile(np.diag([p.sd_alpha**2, p.sd_z0**2]), (n, 1, 1))
        transition, noise = np.diag([1.0, p.rho]), np.diag([0.0, p.sd_eta**2])
        unknown = np.full(n, np.nan)
        for a in range(p.first_age, int(age.max(initial=p.first_age - 1)) + 1):
            rows = np.flatnonzero(a <= age)
            m = mean[rows] @ transition
            c = transition @ covariance[rows] @ transition + noise
            column = a - p.first_age
            value = (earnings[:, column] if column < earnings.shape[1] else unknown)[rows]
            observed = ~np.isnan(value)
            log = np.log(np.where(observed, value, 1.0))
            surprise = np.where(observed, log - p.mean_log(a) - m.sum(axis=1), 0.0)
            with_sum = c.sum(axis=2)  # covariance of the state with alpha + z
            variance = with_sum.sum(axis=1) + p.sd_eps**2
            gain = np.where(observed[:, None], with_sum / variance[:, None], 0.0)
            mean[rows] = m + gain * surprise[:, None]
            covariance[rows] = c - gain[:, :, None] * with_sum[:, None, :]
        return mean, covariance

    def draw_states(self, earnings: Floats, age: NDArray[np.int64], u: Floats) -> Floats:
        """States (2, n, M) at the origins from records, origin ages and uniforms `u` (n, M, 2).

        `earnings` and `age` are those of `posterior`.
        """
        mean, covariance = self.posterior(earnings, age)
        alpha_sd = np.sqrt(np.maximum(covariance[:, 0, 0], 1e-300))
        slope = covariance[:, 0, 1] / alpha_sd
        z_sd = np.sqrt(np.maximum(covariance[:, 1, 1] - slope**2, 0.0))  # given alpha
        normal = ndtri(u)
        alpha = mean[:, 0, None] + alpha_sd[:, None] * normal[..., 0]
        z = mean[:, 1, None] + slope[:, None] * normal[..., 0] + z_sd[:, None] * normal[..., 1]
        return np.stack([alpha, z])

    def forecast(
        self, earnings: Floats, age: NDArray[np.int64], to_horizon: int
    ) -> GaussianForecast:
        """The joint distribution of log SEK at horizons 1..`to_horizon` given the records.

        `earnings` and `age` are those of `posterior`.
        """
        p = self.process
        mean, covariance = self.posterior(earnings, age)
        horizon = np.arange(1, to_horizon + 1)
        power = p.rho**horizon
        expected = p.mean_log(age[:, None] + horizon) + mean[:, :1] + mean[:, 1:] * power
        nearer = np.minimum.outer(horizon, horizon)
        distance = np.abs(np.subtract.outer(horizon, horizon))
        # Innovations up to the nearer horizon affect both: sd^2 (1 + rho^2 + ...) rho^|h - k|.
        sums = np.concatenate([[0.0], np.cumsum(p.rho ** (2 * (horizon - 1)))])
        shocks = p.sd_eta**2 * p.rho**distance * sums[nearer]
        state = covariance[:, :, :, None, None]
        effects = (
            state[:, 0, 0]
            + state[:, 0, 1] * np.add.outer(power, power)
            + state[:, 1, 1] * np.multiply.outer(power, power)
        )
        return GaussianForecast(expected, effects + shocks + p.sd_eps**2 * np.eye(to_horizon))
