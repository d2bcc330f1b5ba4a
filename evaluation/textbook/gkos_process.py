"""The GKOS process of earnings: the benchmark of Guvenen, Karahan, Ozkan and Song (2021).

The parameters are those of column 6 of the authors' table of estimates, unchanged
(docs/method/checks.md).

Potential earnings y follow log y = g(t) + alpha + beta t + z + eps, with t = (age - 24) / 10,
g(t) = a0 + a1 t + a2 t^2 and z = rho z(-1) + eta.

alpha and beta are correlated normals, and z is normal at age 24. eta and eps are mixtures, each
with mean zero, of two normals. Earnings are (1 - nu) y, in units of `unit` SEK of 2022, where nu is
the fraction of the year without employment. With probability p_nu = logistic(a + b t + c z +
d z t), nu is min(1, E), with E exponential of rate lambda; otherwise it is 0. With a rate near zero
almost every period of non-employment is a full year of zero earnings.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from saga.evaluation.textbook.gaussian_ar1 import THOUSAND_DOLLARS, Ages, LogProfile
from scipy.special import expit, ndtri

from saga.arrays import Floats


@dataclass(frozen=True)
class Mixture:
    """A mixture, with mean zero, of two normals.

    Attributes:
        p: Probability of the first component.
        mean: Mean of the first component.
        sd: Standard deviations of the first and the second component.
    """

    p: float
    mean: float
    sd: tuple[float, float]

    @property
    def weights(self) -> tuple[float, float]:
        """Probabilities of the two components."""
        return self.p, 1.0 - self.p

    @property
    def means(self) -> tuple[float, float]:
        """Means of the two components."""
        return self.mean, -self.p * self.mean / (1.0 - self.p)

    @property
    def variance(self) -> float:
        """Variance of the mixture."""
        return sum(
            w * (m * m + s * s) for w, m, s in zip(self.weights, self.means, self.sd, strict=True)
        )

    def draw(self, choose: Floats, u: Floats) -> Floats:
        """A draw from two uniforms: `choose` selects the component, `u` the value in it."""
        first = choose < self.p
        return np.asarray(np.where(first, *self.means) + np.where(first, *self.sd) * ndtri(u))

    def density(self, x: Floats) -> Floats:
        """Density at `x`, same shape."""
        components = zip(self.weights, self.means, self.sd, strict=True)
        densities = (
            w / (s * np.sqrt(2 * np.pi)) * np.exp(-0.5 * ((x - m) / s) ** 2)
            for w, m, s in components
        )
        return np.asarray(sum(densities))


@dataclass(frozen=True)
class GkosProcess(LogProfile):
    """Parameters of the process, and its simulation.

    The default is the published benchmark at full precision (US men; `unit` is the value of a
    thousand dollars of 2010 in SEK of 2022). `rate` is lambda, above 0; `nonemployment` is
    (a, b, c, d). `first_age` is the age of the first innovation. Persons are in the register from
    `first_age` to `last_age`; the process itself continues after `last_age`.
    """

    profile: tuple[float, float, float] = (2.580861694, 0.811530031, -0.185093302)
    sd_alpha: float = 0.299819619
    sd_beta: float = 0.196328895
    correlation: float = 0.767749193
    rho: float = 0.959229453
    sd_z0: float = 0.713648178
    eta: Mixture = field(
        default_factory=lambda: Mixture(0.406559194, -0.085236482, (0.363928061, 0.06891405))
    )
    eps: Mixture = field(
        default_factory=lambda: Mixture(0.129904327, 0.271112226, (0.284541004, 0.036545913))
    )
    nonemployment: tuple[float, float, float, float] = (
        -3.352949544,
        -0.859498283,
        -5.034075647,
        -2.895204912,
    )
    rate: float = 0.000265509
    unit: float = THOUSAND_DOLLARS
    first_age: int = 25
    last_age: int = 60

    name: ClassVar[str] = "gkos"
    state_names: ClassVar[tuple[str, ...]] = ("alpha", "beta", "z")
    start_uniforms: ClassVar[int] = 3  # that `start` needs per person
    step_uniforms: ClassVar[int] = 6  # that `step` needs per person

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GkosProcess:
        """The inverse of `dataclasses.asdict`, also after JSON."""
        tuples = {name: tuple(values[name]) for name in ("profile", "nonemployment")}
        mixtures = {
            name: Mixture(values[name]["p"], values[name]["mean"], tuple(values[name]["sd"]))
            for name in ("eta", "eps")
        }
        return cls(**{**values, **tuples, **mixtures})

    def nonemployment_index(self, age: Ages, z: Floats) -> Floats:
        """Log odds of non-employment, a + b t + c z + d z t."""
        a, b, c, d = self.nonemployment
        t = self.time(age)
        return np.asarray(a + b * t + (c + d * t) * z)

    def effects(self, x: Floats) -> Floats:
        """Effects alpha and beta (2, ...) from independent standard normals `x` (2, ...)."""
        independent = np.sqrt(1.0 - self.correlation**2)
        return np.stack(
            [self.sd_alpha * x[0], self.sd_beta * (self.correlation * x[0] + independent * x[1])]
        )

    def start(self, u: Floats) -> Floats:
        """State (alpha, beta, z) in the year before `first_age` from uniforms `u` (3, ...)."""
        normal = ndtri(u)
        return np.concatenate([self.effects(normal[:2]), self.sd_z0 * normal[2:]])

    def step(self, state: Floats, age: Ages, u: Floats) -> tuple[Floats, Floats]:
        """State and real earnings at `age` from the state before and uniforms `u` (6, ...)."""
        alpha, beta = state[0], state[1]
        z = self.rho * state[2] + self.eta.draw(u[0], u[1])
        eps = self.eps.draw(u[2], u[3])
        log_potential = self.mean_log(age) + alpha + beta * self.time(age) + z + eps
        duration = np.minimum(-np.log(u[5]) / self.rate, 1.0)
        nu = np.where(u[4] < expit(self.nonemployment_index(age, z)), duration, 0.0)
        return np.stack([alpha, beta, z]), (1.0 - nu) * np.exp(log_potential)


# This intercept gives zero earnings in about 10 % of person-years, which is closer to Sweden than
# the 27 % of the published process.
FEW_ZEROS = replace(GkosProcess(), nonemployment=(-9.63, *GkosProcess().nonemployment[1:]))
