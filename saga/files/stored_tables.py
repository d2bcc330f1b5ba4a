"""Parquet tables of unknown origin: what they would need in memory is known before they are read.

A few kilobytes can hold gigabytes, because equal values are stored once. The footer of a file says
how much it holds; that of a page may lie, so that a damaged table can still need 2 GiB a column.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import polars as pl
import pyarrow.parquet as pq

# Limits of a footer itself.
FOOTER_LIMITS = {
    "thrift_string_size_limit": 4 * 2**20,  # bytes of one text
    "thrift_container_size_limit": 2**16,  # entries of one list
}
_MAX_CELLS = 10_000_000  # a hundred times as many as the largest table of a shipped bundle


def column_chunks(metadata: pq.FileMetaData) -> list[pq.ColumnChunkMetaData]:
    """What the footer says of each column of each group of rows."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [group.column(i) for group in groups for i in range(group.num_columns)]


def read_stored_table(
    data: bytes, max_bytes: int, columns: Mapping[str, pl.DataType | type[pl.DataType]]
) -> pl.DataFrame:
    """The table of a Parquet file, which has these columns, perhaps with others.

    Raises ValueError for another one, or if it is too large or has lists in cells.

    At most `max_bytes` may be needed uncompressed, and the same for its texts with repetitions.
    """
    metadata = pq.ParquetFile(io.BytesIO(data), **FOOTER_LIMITS).metadata
    chunks = column_chunks(metadata)
    n_cells = max(metadata.num_rows * metadata.num_columns, sum(c.num_values for c in chunks))
    n_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
    if not (0 <= n_cells <= _MAX_CELLS and 0 <= n_bytes <= max_bytes):
        raise ValueError(f"it would need too much memory: {n_cells:,} cells, {n_bytes:,} bytes")
    table = pl.read_parquet(io.BytesIO(data))
    if nested := [name for name, kind in table.schema.items() if kind.is_nested()]:
        raise ValueError(f"cells of its column {nested[0]} are lists")
    if lacking := [name for name, kind in columns.items() if table.schema.get(name) != kind]:
        raise ValueError(f"its column {lacking[0]} is missing or of another type")
    texts = table.select(pl.col(pl.String))
    if sum(column.str.len_bytes().sum() for column in texts) > max_bytes:
        raise ValueError("its texts are too long")
    return table
