"""Errors as part of the interface: what is wrong, where, and how to mend it, never a person's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One broken rule: the place it was broken first, how often, and the fix. Holds no cell value."""

    rule: str
    message: str
    fix: str
    column: str | None = None
    person_id: str | None = None
    year: int | None = None
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The problem without empty entries, for JSON."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def __str__(self) -> str:
        place = ", ".join(
            f"{name} {value}"
            for name, value in (
                ("person", self.person_id),
                ("year", self.year),
                ("column", self.column),
            )
            if value is not None
        )
        where = f" ({'first at ' if self.count > 1 else 'at '}{place})" if place else ""
        times = f" [{self.count} times]" if self.count > 1 else ""
        return f"{self.message}{where}{times}. {self.fix}" + (
            "" if self.fix.endswith((".", "?", "!")) else "."
        )


class SagaError(Exception):
    """Base of all errors that SAGA raises on purpose. `problems` says what, where and how to mend it."""

    exit_code = 2
    title = "SAGA could not do this"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [super().__str__(), *(f"  - {p}" for p in self.problems)]
        return "\n".join(lines)


class InputError(SagaError):
    """The panel, or a request, breaks the input contract (exit code 2, HTTP 422)."""

    title = "The input breaks the panel contract"


class UsageError(SagaError):
    """An option or argument is out of its range (exit code 2, HTTP 422)."""

    title = "An argument is out of range"


class BundleError(SagaError):
    """A bundle is missing a file, was changed, or was written by an incompatible version (exit code 2)."""

    title = "The bundle cannot be trusted"


class BudgetError(SagaError):
    """The work asked for exceeds what one synchronous call may cost (HTTP 413)."""

    title = "Too much work for one call"
