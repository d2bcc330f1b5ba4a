"""Reading of Parquet and Arrow bodies, whose content is decoded in `saga.api.table_process`."""

from __future__ import annotations

import atexit
import io
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import polars as pl
from saga.api import table_process
from saga.api.problems import ProblemError
from saga.api.table_process import CPU_SECONDS, MAX_COLUMNS, MAX_TABLE_BYTES, MAX_TEXT

from saga.errors import BudgetError, InputError, Problem

_SECONDS = 60.0  # the process limits its own CPU seconds; on a busy machine it may wait for them


class TableReader:
    """Decodes one table at a time in a process, which is started again if it fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, so that the first table does not wait for it."""
        with self._lock:
            self._running()

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
        with self._lock:
            head, content = self._ask(body, {"kind": kind, "max_rows": max_rows})
        if refused := head.get("refused"):
            raise refusal(refused, kind, max_rows, head.get("column"), head.get("number"))
        return pl.read_ipc_stream(io.BytesIO(content))

    def _ask(self, body: bytes, head: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The head and body that the process answers; it is ended if decoding takes too long."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(_SECONDS, process.kill)
        timer.start()
        try:
            table_process.send(process.stdin, head, body)
            return table_process.receive(process.stdout)
        except (OSError, EOFError):
            was_slow = process.wait() in (-signal.SIGXCPU, -signal.SIGKILL)
            self._end()
            return {"refused": "table-time" if was_slow else "table-memory"}, b""
        finally:
            timer.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, which is started if it does not run."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            # Its messages are dropped, because the log has one JSON object per line.
            self._process = subprocess.Popen(
                [sys.executable, "-P", table_process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Arrow's own allocator reserves a gigabyte in advance, which the limit would count.
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:  # bytes that were not sent
                pass


def refusal(
    rule: str, kind: str, max_rows: int, column: str | None, number: int | None
) -> Exception:
    """The error that says why a table is refused.

    Args:
        rule: The rule of `saga.api.table_process.RefusedTable` that the table breaks.
        kind: Media type of the table.
        max_rows: Most rows of a table.
        column: The column that breaks the rule.
        number: The number that breaks the rule.
    """
    too_large = "The table is too large for one call"
    match rule:
        case "table-rows":
            fix = f"Send at most {max_rows} rows per call; `saga score` does any number in batch"
            return BudgetError(too_large, [Problem(rule, f"The table has {number} rows", fix)])
        case "table-columns":
            message = f"The table has {number} columns, {MAX_COLUMNS} are allowed"
            fix = "GET /v1/variables lists the columns"
            return InputError("The table has too many columns", [Problem(rule, message, fix)])
        case "table-bytes" | "table-memory":
            message = f"A table may have {MAX_TABLE_BYTES // 2**20} MiB uncompressed"
            fix = "Send fewer persons and only columns of a panel; `saga score` reads large tables"
            return ProblemError(413, "table-size", too_large, [Problem(rule, message, fix)])
        case "table-time":
            fix = "Send fewer persons, without compression or as another format"
            problem = Problem(rule, f"It takes more than {CPU_SECONDS} seconds to decode", fix)
            return ProblemError(413, "table-size", too_large, [problem])
        case "text-length":
            fix = f"Give at most {MAX_TEXT} characters"
            problem = Problem("string_too_long", "A text is too long", fix, column)
            return InputError("A text is too long", [problem])
        case "column-type":
            problem = Problem(
                rule, "Cells of this type are not read", "Send numbers or text", column
            )
            return InputError("A column has another type", [problem])
        case "column-twice":
            problem = Problem(rule, "The column appears twice", "Send it once", column)
            return InputError("A column appears twice", [problem])
    problem = Problem(
        "table", "The bytes are not a table of this type", f"Send a file that is {kind}"
    )
    return ProblemError(422, "table", "The request body cannot be read", [problem])


READER = TableReader()
atexit.register(READER.close)
