"""Nobody can compute an unsafe cell from a table: tried by linear programs on what is published."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from saga.errors import UsageError
from saga.population.disclosure import DisclosureRules, suppress

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
PROTECTION = 0.15


def with_margins(inner: Floats) -> Floats:
    """The table with a last index of sums in each dimension."""
    for axis in range(inner.ndim):
        inner = np.concatenate([inner, inner.sum(axis, keepdims=True)], axis)
    return inner


def possible_range(values: Floats, hidden: Flags, cell: tuple[int, ...]) -> tuple[float, float]:
    """The least and largest value of a cell, given all cells that are not hidden.

    Written without the product's equations: each line along an axis adds up to its margin.
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
    scale = values.max()
    ends = [
        linprog(sign * objective, A_eq=rows, b_eq=np.array(sides) / scale, bounds=(0, None))
        for sign in (1, -1)
    ]
    assert ends[0].status == 0
    high = np.inf if ends[1].status == 3 else -ends[1].fun * scale
    return ends[0].fun * scale, high


def recovered(magnitudes: Sequence[Floats], unsafe: Flags, hidden: Flags) -> list[tuple[int, ...]]:
    """Unsafe cells that are published, or known more closely than the protection interval."""
    close = []
    for cell in map(tuple, np.argwhere(unsafe).tolist()):
        if not hidden[cell]:
            close.append(cell)
            continue
        for values in magnitudes:
            low, high = possible_range(values, hidden, cell)
            value, width = values[cell], PROTECTION * values[cell] * (1 - 1e-6)
            if low > max(value - width, 0) or high < value + width:
                close.append(cell)
    return close


def random_table(shape: tuple[int, ...], seed: int) -> tuple[list[Floats], Flags]:
    """Persons and earnings of a table; cells with 1 to 9 persons are unsafe, some are empty."""
    rng = np.random.default_rng(seed)
    persons = rng.negative_binomial(0.8, 0.02, shape).astype(float)
    earnings = persons * rng.lognormal(5, 0.5, shape)
    persons, earnings = with_margins(persons), with_margins(earnings)
    return [persons, earnings], (persons > 0) & (persons < 10)


def only_primary(magnitudes: Sequence[Floats], unsafe: Flags, protection: float) -> Flags:
    """What a careless office does: it hides the unsafe cells and nothing else."""
    return unsafe


@pytest.mark.parametrize(
    ("shape", "seed"), [((6, 5), 1), ((6, 5), 2), ((12, 3), 3), ((4, 3, 3), 4), ((9,), 5)]
)
def test_no_unsafe_cell_can_be_computed_from_margins(shape: tuple[int, ...], seed: int) -> None:
    magnitudes, unsafe = random_table(shape, seed)
    assert unsafe.any()
    hidden = suppress(magnitudes, unsafe, PROTECTION)
    assert recovered(magnitudes, unsafe, hidden) == []
    assert not hidden.all(), "a table in which nothing is published proves nothing"


def test_primary_suppression_alone_is_seen_through() -> None:
    magnitudes, unsafe = random_table((6, 5), 1)
    assert recovered(magnitudes, unsafe, only_primary(magnitudes, unsafe, PROTECTION))


def test_one_unsafe_cell_of_a_square_takes_three_more_and_the_cheapest() -> None:
    persons = with_margins(np.array([[5.0, 40, 900], [30, 20, 900], [900, 900, 900]]))
    unsafe = persons < 10
    hidden = suppress([persons], unsafe, PROTECTION)
    assert np.argwhere(hidden).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_a_hidden_cell_next_to_a_tiny_one_is_not_enough() -> None:
    """Two unsafe cells in a line hide each other only if both can move far enough."""
    persons = with_margins(np.array([[9.0, 1, 500], [400, 300, 500]]))
    unsafe = persons < 10
    hidden = suppress([persons], unsafe, PROTECTION)
    assert recovered([persons], unsafe, hidden) == []
    assert hidden.sum() > 2


def test_without_another_cell_the_margin_is_hidden_too() -> None:
    persons = with_margins(np.array([4.0, 0]))
    hidden = suppress([persons], persons > 0, PROTECTION)
    assert hidden.tolist() == [True, False, True], "an empty cell hides nothing"


def test_suppressed_cells_of_another_year_stay_suppressed() -> None:
    magnitudes, unsafe = random_table((6, 5), 1)
    other = np.zeros_like(unsafe)
    other[2, 2] = True
    hidden = suppress(magnitudes, unsafe, PROTECTION, other)
    assert hidden[2, 2]
    assert recovered(magnitudes, unsafe, hidden) == []


def test_the_rules_find_small_and_dominated_cells() -> None:
    rules = DisclosureRules(minimum=5, dominance_count=2, dominance_share=0.8)
    even = np.ones(20)
    assert rules.unsafe_reason(20, even) is None
    assert rules.unsafe_reason(4, even[:4]) == "minimum"
    assert rules.unsafe_reason(20, np.concatenate([even[:18], [50, 50]])) == "dominance"
    assert rules.unsafe_reason(0, even[:0]) is None
    assert rules.unsafe_reason(20, np.zeros(20)) is None


@pytest.mark.parametrize(
    "values", [{"minimum": 2}, {"dominance_share": 1.2}, {"protection": 0}, {"count_base": 0}]
)
def test_rules_that_protect_nobody_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        DisclosureRules(**values)  # type: ignore[arg-type]
