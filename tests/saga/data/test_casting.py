"""A short column, read in plain Python, has the cells of a long one."""

from __future__ import annotations

import polars as pl
import pytest

from saga.data.casting import read_column
from saga.schema import BY_NAME


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
