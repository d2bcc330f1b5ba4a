"""A process of its own that decodes tables of unknown origin, with bounded memory.

A few bytes of Parquet or Arrow can unfold to gigabytes, and a damaged table can end the process
that reads it. `api.table_reader` starts this program and talks to it over a connection. It imports
little else than pyarrow, so it starts fast.

A table in the body of a call is decoded here. The table of a job is read by the batch engine, which
has no such limits; here it is checked, a part of the file at a time: how many cells it has, what
they need uncompressed, and the length of its texts. A few kilobytes can hold gigabytes of them.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import reduce
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from saga.data.csv_text import LineFault, require_whole_rows, rows_of
from saga.files.arrow_streams import is_whole_stream
from saga.files.stored_tables import FOOTER_LIMITS, column_chunks

MAX_COLUMNS = 100
MAX_TEXT = 64  # characters of one text; the texts of a panel are names and codes
MAX_TABLE_BYTES = 32 * 2**20  # of the table as it is stored, uncompressed
MEMORY_BYTES = 160 * 2**20  # beyond what the program needs without a table
_KEPT = 1 / 8  # of this memory may be lost to earlier tables; then the program starts anew
CPU_SECONDS = 5  # of one table; one within the limits takes a fraction of a second
_ROWS = 20_000  # of a job's table that are checked at a time
_LINE = 2**16  # bytes of a record of CSV; columns of a panel need some hundreds
_FEWEST_COLUMNS = 4  # of a panel
_PIECE = 2**20  # bytes of a CSV file read at a time
# First bytes of gzip, zstd and zlib, which the engine unpacks whatever the name of a file is.
_PACKED = (b"\x1f\x8b", b"(\xb5/\xfd", *(b"x%c" % n for n in range(256) if (0x7800 + n) % 31 == 0))


class RefusedTable(Exception):  # noqa: N818 # a verdict about the table, not a failure
    """A table that is not read: its rule, and the column or the number that breaks it."""

    def __init__(
        self, rule: str, *, column: str | None = None, number: int = 0, limit: int = 0
    ) -> None:
        super().__init__(rule)
        self.rule, self.column = rule, column
        self.answer = {"refused": rule, "column": column, "number": number, "limit": limit}


def data_bytes() -> int:
    """Bytes that this process has allocated. Linux only; elsewhere 0."""
    status = Path("/proc/self/status")
    line = re.search(r"VmData:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(line[1]) * 1024 if line else 0


def limit_memory(n_bytes: int) -> None:
    """Let this process allocate `n_bytes` more than now. Linux only; elsewhere no effect."""
    if not (present := data_bytes()):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = present + n_bytes
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_seconds(n_seconds: int) -> None:
    """Let this process compute `n_seconds` more from now; then the system ends it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + n_seconds, hard))


def decode(body: bytes, kind: str, max_rows: int, separator: str, skipped: int) -> pa.Table:
    """The table of a body, if it is within the limits; texts are plain texts.

    `separator` and the number of lines before the header are those of CSV.
    """
    if kind.endswith("csv"):
        table = _read_csv(body, max_rows, separator, skipped)
    elif kind.endswith("parquet"):
        table = _read_parquet(body, max_rows)
    else:
        table = _read_arrow(body, kind, max_rows)
    table.validate(full=True)
    return pa.table({name: _plain(table[name], name) for name in table.column_names})


def _read_parquet(body: bytes, max_rows: int) -> pa.Table:
    """Read a Parquet body after its footer has shown that it is within the limits."""
    source = pa.BufferReader(body)
    metadata = pq.ParquetFile(source, **FOOTER_LIMITS).metadata
    schema = metadata.schema.to_arrow_schema()
    _check_schema(schema, metadata.num_columns)
    _check_rows(metadata.num_rows, max_rows)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    _check_rows(sum(group.num_rows for group in groups), max_rows)
    _check_bytes(sum(group.total_byte_size for group in groups))
    _check_bytes(sum(chunk.total_uncompressed_size for chunk in column_chunks(metadata)))
    # As dictionaries, so that a long text that many rows repeat is in memory once.
    texts = [field.name for field in schema if is_text(field.type)]
    file = pq.ParquetFile(source, read_dictionary=texts, **FOOTER_LIMITS)
    return file.read(use_threads=False)


def _read_arrow(body: bytes, kind: str, max_rows: int) -> pa.Table:
    reader, stored = _open_arrow(pa.BufferReader(body), kind)
    return _within_limits(reader.schema, stored, max_rows)


def _read_csv(body: bytes, max_rows: int, separator: str, skipped: int) -> pa.Table:
    """Cells are texts, as in files, so that leading zeros remain; an empty one is unknown.

    Empty lines and columns without a name are left out; only the first of these has values.
    """
    if body.count(b'"') % 2:  # pyarrow takes the text for whole, although it may be cut off
        raise _open_quotes(body, separator, skipped)
    columns = [f"f{i}" for i in range(MAX_COLUMNS + 1)]
    read = pa.csv.ReadOptions(
        use_threads=False,
        block_size=_PIECE,
        skip_rows=skipped,
        autogenerate_column_names=True,  # the header is a row, because it may repeat a name
    )
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
    )
    parse = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        reader = pa.csv.open_csv(pa.BufferReader(body), read, parse, convert)
        table = _within_limits(reader.schema, reader, max_rows + 1)
    except pa.ArrowInvalid as error:
        raise _wrong_cells(str(error), body, separator, skipped) or error from None
    names = [column[0].as_py() for column in table.columns]
    table = table.slice(1)
    if any(table[i].null_count < len(table) for i, name in enumerate(names) if i and not name):
        try:
            require_whole_rows(rows_of(io.BytesIO(body), separator, skipped))
        except LineFault as fault:
            raise RefusedTable("table-nameless", number=fault.line) from None
    table = table.select([i for i, name in enumerate(names) if name is not None])
    table = table.rename_columns([name for name in names if name is not None])
    _check_schema(table.schema, table.num_columns)
    is_known = [column.is_valid() for column in table.columns]
    return table.filter(reduce(pc.or_, is_known))


def _open_quotes(body: bytes, separator: str, skipped: int) -> RefusedTable:
    """The row of CSV that has a quotation mark too many."""
    try:
        deque(rows_of(io.BytesIO(body), separator, skipped), maxlen=0)
    except LineFault as fault:
        return RefusedTable("table-quotes", number=fault.line)
    return RefusedTable("table")


def _wrong_cells(message: str, body: bytes, separator: str, skipped: int) -> RefusedTable | None:
    """Which line of CSV has another number of cells than the first, by pyarrow's message."""
    numbers = re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    if numbers is None:
        return None
    row, expected, n_cells = map(int, numbers.groups())
    rule = "table-more-cells" if n_cells > expected else "table-fewer-cells"
    lines = (line for line, cells in rows_of(io.BytesIO(body), separator, skipped) if cells)
    with suppress(LineFault):
        # pyarrow counts the lines that it skipped as rows.
        row = next(islice(lines, row - skipped - 1, None), row)
    return RefusedTable(rule, number=row)


def _within_limits(schema: pa.Schema, stored: Iterable[pa.RecordBatch], max_rows: int) -> pa.Table:
    """The table of the batches, of which no more are read than may be."""
    batches: list[pa.RecordBatch] = []
    _check_schema(schema, len(schema))
    n_rows = n_bytes = 0
    for batch in stored:
        n_rows += batch.num_rows
        _check_rows(n_rows, max_rows)
        n_bytes += batch.nbytes
        _check_bytes(n_bytes)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema)


def _open_arrow(
    buffer: pa.NativeFile, kind: str, fields: list[int] | None = None
) -> tuple[Any, Iterator[pa.RecordBatch]]:
    """The reader of Arrow bytes, which has the schema, and its batches with these `fields`.

    Raises RefusedTable for a stream without its end: rows may be missing.
    """
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    if kind.endswith("stream"):
        if not is_whole_stream(buffer):
            raise RefusedTable("table-end")
        buffer.seek(0)
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
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_read_decimal(kind)
        if not (is_number or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise RefusedTable("column-type", column=field.name)


def _check_rows(n_rows: int, max_rows: int) -> None:
    if not 0 <= n_rows <= max_rows:
        raise RefusedTable("table-rows", number=n_rows, limit=max_rows)


def _check_bytes(n_bytes: int) -> None:
    if not 0 <= n_bytes <= MAX_TABLE_BYTES:
        raise RefusedTable("table-bytes", number=n_bytes)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_read_decimal(kind: pa.DataType) -> bool:
    """Whether a type is one of the decimals that polars reads; others end its reader in panic."""
    if not pa.types.is_decimal(kind) or pa.types.is_decimal256(kind):
        return False
    return bool(kind.scale >= 0)


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


class FileCheck:
    """The check of the table of a job, before the batch engine reads it.

    Args:
        columns: Names of the columns of a panel; the others are not read.
        prefix: Start of the names of further columns of a panel.
        max_bytes: Most bytes of the table uncompressed; cells count as eight, and texts by length.
    """

    def __init__(self, columns: Iterable[str], prefix: str, max_bytes: int) -> None:
        self._columns, self._prefix, self._max_bytes = set(columns), prefix, max_bytes

    def check(self, path: Path) -> None:
        """Raise RefusedTable if the table is too large, or a text or a record of CSV too long."""
        try:
            if path.suffix == ".csv":
                self._check_csv(path)
                return
            with pa.memory_map(str(path)) as source:
                if path.suffix == ".parquet":
                    self._check_parquet(source)
                else:
                    self._check_arrow(source)
        except MemoryError:
            raise RefusedTable("table-memory") from None

    def _fields(self, schema: pa.Schema) -> tuple[list[int], list[int]]:
        """Positions of the columns of a panel, and of those with text."""
        read, texts = [], []
        for i, field in enumerate(schema):
            name = field.name
            if name.strip().lower() in self._columns or name.startswith(self._prefix):
                kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
                if is_text(kind):
                    texts.append(i)
                elif not (
                    (pa.types.is_primitive(kind) and not pa.types.is_decimal(kind))
                    or is_read_decimal(kind)
                    or pa.types.is_null(kind)
                ):
                    raise RefusedTable("column-type", column=name)
                read.append(i)
        return read, texts

    def _check_cells(self, n_cells: int) -> None:
        limit = self._max_bytes // 8
        if not 0 <= n_cells <= limit:
            raise RefusedTable("table-cells", number=n_cells, limit=limit)

    def _check_bytes(self, n_bytes: int) -> None:
        if not 0 <= n_bytes <= self._max_bytes:
            raise RefusedTable("table-bytes", number=n_bytes, limit=self._max_bytes)

    def _check_parquet(self, source: pa.MemoryMappedFile) -> None:
        file = pq.ParquetFile(source, **FOOTER_LIMITS)
        metadata, schema = file.metadata, file.schema_arrow
        read, texts = self._fields(schema)
        names = [schema.names[i] for i in texts]
        is_read = {schema.names[i] for i in read}
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        n_rows = max(metadata.num_rows, sum(group.num_rows for group in groups))
        self._check_cells(n_rows * max(_FEWEST_COLUMNS, len(read)))
        stored = [chunk for chunk in column_chunks(metadata) if chunk.path_in_schema in is_read]
        self._check_cells(sum(chunk.num_values for chunk in stored))
        self._check_bytes(sum(chunk.total_uncompressed_size for chunk in stored))
        # As dictionaries, so that a long text that many rows repeat is in memory once.
        file = pq.ParquetFile(source, read_dictionary=names, **FOOTER_LIMITS)
        _check_batches(file.iter_batches(_ROWS, columns=names, use_threads=False))

    def _check_arrow(self, source: pa.MemoryMappedFile) -> None:
        kind = _arrow_kind(source)
        reader, _ = _open_arrow(source, kind)
        read, texts = self._fields(reader.schema)
        source.seek(0)
        names = [reader.schema.names[i] for i in texts]
        # The engine reads a stream whole. Of a file without texts one column shows how many rows
        # there are.
        fields = None if kind == "stream" else texts or read[:1] or [0]
        _, batches = _open_arrow(source, kind, fields)

        def counted() -> Iterator[pa.RecordBatch]:
            n_rows = n_bytes = 0
            for batch in batches:
                n_rows += batch.num_rows
                n_bytes += batch.nbytes
                self._check_cells(n_rows * max(_FEWEST_COLUMNS, len(read)))
                self._check_bytes(n_bytes)
                if texts:
                    yield batch.select(names)

        _check_batches(counted())

    def _check_csv(self, path: Path) -> None:
        """Lines within quotes are of one record: cells may contain line ends."""
        n_rows = length = quotes = 0
        with path.open("rb") as file:
            if file.read(4).startswith(_PACKED):
                raise RefusedTable("table")
            file.seek(0)
            while piece := file.read(_PIECE):
                content = np.frombuffer(piece, np.uint8)
                is_quoted = (quotes + np.cumsum(content == ord('"'))) % 2
                ends = np.flatnonzero((content == ord("\n")) & (is_quoted == 0))
                bounds = np.concatenate([[-1 - length], ends, [len(content)]])
                if np.diff(bounds).max() > _LINE:
                    raise RefusedTable("string_too_long")
                quotes, length = int(is_quoted[-1]), len(content) - 1 - int(bounds[-2])
                n_rows += len(ends)
                self._check_cells(n_rows * _FEWEST_COLUMNS)


def _arrow_kind(source: pa.MemoryMappedFile) -> str:
    """Whether Arrow bytes are a "file", which can be read from its end, or a "stream"."""
    start = source.read(6)
    source.seek(0)
    return "file" if start == b"ARROW1" else "stream"


def _check_batches(batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            cells.validate(full=True)  # a position outside would end this process
            check_texts(cells.dictionary if pa.types.is_dictionary(cells.type) else cells, name)


def answer(head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    """The verdict as JSON, and the table as an Arrow stream if it is one that was sent."""
    try:
        if "path" in head:
            FileCheck(*head["check"]).check(Path(head["path"]))
            return {}, b""
        table = decode(body, **head)
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
    """Answer one message after the other until the service closes the connection.

    What tables leave behind in memory would in time leave too little for the next one, so the
    program then starts anew; what has been sent to it waits in the connection.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # Starts Arrow's threads. Without room for their stacks Arrow would wait for them for ever.
    decode(b"a\n", "csv", 1, ",", 0)
    limit_memory(memory_bytes)
    start = data_bytes()
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
            if data_bytes() > start + _KEPT * memory_bytes:
                limit_seconds(cpu_seconds)
                os.execv(sys.executable, [sys.executable, "-P", *sys.argv])


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
