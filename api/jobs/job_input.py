"""The check of a job's table before the engine reads it: the texts of a panel are short.

A few kilobytes of Parquet can hold gigabytes of text, which the engine would read into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from saga.api.table_process import MAX_TEXT, RefusedTable, check_texts, is_text
from saga.api.table_reader import refusal

from saga.schema import BY_NAME, EXTRA_PREFIX

_ROWS = 20_000  # read at a time
_LINE = 2**16  # bytes of a line of CSV; columns of a panel need some hundreds
_PIECE = 2**20  # bytes of a CSV file read at a time
_LONGEST_TEXT = 4 * MAX_TEXT + 4  # bytes in Parquet: the text in UTF-8, and its length


def check_table(path: Path) -> None:
    """Raise InputError if a text of a panel column, or a line of CSV, is too long.

    A file that cannot be read is left to the engine, which says what is wrong.
    """
    checks = {".parquet": _check_parquet, ".arrow": _check_arrow, ".csv": _check_csv}
    try:
        checks[path.suffix](path)
    except RefusedTable as refused:
        raise refusal(refused.rule, path.suffix, 0, refused.column, None) from None
    except (pa.ArrowException, OSError):
        return


def _texts(schema: pa.Schema) -> list[str]:
    """The columns of texts that a panel has; others are not read."""
    kinds = {
        field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        for field in schema
    }
    return [name for name, kind in kinds.items() if is_text(kind) and _is_of_panel(name)]


def _is_of_panel(name: str) -> bool:
    return name.strip().lower() in BY_NAME or name.startswith(EXTRA_PREFIX)


def _check_parquet(path: Path) -> None:
    metadata = pq.read_metadata(path)
    names = _texts(metadata.schema.to_arrow_schema())
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            most = column.num_values * _LONGEST_TEXT + _PIECE
            if column.path_in_schema in names and column.total_uncompressed_size > most:
                raise RefusedTable("text-length", column=column.path_in_schema)
    # As dictionaries, so that a long text that many rows repeat is in memory once.
    file = pq.ParquetFile(path, read_dictionary=names)
    _check_batches(file.iter_batches(_ROWS, columns=names, use_threads=False), names)


def _check_arrow(path: Path) -> None:
    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            stream = pa.ipc.open_stream(source)
            _check_batches(iter(stream), _texts(stream.schema))
            return
        batches = map(file.get_batch, range(file.num_record_batches))
        _check_batches(batches, _texts(file.schema))


def _check_batches(batches: Iterator[pa.RecordBatch], names: list[str]) -> None:
    for batch in batches:
        for name in names:
            cells = batch[name]
            check_texts(cells.dictionary if pa.types.is_dictionary(cells.type) else cells, name)


def _check_csv(path: Path) -> None:
    length = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            first, *others = piece.split(b"\n")
            longest = max([length + len(first), *map(len, others)])
            if longest > _LINE:
                raise RefusedTable("text-length")
            length = len(others[-1]) if others else length + len(first)
