"""The exact forecaster of the Gaussian process: the Kalman filter over (alpha, z), with any years missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from saga.register.textbook.gaussian_ar1 import GaussianProcess

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianLaw:
    """A joint normal law of log earnings at horizons 1..H: `mean` (n, H), `covariance` (n, H, H)."""

    mean: Floats
    covariance: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviation at each horizon, (n, H)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))


class KalmanFilter:
    """Filters records of a Gaussian process (Kalman 1960); the same calls as `saga.register.textbook.particle_filter.GkosFilter`."""

    draw_numbers = 2

    def __init__(self, process: GaussianProcess) -> None:
        self.process = process

    def posterior(self, earnings: Floats, age: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Mean (n, 2) and covariance (n, 2, 2) of (alpha, z) at the origins.

        `earnings` (n, A): positive real SEK at ages `first_age`, `first_age` + 1, ...; NaN where unknown. Those after the
        origin's `age` (n,) are not used.
        """
        p, n = self.process, len(earnings)
        mean, covariance = (
            np.zeros((n, 2)),
            np.tile(np.diag([p.sd_alpha**2, p.sd_z0**2]), (n, 1, 1)),
        )
        move, noise = np.diag([1.0, p.rho]), np.diag([0.0, p.sd_eta**2])
        for a in range(p.first_age, int(age.max(initial=p.first_age - 1)) + 1):
            now = np.flatnonzero(a <= age)
            m, c = mean[now] @ move, move @ covariance[now] @ move + noise
            value = (
                earnings[now, a - p.first_age]
                if a - p.first_age < earnings.shape[1]
                else np.full(len(now), np.nan)
            )
            seen = ~np.isnan(value)
            surprise = np.where(
                seen, np.log(np.where(seen, value, 1.0)) - p.mean_log(a) - m.sum(axis=1), 0.0
            )
            with_all = c.sum(axis=2)  # covariance of the state with alpha + z
            gain = np.where(
                seen[:, None], with_all / (with_all.sum(axis=1) + p.sd_eps**2)[:, None], 0.0
            )
            mean[now] = m + gain * surprise[:, None]
            covariance[now] = c - gain[:, :, None] * with_all[:, None, :]
        return mean, covariance

    def draws(self, earnings: Floats, age: NDArray[np.int64], u: Floats) -> Floats:
        """States (2, n, M) at the origins from records (n, A), origin ages (n,) and uniforms `u` (n, M, 2)."""
        mean, covariance = self.posterior(earnings, age)
        alpha_sd = np.sqrt(np.maximum(covariance[:, 0, 0], 1e-300))
        slope = covariance[:, 0, 1] / alpha_sd
        rest = np.sqrt(np.maximum(covariance[:, 1, 1] - slope**2, 0.0))
        normal = ndtri(u)
        alpha = mean[:, 0, None] + alpha_sd[:, None] * normal[..., 0]
        z = mean[:, 1, None] + slope[:, None] * normal[..., 0] + rest[:, None] * normal[..., 1]
        return np.stack([alpha, z])

    def forecast(self, earnings: Floats, age: NDArray[np.int64], to_horizon: int) -> GaussianLaw:
        """The joint law of log SEK at horizons 1..`to_horizon` given the records, in closed form."""
        p = self.process
        mean, covariance = self.posterior(earnings, age)
        ahead = np.arange(1, to_horizon + 1)
        power = p.rho**ahead
        expected = p.mean_log(age[:, None] + ahead) + mean[:, :1] + mean[:, 1:] * power
        both = np.minimum.outer(ahead, ahead)
        apart = np.abs(np.subtract.outer(ahead, ahead))
        # Innovations up to the nearer horizon reach both: sd^2 (1 + rho^2 + ... ) rho^|h - k|.
        shocks = (
            p.sd_eta**2
            * p.rho**apart
            * np.concatenate([[0.0], np.cumsum(p.rho ** (2 * (ahead - 1)))])[both]
        )
        part = covariance[:, :, :, None, None]
        spread = (
            part[:, 0, 0]
            + part[:, 0, 1] * np.add.outer(power, power)
            + part[:, 1, 1] * np.multiply.outer(power, power)
        )
        return GaussianLaw(expected, spread + shocks + p.sd_eps**2 * np.eye(to_horizon))
