"""A process of its own that decodes tables of unknown origin, with bounded memory.

A few bytes of Parquet or Arrow can unfold to gigabytes, and a damaged table can end the process
that reads it. `api.table_reader` starts this program and talks to it over a connection. It imports
no other module of SAGA, so it starts fast.

A table in the body of a call is decoded here. The table of a job is read by the batch engine, which
has no such limits; here its texts are checked, a part of the file at a time: the texts of a panel
are short, and a few kilobytes can hold gigabytes of them.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

MAX_COLUMNS = 100
MAX_TEXT = 64  # characters of one text; the texts of a panel are names and codes
MAX_TABLE_BYTES = 32 * 2**20  # of the table as it is stored, uncompressed
MEMORY_BYTES = 160 * 2**20  # beyond what the program needs without a table
CPU_SECONDS = 5  # of one table; one within the limits takes a fraction of a second
_ROWS = 20_000  # of a job's table that are checked at a time
_LINE = 2**16  # bytes of a line of CSV; columns of a panel need some hundreds
_PIECE = 2**20  # bytes of a CSV file read at a time
# Limits of the footer of a Parquet file.
_FOOTER_LIMITS = {
    "thrift_string_size_limit": 4 * 2**20,  # bytes of one text
    "thrift_container_size_limit": 2**16,  # entries of one list
}


class RefusedTable(Exception):  # noqa: N818 # a verdict about the table, not a failure
    """A table that is not read: its rule, and the column or the number that breaks it."""

    def __init__(self, rule: str, *, column: str | None = None, number: int | None = None) -> None:
        super().__init__(rule)
        self.rule, self.column = rule, column
        self.answer = {"refused": rule, "column": column, "number": number}


def limit_memory(n_bytes: int) -> None:
    """Let this process allocate `n_bytes` more than now. Linux only; elsewhere no effect."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    limit = int(lines["VmData"].split()[0]) * 1024 + n_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_seconds(n_seconds: int) -> None:
    """Let this process compute `n_seconds` more from now; then the system ends it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + n_seconds, hard))


def decode(body: bytes, kind: str, max_rows: int) -> pa.Table:
    """The table of a body, if it is within the limits; texts are plain texts."""
    parquet = kind.endswith("parquet")
    table = _read_parquet(body, max_rows) if parquet else _read_arrow(body, kind, max_rows)
    table.validate(full=True)
    return pa.table({name: _plain(table[name], name) for name in table.column_names})


def _read_parquet(body: bytes, max_rows: int) -> pa.Table:
    """Read a Parquet body after its footer has shown that it is within the limits."""
    source = pa.BufferReader(body)
    metadata = pq.ParquetFile(source, **_FOOTER_LIMITS).metadata
    schema = metadata.schema.to_arrow_schema()
    _check_schema(schema, metadata.num_columns)
    _check_rows(metadata.num_rows, max_rows)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    _check_rows(sum(group.num_rows for group in groups), max_rows)
    _check_bytes(sum(group.total_byte_size for group in groups))
    _check_bytes(
        sum(
            group.column(i).total_uncompressed_size
            for group in groups
            for i in range(group.num_columns)
        )
    )
    # As dictionaries, so that a long text that many rows repeat is in memory once.
    texts = [field.name for field in schema if is_text(field.type)]
    file = pq.ParquetFile(source, read_dictionary=texts, **_FOOTER_LIMITS)
    return file.read(use_threads=False)


def _read_arrow(body: bytes, kind: str, max_rows: int) -> pa.Table:
    buffer = pa.py_buffer(body)
    batches: list[pa.RecordBatch] = []
    reader, stored = _open_arrow(buffer, kind)
    _check_schema(reader.schema, len(reader.schema))
    n_rows = n_bytes = 0
    for batch in stored:
        n_rows += batch.num_rows
        _check_rows(n_rows, max_rows)
        n_bytes += batch.nbytes
        _check_bytes(n_bytes)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _open_arrow(
    buffer: pa.Buffer | pa.NativeFile, kind: str, fields: list[int] | None = None
) -> tuple[Any, Iterator[pa.RecordBatch]]:
    """The reader of Arrow bytes, which has the schema, and its batches with these `fields`."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    if kind.endswith("stream"):
        stream = pa.ipc.open_stream(buffer, options=options)
        return stream, iter(stream)
    file = pa.ipc.open_file(buffer, options=options)
    return file, (file.get_batch(i) for i in range(file.num_record_batches))


def _check_schema(schema: pa.Schema, n_columns: int) -> None:
    n_columns = max(n_columns, len(schema))
    if n_columns > MAX_COLUMNS:
        raise RefusedTable("table-columns", number=n_columns)
    names = schema.names
    for field in schema:
        if names.count(field.name) > 1:
            raise RefusedTable("column-twice", column=field.name)
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        is_number = (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        )
        if not (is_number or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise RefusedTable("column-type", column=field.name)


def _check_rows(n_rows: int, max_rows: int) -> None:
    if not 0 <= n_rows <= max_rows:
        raise RefusedTable("table-rows", number=n_rows)


def _check_bytes(n_bytes: int) -> None:
    if not 0 <= n_bytes <= MAX_TABLE_BYTES:
        raise RefusedTable("table-bytes", number=n_bytes)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def check_texts(texts: pa.Array, name: str) -> None:
    """Raise RefusedTable if one of the texts of the column `name` is too long."""
    if pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.large_string())
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest is not None and longest > 4 * MAX_TEXT:  # a character has up to 4 bytes
        raise RefusedTable("string_too_long", column=name)
    longest = pc.max(pc.utf8_length(texts)).as_py()
    if longest is not None and longest > MAX_TEXT:
        raise RefusedTable("string_too_long", column=name)


def _plain(cells: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The cells without a dictionary. Raises RefusedTable if a text is too long."""
    chunks: list[pa.Array] = []
    for chunk in cells.chunks:
        is_dictionary = pa.types.is_dictionary(chunk.type)
        values = chunk.dictionary if is_dictionary else chunk
        if is_text(values.type):
            if pa.types.is_string_view(values.type):
                values = values.cast(pa.large_string())
            check_texts(values, name)
        chunks.append(values.take(chunk.indices) if is_dictionary else values)
    value_type = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    if pa.types.is_string_view(value_type):
        value_type = pa.large_string()
    return pa.chunked_array(chunks, type=value_type)


def check_file(path: Path, columns: set[str], prefix: str) -> None:
    """Raise RefusedTable if a text of a panel column, or a line of CSV, is too long.

    The columns of a panel are `columns` and those that start with `prefix`. A file that cannot be
    read is left to the engine, which says what is wrong.
    """

    def is_checked(field: pa.Field) -> bool:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        name = field.name
        return is_text(kind) and (name.strip().lower() in columns or name.startswith(prefix))

    try:
        if path.suffix == ".csv":
            _check_lines(path)
            return
        with pa.memory_map(str(path)) as source:
            if path.suffix == ".parquet":
                # As dictionaries, so that a long text that many rows repeat is in memory once.
                schema = pq.ParquetFile(source).schema_arrow
                names = [field.name for field in schema if is_checked(field)]
                file = pq.ParquetFile(source, read_dictionary=names)
                batches = file.iter_batches(_ROWS, columns=names, use_threads=False)
            else:
                kind = _arrow_kind(source)
                reader, _ = _open_arrow(source, kind)
                fields = [i for i, field in enumerate(reader.schema) if is_checked(field)]
                if not fields:
                    return
                source.seek(0)
                _, batches = _open_arrow(source, kind, fields)
            _check_batches(batches)
    except MemoryError:
        raise RefusedTable("table-memory") from None
    except (pa.ArrowException, OSError):
        return


def _arrow_kind(source: pa.MemoryMappedFile) -> str:
    """Whether Arrow bytes are a "file", which can be read from its end, or a "stream"."""
    start = source.read(6)
    source.seek(0)
    return "file" if start == b"ARROW1" else "stream"


def _check_batches(batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            check_texts(cells.dictionary if pa.types.is_dictionary(cells.type) else cells, name)


def _check_lines(path: Path) -> None:
    length = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            first, *others = piece.split(b"\n")
            longest = max([length + len(first), *map(len, others)])
            if longest > _LINE:
                raise RefusedTable("string_too_long")
            length = len(others[-1]) if others else length + len(first)


def answer(head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    """The verdict as JSON, and the table as an Arrow stream if it is one that was sent."""
    try:
        if "path" in head:
            check_file(Path(head["path"]), set(head["columns"]), head["prefix"])
            return {}, b""
        table = decode(body, head["kind"], head["max_rows"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return {}, sink.getvalue().to_pybytes()
    except RefusedTable as refused:
        return refused.answer, b""
    except MemoryError:
        return {"refused": "table-memory"}, b""
    except Exception:  # damaged bytes raise errors of many kinds
        return {"refused": "table"}, b""


def run(descriptor: int, memory_bytes: int, cpu_seconds: int) -> None:
    """Answer one message after the other until the service closes the connection."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    limit_memory(memory_bytes)
    with Connection(descriptor) as connection:
        while True:
            try:
                head, body = json.loads(connection.recv_bytes()), connection.recv_bytes()
            except EOFError:
                return
            limit_seconds(cpu_seconds)
            verdict, table = answer(head, body)
            connection.send_bytes(json.dumps(verdict).encode())
            connection.send_bytes(table)
            del body, table


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
