"""Results, notes, progress and errors of commands.

Results go to standard output, with `--json` as one JSON object; progress, notes and errors go to
standard error. A pipe or a log file gets no progress bars.
"""

from __future__ import annotations

import errno
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from saga.errors import SagaError, UsageError
from saga.summaries import show_value

if TYPE_CHECKING:
    import polars as pl

INTERRUPTED, INTERNAL = 3, 70
_EXTRAS = {
    "train": ("pytorch_lightning", "mapie", "sklearn", "tensorboard", "lightgbm", "training"),
    "serve": ("fastapi", "uvicorn", "pydantic", "pydantic_settings", "prometheus_client", "api"),
}
_FILE_ERRORS = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ENOSPC,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
)


def note(text: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(escape(text))


def result(text: str, value: Mapping[str, object], *, as_json: bool) -> None:
    """Print the result of a command: `value` as one JSON object, or `text`."""
    if as_json:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    else:
        Console(highlight=False, soft_wrap=True).print(escape(text))


def table(frame: pl.DataFrame, title: str) -> None:
    """Print a small frame as a table on standard output."""
    shown = Table(title=title, box=SIMPLE, pad_edge=False)
    for name, dtype in frame.schema.items():
        shown.add_column(name.replace("_", " "), justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        shown.add_row(*(escape(show_value(*cell)) for cell in zip(frame.columns, row, strict=True)))
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
    """The function that moves a progress bar, or None if no terminal shows it."""
    if not is_watched(quiet=quiet):
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int, step: str = "") -> None:
            bar.update(task, completed=done, total=total, description=step or what)

        yield advance


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an error on standard error and return its exit code.

    The codes are 2 for wrong use or bad input, 3 for an interruption, 70 for an internal error.
    """
    if isinstance(error, KeyboardInterrupt):
        _print_error(
            "Interrupted",
            "Stopped before the end. To continue, give the same command again (score, evaluate, "
            "circumstances; train with --resume). Other commands start from the beginning.",
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
    if isinstance(error, SagaError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        for extra, modules in _EXTRAS.items():
            if error.name.partition(".")[0] in modules:
                return UsageError(
                    f"This command needs {error.name}, which is not installed. Run: "
                    f"pip install 'saga-forecast[{extra}]'"
                )
    if isinstance(error, OSError) and error.errno in _FILE_ERRORS and error.filename is not None:
        return UsageError(
            f"{error.filename}: {error.strerror}. Check the path, its permissions and the free "
            "space."
        )
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
            f"[bold red]{word}[/]: {escape(message)}"
        )
