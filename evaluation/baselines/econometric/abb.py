"""The quantile process of Arellano, Blundell and Bonhomme (2017): nonlinear persistence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from saga.evaluation.baselines.econometric.histories import UNKNOWN, WORK, Histories
from saga.evaluation.baselines.econometric.hurdle import Career
from saga.evaluation.baselines.econometric.hurdle_base import HurdleBaseline
from saga.evaluation.baselines.econometric.persistence import (
    FEATURES,
    INTERVALS,
    Distributions,
    Grid,
    Tables,
    level_features,
)
from saga.evaluation.baselines.econometric.quantile_functions import QuantileDistribution

from saga.arrays import Array, Floats
from saga.errors import InputError, Problem
from saga.keyed_random import uniforms
from saga.schema import MAX_AGE, MIN_AGE

PERSONS = 4_000  # largest number of careers in the estimation
ITERATIONS = 20  # iterations of the stochastic EM algorithm
AVERAGED_ITERATIONS = 8  # last iterations, whose coefficients are averaged
CHUNK = 1_000  # persons whose filtered densities are in memory at once


class QuantileProcess(HurdleBaseline[Floats]):
    """Residual = eta + eps by the distributions of `persistence`; the state of a path is eta.

    eta at the origin is drawn from its posterior on the grid. Estimation is by stochastic EM: eta
    of every career is drawn given the distributions (forward filtering, backward sampling on the
    grid), the distributions are fitted to the draws by quantile regression, and so on. eps is
    identified by a mean of zero in years of work that are not returns.
    """

    name = "abb"
    version = 1
    components: Distributions

    def learn(self, past: Histories, *, seed: int) -> None:
        """Estimate the distributions from at most 4,000 persons with two years of work.

        Raises InputError if there is no such person.
        """
        careers = Careers.of(past, seed)
        residual = careers.residual[careers.works]
        grid = Grid.around(residual)
        change = np.diff(careers.residual, axis=1)
        moved = change[~np.isnan(change)] if (~np.isnan(change)).any() else residual
        mad_sd = float(np.quantile(np.abs(moved - np.median(moved)), 0.5)) / 0.6745
        sd = max(mad_sd, 0.05 * grid.scale)  # robust standard deviation of yearly changes
        eta = QuantileDistribution.normal(FEATURES[0], 0.7 * sd)
        eta.weights[:, 3] = 0.95 * grid.scale  # the feature eta / scale without age
        distributions = Distributions(
            grid,
            eta,
            QuantileDistribution.normal(FEATURES[1], 0.5 * sd),
            QuantileDistribution.normal(FEATURES[2], grid.scale),
        )
        iterates: list[Distributions] = []
        for iteration in range(ITERATIONS):
            eta_draws = careers.draw(Tables(distributions, careers.ages), seed, iteration)
            distributions = careers.refit(distributions, eta_draws)
            iterates.append(distributions)
        last = iterates[-AVERAGED_ITERATIONS:]
        parts = ("eta", "eps", "start")
        self.components = Distributions(
            grid, *(_mean([getattr(iterate, part) for iterate in last]) for part in parts)
        )
        self.tables = Tables(self.components)

    def states(self, past: Histories, careers: list[Career], u: Floats) -> Floats:
        """Draws of eta in the last column given the record, (n, M).

        0 for persons who never worked: their eta is drawn in their first year of work.
        """
        eta = np.zeros(u.shape)
        for person in range(len(past.age)):
            density = self._filtered(past, careers, person)
            if density is not None:
                eta[person] = _inverse(density, self.components.grid, u[person])
        return eta

    def step(
        self, state: Floats, age: Array, status: Array, career: Career, u: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """One year of eta and eps; eta starts in a person's first year of work."""
        tables, components = self.tables, self.components
        returns = (career.years_out > 0).astype(np.int64)
        row = np.broadcast_to(np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE, status.shape), returns
        eta = tables.next_eta(state, age, status != WORK, u[0])
        first_eta = tables.draw(components.start, tables.start_knots, row, u[0])
        eta = np.where((career.worked == 0) & (status == WORK), first_eta, eta)
        return eta + tables.draw(components.eps, tables.eps_knots, row, u[1]), eta

    def _filtered(self, past: Histories, careers: list[Career], person: int) -> Floats | None:
        """P(eta in each grid interval | record) in the last column; None before the first work.

        Persons are filtered one at a time, because the rounding of a matrix product depends on its
        number of rows.
        """
        density: Floats | None = None
        for column in range(past.years):
            status = past.status[person, column]
            age = int(np.clip(past.age[person, column], MIN_AGE, MAX_AGE))
            returns = int(careers[column].years_out[person] > 0)
            idle = int(status not in (WORK, UNKNOWN))
            if density is not None:
                density = density @ self.tables.moves[age - MIN_AGE, idle]
            elif status == WORK:
                density = self.tables.starts[age - MIN_AGE, returns]
            if density is not None and status == WORK:
                residual = past.residual[person, column : column + 1]
                density = density * self.tables.likelihood(residual, age, returns)[0]
                density = density / density.sum()
        return density


class Careers:
    """Careers from the first to the last year of work for the estimation; columns by age from 16.

    Args:
        residual: (n, 49), NaN except in years of work.
        idle: (n, 49), whether the year is known and without work.
        returns: (n, 49), whether the last known year before was without work.
    """

    def __init__(self, residual: Floats, idle: Array, returns: Array) -> None:
        self.residual, self.idle, self.returns = residual, idle, returns
        self.works = ~np.isnan(residual)
        self.first = self.works.argmax(axis=1)
        self.last = residual.shape[1] - 1 - self.works[:, ::-1].argmax(axis=1)
        self.ages = range(MIN_AGE + int(self.first.min()), MIN_AGE + int(self.last.max()) + 1)

    @classmethod
    def of(cls, past: Histories, seed: int) -> Careers:
        """The careers of at most 4,000 persons with two years of work, reproducibly at random."""
        workers = np.flatnonzero((past.status == WORK).sum(axis=1) >= 2)
        if not len(workers):
            fix = "Give a panel in which persons have earnings in at least two years."
            raise InputError(
                "The quantile process cannot be estimated",
                [Problem("no-careers", "no person worked in two known years", fix)],
            )
        if len(workers) > PERSONS:
            order = np.argpartition(uniforms(len(workers), "abb", seed), PERSONS)
            workers = workers[np.sort(order[:PERSONS])]
        past = past.take(workers)
        shape = (len(workers), MAX_AGE - MIN_AGE + 1)
        residual, idle = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        person, column = np.nonzero(
            (past.status != UNKNOWN) & (past.age >= MIN_AGE) & (past.age <= MAX_AGE)
        )
        age_column = past.age[person, column] - MIN_AGE
        residual[person, age_column] = past.residual[person, column]
        idle[person, age_column] = past.status[person, column] != WORK
        works = ~np.isnan(residual)
        returns, was_idle = np.zeros(shape, dtype=np.bool_), np.zeros(len(workers), dtype=np.bool_)
        for age in range(shape[1]):
            returns[:, age] = was_idle
            was_idle = idle[:, age] | (was_idle & ~works[:, age])
        has_work = works.any(axis=1)
        return cls(residual[has_work], idle[has_work], returns[has_work])

    def draw(self, tables: Tables, seed: int, iteration: int) -> Floats:
        """One draw of eta, (n, ages), between first and last year of work, otherwise NaN."""
        parts = []
        for start in range(0, len(self.residual), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(self.residual)))
            u = uniforms(2 * self.residual[rows].size, "abb", seed, iteration, start)
            parts.append(self._draw(rows, tables, u.reshape(2, len(rows), -1)))
        return np.concatenate(parts)

    def _draw(self, rows: Array, tables: Tables, u: Floats) -> Floats:
        """Draws of the persistent component (n, ages), NaN outside the ages of a person.

        Intervals are filtered forward over ages and drawn backward from the last age.
        """
        first, last, works = self.first[rows], self.last[rows], self.works[rows]
        idle, returns = self.idle[rows].astype(np.int64), self.returns[rows].astype(np.int64)
        residual = self.residual[rows]
        density = np.zeros((residual.shape[1], len(rows), INTERVALS), dtype=np.float32)
        filtered = np.zeros((len(rows), INTERVALS))
        for a in range(int(first.min()), int(last.max()) + 1):
            inside = (first <= a) & (a <= last)
            for flag in (0, 1):
                continues = np.flatnonzero(inside & (first < a) & (idle[:, a] == flag))
                filtered[continues] = filtered[continues] @ tables.moves[a, flag]
                begins = np.flatnonzero((first == a) & (returns[:, a] == flag))
                filtered[begins] = tables.starts[a, flag]
                seen = np.flatnonzero(inside & works[:, a] & (returns[:, a] == flag))
                filtered[seen] *= tables.likelihood(residual[seen, a], a + MIN_AGE, flag)
            active = np.flatnonzero(inside)
            filtered[active] /= filtered[active].sum(axis=1, keepdims=True)
            density[a, active] = filtered[active]
        interval = np.full(residual.shape, -1, dtype=np.int64)
        for a in range(int(last.max()), int(first.min()) - 1, -1):
            active = np.flatnonzero((first <= a) & (a <= last))
            weight = density[a, active].astype(np.float64)
            not_last = np.flatnonzero(last[active] > a)
            persons = active[not_last]
            if len(persons):
                next_interval = interval[persons, a + 1]
                weight[not_last] *= tables.moves[a + 1, idle[persons, a + 1], :, next_interval]
            total = np.cumsum(weight, axis=1)
            below = (total < u[0, active, a][:, None] * total[:, -1:]).sum(axis=1)
            interval[active, a] = np.minimum(below, INTERVALS - 1)
        grid = tables.distributions.grid
        eta = grid.edges[np.maximum(interval, 0)] + u[1] * grid.width
        return np.where(interval >= 0, eta, np.nan)

    def refit(self, distributions: Distributions, eta: Floats) -> Distributions:
        """The distributions fitted to draws of eta (n, ages) and to eps = residual - eta."""
        ages = np.broadcast_to(np.arange(eta.shape[1]) + MIN_AGE, eta.shape)
        pairs = ~np.isnan(eta[:, :-1]) & ~np.isnan(eta[:, 1:])
        features, shift = distributions.grid.next_features(
            eta[:, :-1][pairs], ages[:, 1:][pairs], self.idle[:, 1:][pairs]
        )
        next_eta = distributions.eta
        if pairs.any():
            next_eta = next_eta.refit(features, eta[:, 1:][pairs] - shift)
        works = self.works
        eps = distributions.eps.refit(
            level_features(ages[works], self.returns[works]), (self.residual - eta)[works]
        )
        mean = eps.mean_weights()
        mean[3:] = 0.0  # the mean of eps in a return to work is not zero
        eps = replace(eps, weights=eps.weights - mean)
        rows = np.arange(len(eta)), self.first
        start = distributions.start.refit(level_features(ages[rows], self.returns[rows]), eta[rows])
        return Distributions(distributions.grid, next_eta, eps, start)


def _mean(distributions: list[QuantileDistribution]) -> QuantileDistribution:
    return QuantileDistribution(
        np.mean([d.weights for d in distributions], axis=0),
        float(np.mean([d.below for d in distributions])),
        float(np.mean([d.above for d in distributions])),
    )


def _inverse(density: Floats, grid: Grid, u: Floats) -> Floats:
    """Draws of eta at uniforms `u` (M,) from probabilities `density` (G,) of grid intervals."""
    total = np.cumsum(density)
    i = np.minimum(np.searchsorted(total, u * total[-1], side="right"), INTERVALS - 1)
    within = (u * total[-1] - (total[i] - density[i])) / np.maximum(density[i], 1e-300)
    return np.asarray(grid.edges[i] + np.clip(within, 0.0, 1.0) * grid.width)
