"""A persistent and a transitory part of log earnings, both by quantile functions.

Arellano, Blundell and Bonhomme (2017):

    r_it = eta_it + eps_it
    eta_it = Q_eta(U | eta_i,t-1, age, work or not)
    eps_it = Q_eps(V | age, first year back at work or not)
    eta_i,first = Q_start(W | age, seen without work before or not)

U, V, W are uniform and independent over years, so persistence may depend on eta and on U. eta
continues in years without work or without a record. It is one number per person and year, so that
sums over a grid replace Monte-Carlo draws: given the distributions, the posterior of a whole career
is exact up to the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.econometric.quantile_functions import (
    TAUS,
    QuantileDistribution,
    locate_quantile,
)
from saga.schema import MAX_AGE, MIN_AGE

Array = NDArray[Any]
Floats = NDArray[np.float64]
INTERVALS = 128
AGES = MAX_AGE - MIN_AGE + 1
LEAST = 1e-12  # likelihood of every interval at least: no record is impossible
FEATURES = (15, 5, 5)  # of the distributions of eta, eps and the first eta


def _age(age: Array) -> Floats:
    """Age on a scale that gives more weight to years of youth."""
    return (np.log(np.clip(age, MIN_AGE, MAX_AGE) - 10.0) - 3.2) / 0.5


@dataclass(frozen=True, eq=False)
class Grid:
    """Equal intervals of eta between `edges` (G + 1,).

    Outside `inner` the distribution of eta moves in parallel, so that no cubic term diverges.
    """

    edges: Floats
    inner: tuple[float, float]
    scale: float

    @classmethod
    def around(cls, residual: Floats) -> Grid:
        """From known residuals (n,): the range of nearly all of them with room on both sides."""
        sd = max(float(residual.std()), 1e-3)
        low, high = np.quantile(residual, [0.0005, 0.9995])
        inside = np.quantile(residual, [0.01, 0.99])
        return cls(
            np.linspace(low - 0.5 * sd, high + 0.5 * sd, INTERVALS + 1),
            (float(inside[0]), float(inside[1])),
            sd,
        )

    @property
    def centres(self) -> Floats:
        """Midpoints of the intervals, (G,)."""
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2)

    @property
    def width(self) -> float:
        """Width of an interval."""
        return float(self.edges[1] - self.edges[0])

    def next_features(self, eta: Floats, age: Array, idle: Array) -> tuple[Floats, Floats]:
        """Features (n, 15) of the distribution of next year's eta, and its parallel shift (n,).

        Hermite polynomials of eta and age, and work.
        """
        bounded = np.clip(eta, *self.inner)
        x, a = bounded / self.scale, _age(age)
        powers = (np.ones_like(x), x, x**2 - 1, x**3 - 3 * x)
        with_age = [p * q for p in powers for q in (np.ones_like(a), a, a**2 - 1)]
        return np.column_stack([*with_age, idle, idle * x, idle * a]), eta - bounded


def level_features(age: Array, marked: Array) -> Floats:
    """Features (n, 5) of eps and of the first eta: Hermite polynomials of age, and a mark."""
    a = _age(age)
    return np.column_stack([np.ones_like(a), a, a**2 - 1, marked, marked * a])


@dataclass(frozen=True, eq=False)
class Distributions:
    """The three distributions, and the grid of eta."""

    grid: Grid
    eta: QuantileDistribution
    eps: QuantileDistribution
    start: QuantileDistribution


class Tables:
    """Distributions tabulated by age (first axis, from 16) and mark (second axis, 0 or 1).

    `moves` (49, 2, G, G): probability of going from one interval to another. `starts` (49, 2, G):
    of starting in an interval. Quantiles of each distribution for draws: `eta_knots` (49, 2, G, L),
    `eps_knots` and `start_knots` (49, 2, L).
    """

    def __init__(
        self, distributions: Distributions, ages: range = range(MIN_AGE, MAX_AGE + 1)
    ) -> None:
        self.distributions, grid = distributions, distributions.grid
        levels = len(TAUS)
        self.eta_knots = np.zeros((AGES, 2, INTERVALS, levels))
        self.eps_knots, self.start_knots = np.zeros((AGES, 2, levels)), np.zeros((AGES, 2, levels))
        self.moves, self.starts = (
            np.zeros((AGES, 2, INTERVALS, INTERVALS)),
            np.zeros((AGES, 2, INTERVALS)),
        )
        for age in ages:
            for mark in (0, 1):
                at, i = np.full(INTERVALS, age), age - MIN_AGE
                features, shift = grid.next_features(grid.centres, at, np.full(INTERVALS, mark))
                self.eta_knots[i, mark] = distributions.eta.knots(features) + shift[:, None]
                level = level_features(at[:1], np.array([mark]))
                self.eps_knots[i, mark], self.start_knots[i, mark] = (
                    distributions.eps.knots(level)[0],
                    distributions.start.knots(level)[0],
                )
                self.moves[i, mark] = self._masses(distributions.eta, self.eta_knots[i, mark])
                self.starts[i, mark] = self._masses(
                    distributions.start, self.start_knots[i, mark : mark + 1]
                )[0]

    def _masses(self, distribution: QuantileDistribution, knots: Floats) -> Floats:
        below = distribution.cdf(self.distributions.grid.edges, knots)
        below[:, 0], below[:, -1] = 0.0, 1.0  # the outermost intervals include the tails
        return below[:, 1:] - below[:, :-1]

    def likelihood(self, residual: Floats, age: int, mark: int) -> Floats:
        """Density (n, G) of residuals (n,) given eta in each interval, averaged over it."""
        distance = residual[:, None] - self.distributions.grid.edges
        above = self.distributions.eps.cdf(
            distance.ravel(), self.eps_knots[age - MIN_AGE, mark : mark + 1]
        ).reshape(distance.shape)
        return np.asarray((above[:, :-1] - above[:, 1:]) / self.distributions.grid.width + LEAST)

    def draw(
        self, distribution: QuantileDistribution, knots: Floats, where: tuple[Array, ...], u: Floats
    ) -> Floats:
        """Draws by inversion at uniforms `u` from the distribution with quantiles `knots[where]`.

        `where` broadcasts to the shape of `u`.
        """
        level, within = locate_quantile(u)
        low, high = knots[(*where, level)], knots[(*where, level + 1)]
        return np.asarray(low + within * (high - low) + distribution.tail(u))

    def next_eta(self, eta: Floats, age: Array, idle: Array, u: Floats) -> Floats:
        """The eta of the year at `age` given the year before, by inversion.

        Linear between intervals; arguments broadcast.
        """
        grid = self.distributions.grid
        position = np.clip((eta - grid.centres[0]) / grid.width, 0, INTERVALS - 1)
        interval = np.minimum(position.astype(np.int64), INTERVALS - 2)
        part = position - interval
        level, within = locate_quantile(u)
        at = (
            np.broadcast_to(np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE, u.shape),
            idle.astype(np.int64),
        )
        ends = []
        for row in (interval, interval + 1):
            low = self.eta_knots[(*at, row, level)]
            ends.append(low + within * (self.eta_knots[(*at, row, level + 1)] - low))
        # Outside the grid the distribution moves in parallel.
        beyond = eta - (grid.centres[0] + position * grid.width)
        return np.asarray(
            ends[0] + part * (ends[1] - ends[0]) + self.distributions.eta.tail(u) + beyond
        )
