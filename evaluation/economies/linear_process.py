"""Linear processes of log wages: levels and slopes of persons, an AR(1) and an MA(1).

u(t) = alpha + beta t / 10 + z(t) + e(t) + theta e(t - 1), with z(t) = rho z(t - 1) + eta(t), and t
is years since the first age. Members of the family are the AR(1) with a fixed effect, ARMA(1, 1)
processes (MaCurdy 1982) and heterogeneous income profiles (Guvenen 2009). Persistence and the size
of shocks may differ between persons (Browning, Ejrnæs and Alvarez 2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from saga.evaluation.economies.random_draws import ParameterDraws, draw_mixture
from saga.evaluation.textbook.gkos_process import Mixture

from saga.arrays import Floats

_LARGEST_RHO = 0.999  # of a person, if persons differ in persistence


@dataclass(frozen=True)
class LinearProcess:
    """Parameters of a linear process.

    Attributes:
        sd_level: Standard deviation of alpha.
        sd_slope: Standard deviation of beta, log points in ten years.
        correlation: Correlation of alpha and beta.
        rho: Persistence of z.
        rho_spread: Standard deviation of persistence between persons.
        sd_start: Standard deviation of z in the year before the first.
        persistent: Distribution of eta.
        transitory: Distribution of e.
        ma: Theta.
        volatility: Standard deviation, between persons, of the log size of shocks.
        by_age: Change of the log size of shocks in ten years.
    """

    sd_level: float
    sd_slope: float
    correlation: float
    rho: float
    rho_spread: float
    sd_start: float
    persistent: Mixture
    transitory: Mixture
    ma: float
    volatility: float
    by_age: float

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random economy."""
        unit_root = draws.happens(0.15)
        persistence = 1.0 - draws.log_uniform(0.005, 0.9)
        return cls(
            sd_level=draws.spread(0.9, 0.1, 1.0),
            sd_slope=draws.spread(0.5, 0.03, 0.4),
            correlation=draws.uniform(-0.8, 0.8),
            rho=1.0 if unit_root else persistence,
            rho_spread=0.0 if unit_root else draws.spread(0.3, 0.02, 0.2),
            sd_start=draws.spread(0.8, 0.05, 0.8),
            persistent=draws.shocks(draws.spread(0.93, 0.03, 0.4)),
            transitory=draws.shocks(draws.spread(0.95, 0.02, 0.6)),
            ma=draws.uniform(-0.6, 0.8) if draws.happens(0.4) else 0.0,
            volatility=draws.spread(0.6, 0.1, 0.9),
            by_age=draws.uniform(-0.4, 0.3) if draws.happens(0.5) else 0.0,
        )

    def simulate(self, n: int, n_years: int, rng: np.random.Generator) -> Floats:
        """Log wages (n, n_years) of n persons from the first age on, without their profile."""
        normal = rng.standard_normal((5, n))
        level = self.sd_level * normal[0]
        independent = np.sqrt(1.0 - self.correlation**2)
        slope = self.sd_slope * (self.correlation * normal[0] + independent * normal[1])
        t = np.arange(n_years) / 10.0
        size = np.exp(self.volatility * (normal[2] - self.volatility))[:, None]
        size = size * np.exp(self.by_age * t)
        rho = self.rho + self.rho_spread * normal[3]
        if self.rho_spread:
            rho = np.clip(rho, 0.0, _LARGEST_RHO)
        innovation = size * draw_mixture(self.persistent, (n, n_years), rng)
        z = np.empty((n, n_years))
        before = self.sd_start * normal[4]
        for k in range(n_years):
            before = rho * before + innovation[:, k]
            z[:, k] = before
        noise = draw_mixture(self.transitory, (n, n_years + 1), rng)
        transitory = size * (noise[:, 1:] + self.ma * noise[:, :-1])
        logs: Floats = level[:, None] + slope[:, None] * t + z + transitory
        return logs
