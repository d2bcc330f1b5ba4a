"""A persistent and a transitory part of log earnings, both by quantile functions (Arellano, Blundell and Bonhomme 2017).

    r_it = eta_it + eps_it
    eta_it = Q_eta(U | eta_i,t-1, age, work or not)      U uniform and independent over years: persistence may depend on eta and on U
    eps_it = Q_eps(V | age, first year back at work or not)
    eta_i,first = Q_start(W | age, seen without work before or not)

eta goes on in years without work or without a record. It is one number a person and year, so that sums over a grid take the place of
Monte-Carlo draws of it: given the laws, the posterior of a whole career is exact up to the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.econometric.quantile_functions import TAUS, QuantileLaw, place
from saga.schema import MAX_AGE, MIN_AGE

Array = NDArray[Any]
Floats = NDArray[np.float64]
CELLS = 128
AGES = MAX_AGE - MIN_AGE + 1
LEAST = 1e-12  # likelihood that every cell keeps: no record is impossible
FEATURES = (15, 5, 5)  # of the laws of eta, eps and the first eta


def _age(age: Array) -> Floats:
    """Age on a scale on which a year of youth counts for more."""
    return (np.log(np.clip(age, MIN_AGE, MAX_AGE) - 10.0) - 3.2) / 0.5


@dataclass(frozen=True, eq=False)
class Grid:
    """Equal cells of eta: `edges` (G + 1,); beyond `inner` the law of eta moves in parallel, so that no cubic runs away."""

    edges: Floats
    inner: tuple[float, float]
    scale: float

    @classmethod
    def around(cls, residual: Floats) -> Grid:
        """From known residuals (n,): the range of nearly all of them and some room on both sides."""
        sd = max(float(residual.std()), 1e-3)
        low, high = np.quantile(residual, [0.0005, 0.9995])
        inside = np.quantile(residual, [0.01, 0.99])
        return cls(
            np.linspace(low - 0.5 * sd, high + 0.5 * sd, CELLS + 1),
            (float(inside[0]), float(inside[1])),
            sd,
        )

    @property
    def centres(self) -> Floats:
        """Midpoints of the cells, (G,)."""
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2)

    @property
    def width(self) -> float:
        """Width of a cell."""
        return float(self.edges[1] - self.edges[0])

    def next_features(self, eta: Floats, age: Array, idle: Array) -> tuple[Floats, Floats]:
        """Features (n, 15) of the law of next year's eta, and its parallel shift (n,): Hermite polynomials of eta and age, and work."""
        bounded = np.clip(eta, *self.inner)
        x, a = bounded / self.scale, _age(age)
        powers = (np.ones_like(x), x, x**2 - 1, x**3 - 3 * x)
        with_age = [p * q for p in powers for q in (np.ones_like(a), a, a**2 - 1)]
        return np.column_stack([*with_age, idle, idle * x, idle * a]), eta - bounded


def level_features(age: Array, marked: Array) -> Floats:
    """Features (n, 5) of eps and of the first eta: Hermite polynomials of age, and a mark with its slope in age."""
    a = _age(age)
    return np.column_stack([np.ones_like(a), a, a**2 - 1, marked, marked * a])


@dataclass(frozen=True, eq=False)
class Laws:
    """The three laws, and the grid on which eta lives."""

    grid: Grid
    eta: QuantileLaw
    eps: QuantileLaw
    start: QuantileLaw


class Tables:
    """Laws tabulated by age (first axis, from 16) and mark (second axis, 0 or 1).

    `moves` (49, 2, G, G): chance of going from a cell to a cell; `starts` (49, 2, G): of starting in a cell. The quantiles of each law, for
    draws: `eta_knots` (49, 2, G, L), `eps_knots` and `start_knots` (49, 2, L).
    """

    def __init__(self, laws: Laws, ages: range = range(MIN_AGE, MAX_AGE + 1)) -> None:
        self.laws, grid = laws, laws.grid
        levels = len(TAUS)
        self.eta_knots = np.zeros((AGES, 2, CELLS, levels))
        self.eps_knots, self.start_knots = np.zeros((AGES, 2, levels)), np.zeros((AGES, 2, levels))
        self.moves, self.starts = np.zeros((AGES, 2, CELLS, CELLS)), np.zeros((AGES, 2, CELLS))
        for age in ages:
            for mark in (0, 1):
                at, i = np.full(CELLS, age), age - MIN_AGE
                features, shift = grid.next_features(grid.centres, at, np.full(CELLS, mark))
                self.eta_knots[i, mark] = laws.eta.knots(features) + shift[:, None]
                level = level_features(at[:1], np.array([mark]))
                self.eps_knots[i, mark], self.start_knots[i, mark] = (
                    laws.eps.knots(level)[0],
                    laws.start.knots(level)[0],
                )
                self.moves[i, mark] = self._masses(laws.eta, self.eta_knots[i, mark])
                self.starts[i, mark] = self._masses(
                    laws.start, self.start_knots[i, mark : mark + 1]
                )[0]

    def _masses(self, law: QuantileLaw, knots: Floats) -> Floats:
        below = law.cdf(self.laws.grid.edges, knots)
        below[:, 0], below[:, -1] = 0.0, 1.0  # the outermost cells hold what lies beyond
        return below[:, 1:] - below[:, :-1]

    def likelihood(self, residual: Floats, age: int, mark: int) -> Floats:
        """Density of residuals (n,) given eta in each cell, (n, G), averaged over the cell."""
        distance = residual[:, None] - self.laws.grid.edges
        above = self.laws.eps.cdf(
            distance.ravel(), self.eps_knots[age - MIN_AGE, mark : mark + 1]
        ).reshape(distance.shape)
        return np.asarray((above[:, :-1] - above[:, 1:]) / self.laws.grid.width + LEAST)

    def draw(self, law: QuantileLaw, knots: Floats, where: tuple[Array, ...], u: Floats) -> Floats:
        """Draws by inversion at uniforms `u` from the law whose quantiles are `knots[where]`; `where` broadcasts to the shape of u."""
        level, within = place(u)
        low, high = knots[(*where, level)], knots[(*where, level + 1)]
        return np.asarray(low + within * (high - low) + law.tail(u))

    def next_eta(self, eta: Floats, age: Array, idle: Array, u: Floats) -> Floats:
        """eta of the year at `age` given the year before, by inversion, linear between cells; all of one shape or broadcasting."""
        grid = self.laws.grid
        position = np.clip((eta - grid.centres[0]) / grid.width, 0, CELLS - 1)
        cell = np.minimum(position.astype(np.int64), CELLS - 2)
        part = position - cell
        level, within = place(u)
        at = (
            np.broadcast_to(np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE, u.shape),
            idle.astype(np.int64),
        )
        ends = []
        for row in (cell, cell + 1):
            low = self.eta_knots[(*at, row, level)]
            ends.append(low + within * (self.eta_knots[(*at, row, level + 1)] - low))
        beyond = eta - (
            grid.centres[0] + position * grid.width
        )  # outside the grid the law moves in parallel
        return np.asarray(ends[0] + part * (ends[1] - ends[0]) + self.laws.eta.tail(u) + beyond)
