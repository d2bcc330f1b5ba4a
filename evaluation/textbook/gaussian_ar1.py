"""The Gaussian textbook process: a fixed effect, an AR(1) and white noise in logs.

log y = g(t) + alpha + z + eps, with t = (age - 24) / 10, g(t) = a0 + a1 t + a2 t^2 and
z = rho z(-1) + eta. Here alpha, z at 24, eta and eps are independent normals, and earnings y are in
units of `unit` SEK of 2022. No person has zero earnings, dies or emigrates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.textbook.textbook_register import RegisterProcess
from scipy.special import ndtri

from saga.arrays import Floats

Ages = NDArray[Any] | int

# SEK of 2022 for a thousand dollars of 2010: 7.20 SEK per dollar on average in 2010 (Riksbank, from
# memory) times the growth of the consumer price index, 371.91 / 303.46. Rounded: a constant factor
# only shifts the logs.
THOUSAND_DOLLARS = 8_830.0


class LogProfile(RegisterProcess):
    """A process with mean log earnings log(unit) + a0 + a1 t + a2 t^2, t = (age - 24) / 10."""

    profile: tuple[float, float, float]  # a0, a1, a2
    unit: float  # SEK of 2022

    def time(self, age: Ages) -> Floats:
        """Decades t after age 24, with the shape of `age`."""
        return (np.asarray(age, np.float64) - 24.0) / 10.0

    def mean_log(self, age: Ages) -> Floats:
        """Mean of log SEK of 2022 at `age`, same shape."""
        t, (a0, a1, a2) = self.time(age), self.profile
        return np.asarray(np.log(self.unit) + a0 + a1 * t + a2 * t * t)


@dataclass(frozen=True)
class GaussianProcess(LogProfile):
    """Parameters of the process, and its simulation.

    The default is the normal AR(1) with a fixed effect that Guvenen, Karahan, Ozkan and Song (2021)
    estimate for US men (column 2), without its non-employment. z has its starting value in the year
    before `first_age`. Persons are in the register from `first_age` to `last_age`; the process
    itself continues after `last_age`.
    """

    profile: tuple[float, float, float] = (2.569, 0.766, -0.152)
    sd_alpha: float = 0.655
    rho: float = 0.967
    sd_z0: float = 0.563
    sd_eta: float = 0.197
    sd_eps: float = 0.163
    unit: float = THOUSAND_DOLLARS
    first_age: int = 25
    last_age: int = 60

    name: ClassVar[str] = "gaussian"
    state_names: ClassVar[tuple[str, ...]] = ("alpha", "z")
    start_uniforms: ClassVar[int] = 2  # that `start` needs per person
    step_uniforms: ClassVar[int] = 2  # that `step` needs per person

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GaussianProcess:
        """The inverse of `dataclasses.asdict`, also after JSON."""
        return cls(**{**values, "profile": tuple(values["profile"])})

    def start(self, u: Floats) -> Floats:
        """State (alpha, z) in the year before `first_age` from uniforms `u` (2, ...)."""
        normal = ndtri(u)
        return np.stack([self.sd_alpha * normal[0], self.sd_z0 * normal[1]])

    def step(self, state: Floats, age: Ages, u: Floats) -> tuple[Floats, Floats]:
        """State and real earnings at `age` from the state before and uniforms `u` (2, ...)."""
        normal = ndtri(u)
        alpha, z = state[0], self.rho * state[1] + self.sd_eta * normal[0]
        log = self.mean_log(age) + alpha + z + self.sd_eps * normal[1]
        return np.stack([alpha, z]), np.exp(log)
