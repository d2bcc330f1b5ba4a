"""The exact forecaster of the GKOS process: a Rao-Blackwellised particle filter that keeps its fixed effects.

A particle is a pair (alpha, beta). Given it, the persistent state z is a Markov chain in one dimension, and its law given the record is
integrated out by the forward recursion on a fine grid; mixture components and spells of non-employment are summed over. A particle's
weight is its prior times the likelihood of the whole record. Nothing is resampled, so after forty years there are as many distinct fixed
effects as at the start. The particles are points of a lattice in the two dimensions of the prior (quasi-Monte Carlo).

Why a grid is exact: sums over an equally spaced grid integrate a product of normals of sd s at spacing h with a relative error near
2 exp(-2 (pi s / h)^2); h is the smallest sd of the process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import expit, gammaln, log_ndtr, logsumexp

from saga.register.textbook.gkos_process import GkosProcess, Mixture
from saga.schema import MAX_AGE

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

RADIUS = (
    5.0  # of the disc of particles, in prior standard deviations: 4e-6 of the prior lies outside
)
REACH = 5.5  # of the grid, in the largest standard deviation that z ever has
PHASES = 256  # an observation is placed on the grid to 1/256 of its spacing: an error of 0.0001 log points
FINEST = 0.02  # no finer grid than this: noise of a smaller sd is filtered as if it had this one
NEGLIGIBLE = 20.0  # particles whose log weight is this far below the best are dropped: they hold less than 1e-6 of the posterior
SMALLEST = np.float32(
    1e-12
)  # no grid point is ever ruled out, so a record that the process cannot produce leaves a finite weight


@dataclass(frozen=True)
class GkosPosterior:
    """The law of (alpha, beta, z) given a record, at its origin.

    `effects` (2, N): particles; `weight` (N,), sum 1; `z` (K,): the grid; `density` (N, K): the law of z given a particle, rows sum to 1.
    """

    effects: Floats
    weight: Floats
    z: Floats
    density: Singles

    @property
    def effective(self) -> float:
        """The number of equally weighted particles that these are worth."""
        return float(1.0 / np.square(self.weight).sum())

    def draw(self, u: Floats) -> Floats:
        """States (3, M), independent draws from uniforms `u` (M,)."""
        joint = np.cumsum(self.density * self.weight[:, None], dtype=np.float64)
        particle, point = np.divmod(np.searchsorted(joint, u * joint[-1]), len(self.z))
        return np.concatenate([self.effects[:, particle], self.z[None, point]])


class GkosFilter:
    """Filters records of a GKOS process, with published or estimated parameters.

    `particles` is the number of points (alpha, beta), at least 8. The work for a person grows with particles x grid points x years.
    """

    draw_numbers = 1

    def __init__(self, process: GkosProcess, particles: int = 500) -> None:
        smallest = min(*process.eta.sd, *process.eps.sd)
        self.process = process
        self.spacing = max(smallest, FINEST)
        self.eta, self.eps = (
            _no_finer(process.eta, self.spacing),
            _no_finer(process.eps, self.spacing),
        )
        deviation = np.sqrt(_variances(process).max())
        half = int(np.ceil(REACH * deviation / self.spacing))
        self.z: Floats = self.spacing * np.arange(-half, half + 1, dtype=np.float64)
        kernel = self.spacing * self.eta.density(self.z[None, :] - process.rho * self.z[:, None])
        self.kernel = np.where(kernel < 1e-15, 0.0, kernel).astype(
            np.float32
        )  # subnormal numbers would slow the products down
        whitened = _lattice(particles)
        self.effects = process.effects(whitened)
        log_prior = -0.5 * np.square(whitened).sum(axis=0)
        self.log_prior = log_prior - logsumexp(log_prior)

    def posterior(self, earnings: Floats, age: int) -> GkosPosterior:
        """What the record says of a person at the origin.

        `earnings` (A,): real SEK at ages `first_age`, `first_age` + 1, ...; NaN where unknown. Those after `age` are not used.
        """
        first = self.process.first_age
        known = [
            a
            for a in range(first, min(age, first + len(earnings) - 1) + 1)
            if not np.isnan(earnings[a - first])
        ]
        start = known[0] if known else max(age, first - 1)
        effects, log_weight = self.effects, self.log_prior.copy()
        density = np.repeat(self.marginals[start - first + 1][None, :], len(log_weight), axis=0)
        for a in range(start, age + 1):
            if a > start:
                density = density @ self.kernel
            if a not in known:
                continue
            density *= self._likelihood(earnings[a - first], a, effects)
            total = density.sum(axis=1)
            density /= total[:, None]
            np.maximum(density, SMALLEST, out=density)
            log_weight += np.log(total, dtype=np.float64)
            kept = log_weight > log_weight.max() - NEGLIGIBLE
            if kept.mean() < 0.9:
                effects, log_weight, density = effects[:, kept], log_weight[kept], density[kept]
        return GkosPosterior(effects, np.exp(log_weight - logsumexp(log_weight)), self.z, density)

    def draws(self, earnings: Floats, age: NDArray[np.int64], u: Floats) -> Floats:
        """States (3, n, M) at the origins from records (n, A), origin ages (n,) and uniforms `u` (n, M, 1)."""
        drawn = [
            self.posterior(record, int(at)).draw(v[:, 0])
            for record, at, v in zip(earnings, age, u, strict=True)
        ]
        return np.stack(drawn, axis=1) if drawn else np.empty((3, 0, u.shape[1]))

    @cached_property
    def marginals(self) -> Singles:
        """The law of z on the grid with no record, one row an age from `first_age` - 1 on."""
        law = np.exp(-0.5 * np.square(self.z / max(self.process.sd_z0, self.spacing)))
        rows = [law / law.sum()]
        for _ in range(self.process.first_age, MAX_AGE + 1):
            law = rows[-1] @ self.kernel
            rows.append(law / law.sum())
        return np.maximum(np.array(rows, np.float32), SMALLEST)

    def _likelihood(self, earnings: float, age: int, effects: Floats) -> Singles:
        """Of one year's earnings at every particle and grid point: (1, K) for zero, else (N, K)."""
        index = self.process.nonemployment_index(age, self.z)
        idle, works = expit(index).astype(np.float32), expit(-index).astype(np.float32)
        if earnings == 0:
            full_year: Singles = np.maximum(idle * np.float32(np.exp(-self.process.rate)), SMALLEST)
            return full_year[None, :]
        level = (
            np.log(earnings)
            - self.process.mean_log(age)
            - effects[0]
            - effects[1] * self.process.time(age)
        )
        points = len(self.z)
        place = np.rint((level - self.z[0]) / self.spacing * PHASES).astype(np.int64)
        whole, phase = np.divmod(np.clip(place, -points * PHASES, 2 * points * PHASES), PHASES)
        at_work, partly = self._tables
        likelihood: Singles = at_work[phase, 2 * points - whole]
        likelihood *= works
        spell = partly[phase, 2 * points - whole]
        spell *= idle
        likelihood += spell
        np.maximum(likelihood, SMALLEST, out=likelihood)
        return likelihood

    @cached_property
    def _tables(self) -> tuple[Singles, Singles]:
        """Density of the residual log y - g - alpha - beta t - z at work all year, and with a spell of less than a year.

        Indexed [phase, shift] they give the row over the grid, so a row is copied and no exponential is taken.
        """
        points = len(self.z)
        residual = self.spacing * (
            2 * points - np.arange(4 * points)[None, :] + np.arange(PHASES)[:, None] / PHASES
        )
        full = self.eps.density(residual)
        return tuple(
            sliding_window_view(
                np.where(table < 1e-15, 0.0, table).astype(np.float32), points, axis=1
            )
            for table in (full, _spell_density(residual, self.eps, self.process.rate))
        )  # type: ignore[return-value]


def _spell_density(residual: Floats, eps: Mixture, rate: float) -> Floats:
    """Density of eps + log(1 - nu) on nu in (0, 1), nu exponential: it integrates to 1 - exp(-rate).

    With s = -log(1 - nu) the density of s is rate exp(-rate) sum over n of rate^n / n! exp(-(n + 1) s); each term convolved with a normal
    is an exponentially modified normal.
    """
    density = np.zeros_like(residual)
    for n in range(int(rate + 10 * np.sqrt(rate)) + 4):
        scale = (n + 1) * np.log(rate) - rate - gammaln(n + 1)
        for weight, mean, sd in zip(eps.weights, eps.means, eps.sd, strict=True):
            x = residual - mean
            density += weight * np.exp(
                scale + (n + 1) * x + 0.5 * ((n + 1) * sd) ** 2 + log_ndtr(-x / sd - (n + 1) * sd)
            )
    return density


def _no_finer(mixture: Mixture, spacing: float) -> Mixture:
    return replace(mixture, sd=(max(mixture.sd[0], spacing), max(mixture.sd[1], spacing)))


def _variances(process: GkosProcess) -> Floats:
    """Variance of z at `first_age` - 1, ..., 64."""
    variance = [process.sd_z0**2]
    for _ in range(process.first_age, MAX_AGE + 1):
        variance.append(process.rho**2 * variance[-1] + process.eta.variance)
    return np.array(variance)


def _lattice(particles: int) -> Floats:
    """The `particles` points (2, N) of a square lattice that are nearest to its centre, spaced so that they fill the disc."""
    if particles < 8:
        raise ValueError("a filter needs at least 8 particles")
    side = int(np.ceil(np.sqrt(particles)))
    line = np.arange(-side, side + 1)
    # The centre lies off the lattice, so that no two points are at the same distance and any number of particles is possible.
    points = np.stack(np.meshgrid(line - 0.37, line - 0.21)).reshape(2, -1)
    nearest = np.argsort(np.square(points).sum(axis=0), kind="stable")[:particles]
    return np.asarray(points[:, nearest] * RADIUS * np.sqrt(np.pi / particles))
