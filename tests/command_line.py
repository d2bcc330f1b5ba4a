"""The command line, run in this process."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from typer.testing import CliRunner, Result

from saga.cli import app


def _words(parts: Iterable[object]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield from shlex.split(part)
        elif isinstance(part, list | tuple):
            yield from map(str, part)
        else:
            yield str(part)


def run(*parts: object, content: bytes | None = None) -> Result:
    """What `saga` does with a line in parts: texts of words, lists of words, paths, numbers.

    Standard input is `content`.
    """
    return CliRunner().invoke(app, list(_words(parts)), input=content)


def done(*parts: object) -> Result:
    """A command that has to succeed."""
    result = run(*parts)
    assert result.exit_code == 0, result.output
    return result


def answer(*parts: object) -> Any:
    """The JSON of a command that has to succeed."""
    return json.loads(done(*parts, "--json").stdout)


def error_text(result: Result) -> str:
    """Standard error in one line, without the frames around it."""
    return re.sub(r"[\s│]+", " ", result.stderr)


def refusal(*parts: object) -> str:
    """The error of a command that has to end with exit code 2."""
    result = run(*parts)
    assert result.exit_code == 2, result.output
    return error_text(result)
