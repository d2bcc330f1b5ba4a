"""Reading of tables of unknown origin, whose content is decoded in `saga.api.table_process`."""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import polars as pl
from saga.api import table_process
from saga.api.refusals import refused
from saga.api.table_process import (
    CPU_SECONDS,
    MAX_COLUMNS,
    MAX_TABLE_BYTES,
    MAX_TEXT,
    MEMORY_BYTES,
)

from saga.data.csv_text import find_separator
from saga.schema import BY_NAME, EXTRA_PREFIX

_CSV_KIND = "CSV in UTF-8, with a header and as many cells in each row"
_SAMPLE = 2**16  # bytes of a CSV body that show its separator
_BUSY = 12  # on a busy machine the process waits for its CPU seconds this many times as long
# Arrow's own allocator reserves a gigabyte in advance, which the limit would count. The C library's
# gives what is freed back to the system, unless it raises its threshold for that.
_ALLOCATION = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**17),
    "MALLOC_TRIM_THRESHOLD_": str(2**17),
}
_FILE_LIMITS = (2**30, 600)  # bytes and CPU seconds for the check of a job's table


class TableReader:
    """Reads one table at a time in a process, which is started again if it fails.

    Args:
        memory_bytes: Memory for a table.
        cpu_seconds: CPU seconds for a table.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, cpu_seconds: int = CPU_SECONDS) -> None:
        self._memory_bytes, self._cpu_seconds = memory_bytes, cpu_seconds
        self._lock = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    def start(self) -> None:
        """Start the process, so that the first table does not wait for it."""
        with self._lock:
            self._process()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def read(self, body: bytes, kind: str, max_rows: int) -> pl.DataFrame:
        """The table of a body of media type `kind`.

        Raises:
            ProblemError: Status 422 if the bytes are no table; 413 if the uncompressed table is too
                large or takes too long to decode.
            InputError: It has too many columns, a column twice or of another type, or a long text.
            BudgetError: It has more than `max_rows` rows.
        """
        is_csv = kind.endswith("csv")
        head = body[:_SAMPLE].decode("utf-8-sig", errors="replace") if is_csv else ""
        separator, skipped = find_separator(head)
        limits = {"kind": kind, "max_rows": max_rows, "separator": separator, "skipped": skipped}
        verdict, content = self._ask(limits, body)
        if "refused" in verdict:
            raise refusal(verdict, _CSV_KIND if is_csv else kind)
        return pl.read_ipc_stream(io.BytesIO(content))

    def _ask(self, head: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """The head and body that the process answers; it is ended if it takes too long."""
        with self._lock:
            process, connection = self._process()
            try:
                connection.send_bytes(json.dumps(head).encode())
                connection.send_bytes(body)
                if not connection.poll(_BUSY * self._cpu_seconds):
                    process.kill()
                return json.loads(connection.recv_bytes()), connection.recv_bytes()
            except (OSError, EOFError):
                was_slow = process.wait() in (-signal.SIGXCPU, -signal.SIGKILL)
                return {"refused": "table-time" if was_slow else "table-memory"}, b""

    def _process(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """The process and the connection to it; it is started if it does not run."""
        if self._running is None or self._running[0].poll() is not None:
            self._end()
            connection, other = Pipe()
            limits = (other.fileno(), self._memory_bytes, self._cpu_seconds)
            # Its messages are dropped, because the log has one JSON object per line.
            process = subprocess.Popen(
                [sys.executable, "-P", table_process.__file__, *map(str, limits)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={**os.environ, **_ALLOCATION},
            )
            other.close()
            self._running = process, connection
        return self._running

    def _end(self) -> None:
        if self._running is not None:
            process, connection = self._running
            self._running = None
            connection.close()
            process.kill()
            process.wait()


def check_file(path: Path, max_bytes: int) -> None:
    """Raise InputError if the batch engine should not read the table of a job.

    See `saga.api.table_process.FileCheck`; `max_bytes` may be needed uncompressed.
    """
    reader = TableReader(*_FILE_LIMITS)
    try:
        check = [list(BY_NAME), EXTRA_PREFIX, max_bytes]
        verdict, _ = reader._ask({"path": str(path), "check": check})
    finally:
        reader.close()
    memory, seconds = _FILE_LIMITS[0] // 2**30, _FILE_LIMITS[1]
    if (name := _OF_FILES.get(verdict.get("refused", ""))) is not None:
        raise refused(name, {**verdict, "memory": memory, "seconds": seconds})
    if verdict:
        raise refusal(verdict, path.suffix)


# The refusals of a job's table, of which more is read than of that of a call.
_OF_FILES = {
    "table": "unreadable-file",
    **{f"table-{rule}": f"file-{rule}" for rule in ("bytes", "cells", "memory", "time")},
}
_LIMITS = {
    "table-columns": MAX_COLUMNS,
    "table-bytes": MAX_TABLE_BYTES // 2**20,
    "table-memory": MAX_TABLE_BYTES // 2**20,
    "table-time": CPU_SECONDS,
    "string_too_long": MAX_TEXT,
}


def refusal(verdict: dict[str, Any], kind: str) -> Exception:
    """The error that says why a table of media type `kind` is refused.

    `verdict` is that of `saga.api.table_process.RefusedTable`.
    """
    rule = verdict["refused"]
    limit = _LIMITS.get(rule, verdict.get("limit"))
    return refused(rule, {**verdict, "limit": limit, "kind": kind}, verdict.get("column"))


READER = TableReader()
atexit.register(READER.close)
