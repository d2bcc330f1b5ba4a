"""Futures borrowed from other people: the marginals of every similar person, the dependence of those seen longest.

Both naive baselines forecast with what became of *donors*, training persons at origins in the past. At each horizon the
marginal is the empirical distribution over all donors of the person's group who are observed there, however short their
record. The dependence over horizons (who stays high, how long a spell of zeros lasts) is the empirical copula of the donors
with the longest records: the Schaake shuffle of Clark et al. (2004), written as a map from a trajectory of ranks to values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MINIMUM = (
    50  # donors that a group needs at a horizon; smaller ones give way to the next broader group
)
TEMPLATES = 500  # rank trajectories kept a group


class DonorPool:
    """Outcomes of donors, sorted within groups at several levels of detail, and rank trajectories within the broadest ones.

    `groups`: one (n,) int array a level, the donor's group, finest level first; the last level is a single group 0.
    `values`: (n, H) float32, what is borrowed (a ratio, a relative level) at horizons 1..H, NaN where not observed.
    `reach` is the last horizon that can be drawn; a horizon inside it without donors borrows from the nearest one below that has them.
    """

    def __init__(
        self, groups: Sequence[Array], values: NDArray[np.float32], rng: np.random.Generator
    ) -> None:
        seen = np.isfinite(values)
        enough = np.flatnonzero(seen.sum(axis=0) >= MINIMUM)
        some = enough if len(enough) else np.flatnonzero(seen.any(axis=0))
        if not len(some):
            raise ValueError("no donor has an observed outcome")
        self.reach = int(some[-1]) + 1
        horizons = np.arange(self.reach)
        self._source = some[np.maximum(np.searchsorted(some, horizons, side="right") - 1, 0)]
        values, seen = values[:, : self.reach], seen[:, : self.reach]
        tie = rng.random(
            len(values)
        )  # zeros stay in one order over the horizons, or spells of them would be torn
        self._sorted = [
            [_sort(group[seen[:, h]], values[seen[:, h], h]) for h in horizons] for group in groups
        ]
        self._templates = [_templates(group, values, tie) for group in groups[-2:]]

    def draw(self, groups: Sequence[Array], uniforms: tuple[Array, Array]) -> NDArray[np.float32]:
        """Borrowed values over horizons 1..reach for n persons on M paths.

        `groups`: for each level the person's group, (n, 1), or (n, M) where it differs by path; `uniforms`: two (n, M) arrays, which
        choose the trajectory of ranks and its place between neighbouring ranks. Returns (n, reach, M).
        """
        pick, place = uniforms
        trajectory = self._trajectories(groups[-2:], pick)
        drawn = np.empty((len(pick), self.reach, pick.shape[1]), dtype=np.float32)
        for h in range(self.reach):
            ranks = np.empty(pick.shape)
            for matrix, rows, count in trajectory:
                chosen = rows >= 0
                ranks[chosen] = (matrix[rows[chosen], h] + place[chosen]) / np.broadcast_to(
                    count, rows.shape
                )[chosen]
            drawn[:, h] = self._quantile(self._source[h], groups, ranks)
        return drawn

    def _trajectories(
        self, groups: Sequence[Array], pick: Array
    ) -> list[tuple[Array, Array, Array]]:
        """For each template level: the rank matrix, the row of each path in it (-1: another level serves), and the group's size."""
        open_ = np.ones(pick.shape, dtype=bool)
        found = []
        for level, (matrix, start, count) in enumerate(self._templates):
            size = _lookup(count, groups[level])
            last = level == len(self._templates) - 1
            serves = open_ & np.broadcast_to((size >= (1 if last else MINIMUM)), pick.shape)
            rows = np.where(
                serves, _lookup(start, groups[level]) + (pick * size).astype(np.int64), -1
            )
            open_ &= ~serves
            found.append((matrix, rows, size))
        return found

    def _quantile(self, h: int, groups: Sequence[Array], ranks: Array) -> Array:
        """The value at each rank (0..1) in the finest group with enough donors at horizon h; shape of `ranks`."""
        start = np.zeros(groups[0].shape, dtype=np.int64)
        count = np.zeros(groups[0].shape, dtype=np.int64)
        drawn = np.full(ranks.shape, np.nan, dtype=np.float32)
        open_ = np.ones(groups[0].shape, dtype=bool)
        for level, group in enumerate(groups):
            values, starts, counts = self._sorted[level][h]
            size = _lookup(counts, group)
            serves = open_ & (size >= (MINIMUM if level < len(groups) - 1 else 1))
            open_ &= ~serves
            if serves.any():
                start, count = (
                    np.where(serves, _lookup(starts, group), 0),
                    np.where(serves, size, 1),
                )
                index = start + np.minimum((ranks * count).astype(np.int64), count - 1)
                drawn = np.where(serves, values[index], drawn)
        return drawn


def _lookup(table: Array, group: Array) -> Array:
    """`table[group]`, 0 for a group beyond the table: nobody of that kind was seen."""
    return np.where(group < len(table), table[np.minimum(group, len(table) - 1)], 0)


def _sort(group: Array, values: Array) -> tuple[Array, Array, Array]:
    """Values sorted within groups, and each group's start and size."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=1)
    return values[order], np.cumsum(count) - count, count


def _templates(group: Array, values: Array, tie: Array) -> tuple[Array, Array, Array]:
    """Rank trajectories (T, H) of the longest-seen donors of each group, groups one after another, with start and size."""
    seen = np.isfinite(values)
    span = np.where(seen, np.arange(1, values.shape[1] + 1), 0).max(axis=1) + seen.mean(axis=1)
    order = np.lexsort((tie, -span, group))
    order = order[span[order] > 0]
    within = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    order = order[within < TEMPLATES]
    count = np.bincount(group[order], minlength=1)
    start = np.cumsum(count) - count
    matrix = np.empty((len(order), values.shape[1]), dtype=np.int32)
    for first, size in zip(start[count > 0].tolist(), count[count > 0].tolist(), strict=True):
        rows = order[first : first + size]
        matrix[first : first + size] = _rank_trajectories(values[rows], tie[rows])
    return matrix, start, count


def _rank_trajectories(values: Array, tie: Array) -> Array:
    """Ranks 0..T-1 at every horizon, each column a permutation: unobserved years take the place between their neighbours."""
    place = np.full(values.shape, np.nan)
    for h in range(values.shape[1]):
        rows = np.flatnonzero(np.isfinite(values[:, h]))
        order = rows[np.lexsort((tie[rows], values[rows, h]))]
        place[order, h] = (np.arange(len(order)) + 0.5) / max(len(order), 1)
    horizons = np.arange(values.shape[1])
    for row in place:
        seen = np.isfinite(row)
        row[~seen] = np.interp(horizons[~seen], horizons[seen], row[seen])
    ranks = np.empty(values.shape, dtype=np.int32)
    for h in range(values.shape[1]):
        ranks[np.lexsort((tie, place[:, h])), h] = np.arange(len(values))
    return ranks
