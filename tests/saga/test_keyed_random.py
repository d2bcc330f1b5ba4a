"""Keyed random numbers depend on the key alone, and so does the person split."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from saga.data.panel import Panel, PanelMeta
from saga.data.split import SPLIT_SHARES, assign_parts, persons_of, unseen_persons
from saga.keyed_random import (
    Part,
    encode,
    sample_persons,
    sample_rows,
    uniform_each,
    uniform_rows,
    uniforms,
)


def test_the_first_numbers_do_not_depend_on_the_count() -> None:
    assert np.array_equal(uniforms(7, "path", 1, "p"), uniforms(1000, "path", 1, "p")[:7])


def test_rows_are_the_streams_of_their_ids_in_any_order() -> None:
    ids = [("a", 2000), ("b", 2001), ("a", 2001)]
    rows = uniform_rows(5, ids, "pit")
    assert np.array_equal(rows[::-1], uniform_rows(5, ids[::-1], "pit"))
    assert np.array_equal(rows[1], uniforms(5, "pit", "b", 2001))


def test_the_number_of_an_id_does_not_depend_on_other_ids() -> None:
    ids = [f"person-{i}" for i in range(100)]
    together = uniform_each(ids, "split", "register")
    assert np.array_equal(together[::-1], uniform_each(ids[::-1], "split", "register"))
    assert uniform_each([ids[40]], "split", "register")[0] == together[40]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1,), ("1",)),
        ((1, 2), (12,)),
        (("a", ""), ("a",)),
        (("i1:1",), (1,)),
        ((-1,), (1,)),
    ],
)
def test_different_keys_never_share_an_encoding(
    one: tuple[Part, ...], other: tuple[Part, ...]
) -> None:
    assert encode(*one) != encode(*other)
    assert uniforms(1, *one) != uniforms(1, *other)


def test_numpy_and_python_integers_are_the_same_key() -> None:
    assert encode(np.int32(5), 7) == encode(5, np.uint8(7))


def test_a_float_or_a_boolean_is_no_key() -> None:
    with pytest.raises(TypeError, match="float"):
        uniforms(1, 0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bool"):
        uniforms(1, True)


def test_numbers_are_uniform_and_strictly_inside_the_unit_interval() -> None:
    for numbers in (
        uniforms(100_000, "u", 3),
        uniform_each(range(100_000), "u", 3),
        uniform_rows(10, range(2_000), "u").ravel(),
    ):
        assert 0 < numbers.min() < numbers.max() < 1
        assert stats.kstest(numbers, "uniform").pvalue > 1e-6


def test_split_shares_are_70_10_10_10_within_sampling_error() -> None:
    n = 50_000
    parts = assign_parts("register", (f"{i:08d}" for i in range(n)))
    for part, share in SPLIT_SHARES.items():
        assert stats.binomtest(int((parts == part).sum()), n, share).pvalue > 1e-6


def test_the_split_of_a_person_depends_on_register_and_person_alone() -> None:
    ids = [str(i) for i in range(500)]
    assert np.array_equal(assign_parts("r", ids[::-1]), assign_parts("r", ids)[::-1])
    assert np.array_equal(assign_parts("r", ids[:3]), assign_parts("r", ids)[:3])
    assert not np.array_equal(assign_parts("r", ids), assign_parts("s", ids))


def test_unseen_persons_are_the_test_persons_or_all_of_another_panel() -> None:
    rows = pl.DataFrame(
        {
            "person_id": [f"{i:03d}" for i in range(200)],
            "year": 2020,
            "birth_year": 1980,
            "earnings": 1.0,
        }
    )
    panel = Panel.of(rows, PanelMeta("r"))
    assert unseen_persons(panel, "r").persons() == persons_of(panel, "test") != []
    for other in ("s", None):
        assert unseen_persons(panel, other).frame.equals(panel.frame)


def test_a_sample_of_persons_is_keyed_sorted_and_stays_when_others_join() -> None:
    ids = [f"{i:03d}" for i in range(300)]
    few, more = (sample_persons(ids, count, "x", 1) for count in (20, 50))
    assert few == sorted(few)
    assert set(few) < set(more)
    assert sample_persons(ids[::-1], 20, "x", 1) == few
    assert sample_persons(ids, 20, "x", 2) != few
    assert [ids[i] for i in sample_rows(ids, 20, "x", 1)] == few
    lowest = np.argsort(uniform_each(ids, "x", 1))[:20]
    assert few == sorted(ids[i] for i in lowest)
    assert sample_persons(ids, None, "x") == sample_persons(ids, 400, "x") == ids
    assert sample_persons([], 5, "x") == []
