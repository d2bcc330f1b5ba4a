"""A persistent and a transitory part of log earnings, both by quantile functions.

Arellano, Blundell and Bonhomme (2017):

    r_it = eta_it + eps_it
    eta_it = Q_eta(U | eta_i,t-1, age, work or not)
    eps_it = Q_eps(V | age, first year back at work or not)
    eta_i,first = Q_start(W | age, a known year without work just before or not)

U, V, W are uniform and independent over years; persistence may depend on eta and on U. eta also
evolves in years without work or without a record. It is one number per person and year, so the
posterior of a career is computed by sums over a grid, without Monte-Carlo draws. Each distribution
depends on age and on a flag, 0 or 1: the last condition in its formula above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from saga.evaluation.baselines.econometric.quantile_functions import (
    TAUS,
    QuantileDistribution,
    locate_quantile,
)

from saga.arrays import Array, Floats
from saga.schema import MAX_AGE, MIN_AGE, N_AGES

INTERVALS = 128  # G, intervals of the grid of eta
MIN_LIKELIHOOD = 1e-12  # smallest likelihood of an interval, so that no record is impossible
FEATURES = (15, 5, 5)  # numbers of features of the distributions of eta, eps and the first eta


def _age(age: Array) -> Floats:
    """Age on a logarithmic scale, on which ages differ more in youth."""
    return (np.log(np.clip(age, MIN_AGE, MAX_AGE) - 10.0) - 3.2) / 0.5


@dataclass(frozen=True, eq=False)
class Grid:
    """Equal intervals of eta.

    Args:
        edges: (G + 1,), ends of the intervals.
        inner: Range of eta in which features depend on it. Outside, the distribution of next year's
            eta is that of the nearest end, shifted by the distance, so that no cubic term diverges.
        scale: Standard deviation of residuals, the unit of eta in features.
    """

    edges: Floats
    inner: tuple[float, float]
    scale: float

    @classmethod
    def around(cls, residual: Floats) -> Grid:
        """Over 99.9 % of known residuals (n,), and half a standard deviation on both sides."""
        sd = max(float(residual.std()), 1e-3)
        low, first, last, high = np.quantile(residual, [0.0005, 0.01, 0.99, 0.9995])
        edges = np.linspace(low - 0.5 * sd, high + 0.5 * sd, INTERVALS + 1)
        return cls(edges, (float(first), float(last)), sd)

    @property
    def centres(self) -> Floats:
        """Midpoints of the intervals, (G,)."""
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2)

    @property
    def width(self) -> float:
        """Width of an interval."""
        return float(self.edges[1] - self.edges[0])

    def next_features(self, eta: Floats, age: Array, idle: Array) -> tuple[Floats, Floats]:
        """Features (n, 15) of the distribution of next year's eta, and its shift (n,).

        They are Hermite polynomials of eta (n,) and `age` (n,), and `idle` (n,): no work next year.
        """
        bounded = np.clip(eta, *self.inner)
        x, a = bounded / self.scale, _age(age)
        powers = (np.ones_like(x), x, x**2 - 1, x**3 - 3 * x)
        with_age = [p * q for p in powers for q in (np.ones_like(a), a, a**2 - 1)]
        return np.column_stack([*with_age, idle, idle * x, idle * a]), eta - bounded


def level_features(age: Array, flag: Array) -> Floats:
    """Features (n, 5) of eps and of the first eta: Hermite polynomials of age, and the flag."""
    a = _age(age)
    return np.column_stack([np.ones_like(a), a, a**2 - 1, flag, flag * a])


@dataclass(frozen=True, eq=False)
class Distributions:
    """The three distributions, and the grid of eta."""

    grid: Grid
    eta: QuantileDistribution
    eps: QuantileDistribution
    start: QuantileDistribution


class Tables:
    """Distributions tabulated by age (first axis, from 16) and flag (second axis, 0 or 1).

    Attributes:
        moves: (49, 2, G, G), probabilities of next year's interval given this year's.
        starts: (49, 2, G), probabilities of the interval of the first eta.
        eta_knots: (49, 2, G, L), quantiles of next year's eta at TAUS.
        eps_knots: (49, 2, L), quantiles of eps.
        start_knots: (49, 2, L), quantiles of the first eta.
    """

    def __init__(
        self, distributions: Distributions, ages: range = range(MIN_AGE, MAX_AGE + 1)
    ) -> None:
        self.distributions, grid = distributions, distributions.grid
        self.eta_knots = np.zeros((N_AGES, 2, INTERVALS, len(TAUS)))
        self.eps_knots = np.zeros((N_AGES, 2, len(TAUS)))
        self.start_knots = np.zeros((N_AGES, 2, len(TAUS)))
        self.moves = np.zeros((N_AGES, 2, INTERVALS, INTERVALS))
        self.starts = np.zeros((N_AGES, 2, INTERVALS))
        for age in ages:
            for flag in (0, 1):
                same_age, row = np.full(INTERVALS, age), (age - MIN_AGE, flag)
                features, shift = grid.next_features(
                    grid.centres, same_age, np.full(INTERVALS, flag)
                )
                self.eta_knots[row] = distributions.eta.knots(features) + shift[:, None]
                features = level_features(same_age[:1], np.array([flag]))
                self.eps_knots[row] = distributions.eps.knots(features)[0]
                self.start_knots[row] = distributions.start.knots(features)[0]
                self.moves[row] = self._masses(distributions.eta, self.eta_knots[row])
                self.starts[row] = self._masses(distributions.start, self.start_knots[row][None])[0]

    def _masses(self, distribution: QuantileDistribution, knots: Floats) -> Floats:
        below = distribution.cdf(self.distributions.grid.edges, knots)
        below[:, 0], below[:, -1] = 0.0, 1.0  # the outermost intervals include the tails
        return below[:, 1:] - below[:, :-1]

    def likelihood(self, residual: Floats, age: int, flag: int) -> Floats:
        """Mean density (n, G) of residuals (n,) over each interval of eta."""
        distance = residual[:, None] - self.distributions.grid.edges
        above = self.distributions.eps.cdf(
            distance.ravel(), self.eps_knots[age - MIN_AGE, flag : flag + 1]
        ).reshape(distance.shape)
        return np.asarray(
            (above[:, :-1] - above[:, 1:]) / self.distributions.grid.width + MIN_LIKELIHOOD
        )

    def draw(
        self, distribution: QuantileDistribution, knots: Floats, row: tuple[Array, ...], u: Floats
    ) -> Floats:
        """Draws by inversion at uniforms `u` from the distribution with quantiles `knots[row]`.

        `row` broadcasts to the shape of `u`.
        """
        level, within = locate_quantile(u)
        low, high = knots[(*row, level)], knots[(*row, level + 1)]
        return np.asarray(low + within * (high - low) + distribution.tail(u))

    def next_eta(self, eta: Floats, age: Array, idle: Array, u: Floats) -> Floats:
        """The eta of the year at `age` given `eta` of the year before, by inversion at `u`.

        Quantiles are interpolated between centres of intervals. The arguments broadcast.
        """
        grid = self.distributions.grid
        position = np.clip((eta - grid.centres[0]) / grid.width, 0, INTERVALS - 1)
        interval = np.minimum(position.astype(np.int64), INTERVALS - 2)
        level, within = locate_quantile(u)
        row = np.clip(age, MIN_AGE, MAX_AGE) - MIN_AGE, idle.astype(np.int64)
        ends = []
        for i in (interval, interval + 1):
            low, high = self.eta_knots[(*row, i, level)], self.eta_knots[(*row, i, level + 1)]
            ends.append(low + within * (high - low))
        inside = ends[0] + (position - interval) * (ends[1] - ends[0])
        # Outside the centres the distribution is shifted by the distance from them.
        beyond = eta - (grid.centres[0] + position * grid.width)
        return np.asarray(inside + self.distributions.eta.tail(u) + beyond)
