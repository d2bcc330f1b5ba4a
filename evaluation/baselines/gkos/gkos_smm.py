"""Simulated method of moments for GKOS: parameters, simulated careers, weights, search.

Careers are simulated by `saga.evaluation.textbook.gkos_process`, under common random numbers, for
persons of the panel and with the gaps of their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from saga.evaluation.baselines.gkos.gkos_moments import AGES, FIRST, RobustMoments
from saga.evaluation.textbook.gkos_process import GkosProcess, Mixture
from scipy.optimize import least_squares
from scipy.special import expit
from scipy.stats import qmc

from saga.arrays import Array, Floats
from saga.schema import MAX_AGE

# Blocks of persons for resampling; standard deviations then have errors of about 5 %.
BLOCKS, REPLICATIONS = 200, 200
EMPTY = 10.0  # the residual of a moment without persons in the simulation
MAX_RESIDUAL = 1e4  # larger residuals are cut, because Sobol points may be far from the data
MIN_UNIFORM = 2.0**-54  # in place of a uniform of 0, whose logarithm and normal score are infinite
# Step of numerical derivatives, as a share of a parameter's range. It must not be small, because
# simulated shares are step functions.
STEP = 0.01


@dataclass(frozen=True)
class Parameter:
    """A parameter's range; the search is on a log scale if `log`."""

    lower: float
    upper: float
    log: bool = False

    def at(self, x: float) -> float:
        """The value at `x` in [0, 1]."""
        if self.log:
            return float(self.lower * (self.upper / self.lower) ** x)
        return float(self.lower + x * (self.upper - self.lower))

    def fraction(self, value: float) -> float:
        """The inverse of `at`; values outside the range are moved to its ends."""
        value = min(max(value, self.lower), self.upper)
        if self.log:
            return float(np.log(value / self.lower) / np.log(self.upper / self.lower))
        return (value - self.lower) / (self.upper - self.lower)


# Standard deviations stay above .04: the filter's grid must resolve the smallest of them.
SHOCKS: dict[str, Parameter] = {
    "sd_alpha": Parameter(0.03, 1.2, log=True),
    "sd_beta": Parameter(0.01, 0.5, log=True),
    "correlation": Parameter(-0.95, 0.95),
    "rho": Parameter(0.5, 0.999),
    "sd_z0": Parameter(0.05, 2.0, log=True),
    "eta.p": Parameter(0.02, 0.7),
    "eta.mean": Parameter(-1.5, 1.0),
    "eta.sd1": Parameter(0.05, 1.8, log=True),
    "eta.sd2": Parameter(0.04, 0.5, log=True),
    "eps.p": Parameter(0.02, 0.6),
    "eps.mean": Parameter(-1.5, 1.0),
    "eps.sd1": Parameter(0.05, 1.8, log=True),
    "eps.sd2": Parameter(0.04, 0.4, log=True),
}
NONEMPLOYMENT = {
    "c": Parameter(-80.0, 0.0),
    "d": Parameter(-40.0, 10.0),
    "rate": Parameter(1e-3, 4.0, log=True),
}


def process_values(process: GkosProcess) -> dict[str, float]:
    """A process's parameters under the names of this module."""
    eta, eps = process.eta, process.eps
    a, b, c, d = process.nonemployment
    a0, a1, a2 = process.profile
    return {
        "a0": a0, "a1": a1, "a2": a2,
        "sd_alpha": process.sd_alpha, "sd_beta": process.sd_beta,
        "correlation": process.correlation, "rho": process.rho, "sd_z0": process.sd_z0,
        "eta.p": eta.p, "eta.mean": eta.mean, "eta.sd1": eta.sd[0], "eta.sd2": eta.sd[1],
        "eps.p": eps.p, "eps.mean": eps.mean, "eps.sd1": eps.sd[0], "eps.sd2": eps.sd[1],
        "a": a, "b": b, "c": c, "d": d, "rate": process.rate,
    }  # fmt: skip


PUBLISHED = process_values(GkosProcess())


def process_of(values: Mapping[str, float], unit: float) -> GkosProcess:
    """The process with these parameters, from age 20 to 64."""
    v = values
    return GkosProcess(
        profile=(v["a0"], v["a1"], v["a2"]), sd_alpha=v["sd_alpha"], sd_beta=v["sd_beta"],
        correlation=v["correlation"], rho=v["rho"], sd_z0=v["sd_z0"],
        eta=Mixture(v["eta.p"], v["eta.mean"], (v["eta.sd1"], v["eta.sd2"])),
        eps=Mixture(v["eps.p"], v["eps.mean"], (v["eps.sd1"], v["eps.sd2"])),
        nonemployment=(v["a"], v["b"], v["c"], v["d"]), rate=v["rate"], unit=unit,
        first_age=FIRST, last_age=MAX_AGE,
    )  # fmt: skip


@dataclass(frozen=True)
class ProfiledProcess(GkosProcess):
    """The process with a mean and an intercept of non-employment for every age.

    They replace the quadratic `profile` and the line a + b t. An age outside the range has the
    value of the nearest age.

    Args:
        levels: (A,), mean log of earnings (real money) by age from `first_age`.
        intercepts: (A,), log odds of non-employment at z = 0 by age.
    """

    levels: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()

    @classmethod
    def of(cls, process: GkosProcess, levels: Floats, intercepts: Floats) -> ProfiledProcess:
        """`process` with `levels` and `intercepts` (A,) instead of its quadratic and line."""
        former = {field.name: getattr(process, field.name) for field in fields(GkosProcess)}
        return cls(**former, levels=tuple(levels.tolist()), intercepts=tuple(intercepts.tolist()))

    def mean_log(self, age: Any) -> Floats:
        """Mean log earnings at `age`, same shape."""
        return np.asarray(np.asarray(self.levels)[self._index(age)])

    def nonemployment_index(self, age: Any, z: Floats) -> Floats:
        """Log odds of non-employment: the age's intercept + (c + d t) z."""
        _, _, c, d = self.nonemployment
        return np.asarray(
            np.asarray(self.intercepts)[self._index(age)] + (c + d * self.time(age)) * z
        )

    def _index(self, age: Any) -> Array:
        return np.clip(np.asarray(age, np.int64) - self.first_age, 0, len(self.levels) - 1)


class CareerDraws:
    """The uniforms of `n` simulated careers, the same for every parameter vector."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.start = np.maximum(rng.random((GkosProcess.start_uniforms, n)), MIN_UNIFORM)
        self.steps = np.maximum(rng.random((len(AGES), GkosProcess.step_uniforms, n)), MIN_UNIFORM)

    def careers(self, process: GkosProcess, persons: slice = slice(None)) -> Floats:
        """Earnings (n, A) of `persons` at ages 20..64, NaN before the process starts."""
        state = process.start(self.start[:, persons])
        earnings = np.full((len(AGES), state.shape[1]), np.nan)
        for t in np.flatnonzero(process.first_age <= AGES):
            state, earnings[t] = process.step(state, AGES[t], self.steps[t][:, persons])
        return np.ascontiguousarray(earnings.T)

    def persistent(self, process: GkosProcess) -> Floats:
        """The persistent component z (A, n) of the same careers; it does not depend on earnings."""
        z = process.start(self.start)[2]
        path = np.full((len(AGES), len(z)), np.nan)
        for t in np.flatnonzero(process.first_age <= AGES):
            z = path[t] = process.rho * z + process.eta.draw(self.steps[t, 0], self.steps[t, 1])
        return path


def intercepts_for(share: Floats, slope: Floats) -> Floats:
    """Intercepts (...,) at which the mean of logistic(intercept + slope) is `share` (...,).

    The mean is over the last axis of `slope` (..., K). Solved by bisection.
    """
    low, high = np.full(share.shape, -60.0), np.full(share.shape, 60.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = expit(middle[..., None] + slope).mean(axis=-1) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


@dataclass(frozen=True, eq=False)
class Weights:
    """Data moments (J,), the scale of a residual (J,), and the moments' covariance (J, J).

    The covariance is estimated by resampling persons.
    """

    data: Floats
    scale: Floats
    covariance: Floats

    @classmethod
    def bootstrap(
        cls, moments: RobustMoments, earnings: Floats, simulated: int, seed: int, slack: float = 0.0
    ) -> Weights:
        """Resample persons; the scale includes the noise of `simulated` careers.

        `slack` is a further standard deviation of every moment: the deviation to be expected even
        of the best process. Without it the moments of many persons would dominate.
        """
        rng = np.random.default_rng(seed)
        sums = moments.sums(earnings, rng.permutation(len(earnings)) % BLOCKS, BLOCKS)
        resampled = rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), size=REPLICATIONS)
        covariance = np.cov(moments.values(resampled @ sums), rowvar=False)
        noise = np.diagonal(covariance) * (1 + len(earnings) / simulated)
        return cls(moments.values(sums.sum(axis=0)), np.sqrt(noise + slack**2), covariance)


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a search.

    Args:
        values: The free parameters by name.
        errors: Their standard errors.
        objective: Sum of squared residuals.
    """

    values: dict[str, float]
    errors: dict[str, float]
    objective: float


@dataclass(frozen=True)
class Effort:
    """Effort of a search.

    Args:
        sobol: 2^`sobol` points are evaluated, besides the starts.
        polished: Number of points that are improved.
        rounds: Most further steps of the best result.
    """

    sobol: int = 6
    polished: int = 3
    rounds: int = 12


def search(
    parameters: Mapping[str, Parameter],
    simulate: Callable[[dict[str, float]], Floats],
    weights: Weights,
    *,
    starts: Sequence[Mapping[str, float]],
    ratio: float,
    seed: int,
    effort: Effort = Effort(),
) -> Fit:
    """The parameters whose simulated moments are nearest: multi-start least squares.

    The starts and 2^`effort.sobol` Sobol points over the ranges are evaluated. The best
    `effort.polished` of them are improved by up to 4 steps of Gauss-Newton in a trust region
    (Branch, Coleman and Li 1999), and the best result by up to `effort.rounds` further steps.
    Derivatives are numerical, under common random numbers. Standard errors are those of simulated
    moments (Pakes and Pollard 1989).

    Args:
        parameters: Names and ranges of the free parameters.
        simulate: Gives the moments (J,) of parameter values.
        weights: Data moments and scales.
        starts: Values to start from.
        ratio: Number of persons divided by the number of simulated careers.
        seed: Seed of the Sobol points.
        effort: Number of points and steps.
    """
    names = list(parameters)

    def values(x: Floats) -> dict[str, float]:
        return {name: parameters[name].at(float(u) - 1.0) for name, u in zip(names, x, strict=True)}

    def residuals(x: Floats) -> Floats:
        return np.nan_to_num((simulate(values(x)) - weights.data) / weights.scale, nan=EMPTY).clip(
            -MAX_RESIDUAL, MAX_RESIDUAL
        )

    def polish(x: Floats, steps: int) -> Any:
        # Coordinates in [1, 2], so that a relative step of the derivatives is a part of the range.
        return least_squares(
            residuals, np.clip(x, 1.001, 1.999), bounds=(1.0, 2.0), diff_step=STEP, max_nfev=steps,
            x_scale=1.0, xtol=1e-4, ftol=1e-4,
        )  # fmt: skip

    sobol = qmc.Sobol(len(names), rng=np.random.default_rng(seed)).random_base2(effort.sobol)
    fractions = [[parameters[name].fraction(start[name]) for name in names] for start in starts]
    points = 1.0 + np.concatenate([np.array(fractions), sobol])
    order = np.argsort([np.square(residuals(x)).sum() for x in points], kind="stable")
    fits = [polish(points[i], 4) for i in order[: effort.polished]]
    best = polish(min(fits, key=lambda fit: float(fit.cost)).x, effort.rounds)
    slope = best.jac
    bread = np.linalg.pinv(slope.T @ slope)
    scaled = slope / weights.scale[:, None]
    variance = np.diagonal(bread @ scaled.T @ weights.covariance @ scaled @ bread) * (1 + ratio)
    estimates = values(best.x)
    width = {
        name: (parameters[name].at(u - 0.999) - parameters[name].at(u - 1.001)) / 0.002
        for name, u in zip(names, best.x, strict=True)
    }
    errors = {
        name: width[name] * float(np.sqrt(max(v, 0.0)))
        for name, v in zip(names, variance, strict=True)
    }
    return Fit(estimates, errors, float(2 * best.cost))
