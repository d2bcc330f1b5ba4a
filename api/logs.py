"""Structured logs: one JSON line per event, without values of requests."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger


class _PatientStream:
    """A stream that never fails: what is logged goes on with a full disk or a closed pipe.

    The first line that can be written again says how many could not be. The stream is None if the
    process was started without it.
    """

    def __init__(self, stream: TextIO | None, note_lost: Callable[[], None]) -> None:
        self._stream, self._note_lost, self._lost = stream, note_lost, 0

    def write(self, line: str) -> None:
        if self._lost:
            line = (
                f'{{"event": "log_lines_lost", "level": "warning", "lines": {self._lost}}}\n{line}'
            )
        try:
            if self._stream is None:
                raise OSError("no stream")
            self._stream.write(line)
            self._stream.flush()
            self._lost = 0
        except (OSError, ValueError):  # a closed stream raises ValueError
            self._lost += 1
            self._note_lost()

    def flush(self) -> None:
        """Do nothing: `write` does."""


def make_logger(
    stream: TextIO | None, note_lost: Callable[[], None] = lambda: None
) -> FilteringBoundLogger:
    """A logger of JSON lines with time, log level, and the call, holder and key of its context.

    It never raises an error of the stream; `note_lost` is called for each line that is lost.
    """
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(cast(TextIO, _PatientStream(stream, note_lost))),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.contextvars.merge_contextvars,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
    ).bind()  # otherwise every line of the log would make a logger
    return logger


def error_location(error: BaseException) -> dict[str, str | list[str]]:
    """The class of an unexpected error and the last lines of its traceback, for the log.

    The message is left out, because a library's message can contain the value that caused it.
    """
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return {
        "error": type(error).__name__,
        "at": [f"{frame.name}:{frame.lineno}" for frame in frames],
    }


class LogBridge(logging.Handler):
    """Lines of the server and of other libraries as events of the service's log.

    They name the logger and the place of an error, and leave out the message, which can contain
    parts of a request. A line that repeats within ten seconds is counted instead of written.
    """

    _SECONDS = 10.0

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._last: dict[tuple[str, str], float] = {}
        self._skipped: dict[tuple[str, str], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless it was written lately."""
        key, now = (record.name, f"{record.pathname}:{record.lineno}"), time.monotonic()
        if now - self._last.get(key, -self._SECONDS) < self._SECONDS:
            self._skipped[key] = self._skipped.get(key, 0) + 1
            return
        self._last[key] = now
        error = record.exc_info[1] if record.exc_info else None
        self._log.warning(
            "server",
            source=record.name,
            line=f"{record.module}:{record.lineno}",
            skipped=self._skipped.pop(key, 0),
            **(error_location(error) if error is not None else {}),
        )


def bridge_logs(log: FilteringBoundLogger, *libraries: str) -> None:
    """Let the loggers of `libraries`, of asyncio and of warnings write to the service's log."""
    logging.captureWarnings(True)
    for name in (*libraries, "asyncio", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [LogBridge(log)], False
