"""Outcomes of donors: marginals of all donors of a group, dependence of the longest records.

Both naive baselines forecast with the outcomes of *donors*, training persons at past origins. At
each horizon the marginal is the empirical distribution over all donors of the person's group who
are observed at that horizon. The dependence over horizons (how long high earnings or a spell of
zeros lasts) is the empirical copula of the donors with the longest records. This is the Schaake
shuffle of Clark et al. (2004): a trajectory of ranks is mapped to values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Array

MINIMUM = 50  # donors that a group needs at a horizon; with fewer the next broader group is used
TEMPLATES = 500  # largest number of rank trajectories per group


class DonorPool:
    """Outcomes of donors sorted within groups, and rank trajectories of broad groups.

    `reach` is the last horizon that can be drawn. An earlier horizon with too few donors uses the
    values of the nearest one before it that has enough.

    Args:
        groups: One (n,) array of group numbers per level of detail, finest first, last a single
            group 0.
        values: (n, H) float32, relative amounts at horizons 1..H, NaN if not observed.
        rng: Orders equal values.
    """

    def __init__(
        self, groups: Sequence[Array], values: NDArray[np.float32], rng: np.random.Generator
    ) -> None:
        seen = np.isfinite(values)
        enough = np.flatnonzero(seen.sum(axis=0) >= MINIMUM)
        horizons_with_donors = enough if len(enough) else np.flatnonzero(seen.any(axis=0))
        if not len(horizons_with_donors):
            raise ValueError("no donor has an observed outcome")
        self.reach = int(horizons_with_donors[-1]) + 1
        horizons = np.arange(self.reach)
        self._source = horizons_with_donors[
            np.maximum(np.searchsorted(horizons_with_donors, horizons, side="right") - 1, 0)
        ]
        values, seen = values[:, : self.reach], seen[:, : self.reach]
        # The order of equal values is the same at all horizons, so that spells of zeros persist.
        tie_order = rng.random(len(values))
        self._sorted = [
            [_sort(group[seen[:, h]], values[seen[:, h], h]) for h in horizons] for group in groups
        ]
        self._templates = [_templates(group, values, tie_order) for group in groups[-2:]]

    def draw(self, groups: Sequence[Array], uniforms: tuple[Array, Array]) -> NDArray[np.float32]:
        """Donors' values (n, reach, M) over horizons 1..reach for n persons on M paths.

        Args:
            groups: For each level of detail the person's group, (n, 1), or (n, M) if it differs by
                path.
            uniforms: Two (n, M) arrays for the trajectory of ranks and the position between ranks.
        """
        pick, position = uniforms
        trajectory = self._trajectories(groups[-2:], pick)
        values_drawn = np.empty((len(pick), self.reach, pick.shape[1]), dtype=np.float32)
        for h in range(self.reach):
            ranks = np.empty(pick.shape)
            for matrix, rows, count in trajectory:
                chosen = rows >= 0
                ranks[chosen] = (matrix[rows[chosen], h] + position[chosen]) / np.broadcast_to(
                    count, rows.shape
                )[chosen]
            values_drawn[:, h] = self._quantile(self._source[h], groups, ranks)
        return values_drawn

    def _trajectories(
        self, groups: Sequence[Array], pick: Array
    ) -> list[tuple[Array, Array, Array]]:
        """For each template level: rank matrix, row of each path (-1: none), group size."""
        is_open = np.ones(pick.shape, dtype=bool)
        trajectories = []
        for level, (matrix, start, count) in enumerate(self._templates):
            size = _lookup(count, groups[level])
            last = level == len(self._templates) - 1
            is_used = is_open & (size >= (1 if last else MINIMUM))
            row = _lookup(start, groups[level]) + (pick * size).astype(np.int64)
            is_open &= ~is_used
            trajectories.append((matrix, np.where(is_used, row, -1), size))
        return trajectories

    def _quantile(self, h: int, groups: Sequence[Array], ranks: Array) -> Array:
        """The value at each rank (0..1) in the finest group with enough donors at horizon h."""
        values_drawn = np.full(ranks.shape, np.nan, dtype=np.float32)
        is_open = np.ones(groups[0].shape, dtype=bool)
        for level, group in enumerate(groups):
            values, starts, counts = self._sorted[level][h]
            size = _lookup(counts, group)
            is_used = is_open & (size >= (MINIMUM if level < len(groups) - 1 else 1))
            is_open &= ~is_used
            if is_used.any():
                start = np.where(is_used, _lookup(starts, group), 0)
                count = np.where(is_used, size, 1)
                index = start + np.minimum((ranks * count).astype(np.int64), count - 1)
                values_drawn = np.where(is_used, values[index], values_drawn)
        return values_drawn


def _lookup(table: Array, group: Array) -> Array:
    """`table[group]`; 0 for a group beyond the table, which has no donors."""
    return np.where(group < len(table), table[np.minimum(group, len(table) - 1)], 0)


def _sort(group: Array, values: Array) -> tuple[Array, Array, Array]:
    """Values sorted within groups, and the start and size of each group."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=1)
    return values[order], np.cumsum(count) - count, count


def _templates(group: Array, values: Array, tie_order: Array) -> tuple[Array, Array, Array]:
    """Rank trajectories (T, H) of the longest records by group, and start and size of groups."""
    seen = np.isfinite(values)
    span = np.where(seen, np.arange(1, values.shape[1] + 1), 0).max(axis=1) + seen.mean(axis=1)
    order = np.lexsort((tie_order, -span, group))
    order = order[span[order] > 0]
    within = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    order = order[within < TEMPLATES]
    count = np.bincount(group[order], minlength=1)
    start = np.cumsum(count) - count
    matrix = np.empty((len(order), values.shape[1]), dtype=np.int32)
    for first, size in zip(start[count > 0].tolist(), count[count > 0].tolist(), strict=True):
        rows = order[first : first + size]
        matrix[first : first + size] = _rank_trajectories(values[rows], tie_order[rows])
    return matrix, start, count


def _rank_trajectories(values: Array, tie_order: Array) -> Array:
    """Ranks 0..T-1 of T donors at every horizon (T, H); each column is a permutation.

    The ranks of a donor's unobserved years are interpolated between observed years.
    """
    position = np.full(values.shape, np.nan)
    for h in range(values.shape[1]):
        rows = np.flatnonzero(np.isfinite(values[:, h]))
        order = rows[np.lexsort((tie_order[rows], values[rows, h]))]
        position[order, h] = (np.arange(len(order)) + 0.5) / max(len(order), 1)
    horizons = np.arange(values.shape[1])
    for row in position:
        seen = np.isfinite(row)
        row[~seen] = np.interp(horizons[~seen], horizons[seen], row[seen])
    ranks = np.empty(values.shape, dtype=np.int32)
    for h in range(values.shape[1]):
        ranks[np.lexsort((tie_order, position[:, h])), h] = np.arange(len(values))
    return ranks
