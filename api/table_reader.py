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
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import polars as pl
from saga.api import table_process
from saga.api.problems import ProblemError
from saga.api.table_process import (
    CPU_SECONDS,
    MAX_COLUMNS,
    MAX_TABLE_BYTES,
    MAX_TEXT,
    MEMORY_BYTES,
)

from saga.errors import BudgetError, InputError, Problem
from saga.schema import BY_NAME, EXTRA_PREFIX

_BUSY = 12  # on a busy machine the process waits for its CPU seconds this many times as long
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
        verdict, content = self._ask({"kind": kind, "max_rows": max_rows}, body)
        if "refused" in verdict:
            raise refusal(verdict, kind)
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
                # Arrow's own allocator reserves a gigabyte in advance, which the limit would count.
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
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
    match verdict.get("refused"):
        case None:
            return
        case "table":
            why, fix = "The file is damaged or not what its type says", "Export the data again"
            problem = Problem("unreadable-file", why, fix)
            raise InputError("The table cannot be read", [problem])
        case "table-bytes" | "table-cells" as rule:
            unit = rule.removeprefix("table-")
            message = f"It has {verdict['number']:,} {unit} uncompressed in columns of a panel"
            fix = f"{verdict['limit']:,} are allowed; divide the persons into several jobs"
            raise InputError("The table is too large for one job", [Problem(rule, message, fix)])
        case "table-memory" | "table-time" as rule:
            limits = f"{_FILE_LIMITS[0] // 2**30} GiB and {_FILE_LIMITS[1]} CPU seconds"
            problem = Problem(rule, f"The check needs more than {limits}", "Divide the table")
            raise InputError("The table cannot be checked", [problem])
        case _:
            raise refusal(verdict, path.suffix)


_TOO_LARGE = "The table is too large for one call"
_Refuse = Callable[[str, list[Problem]], Exception]
# By rule: the kind of error, its title, the message and the fix.
_REFUSALS: dict[str, tuple[_Refuse, str, str, str]] = {
    "table-rows": (
        BudgetError,
        _TOO_LARGE,
        "The table has {number} rows",
        "Send at most {limit} rows per call; `saga score` does any number in batch",
    ),
    "table-columns": (
        InputError,
        "The table has too many columns",
        f"The table has {{number}} columns, {MAX_COLUMNS} are allowed",
        "GET /v1/variables lists the columns",
    ),
    "table-bytes": (
        partial(ProblemError, 413, "table-size"),
        _TOO_LARGE,
        f"A table may have {MAX_TABLE_BYTES // 2**20} MiB uncompressed",
        "Send fewer persons and only columns of a panel; `saga score` reads large tables",
    ),
    "table-time": (
        partial(ProblemError, 413, "table-size"),
        _TOO_LARGE,
        f"It takes more than {CPU_SECONDS} seconds to decode",
        "Send fewer persons, without compression or as another format",
    ),
    "string_too_long": (
        InputError,
        "A text is too long",
        "A text is too long",
        f"Give at most {MAX_TEXT} characters",
    ),
    "column-type": (
        InputError,
        "A column has another type",
        "Cells of this type are not read",
        "Send numbers or text",
    ),
    "column-twice": (
        InputError,
        "A column appears twice",
        "The column appears twice",
        "Send it once",
    ),
    "table": (
        partial(ProblemError, 422, "table"),
        "The request body cannot be read",
        "The bytes are not a table of this type",
        "Send a file that is {kind}",
    ),
}


def refusal(verdict: dict[str, Any], kind: str) -> Exception:
    """The error that says why a table of media type `kind` is refused.

    `verdict` is that of `saga.api.table_process.RefusedTable`.
    """
    rule = "table-bytes" if verdict["refused"] == "table-memory" else verdict["refused"]
    make, title, message, fix = _REFUSALS[rule]
    numbers = {**verdict, "kind": kind}
    problem = Problem(
        verdict["refused"],
        message.format_map(numbers),
        fix.format_map(numbers),
        verdict.get("column"),
    )
    return make(title, [problem])


READER = TableReader()
atexit.register(READER.close)
