"""Ranges over seeds and changes of zero are those of tables with known numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from studies.stability import differing_zero, relative_ranges, value_table, zero_changes


def _table(q50: list[float], lower: list[float], zero: list[bool]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "person_id": ["a", "a", "a", "b", "b", "b"],
            "horizon": [1, 2, 3, 1, 2, 3],
            "q50": q50,
            "lower_90": lower,
            "upper_90": lower,
            "mean": q50,
            "includes_zero_90": zero,
        }
    )


def test_ranges_are_shares_of_the_median_and_zero_flips_are_counted() -> None:
    first = _table([100.0] * 6, [10.0] * 6, [False, True, False, True, True, True])
    second = _table([100.0] * 6, [20.0] * 3 + [10.0] * 3, [False, True, True, True, True, True])
    assert relative_ranges([first, second], "lower_90", "q50") == pytest.approx([0.1] * 3 + [0] * 3)
    assert differing_zero([first, second]) == pytest.approx(1 / 6)
    assert zero_changes(first) == pytest.approx(2 / 2)  # two changes of a, none of b
    assert "| lower_90 | 5.0 | 10.0 | 10.0 |" in value_table([first, second])


def test_missing_ends_have_no_range() -> None:
    first = _table([100.0] * 6, [np.nan] + [10.0] * 5, [False] * 6)
    assert np.isnan(relative_ranges([first, first], "lower_90", "q50")[0])
