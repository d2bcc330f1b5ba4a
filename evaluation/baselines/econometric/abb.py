"""The quantile process of Arellano, Blundell and Bonhomme (2017): nonlinear persistence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.econometric.histories import UNKNOWN, WORK, Histories
from evaluation.baselines.econometric.hurdle import Career
from evaluation.baselines.econometric.hurdle_base import HurdleBaseline
from evaluation.baselines.econometric.persistence import (
    FEATURES,
    INTERVALS,
    Distributions,
    Grid,
    Tables,
    level_features,
)
from evaluation.baselines.econometric.quantile_functions import QuantileDistribution
from saga.errors import InputError, Problem
from saga.keyed_random import uniforms
from saga.schema import MAX_AGE, MIN_AGE

Array = NDArray[Any]
Floats = NDArray[np.float64]
PERSONS = 4_000  # careers at most in the estimation, drawn by key
ITERATIONS = 20  # of the stochastic EM algorithm
AVERAGED = 8  # the last of them, whose coefficients are averaged
CHUNK = 1_000  # persons whose filtered densities are in memory at once


class QuantileProcess(HurdleBaseline[Floats]):
    """Residual = eta + eps by the distributions of `persistence`; the state of a path is eta.

    eta at the origin is drawn from its exact posterior. Estimation is by stochastic EM: draw eta of
    every career given the distributions (forward filtering, backward sampling on the grid), fit
    them to the draws by quantile regression, repeat. eps has mean zero at work, which separates it
    from eta.
    """

    name = "abb"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)
    distributions: Distributions

    def learn(self, past: Histories, *, seed: int) -> None:
        """Estimates the distributions from at most 4,000 persons with two years of work.

        Raises InputError if there are none.
        """
        careers = Careers.of(past, seed)
        residual = careers.residual[careers.works]
        grid = Grid.around(residual)
        change = np.diff(careers.residual, axis=1)
        moved = change[~np.isnan(change)] if (~np.isnan(change)).any() else residual
        small = max(
            float(np.quantile(np.abs(moved - np.median(moved)), 0.5)) / 0.6745, 0.05 * grid.scale
        )
        eta = QuantileDistribution.normal(FEATURES[0], 0.7 * small)
        eta.weights[:, 3] = 0.95 * grid.scale  # the feature eta / scale without age
        distributions = Distributions(
            grid,
            eta,
            QuantileDistribution.normal(FEATURES[1], 0.5 * small),
            QuantileDistribution.normal(FEATURES[2], grid.scale),
        )
        iterates: list[Distributions] = []
        for iteration in range(ITERATIONS):
            eta_draws = careers.draw(Tables(distributions, careers.ages), seed, iteration)
            distributions = careers.refit(distributions, eta_draws)
            iterates.append(distributions)
        last = iterates[-AVERAGED:]
        self.distributions = Distributions(
            grid,
            *(
                _mean([getattr(one, distribution) for one in last])
                for distribution in ("eta", "eps", "start")
            ),
        )
        self.tables = Tables(self.distributions)

    def states(self, past: Histories, careers: list[Career], u: Floats) -> Floats:
        """Draws of eta in the last column given the record, (n, M).

        0 for persons who never worked: they start when they first work.
        """
        eta = np.zeros(u.shape)
        for person in range(len(past.age)):
            density = self._filtered(past, careers, person)
            if density is not None:
                eta[person] = _inverse(density, self.distributions.grid, u[person])
        return eta

    def step(
        self, state: Floats, age: Array, status: Array, career: Career, u: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """One year of eta and eps; a person who works for the first time starts."""
        tables, at = (
            self.tables,
            np.broadcast_to(np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE, status.shape),
        )
        back = (career.years_out > 0).astype(np.int64)
        eta = tables.next_eta(state, age, status != WORK, u[0])
        begins = (career.worked == 0) & (status == WORK)
        eta = np.where(
            begins, tables.draw(self.distributions.start, tables.start_knots, (at, back), u[0]), eta
        )
        return eta + tables.draw(self.distributions.eps, tables.eps_knots, (at, back), u[1]), eta

    def _filtered(self, past: Histories, careers: list[Career], person: int) -> Floats | None:
        """P(eta in each grid interval | record) in the last column; None before the first work.

        Persons one at a time: a product of many rows may be rounded differently with other persons
        in it.
        """
        density: Floats | None = None
        for column in range(past.years):
            status, age = (
                past.status[person, column],
                int(np.clip(past.age[person, column], MIN_AGE, MAX_AGE)),
            )
            back = int(careers[column].years_out[person] > 0)
            if density is not None:
                density = (
                    density @ self.tables.moves[age - MIN_AGE, int(status not in (WORK, UNKNOWN))]
                )
            elif status == WORK:
                density = self.tables.starts[age - MIN_AGE, back]
            if density is not None and status == WORK:
                density = (
                    density
                    * self.tables.likelihood(past.residual[person, column : column + 1], age, back)[
                        0
                    ]
                )
                density = density / density.sum()
        return density


class Careers:
    """Careers from the first to the last year of work, columns by age from 16, for estimation."""

    def __init__(self, residual: Floats, idle: Array, back: Array) -> None:
        self.residual, self.idle, self.back = residual, idle, back
        self.works = ~np.isnan(residual)
        self.first = self.works.argmax(axis=1)
        self.last = residual.shape[1] - 1 - self.works[:, ::-1].argmax(axis=1)
        self.ages = range(MIN_AGE + int(self.first.min()), MIN_AGE + int(self.last.max()) + 1)

    @classmethod
    def of(cls, past: Histories, seed: int) -> Careers:
        """The careers of persons who worked in two known years, at most 4,000, drawn by key."""
        workers = np.flatnonzero((past.status == WORK).sum(axis=1) >= 2)
        if not len(workers):
            fix = "Give a panel in which persons have earnings in at least two years."
            raise InputError(
                "The quantile process cannot be estimated",
                [Problem("no-careers", "no person worked in two known years", fix)],
            )
        if len(workers) > PERSONS:
            workers = workers[
                np.sort(np.argpartition(uniforms(len(workers), "abb", seed), PERSONS)[:PERSONS])
            ]
        past = past.take(workers)
        shape = (len(workers), MAX_AGE - MIN_AGE + 1)
        residual, idle = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        person, column = np.nonzero(
            (past.status != UNKNOWN) & (past.age >= MIN_AGE) & (past.age <= MAX_AGE)
        )
        age_column = past.age[person, column] - MIN_AGE
        residual[person, age_column] = past.residual[person, column]
        idle[person, age_column] = past.status[person, column] != WORK
        # As in Career: a year is a return if the last known year before it was without work.
        back, was_idle = np.zeros(shape, dtype=np.bool_), np.zeros(len(workers), dtype=np.bool_)
        for age in range(shape[1]):
            back[:, age] = was_idle
            was_idle = np.where(
                idle[:, age], True, np.where(~np.isnan(residual[:, age]), False, was_idle)
            )
        has_work = (~np.isnan(residual)).any(axis=1)
        return cls(residual[has_work], idle[has_work], back[has_work])

    def draw(self, tables: Tables, seed: int, iteration: int) -> Floats:
        """One draw of eta, (n, ages), between first and last year of work, otherwise NaN."""
        parts = []
        for start in range(0, len(self.residual), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(self.residual)))
            u = uniforms(
                2 * len(rows) * self.residual.shape[1], "abb", seed, iteration, start
            ).reshape(2, len(rows), -1)
            parts.append(self._draw(rows, tables, u))
        return np.concatenate(parts)

    def _draw(self, rows: Array, tables: Tables, u: Floats) -> Floats:
        first, last, works = self.first[rows], self.last[rows], self.works[rows]
        idle, back, residual = (
            self.idle[rows].astype(np.int64),
            self.back[rows].astype(np.int64),
            self.residual[rows],
        )
        density = np.zeros((residual.shape[1], len(rows), INTERVALS), dtype=np.float32)
        filtered = np.zeros((len(rows), INTERVALS))
        for a in range(int(first.min()), int(last.max()) + 1):
            inside = (first <= a) & (a <= last)
            for mark in (0, 1):
                goes_on = np.flatnonzero(inside & (first < a) & (idle[:, a] == mark))
                filtered[goes_on] = filtered[goes_on] @ tables.moves[a, mark]
                begins = np.flatnonzero((first == a) & (back[:, a] == mark))
                filtered[begins] = tables.starts[a, mark]
                seen = np.flatnonzero(inside & works[:, a] & (back[:, a] == mark))
                filtered[seen] *= tables.likelihood(residual[seen, a], a + MIN_AGE, mark)
            alive = np.flatnonzero(inside)
            filtered[alive] /= filtered[alive].sum(axis=1, keepdims=True)
            density[a, alive] = filtered[alive]
        interval = np.full(residual.shape, -1, dtype=np.int64)
        for a in range(int(last.max()), int(first.min()) - 1, -1):
            alive = np.flatnonzero((first <= a) & (a <= last))
            weight = density[a, alive].astype(np.float64)
            later = np.flatnonzero(last[alive] > a)
            after = alive[later]
            if len(after):
                weight[later] *= tables.moves[a + 1, idle[after, a + 1], :, interval[after, a + 1]]
            total = np.cumsum(weight, axis=1)
            interval[alive, a] = np.minimum(
                (total < u[0, alive, a][:, None] * total[:, -1:]).sum(axis=1), INTERVALS - 1
            )
        edges = tables.distributions.grid.edges
        return np.where(
            interval >= 0,
            edges[np.maximum(interval, 0)] + u[1] * tables.distributions.grid.width,
            np.nan,
        )

    def refit(self, distributions: Distributions, eta: Floats) -> Distributions:
        """The distributions fitted to drawn eta (n, ages) and to the rest, eps."""
        ages = np.broadcast_to(np.arange(eta.shape[1]) + MIN_AGE, eta.shape)
        pairs = ~np.isnan(eta[:, :-1]) & ~np.isnan(eta[:, 1:])
        features, shift = distributions.grid.next_features(
            eta[:, :-1][pairs], ages[:, 1:][pairs], self.idle[:, 1:][pairs]
        )
        moved = (
            distributions.eta.refit(features, eta[:, 1:][pairs] - shift)
            if pairs.any()
            else distributions.eta
        )
        works = self.works
        eps = distributions.eps.refit(
            level_features(ages[works], self.back[works]), (self.residual - eta)[works]
        )
        mean = eps.mean_weights()
        mean[3:] = 0.0  # returns keep their own mean
        eps = replace(eps, weights=eps.weights - mean)
        rows = np.arange(len(eta))
        start = distributions.start.refit(
            level_features(ages[rows, self.first], self.back[rows, self.first]),
            eta[rows, self.first],
        )
        return Distributions(distributions.grid, moved, eps, start)


def _mean(distributions: list[QuantileDistribution]) -> QuantileDistribution:
    return QuantileDistribution(
        np.mean([distribution.weights for distribution in distributions], axis=0),
        float(np.mean([distribution.below for distribution in distributions])),
        float(np.mean([distribution.above for distribution in distributions])),
    )


def _inverse(density: Floats, grid: Grid, u: Floats) -> Floats:
    total = np.cumsum(density)
    at = np.minimum(np.searchsorted(total, u * total[-1], side="right"), INTERVALS - 1)
    within = (u * total[-1] - (total[at] - density[at])) / np.maximum(density[at], 1e-300)
    return np.asarray(grid.edges[at] + np.clip(within, 0.0, 1.0) * grid.width)
