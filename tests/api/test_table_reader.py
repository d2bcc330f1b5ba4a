"""The process that reads tables of unknown origin, after many of them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing

import polars as pl
import pytest
from saga.api.codecs import CSV, PARQUET
from saga.api.table_reader import TableReader

MB = 2**20


@pytest.fixture(scope="module")
def used_reader() -> Iterator[TableReader]:
    """A reader that has read many tables of a size that it may read."""
    content = io.BytesIO()
    persons = [f"X{i}" for i in range(100_000)]
    pl.DataFrame({"person_id": persons, "earnings": range(100_000)}).write_parquet(content)
    with closing(TableReader(memory_bytes=96 * MB)) as reader:
        for _ in range(40):
            assert reader.read(content.getvalue(), PARQUET, 100_000).height == 100_000
        yield reader


@pytest.mark.parametrize("kind", [CSV, PARQUET])
def test_earlier_tables_leave_room_for_the_next(used_reader: TableReader, kind: str) -> None:
    table, content = pl.DataFrame({"person_id": ["A"]}), io.BytesIO()
    table.write_csv(content) if kind == CSV else table.write_parquet(content)
    assert used_reader.read(content.getvalue(), kind, 1).equals(table)
