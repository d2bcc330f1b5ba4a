"""A Rao-Blackwellised particle filter of the GKOS process.

A particle is a pair (alpha, beta). Given the pair, the persistent state z is a Markov chain in one
dimension. Its distribution given the record is computed by the forward recursion on a fine grid;
it sums over mixture components and spells of non-employment. The weight of a particle is its prior
times the likelihood of the whole record. Particles are points of a lattice in the two dimensions of
the prior (quasi-Monte Carlo). They are never resampled, so no pair occurs twice even after forty
years; those of negligible weight are dropped.

The grid is practically exact: a sum over an equally spaced grid integrates a product of normals of
standard deviation s at spacing h with a relative error near 2 exp(-2 (pi s / h)^2). h is the
smallest standard deviation of the process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from saga.evaluation.textbook.gkos_process import GkosProcess, Mixture
from scipy.special import expit, gammaln, log_ndtr, logsumexp

from saga.arrays import Floats
from saga.schema import MAX_AGE

Singles = NDArray[np.float32]

RADIUS = 5.0  # of the disc of particles, in prior standard deviations: 4e-6 of the prior is outside
GRID_HALF_WIDTH = 5.5  # in the largest standard deviation of z at any age
PHASES = 256  # observations are rounded to 1/256 of the spacing: an error of 0.0001 log points
MIN_SPACING = 0.02  # of the grid; noise with a smaller standard deviation is given this one
# Particles whose log weight is this far below the largest have less than 1e-6 of the posterior.
# They are dropped when they are more than a tenth of the particles.
NEGLIGIBLE, DROPPED_SHARE = 20.0, 0.1
# Smallest density of a grid point: a record that the process cannot produce has a positive weight.
MIN_DENSITY = np.float32(1e-12)
SUBNORMAL = 1e-15  # smaller densities are set to 0, because subnormal numbers slow products down
MIN_PARTICLES = 8
# The centre of the disc is not a lattice point, so that no two points have the same distance from
# it and any number of particles is possible.
LATTICE_CENTRE = (0.37, 0.21)


@dataclass(frozen=True)
class GkosPosterior:
    """The distribution of (alpha, beta, z) given a record, at its origin.

    Attributes:
        effects: Particles (2, N).
        weight: Their weights (N,), sum 1.
        z: The grid (K,).
        density: Distribution of z given a particle (N, K), rows sum to 1.
    """

    effects: Floats
    weight: Floats
    z: Floats
    density: Singles

    def draw(self, u: Floats) -> Floats:
        """States (3, M), independent draws from uniforms `u` (M,)."""
        joint = np.cumsum(self.density * self.weight[:, None], dtype=np.float64)
        particle, point = np.divmod(np.searchsorted(joint, u * joint[-1]), len(self.z))
        return np.concatenate([self.effects[:, particle], self.z[None, point]])


class GkosFilter:
    """Filters records of a GKOS process, with published or estimated parameters.

    The time per person grows with particles x grid points x years.

    Args:
        process: The process whose records are filtered.
        particles: Number of points (alpha, beta), at least 8.
    """

    draw_uniforms = 1  # per draw of a state

    def __init__(self, process: GkosProcess, particles: int = 500) -> None:
        smallest = min(*process.eta.sd, *process.eps.sd)
        self.process = process
        self.spacing = max(smallest, MIN_SPACING)
        self.eta, self.eps = (_widen(m, self.spacing) for m in (process.eta, process.eps))
        deviation = np.sqrt(_variances(process).max())
        half = int(np.ceil(GRID_HALF_WIDTH * deviation / self.spacing))
        self.z: Floats = self.spacing * np.arange(-half, half + 1, dtype=np.float64)
        kernel = self.spacing * self.eta.density(self.z[None, :] - process.rho * self.z[:, None])
        self.kernel = np.where(kernel < SUBNORMAL, 0.0, kernel).astype(np.float32)
        whitened = _lattice(particles)
        self.effects = process.effects(whitened)
        log_prior = -0.5 * np.square(whitened).sum(axis=0)
        self.log_prior = log_prior - logsumexp(log_prior)

    def posterior(self, earnings: Floats, age: int) -> GkosPosterior:
        """The distribution of a person's state at the origin, given the record.

        Args:
            earnings: Real SEK at ages `first_age`, `first_age` + 1, ... (A,), NaN if unknown.
                Values after the origin are not used.
            age: Age at the origin.
        """
        first = self.process.first_age
        ages = range(first, min(age, first + len(earnings) - 1) + 1)
        observed_ages = [a for a in ages if not np.isnan(earnings[a - first])]
        start = observed_ages[0] if observed_ages else max(age, first - 1)
        effects, log_weight = self.effects, self.log_prior.copy()
        density = np.repeat(self.marginals[start - first + 1][None, :], len(log_weight), axis=0)
        for a in range(start, age + 1):
            if a > start:
                density = density @ self.kernel
            if a not in observed_ages:
                continue
            density *= self._likelihood(earnings[a - first], a, effects)
            total = density.sum(axis=1)
            density /= total[:, None]
            np.maximum(density, MIN_DENSITY, out=density)
            log_weight += np.log(total, dtype=np.float64)
            likely = log_weight > log_weight.max() - NEGLIGIBLE
            if likely.mean() < 1.0 - DROPPED_SHARE:
                effects, log_weight = effects[:, likely], log_weight[likely]
                density = density[likely]
        return GkosPosterior(effects, np.exp(log_weight - logsumexp(log_weight)), self.z, density)

    def draw_states(self, earnings: Floats, age: NDArray[np.int64], u: Floats) -> Floats:
        """States (3, n, M) at the origins from records, origin ages and uniforms `u` (n, M, 1).

        A row of `earnings` (n, A) and a value of `age` (n,) are those of `posterior`.
        """
        states = [
            self.posterior(record, int(origin_age)).draw(v[:, 0])
            for record, origin_age, v in zip(earnings, age, u, strict=True)
        ]
        return np.stack(states, axis=1) if states else np.empty((3, 0, u.shape[1]))

    @cached_property
    def marginals(self) -> Singles:
        """Distribution of z on the grid without a record, one row per age from `first_age` - 1."""
        density = np.exp(-0.5 * np.square(self.z / max(self.process.sd_z0, self.spacing)))
        rows = [density / density.sum()]
        for _ in range(self.process.first_age, MAX_AGE + 1):
            density = rows[-1] @ self.kernel
            rows.append(density / density.sum())
        return np.maximum(np.array(rows, np.float32), MIN_DENSITY)

    def _likelihood(self, earnings: float, age: int, effects: Floats) -> Singles:
        """Likelihood of a year's earnings at particles and points: (1, K) for zero, else (N, K)."""
        index = self.process.nonemployment_index(age, self.z)
        idle, employed = expit(index).astype(np.float32), expit(-index).astype(np.float32)
        if earnings == 0:
            full_spell = np.float32(np.exp(-self.process.rate))
            zero: Singles = np.maximum(idle * full_spell, MIN_DENSITY)
            return zero[None, :]
        residual = (
            np.log(earnings)
            - self.process.mean_log(age)
            - effects[0]
            - effects[1] * self.process.time(age)
        )
        points = len(self.z)
        position = np.rint((residual - self.z[0]) / self.spacing * PHASES).astype(np.int64)
        steps, phase = np.divmod(np.clip(position, -points * PHASES, 2 * points * PHASES), PHASES)
        full_year_density, spell_density = self._tables
        likelihood: Singles = full_year_density[phase, 2 * points - steps]
        likelihood *= employed
        spell = spell_density[phase, 2 * points - steps]
        spell *= idle
        likelihood += spell
        np.maximum(likelihood, MIN_DENSITY, out=likelihood)
        return likelihood

    @cached_property
    def _tables(self) -> tuple[Singles, Singles]:
        """Densities of the residual log y - g - alpha - beta t - z over the grid.

        The first is for work all year, the second for a spell of less than a year. Indexed
        [phase, shift] they give a row over the grid, so no exponential is computed per person.
        """
        points = len(self.z)
        shift = 2 * points - np.arange(4 * points)[None, :]
        residual = self.spacing * (shift + np.arange(PHASES)[:, None] / PHASES)

        def windows(density: Floats) -> Singles:
            table = np.where(density < SUBNORMAL, 0.0, density).astype(np.float32)
            return sliding_window_view(table, points, axis=1)

        spell_density = _spell_density(residual, self.eps, self.process.rate)
        return windows(self.eps.density(residual)), windows(spell_density)


def _spell_density(residual: Floats, eps: Mixture, rate: float) -> Floats:
    """Density of eps + log(1 - nu) on nu in (0, 1), nu exponential.

    It integrates to 1 - exp(-rate). With s = -log(1 - nu) the density of s is
    rate exp(-rate) sum over n of rate^n / n! exp(-(n + 1) s). Each term convolved with a normal is
    an exponentially modified normal.
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


def _widen(mixture: Mixture, spacing: float) -> Mixture:
    return replace(mixture, sd=(max(mixture.sd[0], spacing), max(mixture.sd[1], spacing)))


def _variances(process: GkosProcess) -> Floats:
    """Variance of z at `first_age` - 1, ..., 64."""
    variance = [process.sd_z0**2]
    for _ in range(process.first_age, MAX_AGE + 1):
        variance.append(process.rho**2 * variance[-1] + process.eta.variance)
    return np.array(variance)


def _lattice(particles: int) -> Floats:
    """The points (2, N) of a square lattice nearest to its centre, filling the disc."""
    if particles < MIN_PARTICLES:
        raise ValueError(f"a filter needs at least {MIN_PARTICLES} particles")
    side = int(np.ceil(np.sqrt(particles)))
    line = np.arange(-side, side + 1)
    x, y = LATTICE_CENTRE
    points = np.stack(np.meshgrid(line - x, line - y)).reshape(2, -1)
    nearest = np.argsort(np.square(points).sum(axis=0), kind="stable")[:particles]
    return np.asarray(points[:, nearest] * RADIUS * np.sqrt(np.pi / particles))
