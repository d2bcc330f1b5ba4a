"""The checks that spare a small panel a query are stricter than the rules, and exact otherwise."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from saga.data.casting import read_column
from saga.data.panel import Panel
from saga.data.validation import _conforms, _plainly_conforms
from saga.schema import BY_NAME, Column


def tagged(panel: Panel) -> tuple[pl.DataFrame, tuple[Column, ...]]:
    """Rows of a panel as the rules receive them."""
    columns = tuple(BY_NAME[name] for name in panel.meta.present)
    frame = panel.frame.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        pl.col("person_id").rle_id().cast(pl.UInt32).alias("person"),
        *(column.name for column in columns),
    )
    return frame, columns


def with_cell(frame: pl.DataFrame, name: str, row: int, value: object) -> pl.DataFrame:
    cells = frame[name].to_list()
    cells[row] = value
    return frame.with_columns(pl.Series(name, cells, dtype=frame.schema[name]))


def test_persons_without_a_fault_need_no_query(register_panel: Panel) -> None:
    frame, columns = tagged(register_panel)
    assert frame.filter(pl.col("exit_reason").is_not_null()).height > 0
    assert _plainly_conforms(frame, columns)


def test_rows_that_break_a_rule_never_pass_the_simple_checks(register_panel: Panel) -> None:
    """Any cell may become any value: what the simple checks accept, the rules accept."""
    frame, columns = tagged(register_panel.only(register_panel.persons()[:3]))
    rng, accepted, refused = np.random.default_rng(5), 0, 0
    values: dict[str, list[object]] = {
        "String": [None, "", "x", "99", "123", "1234", "dead", "female", "male", "sweden"],
        "Int32": [None, 1899, 1950, 1990, 2005, 2201],
        "Float64": [None, -1.0, 0.0, 0.5, 2.0, 1e12, float("nan"), float("inf")],
    }
    for _ in range(2_000):
        changed = frame
        for _ in range(rng.integers(1, 3)):
            column = columns[rng.integers(len(columns))]
            value = values[column.dtype_name][rng.integers(len(values[column.dtype_name]))]
            changed = with_cell(changed, column.name, int(rng.integers(len(frame))), value)
        conforms = changed.select(_conforms(columns)).item()
        if _plainly_conforms(changed, columns):
            assert conforms
            accepted += 1
        refused += not conforms
    assert accepted > 100
    assert refused > 500


def test_a_year_that_is_repeated_does_not_pass(register_panel: Panel) -> None:
    frame, columns = tagged(register_panel.only(register_panel.persons()[:1]))
    again = pl.concat([frame, frame[-1:]])
    assert not _plainly_conforms(again, columns)
    assert not again.select(_conforms(columns)).item()


@pytest.mark.parametrize("name", ["person_id", "sex", "occupation", "exit_reason"])
def test_a_short_column_is_read_as_a_long_one(name: str) -> None:
    """Blanks of Unicode, control characters and empty texts mean the same in any number of rows."""
    texts = [" a ", "", None, "b", "a\x00", "\x1cb", "\u2003c\u2003", "d\xa0", "12.0", "male ", "é"]
    column, repeats = BY_NAME[name], 1_000
    short, bad = read_column(pl.Series("c", texts), column)
    long, long_bad = read_column(pl.Series("c", texts * repeats), column)
    assert short.to_list() * repeats == long.to_list()
    assert bad.to_list() * repeats == long_bad.to_list()
    for text in texts:  # one cell alone, which may be plain
        (alone,), (is_bad,) = read_column(pl.Series("c", [text], dtype=pl.String), column)
        at = texts.index(text)
        assert (alone, is_bad) == (short[at], bad[at])
