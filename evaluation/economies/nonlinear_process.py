"""Nonlinear processes of log wages: persistence depends on the level and on the shock.

u(t) = alpha + z(t) + e(t), with z(t) = rho z(t - 1) + s(z(t - 1)) x(t), as in Arellano, Blundell
and Bonhomme (2017). The spread s is U-shaped or sloping in z, and the shock x is a sinh-arcsinh
variable whose skewness falls with z. So a large shock can erase the history of a person: the
persistence dz(t) / dz(t - 1) = rho + s'(z) x + ... is lowest after a large good shock to a low
earner or a large bad shock to a high earner. All persons share the parameters; persons differ by
alpha and by z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from saga.evaluation.economies.random_draws import ParameterDraws, draw_mixture
from saga.evaluation.textbook.gkos_process import Mixture

from saga.arrays import Floats

_LARGEST_EXCURSION = 6.0  # of z, in units of `sd`


@dataclass(frozen=True)
class NonlinearProcess:
    """Parameters of a nonlinear process.

    Attributes:
        sd_level: Standard deviation of alpha.
        rho: Mean persistence of z.
        sd: Scale of shocks to z.
        slope: Change of the log scale of shocks with z / (4 sd).
        curvature: The same at both ends of the distribution of z.
        skewness: Fall of the shocks' skewness with z / (4 sd).
        tail: Weight of the tails of shocks, 1 for normal ones and less for heavier tails.
        transitory: Distribution of e.
    """

    sd_level: float
    rho: float
    sd: float
    slope: float
    curvature: float
    skewness: float
    tail: float
    transitory: Mixture

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random economy."""
        return cls(
            sd_level=draws.spread(0.6, 0.1, 0.8),
            rho=1.0 - draws.log_uniform(0.01, 0.4),
            sd=draws.log_uniform(0.05, 0.45),
            slope=draws.uniform(-0.6, 0.4),
            curvature=draws.uniform(0.0, 0.6),
            skewness=draws.uniform(0.0, 0.6),
            tail=draws.uniform(0.4, 1.0),
            transitory=draws.shocks(draws.spread(0.9, 0.02, 0.4)),
        )

    def step(self, z: Floats, normal: Floats) -> Floats:
        """The next z (n,) from z and standard normal shocks."""
        position = np.clip(z / (4.0 * self.sd), -2.0, 2.0)
        spread = self.sd * np.exp(self.slope * position + self.curvature * (position**2 - 0.25))
        shock = np.sinh((np.arcsinh(normal) - self.skewness * position) / self.tail)
        limit = _LARGEST_EXCURSION * 4.0 * self.sd
        following: Floats = np.clip(self.rho * z + spread * shock, -limit, limit)
        return following

    def simulate(self, n: int, n_years: int, rng: np.random.Generator) -> Floats:
        """Log wages (n, n_years) of n persons from the first age on, without their profile."""
        normal = rng.standard_normal((n_years + 2, n))
        z = 2.0 * self.sd * normal[0]
        out = np.empty((n, n_years))
        for k in range(n_years):
            z = self.step(z, normal[k + 2])
            out[:, k] = z
        level: Floats = self.sd_level * normal[1][:, None]
        return level + out + draw_mixture(self.transitory, (n, n_years), rng)
