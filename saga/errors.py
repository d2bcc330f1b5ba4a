"""Errors: what is wrong, where, and how to fix it, never a person's values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Self


@dataclass(frozen=True)
class Problem:
    """One broken rule: where it occurs first, how often, and the fix; no value of a person."""

    rule: str
    message: str
    fix: str
    column: str | None = None
    person_id: str | None = None
    year: int | None = None
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The problem without empty entries, for JSON."""
        entries = {field.name: getattr(self, field.name) for field in fields(Problem)}
        return {k: v for k, v in entries.items() if v is not None}

    @property
    def advice(self) -> str:
        """The fix, as a person who reads files is told it."""
        return self.fix

    def __str__(self) -> str:
        parts = {"person": self.person_id, "year": self.year, "column": self.column}
        location = ", ".join(
            f"{name} {value}" for name, value in parts.items() if value is not None
        )
        first = "first at " if self.count > 1 else "at "
        where = f" ({first}{location})" if location else ""
        times = f" [{self.count} times]" if self.count > 1 else ""
        end = "" if self.advice.endswith((".", "?", "!")) else "."
        return f"{self.message}{where}{times}. {self.advice}{end}"


@dataclass(frozen=True)
class FileProblem(Problem):
    """A problem with more advice about files and mappings, which callers over HTTP do not have."""

    file_fix: str = ""

    @property
    def advice(self) -> str:
        """The fix for all, and that for files."""
        return f"{self.fix} {self.file_fix}".strip()


class SagaError(Exception):
    """Base of the errors that SAGA raises on purpose; `problems` says what is wrong."""

    exit_code = 2
    title = "SAGA could not do this"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    @classmethod
    def of(
        cls,
        message: str,
        rule: str,
        why: str,
        fix: str,
        *,
        column: str | None = None,
        person_id: str | None = None,
        year: int | None = None,
        count: int = 1,
    ) -> Self:
        """The error of one problem; the arguments after `message` are those of `Problem`."""
        return cls(message, [Problem(rule, why, fix, column, person_id, year, count)])

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {p}" for p in self.problems)])


class InputError(SagaError):
    """The panel or a request breaks the rules for input (exit code 2, HTTP 422)."""

    title = "The input is not valid"


class UsageError(SagaError):
    """An option, argument or file that the user names cannot be used (exit code 2, HTTP 422)."""

    title = "An argument is out of range"


def check_type(name: str, value: object, kind: type, example: str) -> None:
    """Raise UsageError if the argument `name` is not of its kind, as the example is."""
    if not isinstance(value, kind):
        raise UsageError(
            f"{name} is of type {kind.__name__}, such as {example}, not {type(value).__name__}."
        )


class BundleError(SagaError):
    """A bundle lacks a file, was changed, or has an incompatible version (exit code 2)."""

    title = "The bundle cannot be trusted"


class BudgetError(SagaError):
    """The requested work exceeds what one synchronous call may cost (HTTP 413)."""

    title = "Too much work for one call"


def with_nearest(fix: str, name: object, names: Iterable[str]) -> str:
    """The fix for an unknown name, with the one of `names` that it may be misspelt from."""
    by_lower = {known.lower(): known for known in names}
    near = get_close_matches(str(name).strip().lower(), by_lower, n=1)
    return f"{fix} Is it {by_lower[near[0]]}?" if near else fix
