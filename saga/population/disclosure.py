"""Disclosure control: which cells of a table must not be published, and which hide them.

A cell is unsafe with too few persons, or if few persons have most of its total (dominance rule).
An unsafe cell alone does not stay hidden: it is a margin minus the other cells. Further cells are
therefore suppressed, at little loss, so that nobody can compute an unsafe cell from the published
cells and margins more closely than the protection interval (Fischetti and Salazar 2001, Management
Science 47:1008; their program is solved in fractions, for one unsafe cell after the other: it hides
hardly more cells than in integers, and the same ones however busy the machine is).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import block_diag, bmat, coo_matrix, csr_matrix, diags, hstack, identity

from saga.arrays import Bools, Floats
from saga.errors import UsageError

_REACH = 4.0  # changes of a cell that the program considers, in units of the protection interval
_STILL = 1e-9  # a change, in units of the protection interval, that is a rounding error


@dataclass(frozen=True)
class DisclosureRules:
    """When a cell is unsafe, and how closely nobody may compute it.

    Args:
        minimum: Persons that a cell must have.
        dominance_count: Persons n of the dominance rule.
        dominance_share: Share k: the n largest contributions may be at most this of a total.
        protection: Half the width of the protection interval, as a share of the cell's value.
        count_base: Published numbers of persons are multiples of it.
        amount_base: Published amounts are multiples of it.
    """

    minimum: int = 10
    dominance_count: int = 2
    dominance_share: float = 0.85
    protection: float = 0.15
    count_base: int = 5
    amount_base: int = 100

    def __post_init__(self) -> None:
        if self.minimum < 3 or self.dominance_count < 1:
            raise UsageError("A cell needs at least 3 persons, and the dominance rule at least 1.")
        if not 0 < self.dominance_share <= 1 or not 0 < self.protection < 1:
            raise UsageError("The dominance share and the protection lie between 0 and 1.")
        if self.count_base < 1 or self.amount_base < 1:
            raise UsageError("Numbers are rounded to multiples of 1 or more.")

    def published_persons(self, persons: int) -> str:
        """A number of persons as it may be published: "fewer than 10", or rounded."""
        if persons < self.minimum:
            return f"fewer than {self.minimum}"
        return f"{round(persons / self.count_base) * self.count_base:,}"

    def describe(self) -> dict[str, float]:
        """The rules by name."""
        return asdict(self)

    def unsafe_reason(self, persons: float, contributions: Floats) -> str | None:
        """Why a cell with these persons and contributions is unsafe; None if it is safe."""
        if persons == 0:
            return None
        if persons < self.minimum:
            return "minimum"
        total = contributions.sum()
        count = min(self.dominance_count, len(contributions))
        largest = np.partition(contributions, len(contributions) - count)[-count:].sum()
        return "dominance" if total > 0 and largest > self.dominance_share * total else None


def suppress(
    magnitudes: Sequence[Floats],
    unsafe: Bools,
    protection: float,
    suppressed: Bools | None = None,
) -> Generator[None, None, tuple[Bools, dict[int, int]]]:
    """The cells to suppress so that no unsafe cell can be computed from the others.

    Also, for each further cell, the unsafe one that it hides (numbers in the flattened table). In
    steps, each of which solves at most one kind of program for one unsafe cell.

    The last index of each dimension is its margin, the sum of the others.

    Args:
        magnitudes: Additive values that are published, each with the shape of the table, >= 0.
        unsafe: Cells that must be hidden.
        protection: Share of an unsafe cell's value by which it must be able to move both ways.
        suppressed: Cells that are suppressed in any case.
    """
    hidden = unsafe if suppressed is None else unsafe | suppressed
    hidden = hidden.copy()
    hides: dict[int, int] = {}
    if unsafe.ndim == 0:  # without groups there is one cell, and no sum shows it
        return hidden, hides
    sums = _sums_to_zero(unsafe.shape)
    order = np.argsort(-magnitudes[0], axis=None, kind="stable")
    for cell in order[unsafe.ravel()[order]]:
        chosen = yield from _protect(magnitudes, hidden.ravel(), int(cell), protection, sums)
        if chosen is None:  # the table is too small for any other cell to hide this one
            chosen = np.ones(hidden.size, dtype=np.bool_)
        hides |= dict.fromkeys(np.flatnonzero(chosen & ~hidden.ravel()).tolist(), int(cell))
        hidden |= chosen.reshape(hidden.shape)
    return hidden, hides


def _protect(
    magnitudes: Sequence[Floats],
    hidden: Bools,
    cell: int,
    protection: float,
    sums: csr_matrix,
) -> Generator[None, None, Bools | None]:
    """Cheap cells that hide `cell` beside the `hidden` ones, with these; None if there are none.

    Variables: which cells are suppressed, and for each magnitude one table of changes that moves
    the cell up and one that moves it down, both zero in all sums and in published cells. All cells
    that change are suppressed. A step ends before a program is solved.
    """
    moves = []
    for values in magnitudes:
        flat = values.ravel()
        # A cell near zero must be able to move by a person's share of the table.
        unit = max(protection * flat[cell], protection * flat[-1] / max(magnitudes[0].flat[-1], 1))
        for target in (unit, -min(unit, flat[cell])):
            if target and unit > 0:
                moves.append((target / unit, np.minimum(flat / unit, _REACH)))
    # Everybody knows that an empty cell is empty, so it hides nothing.
    filled = magnitudes[0].ravel() > 0
    free, shape = hidden & filled, magnitudes[0].shape
    of_programs = [move for move in moves if not _has_rectangle(cell, *move, free, shape)]
    if not of_programs:
        return hidden
    yield
    if all(_can_move(cell, *move, free, sums) for move in of_programs):
        return hidden
    yield
    sums, n, place = sums[:, filled], int(filled.sum()), int(filled[:cell].sum())
    sums = sums[sums.getnnz(1) > 0]
    floor = np.concatenate([hidden[filled], *(-down[filled] for _, down in moves)]).astype(float)
    ceiling = np.concatenate([np.ones(n), *([np.full(n, _REACH)] * len(moves))])
    limits = []
    for number, (target, down) in enumerate(moves, start=1):
        floor[number * n + place] = ceiling[number * n + place] = target
        for scale, sign in ((np.full(n, _REACH), 1), (down[filled], -1)):
            row: list[csr_matrix] = [csr_matrix((n, n)) for _ in range(len(moves) + 1)]
            row[0], row[number] = -diags(scale), sign * identity(n)
            limits.append(LinearConstraint(bmat([row]), -np.inf, 0))
    no_choice = csr_matrix((sums.shape[0] * len(moves), n))
    still = LinearConstraint(hstack([no_choice, block_diag([sums] * len(moves))]), 0, 0)
    cost = np.zeros(len(floor))
    cost[:n] = np.where(hidden, 0, 1 + magnitudes[0].ravel())[filled]
    result = milp(cost, bounds=Bounds(floor, ceiling), constraints=[still, *limits])
    if result.x is None:
        return None
    changed = hidden.copy()
    changed[filled] |= np.abs(result.x.reshape(-1, n)[1:]).max(0) > _STILL
    return changed


def _has_rectangle(
    cell: int, target: float, down: Floats, free: Bools, shape: tuple[int, ...]
) -> bool:
    """Whether `cell` can change by `target` with the other corners of a rectangle alone.

    The corners differ from the cell in some dimensions, and change by `target` up or down, so that
    all sums stay. This is a solution of the program of `_can_move`, found without solving it.
    """
    home = [int(index) for index in np.unravel_index(cell, shape)]
    can_rise, can_fall = free.reshape(shape), (free & (down >= abs(target))).reshape(shape)
    fits = np.ones(shape, dtype=np.bool_)  # whether the corner opposite to the cell is possible
    for axis, index in enumerate(home):
        fits[(slice(None),) * axis + (index,)] = False
    for moved in product((False, True), repeat=len(shape)):
        change = np.array(target)
        for axis in np.flatnonzero(moved).tolist():
            size = shape[axis]
            # Two levels change against each other; a level and the margin change alike.
            signs = np.where(np.arange(size) == size - 1, 1, -1 if home[axis] < size - 1 else 1)
            change = change * signs.reshape([-1 if k == axis else 1 for k in range(len(shape))])
        corner = tuple(
            slice(None) if is_moved else slice(index, index + 1)
            for is_moved, index in zip(moved, home, strict=True)
        )
        if any(moved):  # the cell itself can move: its bounds are not those of other cells
            fits &= np.where(change > 0, can_rise[corner], can_fall[corner])
    return bool(fits.any())


def _can_move(cell: int, target: float, down: Floats, free: Bools, sums: csr_matrix) -> bool:
    """Whether `cell` can change by `target` with changes in `free` cells alone: a small program."""
    floor, ceiling = np.where(free, -down, 0.0), np.where(free, _REACH, 0.0)
    floor[cell] = ceiling[cell] = target
    bounds = Bounds(floor[free], ceiling[free])
    result = milp(
        np.zeros(free.sum()), bounds=bounds, constraints=LinearConstraint(sums[:, free], 0, 0)
    )
    return result.x is not None


def _sums_to_zero(shape: tuple[int, ...]) -> csr_matrix:
    """The equations of a table with margins: the levels of a dimension minus their sum is zero."""
    numbers = np.arange(np.prod(shape)).reshape(shape)
    rows, columns, signs, start = [], [], [], 0
    for axis, size in enumerate(shape):
        lines = np.moveaxis(numbers, axis, -1).reshape(-1, size)
        rows.append(np.repeat(np.arange(len(lines)) + start, size))
        columns.append(lines.ravel())
        signs.append(np.tile([*[1.0] * (size - 1), -1.0], len(lines)))
        start += len(lines)
    entries = np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))
    return coo_matrix(entries, shape=(start, numbers.size)).tocsr()
