"""Warnings that belong to a result: their codes, and how those of many persons are put together.

A warning never repeats a person's value, because messages go to logs. To add a code, list it here
and in `docs/service.md`; what a request is warned about is found in `saga.request_warnings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel

MAX_PERSONS = 20  # of one message; beyond that the warning has their number instead
SIMULATED = "The bundle was trained on simulated people, not on records of real persons."
WarningCode = Literal[
    "beyond-age",
    "outside-ages",
    "unlike-training",
    "unit",
    "own-column",
    "made-unknown",
    "unmatched",
    "no-effect",
    "unobserved-past",
    "simulated-people",
    "ledger-unavailable",
    "nothing-recorded",
    "early-origin",
    "late-origin",
    "beyond-span",
    "seen-years",
    "mixed-origins",
    "all-suppressed",
    "macro-ends",
    "unpublished-prices",
    "unpublished-tax",
    "implausible-scenario",
]


@dataclass(frozen=True)
class ForecastWarning:
    """One warning: about a person, `count` persons, cells or rows, or the whole result."""

    code: WarningCode
    message: str
    person_id: str | None = None
    count: int | None = None
    column: str | None = None
    option: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The warning without empty entries, for JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def __str__(self) -> str:
        counted = {"made-unknown": "cell", "outside-ages": "row"}.get(self.code, "person")
        number = f" ({self.count:,} {counted}{'s' * (self.count != 1)})" if self.count else ""
        return self.message + (f" (person {self.person_id})" if self.person_id else number)


def merge_warnings(
    warnings: Iterable[ForecastWarning], max_persons: int = MAX_PERSONS
) -> tuple[ForecastWarning, ...]:
    """Warnings with one message together; above `max_persons` persons, their number is given."""
    by_kind: dict[tuple[str | None, ...], list[ForecastWarning]] = {}
    for w in warnings:
        by_kind.setdefault((w.code, w.message, w.column, w.option), []).append(w)
    merged: list[ForecastWarning] = []
    for same in by_kind.values():
        kind = same[0]
        counts = [w.count or 1 for w in same if w.person_id is not None or w.count is not None]
        named = all(w.person_id is not None for w in same)
        if not counts:
            merged.append(kind)
        elif named and len(same) <= max_persons:
            merged += same
        else:
            merged.append(replace(kind, person_id=None, count=sum(counts)))
    return tuple(merged)


def warning_dicts(
    warnings: Iterable[ForecastWarning], max_persons: int = MAX_PERSONS
) -> list[dict[str, Any]]:
    """Merged warnings as plain values, for JSON."""
    return [warning.as_dict() for warning in merge_warnings(warnings, max_persons)]


def add_counts(parts: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The warnings of several parts together, from and as plain values, without persons.

    What has no match in one part may have one in another.
    """
    warnings = (
        ForecastWarning(**warning)
        for part in parts
        for warning in part
        if warning["code"] != "unmatched" or all(warning in other for other in parts)
    )
    return warning_dicts(warnings, max_persons=0)


def warn_about(
    panel: Panel,
    concerned: NDArray[np.bool_],
    code: WarningCode,
    message: str,
    *,
    column: str | None = None,
    option: str | None = None,
) -> list[ForecastWarning]:
    """One warning per concerned person, or their number if there are many."""
    count = int(np.count_nonzero(concerned))
    if count == 0:
        return []
    warning = ForecastWarning(code, message, column=column, option=option)
    if count > MAX_PERSONS:
        return [replace(warning, count=count)]
    person_ids = panel.frame["person_id"]  # a query of polars would cost more than a few look-ups
    rows = panel.last_rows[concerned].tolist()
    return [replace(warning, person_id=person_ids[row]) for row in rows]
