"""What can be computed of the hidden cells of a table with margins, by linear programs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from saga.arrays import Bools, Floats


def possible_range(
    values: Floats, hidden: Bools, cell: tuple[int, ...], slack: float = 0.0
) -> tuple[float, float]:
    """The least and largest value of a cell, given all cells that are not hidden.

    Written without the product's equations: each line along an axis adds up to its margin, the last
    place of the axis, up to `slack`.
    """
    number = np.cumsum(hidden.ravel()).reshape(hidden.shape) - 1
    rows, sides = [], []
    for axis in range(values.ndim):
        for index in np.ndindex(*np.delete(values.shape, axis)):
            row, side = np.zeros(hidden.sum()), 0.0
            for place in range(values.shape[axis]):
                at = (*index[:axis], place, *index[axis:])
                sign = -1.0 if place == values.shape[axis] - 1 else 1.0
                if hidden[at]:
                    row[number[at]] = sign
                else:
                    side -= sign * values[at]
            rows.append(row)
            sides.append(side)
    objective = np.zeros(hidden.sum())
    objective[number[cell]] = 1
    scale = np.nanmax(values)
    matrix, limits = np.array(rows), np.array(sides) / scale
    two_sided = np.vstack([matrix, -matrix])
    ends = [
        linprog(sign * objective, A_eq=matrix, b_eq=limits, bounds=(0, None))
        if slack == 0
        else linprog(
            sign * objective,
            A_ub=two_sided,
            b_ub=np.concatenate([limits, -limits]) + slack / scale,
            bounds=(0, None),
        )
        for sign in (1, -1)
    ]
    assert ends[0].status == 0
    high = np.inf if ends[1].status == 3 else -ends[1].fun * scale
    return ends[0].fun * scale, high
