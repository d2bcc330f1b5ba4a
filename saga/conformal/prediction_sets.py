"""Nested prediction sets, built from samples: {0}, an interval [lower, upper], or both.

The sets approximate those of highest density of a mixed distribution (after Izbicki, Shimizu and
Stern 2022), restricted to one interval of positive amounts. The positive samples are divided into
bins of equal mass on the scale t = log(earnings + scale). The set starts in the middle of the
densest bin and always grows into the denser of the two neighbouring bins. Zero joins the set when
its density (probability of zero / atom width) exceeds that of the next bin. Beyond the samples the
set grows outward in t; if no sample is zero, zero joins when the lower end reaches zero. The score
of an amount is the mass of the set when the amount joins, so the sets {score <= q} are nested.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SMALLEST = 0.01  # SEK: smallest end of an interval of positive amounts


@dataclass(frozen=True, eq=False)
class NestedSets:
    """A family of nested sets for each of n persons.

    Args:
        edges: Edges of the bins in t (n, G + 1).
        mass_before_bin: Mass of the set when it reaches a bin (n, G).
        start: Index of the densest bin (n,).
        mass: Mass of one bin (n,).
        zero_score: Score of zero (n,).
        scale: Scale of t, SEK.
    """

    edges: Array
    mass_before_bin: Array
    start: NDArray[np.int64]
    mass: Array
    zero_score: Array
    scale: float

    def score(self, outcomes: Array) -> Array:
        """Mass of the set when each outcome (n,) joins; NaN for NaN.

        Within the range of the positive samples it is in [0, 1] and continuous; beyond that range
        it is 1 + the distance in t. If all samples are zero, the distance is measured from t at
        zero earnings.
        """
        with np.errstate(invalid="ignore"):
            t = np.log(outcomes + self.scale)
            bins = np.clip(
                (self.edges <= t[:, None]).sum(axis=1) - 1, 0, self.mass_before_bin.shape[1] - 1
            )
        rows = np.arange(len(t))
        low, high = self.edges[rows, bins], self.edges[rows, bins + 1]
        middle = (low + high) / 2
        inward = np.where(bins < self.start, high, np.where(bins > self.start, low, middle))
        width = np.where(bins == self.start, (high - low) / 2, high - low)
        part = np.clip(np.abs(t - inward) / np.maximum(width, 1e-12), 0, 1)
        beyond = np.maximum(self.edges[:, 0] - t, t - self.edges[:, -1])
        score = np.where(
            beyond > 0, 1 + beyond, self.mass_before_bin[rows, bins] + self.mass * part
        )
        score = np.where(outcomes == 0, self.zero_score, score)
        return np.where(np.isnan(outcomes), np.nan, score)

    def set_at(self, q: float | Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The set {score <= q}: lower and upper end (n,) in SEK, and whether zero is in it (n,).

        `q` is one number or (n,). Both ends are 0 if the set is {0} alone.
        """
        q = np.broadcast_to(np.asarray(q, dtype=np.float64), self.start.shape)
        bins = np.arange(self.mass_before_bin.shape[1])
        start, mass = self.start[:, None], np.maximum(self.mass, 1e-300)[:, None]
        part = np.clip((q[:, None] - self.mass_before_bin) / mass, 0, 1)
        reached = q[:, None] >= self.mass_before_bin
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        middle = (low + high) / 2
        left = np.where(bins < start, high - part * (high - low), middle - part * (middle - low))
        right = np.where(bins > start, low + part * (high - low), middle + part * (high - middle))
        lower = np.where(reached & (bins <= start), left, np.inf).min(axis=1)
        upper = np.where(reached & (bins >= start), right, -np.inf).max(axis=1)
        empty = (lower > upper) | ((self.mass == 0) & (q <= 1))
        outward = np.maximum(q - 1, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            lower = np.maximum(np.exp(np.where(empty, 0, lower) - outward) - self.scale, SMALLEST)
            upper = np.maximum(np.exp(np.where(empty, 0, upper) + outward) - self.scale, SMALLEST)
        return np.where(empty, 0.0, lower), np.where(empty, 0.0, upper), q >= self.zero_score

    def hull_at(self, q: float) -> tuple[Array, Array]:
        """The smallest interval around {score <= q}, zero included: lower, upper (n,) in SEK."""
        lower, upper, zero = self.set_at(q)
        return np.where(zero, 0.0, lower), upper

    def hull_score(self, outcomes: Array) -> Array:
        """The smallest q for which `hull_at` contains the outcome (n,).

        Amounts below the densest one join at the latest when zero and the densest amount have both
        joined.
        """
        scores, rows = self.score(outcomes), np.arange(len(self.start))
        both = np.maximum(self.zero_score, self.mass_before_bin[rows, self.start])
        middle = (self.edges[rows, self.start] + self.edges[rows, self.start + 1]) / 2
        with np.errstate(invalid="ignore"):
            below = np.log(outcomes + self.scale) < middle
        return np.where(below & (outcomes > 0), np.minimum(scores, both), scores)


@dataclass(frozen=True, eq=False)
class Growth:
    """The order in which sets reach the bins of positive amounts; the atom does not change it.

    Args:
        edges: Edges of the bins in t (n, G + 1).
        width: Width of the bin that is reached at each step (n, G).
        step: Step at which each bin is reached (n, G).
        start: Index of the densest bin (n,).
        mass: Mass of one bin (n,).
        p_zero: Probability of zero (n,).
        scale: Scale of t, SEK.
    """

    edges: Array
    width: Array
    step: NDArray[np.int64]
    start: NDArray[np.int64]
    mass: Array
    p_zero: Array
    scale: float

    def with_atom(self, atom_width: float | Array) -> NestedSets:
        """The sets if zero has the density `p_zero / atom_width`, a number or an array (n,)."""
        bins = self.step.shape[1]
        atom_scaled_mass = self.mass * np.asarray(atom_width)
        is_less_dense_than_zero = self.width * self.p_zero[:, None] > atom_scaled_mass[:, None]
        zero_step = np.where(
            is_less_dense_than_zero.any(axis=1), is_less_dense_than_zero.argmax(axis=1), bins
        )
        zero_mass = np.where(self.step >= zero_step[:, None], self.p_zero[:, None], 0.0)
        mass_before_bin = self.step * self.mass[:, None] + zero_mass
        # Without a zero sample, the score of zero is its distance beyond the samples, as for small
        # amounts. It differs between persons, so there are no ties.
        unseen = 1 + self.edges[:, 0] - np.log(self.scale)
        zero_score = np.where(self.p_zero > 0, zero_step * self.mass, unseen)
        return NestedSets(
            self.edges, mass_before_bin, self.start, self.mass, zero_score, self.scale
        )

    def positive(self) -> NestedSets:
        """The sets given positive earnings: without zero, from the positive samples alone."""
        mass: Array = np.where(self.mass > 0, 1 / self.step.shape[1], 0.0)
        mass_before_bin: Array = self.step.astype(np.float64) * mass[:, None]
        zero_score = np.full(len(mass), np.inf)
        return NestedSets(self.edges, mass_before_bin, self.start, mass, zero_score, self.scale)


def grow(ordered: NDArray[np.float32], scale: float) -> Growth:
    """The growth of sets from samples (n, M), each row sorted, without NaN."""
    n, m = ordered.shape
    bins = int(np.clip(round(m**0.5), 2, 32))
    zeros = (ordered == 0).sum(axis=1)
    positive = m - zeros
    first_positive = np.minimum(zeros, m - 1)[:, None]
    position = np.linspace(0, 1, bins + 1) * np.maximum(positive - 1, 0)[:, None] + first_positive
    low = position.astype(np.int64)
    rows = np.arange(n)[:, None]
    # Logs are computed only for the samples next to an edge.
    below = np.log(ordered[rows, low].astype(np.float64) + scale)
    above = np.log(ordered[rows, np.minimum(low + 1, m - 1)].astype(np.float64) + scale)
    edges = below + (position - low) * (above - below)
    widths = np.full((n, bins + 2), np.inf)
    widths[:, 1:-1] = np.diff(edges, axis=1)
    start = widths.argmin(axis=1)
    first, last = start.copy(), start.copy()
    row = np.arange(n)
    step = np.zeros((n, bins + 2), dtype=np.int64)
    width_by_step = np.empty((n, bins))
    width_by_step[:, 0] = widths[row, start]
    for k in range(1, bins):
        left, right = widths[row, first - 1], widths[row, last + 1]
        to_left = left <= right
        first, last = first - to_left, last + ~to_left
        step[row, np.where(to_left, first, last)] = k
        width_by_step[:, k] = np.minimum(left, right)
    mass = positive / (m * bins)
    return Growth(edges, width_by_step, step[:, 1:-1], start - 1, mass, zeros / m, scale)
