"""A process of its own that decodes tables of unknown origin, with bounded memory.

A few bytes of Parquet or Arrow can unfold to gigabytes, and a damaged table can end the process
that reads it. `api.table_reader` starts this program and talks to it over its standard streams. It
imports no other module of SAGA, so it starts fast.
"""

from __future__ import annotations

import json
import math
import resource
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

MAX_COLUMNS = 100
MAX_TEXT = 64  # characters of one text; the texts of a panel are names and codes
MAX_TABLE_BYTES = 32 * 2**20  # of the table as it is stored, uncompressed
MEMORY_BYTES = 160 * 2**20  # beyond what the program needs without a table
CPU_SECONDS = 5  # of one table; one within the limits takes a fraction of a second
HEADER = struct.Struct("<II")  # bytes of the JSON and of the table that follow
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


def _open_arrow(buffer: pa.Buffer, kind: str) -> tuple[Any, Iterator[pa.RecordBatch]]:
    """The reader of an Arrow body, which has the schema, and its batches."""
    options = pa.ipc.IpcReadOptions(use_threads=False)
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
        raise RefusedTable("text-length", column=name)
    longest = pc.max(pc.utf8_length(texts)).as_py()
    if longest is not None and longest > MAX_TEXT:
        raise RefusedTable("text-length", column=name)


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


def answer(body: bytes, kind: str, max_rows: int) -> tuple[dict[str, Any], bytes]:
    """The verdict as JSON, and the table as an Arrow stream if it is read."""
    try:
        table = decode(body, kind, max_rows)
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


def send(stream: IO[bytes], head: dict[str, Any], content: bytes) -> None:
    """Write one message: the JSON `head` and the bytes of a table."""
    text = json.dumps(head).encode()
    stream.write(HEADER.pack(len(text), len(content)))
    stream.write(text)
    stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    """Read one message. Raises EOFError if the other side has closed the stream."""
    sizes = stream.read(HEADER.size)
    if len(sizes) < HEADER.size:
        raise EOFError
    n_head, n_content = HEADER.unpack(sizes)
    head, content = stream.read(n_head), stream.read(n_content)
    if len(head) + len(content) < n_head + n_content:
        raise EOFError
    message: dict[str, Any] = json.loads(head)
    return message, content


def run() -> None:
    """Answer one message after the other until the service closes the stream."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    limit_memory(MEMORY_BYTES)
    while True:
        try:
            head, body = receive(sys.stdin.buffer)
        except EOFError:
            return
        limit_seconds(CPU_SECONDS)
        send(sys.stdout.buffer, *answer(body, head["kind"], head["max_rows"]))
        del body


if __name__ == "__main__":
    run()
