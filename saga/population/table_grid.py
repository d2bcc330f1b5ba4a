"""The cells of a table: every combination of the levels of its groups, and all margins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from saga.errors import UsageError
from saga.pages.group import TOTAL
from saga.requests import GroupEvent

# The index of a level of each group; the index after the last level is the margin of the group.
TableCell = tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """The groups of a table, the levels of each and pairs of them that are compared.

    There is a cell for every combination of levels.
    """

    groups: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    pairs: tuple[tuple[int, int, int], ...] = ()  # axis, and the indices of two levels

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels and margin of each group."""
        return tuple(len(levels) + 1 for levels in self.levels)

    @property
    def n_shown(self) -> int:
        """Number of cells and comparisons; there may be too many to go through them."""
        n_cells = math.prod(self.shape)
        return n_cells + sum(n_cells // self.shape[axis] for axis, _, _ in self.pairs)

    def cells(self) -> Iterator[TableCell]:
        """All cells; that of everybody comes last."""
        return product(*(range(size) for size in self.shape))

    def comparisons(self) -> Iterator[tuple[tuple[str, ...], TableCell, TableCell]]:
        """The names and the two cells of each comparison, in each cell of the other groups."""
        for axis, first, second in self.pairs:
            for cell in self.cells():
                if cell[axis] == first:
                    names = list(self.names(cell).values())
                    names[axis] = f"{names[axis]}/{(*self.levels[axis], TOTAL)[second]}"
                    yield tuple(names), cell, (*cell[:axis], second, *cell[axis + 1 :])

    def names(self, cell: TableCell) -> dict[str, str]:
        """The level of each group in a cell, or `TOTAL`."""
        return {
            group: (*levels, TOTAL)[index]
            for group, levels, index in zip(self.groups, self.levels, cell, strict=True)
        }

    def extended(self, group: str, levels: tuple[str, ...]) -> Grid:
        """The grid with one more group."""
        return Grid((*self.groups, group), (*self.levels, levels))

    def without(self, axis: int) -> Grid:
        """The grid without one of its groups, and without comparisons."""
        groups = (*self.groups[:axis], *self.groups[axis + 1 :])
        return Grid(groups, (*self.levels[:axis], *self.levels[axis + 1 :]))

    def axis_of(self, levels: Sequence[str], where: str) -> int:
        """The group that has these levels or margin. Raises UsageError unless it is one."""
        axes = [axis for axis, known in enumerate(self.levels) if set(levels) <= {*known, TOTAL}]
        if len(axes) != 1:
            groups = "; ".join(
                f"{group}: {', '.join(known)}"
                for group, known in zip(self.groups, self.levels, strict=True)
            )
            raise UsageError(
                f"{where} names {' and '.join(levels)}, which "
                f"{'no group has' if not axes else 'several groups have'}. Groups of `by` are "
                f"{groups or 'none'}."
            )
        return axes[0]

    def place(self, event: GroupEvent) -> tuple[str, ...]:
        """The names of an event's group: a level or pair of each group, or `TOTAL`."""
        names = [TOTAL] * len(self.groups)
        for level in event.levels:
            pair = event.is_comparison and "/" in level
            axis = self.axis_of(level.split("/") if pair else [level], f"The event {event.text!r}")
            names[axis] = level
        return tuple(names)
