"""Nested sets {0} and/or [lower, upper] grown from samples, the densest amounts first.

A highest-density family for a mixed distribution (after Izbicki, Shimizu and Stern 2022), kept to one interval of positive amounts: the
positive samples are cut into cells of equal mass on the scale t = log(earnings + scale); the set starts in the middle of the densest cell
and always grows into the denser of its two neighbours. The atom at zero joins when its mass over a fixed width is denser than the next
cell. Beyond the samples the set grows outward in t, and where no sample is zero, zero joins when the lower end arrives there. The score
of an amount is the mass that the set holds when the amount joins; sets {score <= q} are nested by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SMALLEST = 0.01  # an öre: the smallest amount that counts as positive at the end of an interval


@dataclass(frozen=True, eq=False)
class NestedSets:
    """One family of sets a row. `edges` (n, G + 1) in t, `entered` (n, G): the mass held when a cell is reached, `start` (n,): the densest
    cell, `mass` (n,) of one cell, `atom` (n,): the score of zero."""

    edges: Array
    entered: Array
    start: NDArray[np.int64]
    mass: Array
    atom: Array
    scale: float

    def score(self, outcomes: Array) -> Array:
        """Mass held when the outcome (n,) joins, in [0, 1], continuous for positive amounts; NaN for NaN.

        Beyond the samples it is 1 + the distance in t, measured from t(0) where all samples are zero.
        """
        with np.errstate(invalid="ignore"):
            t = np.log(outcomes + self.scale)
            cell = np.clip((self.edges <= t[:, None]).sum(axis=1) - 1, 0, self.entered.shape[1] - 1)
        rows = np.arange(len(t))
        low, high = self.edges[rows, cell], self.edges[rows, cell + 1]
        inward = np.where(
            cell < self.start, high, np.where(cell > self.start, low, (low + high) / 2)
        )
        span = np.where(cell == self.start, (high - low) / 2, high - low)
        part = np.clip(np.abs(t - inward) / np.maximum(span, 1e-12), 0, 1)
        beyond = np.maximum(self.edges[:, 0] - t, t - self.edges[:, -1])
        score = np.where(beyond > 0, 1 + beyond, self.entered[rows, cell] + self.mass * part)
        score = np.where(outcomes == 0, self.atom, score)
        return np.where(np.isnan(outcomes), np.nan, score)

    def at(self, q: float | Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The set {score <= q}, q one number or (n,): lower (n,), upper (n,) in SEK and whether zero is in it (n,).

        Only {0}: both ends are 0.
        """
        q = np.broadcast_to(np.asarray(q, dtype=np.float64), self.start.shape)
        cells = np.arange(self.entered.shape[1])
        start, held = self.start[:, None], q[:, None]
        part = np.clip((held - self.entered) / np.maximum(self.mass, 1e-300)[:, None], 0, 1)
        reached = held >= self.entered
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        middle = (low + high) / 2
        left = np.where(cells < start, high - part * (high - low), middle - part * (middle - low))
        right = np.where(cells > start, low + part * (high - low), middle + part * (high - middle))
        lower = np.where(reached & (cells <= start), left, np.inf).min(axis=1)
        upper = np.where(reached & (cells >= start), right, -np.inf).max(axis=1)
        empty = (lower > upper) | ((self.mass == 0) & (q <= 1))
        outward = np.maximum(q - 1, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            lower = np.maximum(np.exp(np.where(empty, 0, lower) - outward) - self.scale, SMALLEST)
            upper = np.maximum(np.exp(np.where(empty, 0, upper) + outward) - self.scale, SMALLEST)
        return np.where(empty, 0.0, lower), np.where(empty, 0.0, upper), q >= self.atom

    def hull_at(self, q: float) -> tuple[Array, Array]:
        """The smallest interval around the set {score <= q}, zero included: lower and upper (n,), SEK."""
        lower, upper, zero = self.at(q)
        return np.where(zero, 0.0, lower), upper

    def hull_score(self, outcomes: Array) -> Array:
        """The smallest q whose `hull_at` holds the outcome (n,): amounts below the densest join when zero and the densest both have."""
        scores, rows = self.score(outcomes), np.arange(len(self.start))
        both = np.maximum(self.atom, self.entered[rows, self.start])
        middle = (self.edges[rows, self.start] + self.edges[rows, self.start + 1]) / 2
        with np.errstate(invalid="ignore"):
            below = np.log(outcomes + self.scale) < middle
        return np.where(below & (outcomes > 0), np.minimum(scores, both), scores)


@dataclass(frozen=True, eq=False)
class Growth:
    """The order in which the cells of the positive part are reached; it does not depend on the width given to the atom."""

    edges: Array
    width: Array  # (n, G) of the cell reached at each step
    step: NDArray[np.int64]  # (n, G) of each cell
    start: NDArray[np.int64]
    mass: Array
    zero: Array  # (n,) probability of zero
    scale: float

    def with_atom(self, atom_width: float | Array) -> NestedSets:
        """The family of sets where zero is ranked by the density `zero / atom_width` (one width, or (n,))."""
        cells = self.step.shape[1]
        share = self.mass * np.asarray(atom_width)
        less_dense = self.width * self.zero[:, None] > share[:, None]
        joins = np.where(less_dense.any(axis=1), less_dense.argmax(axis=1), cells)
        entered = self.step * self.mass[:, None] + np.where(
            self.step >= joins[:, None], self.zero[:, None], 0.0
        )
        # A zero that no sample shows lies as far beyond the samples as the amounts next to it: such zeros are not tied with each other.
        unseen = 1 + self.edges[:, 0] - np.log(self.scale)
        atom = np.where(self.zero > 0, joins * self.mass, unseen)
        return NestedSets(self.edges, entered, self.start, self.mass, atom, self.scale)

    def positive(self) -> NestedSets:
        """The family given a positive amount: zero is in none of its sets, and the mass held is that of positive samples alone."""
        mass: Array = np.where(self.mass > 0, 1 / self.step.shape[1], 0.0)
        entered: Array = self.step.astype(np.float64) * mass[:, None]
        return NestedSets(
            self.edges, entered, self.start, mass, np.full(len(mass), np.inf), self.scale
        )


def grow(ordered: NDArray[np.float32], scale: float) -> Growth:
    """The growth of sets from samples (n, M), each row sorted, without NaN."""
    n, m = ordered.shape
    cells = int(np.clip(round(m**0.5), 2, 32))
    zeros = (ordered == 0).sum(axis=1)
    positive = m - zeros
    position = (
        np.linspace(0, 1, cells + 1) * np.maximum(positive - 1, 0)[:, None]
        + np.minimum(zeros, m - 1)[:, None]
    )
    low = position.astype(np.int64)
    rows = np.arange(n)[:, None]
    # Logs of the few samples beside an edge, not of all.
    below = np.log(ordered[rows, low].astype(np.float64) + scale)
    above = np.log(ordered[rows, np.minimum(low + 1, m - 1)].astype(np.float64) + scale)
    edges = below + (position - low) * (above - below)
    widths = np.full((n, cells + 2), np.inf)
    widths[:, 1:-1] = np.diff(edges, axis=1)
    start = widths.argmin(axis=1)
    first, last = start.copy(), start.copy()
    row = np.arange(n)
    step = np.zeros((n, cells + 2), dtype=np.int64)
    reached = np.empty((n, cells))
    reached[:, 0] = widths[row, start]
    for k in range(1, cells):
        wide_left, wide_right = widths[row, first - 1], widths[row, last + 1]
        to_left = wide_left <= wide_right
        first, last = first - to_left, last + ~to_left
        step[row, np.where(to_left, first, last)] = k
        reached[:, k] = np.minimum(wide_left, wide_right)
    return Growth(
        edges, reached, step[:, 1:-1], start - 1, positive / (m * cells), zeros / m, scale
    )
