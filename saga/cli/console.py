"""Results, notes, progress and errors of commands.

Results go to standard output, with `--json` as one JSON object; progress, notes and errors go to
standard error. A log file gets a line of progress a minute in place of a bar.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from saga.cli.time_left import TimeLeft
from saga.errors import SagaError, UsageError

if TYPE_CHECKING:
    import polars as pl

INTERRUPTED, INTERNAL = 3, 70
_OWN_PACKAGES = ("saga", "api", "calibration", "evaluation", "training", "studies")
_EVIDENCE = ("saga.evaluation", "saga.register.oracle")  # of another distribution
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and ends of lines
_LINE_SECONDS = 60.0  # between lines of a log file
EXTRAS = {
    "train": (
        "pytorch_lightning",
        "mapie",
        "sklearn",
        "tensorboard",
        "alembic",
        "cryptography",
        "sqlalchemy",
    ),
    "serve": (
        "fastapi",
        "fastapi_offline",
        "uvicorn",
        "pydantic_settings",
        "prometheus_client",
        "asgi_correlation_id",
        "h11",
        "jiter",
        "psycopg",
        "structlog",
    ),
    "serve,jobs": ("dbos",),
    "trees": ("lightgbm",),
    "brief": ("docx",),
}
_FILE_ERRORS = (
    errno.ENOENT,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.ENOSPC,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
)


class _LastingErrors(io.TextIOWrapper):
    """Standard error that drops what a full disk, a lost terminal or a closed pipe does not take.

    The work of hours must not end because its log cannot be written.
    """

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def protect_streams() -> None:
    """Let no failure of standard error end a command, and open what is closed of the three streams.

    Otherwise the next file would get the number of a closed stream, and with it the messages that
    native code writes there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), mode)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    sys.stderr = _LastingErrors(
        sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", line_buffering=True
    )


def _harmless(text: str) -> str:
    """The text as Rich prints it letter by letter.

    A name of a foreign bundle or file must not steer the terminal.
    """
    return escape(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text))


def note(text: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(_harmless(text))


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output, for results. Raises UsageError if it takes no more, as on a full disk."""
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(
            f"Standard output cannot be written: {error.strerror}. Files that the command wrote "
            "are complete."
        ) from None


def result(text: str, value: Mapping[str, object], *, as_json: bool) -> None:
    """Print the result of a command: `value` as one JSON object, or `text`."""
    with standard_output() as output:
        if as_json:
            output.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
        else:
            Console(highlight=False, soft_wrap=True).print(_harmless(text))


def table(
    frame: pl.DataFrame,
    title: str,
    headings: Mapping[str, str] | None = None,
    amount: Callable[[float], str] | None = None,
) -> None:
    """Print a small frame as a table on standard output.

    `headings` are names for people, `amount` is how a number with decimals is written.
    """
    from saga.forecast_results import has_sets, show_value
    from saga.pages.format import figure

    shown = Table(title=title, box=SIMPLE, pad_edge=False)
    for name, dtype in frame.schema.items():
        heading = name.replace("_", " ") if headings is None else headings[name]
        shown.add_column(heading, justify="right" if dtype.is_numeric() else "left")
    of_set = has_sets(frame.columns)
    for row in frame.iter_rows(named=True):
        cells = (show_value(*c, of_set=of_set, amount=amount or figure) for c in row.items())
        shown.add_row(*map(_harmless, cells))
    with standard_output():
        Console().print(shown)


class Advance(Protocol):
    """Moves a progress bar to `done` of `total`; `step` names the present step, if it changes."""

    def __call__(self, done: int, total: int, step: str = "") -> None:
        """Move the bar."""
        ...


def is_watched(*, quiet: bool) -> bool:
    """Whether progress is shown: standard error is a terminal, and `quiet` is False."""
    return not quiet and Console(stderr=True).is_terminal


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance | None]:
    """The function that reports progress, or None if `quiet`.

    A terminal shows a bar; a log file gets a line a minute.
    """
    if quiet:
        yield None
        return
    watched = is_watched(quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(
        *columns,
        console=Console(stderr=True),
        get_time=time.monotonic,
        transient=True,
        disable=not watched,
    ) as bar:
        bar.add_task(what, total=None, left=TimeLeft())
        (task,) = bar.tasks
        printed = time.monotonic()

        def advance(done: int, total: int, step: str = "") -> None:
            nonlocal printed
            if step and step != task.description:  # steps differ in speed
                bar.reset(task.id, description=step, left=TimeLeft())
            bar.update(task.id, completed=done, total=total)
            task.fields["left"].report(done, total)
            if not watched and time.monotonic() - printed >= _LINE_SECONDS:
                printed = time.monotonic()
                left = str(task.fields["left"])
                note(f"{task.description}: {done:,} of {total:,}{left and ', '}{left}")

        yield advance


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an error on standard error and return its exit code.

    The codes are 2 for wrong use or bad input, 3 for an interruption, 70 for an internal error.
    """
    if isinstance(error, KeyboardInterrupt):
        _print_error(
            "Interrupted",
            "Stopped before the end. To continue, give the same command again (score, evaluate, "
            "vintages, audit, circumstances; train with --resume). Other commands start from the "
            "beginning.",
            INTERRUPTED,
            as_json=as_json,
        )
        return INTERRUPTED
    saga_error = _as_saga_error(error)
    if saga_error is not None:
        _print_error(
            saga_error.title,
            str(saga_error),
            saga_error.exit_code,
            as_json=as_json,
            problems=[problem.as_dict() for problem in saga_error.problems],
        )
    elif usage := getattr(error, "format_message", None):  # an error of the command-line parser
        _print_error("Wrong use", usage(), 2, as_json=as_json)
        return 2
    else:
        _print_error("Internal error", _internal(error, debug=debug), INTERNAL, as_json=as_json)
    if debug:
        sys.stderr.write("".join(traceback.format_exception(error)))
    return INTERNAL if saga_error is None else saga_error.exit_code


def _as_saga_error(error: BaseException) -> SagaError | None:
    """The error with a message for users, if it is a missing package or file, or a full disk."""
    if isinstance(error, SagaError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        for extra, modules in EXTRAS.items():
            if package in modules:
                return UsageError(
                    f"This command needs {error.name}, which is not installed. Run: "
                    f"pip install 'saga-forecast[{extra}]'"
                )
        if error.name.startswith(_EVIDENCE):
            return UsageError(
                "This command needs the evidence, which is not installed. Run: "
                "pip install 'saga-forecast[evidence]'"
            )
        if package not in _OWN_PACKAGES:
            return UsageError(
                f"The package {package} is missing, which comes with SAGA. Run: "
                "pip install --force-reinstall saga-forecast"
            )
    if isinstance(error, OSError) and error.errno in _FILE_ERRORS and error.filename is not None:
        return UsageError(
            f"{error.filename}: {error.strerror}. Check the path, its permissions and the free "
            "space."
        )
    by_library = f"os error {errno.ENOSPC}" in str(error)
    if by_library or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return UsageError("The disk is full. Free some space, or name another folder.")
    return None


def _internal(error: BaseException, *, debug: bool) -> str:
    """Type and place of an unforeseen error; its message might repeat values of the data."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if debug:
        return f"{type(error).__name__}{location}. This is a defect of SAGA; please report it."
    with tempfile.NamedTemporaryFile(
        "w", prefix="saga-traceback-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.writelines(traceback.format_exception(error))
    return (
        f"{type(error).__name__}{location}. This is a defect of SAGA; please report it. The "
        f"traceback is in {file.name} (read it before you pass it on: it may hold values of your "
        "data), or run `saga --debug ...`."
    )


def _print_error(
    title: str,
    message: str,
    code: int,
    *,
    as_json: bool,
    problems: Sequence[Mapping[str, object]] = (),
) -> None:
    if as_json:
        head = message.split("\n", 1)[0]
        sys.stderr.write(
            json.dumps(
                {"title": title, "message": head, "exit_code": code, "problems": list(problems)},
                ensure_ascii=False,
            )
            + "\n"
        )
    else:
        word = title if code in (INTERRUPTED, INTERNAL) else "Error"
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[bold red]{word}[/]: {_harmless(message)}"
        )
