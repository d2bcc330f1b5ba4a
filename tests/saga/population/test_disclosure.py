"""Nobody can compute an unsafe cell from a table: tried by linear programs on what is published."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import numpy as np
import pytest
from differencing import possible_range
from scipy.optimize import milp

from saga.arrays import Bools, Floats
from saga.errors import UsageError
from saga.population import disclosure
from saga.population.disclosure import DisclosureRules, suppress
from saga.population.policy_tables import last_of

PROTECTION = 0.15


def with_margins(inner: Floats) -> Floats:
    """The table with a last index of sums in each dimension."""
    for axis in range(inner.ndim):
        inner = np.concatenate([inner, inner.sum(axis, keepdims=True)], axis)
    return inner


def recovered(magnitudes: Sequence[Floats], unsafe: Bools, hidden: Bools) -> list[tuple[int, ...]]:
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


def random_table(shape: tuple[int, ...], seed: int) -> tuple[list[Floats], Bools]:
    """Persons and earnings of a table; cells with 1 to 9 persons are unsafe, some are empty."""
    rng = np.random.default_rng(seed)
    persons = rng.negative_binomial(0.8, 0.02, shape).astype(float)
    earnings = persons * rng.lognormal(5, 0.5, shape)
    persons, earnings = with_margins(persons), with_margins(earnings)
    return [persons, earnings], (persons > 0) & (persons < 10)


@pytest.mark.parametrize(
    ("shape", "seed"), [((6, 5), 1), ((6, 5), 2), ((12, 3), 3), ((4, 3, 3), 4), ((9,), 5)]
)
def test_no_unsafe_cell_can_be_computed_from_margins(shape: tuple[int, ...], seed: int) -> None:
    magnitudes, unsafe = random_table(shape, seed)
    assert unsafe.any()
    hidden, _ = last_of(suppress(magnitudes, unsafe, PROTECTION))
    assert recovered(magnitudes, unsafe, hidden) == []
    assert not hidden.all(), "a table in which nothing is published proves nothing"


@pytest.mark.parametrize(("shape", "seed"), [((12, 8), 1), ((5, 4, 4), 2), ((20,), 3)])
def test_a_rectangle_of_hidden_cells_is_a_solution_of_the_program(
    shape: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    (persons, _), unsafe = random_table(shape, seed)
    hidden = unsafe | (rng.random(persons.shape) < 0.4)
    free = (hidden & (persons > 0)).ravel()
    sums = disclosure._sums_to_zero(persons.shape)
    found = []
    for cell in np.flatnonzero(unsafe):
        for target in (1.0, -1.0):
            down = np.minimum(persons.ravel() / (PROTECTION * persons.flat[cell]), 4)
            move = int(cell), target, down, free
            found.append(disclosure._has_rectangle(*move, persons.shape))
            assert not found[-1] or disclosure._can_move(*move, sums)
    assert any(found)


@pytest.mark.thorough
def test_cells_that_hide_each_other_need_no_program_in_every_year(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table of many small cells: programs for each of them took seconds of every year."""
    solve = Mock(wraps=milp)
    monkeypatch.setattr(disclosure, "milp", solve)
    rng = np.random.default_rng(5)
    persons = with_margins(rng.integers(1, 9, (15, 10)).astype(float))
    unsafe, hidden = persons < 10, None
    for _ in range(3):
        earnings = with_margins(persons[:-1, :-1] * rng.lognormal(5, 0.5, (15, 10)))
        hidden, _ = last_of(suppress([persons, earnings], unsafe, PROTECTION, hidden))
        assert recovered([persons, earnings], unsafe, hidden) == []
    assert solve.call_count < unsafe.sum() / 10


def test_few_programs_are_solved_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other calls to the service are answered between two steps: all took half a minute."""
    solve = Mock(wraps=milp)
    monkeypatch.setattr(disclosure, "milp", solve)
    magnitudes, unsafe = random_table((4, 3, 3), 4)
    solved = [solve.call_count for _ in suppress(magnitudes, unsafe, PROTECTION)]
    assert solve.call_count > 4
    assert max(np.diff([*solved, solve.call_count])) <= 2 * len(magnitudes)


def test_primary_suppression_alone_is_seen_through() -> None:
    magnitudes, unsafe = random_table((6, 5), 1)
    assert recovered(magnitudes, unsafe, unsafe)


def test_a_hidden_cell_next_to_a_tiny_one_is_not_enough() -> None:
    """Two unsafe cells in a line hide each other only if both can move far enough."""
    persons = with_margins(np.array([[9.0, 1, 500], [400, 300, 500]]))
    unsafe = persons < 10
    hidden, _ = last_of(suppress([persons], unsafe, PROTECTION))
    assert recovered([persons], unsafe, hidden) == []
    assert hidden.sum() > 2


def test_without_another_cell_the_margin_is_hidden_too() -> None:
    persons = with_margins(np.array([4.0, 0]))
    hidden, _ = last_of(suppress([persons], persons > 0, PROTECTION))
    assert hidden.tolist() == [True, False, True], "an empty cell hides nothing"
    persons = with_margins(np.array([[4.0, 50], [50, 0], [0, 50]]))
    before = np.pad(np.ones((3, 2), dtype=np.bool_), (0, 1))
    hidden, _ = last_of(suppress([persons], persons == 4, PROTECTION, before))
    assert (hidden & ~before).any(), "nor does one that was hidden before"
    total = np.array(4.0)  # of a table without groups
    assert last_of(suppress([total], total > 0, PROTECTION)) == (np.array(True), {})


def test_the_rules_find_small_and_dominated_cells() -> None:
    rules = DisclosureRules(minimum=5, dominance_count=2, dominance_share=0.8)
    even = np.ones(20)
    assert rules.unsafe_reason(20, even) is None
    assert rules.unsafe_reason(4, even[:4]) == "minimum"
    assert rules.unsafe_reason(5, even[:5]) is None
    assert rules.unsafe_reason(22, np.concatenate([even, [40, 40]])) is None  # 0.8 exactly
    assert rules.unsafe_reason(20, np.concatenate([even[:18], [50, 50]])) == "dominance"
    assert rules.unsafe_reason(0, even[:0]) is None
    assert rules.unsafe_reason(20, np.zeros(20)) is None


@pytest.mark.parametrize(
    "values", [{"minimum": 2}, {"dominance_share": 1.2}, {"protection": 0}, {"count_base": 0}]
)
def test_rules_that_protect_nobody_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        DisclosureRules(**values)  # type: ignore[arg-type]
