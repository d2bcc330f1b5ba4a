"""What a person at a terminal, or a program reading it, gets to see.

Results go to standard output, as one JSON object where `--json` asks for it; progress, notes and errors go to standard error. A pipe or a
log file gets no progress bars.
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
from typing import TYPE_CHECKING, Any, Protocol

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

if TYPE_CHECKING:
    import polars as pl

INTERRUPTED, INTERNAL = 3, 70
_EXTRAS = {
    "train": ("pytorch_lightning", "mapie", "sklearn", "tensorboard", "lightgbm", "training"),
    "serve": ("fastapi", "uvicorn", "pydantic", "pydantic_settings", "prometheus_client", "api"),
}
_FILE_TROUBLE = (
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
    """A line for the person, beside the results."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(escape(text))


def result(text: str, value: Mapping[str, Any], *, as_json: bool) -> None:
    """The outcome of a command: `value` as one JSON object, or `text` for a person."""
    if as_json:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    else:
        Console(highlight=False, soft_wrap=True).print(escape(text))


def table(frame: pl.DataFrame, title: str) -> None:
    """A small frame as a table on standard output."""
    shown = Table(title=title, box=SIMPLE, pad_edge=False)
    for name, dtype in frame.schema.items():
        shown.add_column(name.replace("_", " "), justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        shown.add_row(*(_cell(value) for value in row))
    Console().print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return str(value)


class Advance(Protocol):
    """Moves a bar to `done` of `total`; `step` names what is going on, if it changes on the way."""

    def __call__(self, done: int, total: int, step: str = "") -> None: ...


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance | None]:
    """Yields the function that moves a bar, or None where nobody watches."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int, step: str = "") -> None:
            bar.update(task, completed=done, total=total, description=step or what)

        yield advance


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Tell on standard error what went wrong, and return the exit code: 2 wrong use or bad input, 3 interrupted, 70 internal."""
    if isinstance(error, KeyboardInterrupt):
        _say(
            "Interrupted",
            "Stopped before the end. Training goes on with --resume; score, evaluate, circumstances by the same command. Else begin anew.",
            INTERRUPTED,
            as_json=as_json,
        )
        return INTERRUPTED
    known = _as_known(error)
    if known is not None:
        _say(
            known.title,
            str(known),
            known.exit_code,
            as_json=as_json,
            problems=[problem.as_dict() for problem in known.problems],
        )
    elif (
        usage := getattr(error, "format_message", None)
    ) is not None:  # what the parser of the command line raises
        _say("Wrong use", usage(), 2, as_json=as_json)
        return 2
    else:
        _say("Internal error", _internal(error, debug=debug), INTERNAL, as_json=as_json)
    if debug:
        sys.stderr.write("".join(traceback.format_exception(error)))
    return INTERNAL if known is None else known.exit_code


def _as_known(error: BaseException) -> SagaError | None:
    if isinstance(error, SagaError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        for extra, modules in _EXTRAS.items():
            if error.name.partition(".")[0] in modules:
                return UsageError(
                    f"This command needs {error.name}, which is not installed. Run: pip install 'saga-forecast[{extra}]'"
                )
    if isinstance(error, OSError) and error.errno in _FILE_TROUBLE and error.filename is not None:
        return UsageError(
            f"{error.filename}: {error.strerror}. Check the path, its permissions and the free space."
        )
    return None


def _internal(error: BaseException, *, debug: bool) -> str:
    """The type and place of an unforeseen error, not its message: that may repeat values of the data."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if debug:
        return f"{type(error).__name__}{place}. This is a defect of SAGA; please report it."
    with tempfile.NamedTemporaryFile(
        "w", prefix="saga-traceback-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.writelines(traceback.format_exception(error))
    return (
        f"{type(error).__name__}{place}. This is a defect of SAGA; please report it. The traceback is in {file.name} "
        "(read it before you pass it on: it may hold values of your data), or run `saga --debug ...`."
    )


def _say(
    title: str,
    message: str,
    code: int,
    *,
    as_json: bool,
    problems: Sequence[Mapping[str, Any]] = (),
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
