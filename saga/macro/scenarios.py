"""Scenarios: fixed macro values of future years, by name, from a CSV file or from rows."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saga.errors import InputError, Problem, UsageError
from saga.macro.history import SERIES, MacroHistory, sweden

SCENARIOS = ("baseline", "recession-1990s", "high-growth")
UNEMPLOYMENT_RANGE = (0.005, 0.30)
_RANGES = (UNEMPLOYMENT_RANGE, (-0.5, 0.5), (-0.5, 0.5))  # of valid values of SERIES


@dataclass(frozen=True)
class Scenario:
    """Fixed macro values: year -> (unemployment, real wage growth, inflation), fractions."""

    name: str
    rows: Mapping[int, tuple[float, float, float]]

    @property
    def digest(self) -> str:
        """sha256 of the rows; it distinguishes two files of the same name."""
        return hashlib.sha256(repr(sorted(self.rows.items())).encode()).hexdigest()


ScenarioSource = str | Path | Sequence[Mapping[str, float]] | Scenario | None
"""What names a scenario: a name of SCENARIOS, a CSV file, rows, or the scenario itself."""


def scenario_from(source: ScenarioSource, history: MacroHistory) -> Scenario | None:
    """A scenario from a name of SCENARIOS, a CSV file, rows, or itself.

    None and "baseline" mean drawn futures. Files and rows hold
    `year,unemployment,real_wage_growth,inflation` as fractions; other years are drawn. Raises
    UsageError if a name is unknown, InputError if the rows are not valid.
    """
    if source is None or source == "baseline":
        return None
    if isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if source in SCENARIOS:
            return _named(str(source), history)
        path = Path(source)
        if not path.is_file():
            raise UsageError(
                f"Scenario '{source}' is neither a file nor one of {', '.join(SCENARIOS)}."
            )
        try:
            with path.open(newline="", encoding="utf-8-sig") as handle:
                rows = list(csv.DictReader(handle))
        except (UnicodeDecodeError, csv.Error):
            fix = f"Give a CSV file in UTF-8 with the columns {', '.join(('year', *SERIES))}."
            raise InputError(
                "The scenario cannot be used.",
                [Problem("scenario", f"{path} is not CSV text", fix)],
            ) from None
        return _from_rows(path.stem, rows)
    return _from_rows("given", list(source))


def _from_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> Scenario:
    columns = ("year", *SERIES)
    problems: list[Problem] = []
    out: dict[int, tuple[float, float, float]] = {}
    for number, row in enumerate(rows, start=1):
        missing = [c for c in columns if row.get(c) in (None, "")]
        if missing:
            problems.append(
                Problem(
                    "scenario",
                    f"Scenario row {number} lacks {', '.join(missing)}",
                    f"Give the columns {', '.join(columns)}, separated by commas.",
                )
            )
            continue
        try:
            calendar_year, values = float(row["year"]), tuple(float(row[c]) for c in SERIES)
        except (TypeError, ValueError):
            problems.append(
                Problem(
                    "scenario",
                    f"Scenario row {number} holds a value that is not a number",
                    "Use numbers; shares as fractions.",
                )
            )
            continue
        if not calendar_year.is_integer():
            problems.append(
                Problem(
                    "scenario",
                    f"Scenario row {number} gives no whole year",
                    "Give a calendar year, such as 2023.",
                )
            )
            continue
        year = int(calendar_year)
        wrong = [
            (c, low, high)
            for c, v, (low, high) in zip(SERIES, values, _RANGES, strict=True)
            if not low <= v <= high
        ]
        for column, low, high in wrong:
            fix = f"Give a fraction (0.07 for 7 %) from {low:g} to {high:g}."
            problems.append(
                Problem("scenario", f"{column} is out of range", fix, year=year, column=column)
            )
        if wrong:
            continue
        if year in out:
            problems.append(
                Problem(
                    "scenario", "A scenario year appears twice", "Keep one row per year.", year=year
                )
            )
        out[year] = (values[0], values[1], values[2])
    if not rows:
        problems.append(
            Problem(
                "scenario", "The scenario has no rows", f"Give the columns {', '.join(columns)}."
            )
        )
    if problems:
        raise InputError("The scenario cannot be used.", problems)
    return Scenario(name, out)


def _named(name: str, history: MacroHistory) -> Scenario:
    """Named scenarios start in the year after the history."""
    start = history.last_year
    last = history.values[-1]
    rows: dict[int, tuple[float, float, float]] = {}
    if name == "recession-1990s":
        # Sweden 1991-97 again: the rise of unemployment since 1990 is added to its last value.
        past = sweden().values
        for i in range(1, 8):
            rows[start + i] = (
                float(last[0] + past[i, 0] - past[0, 0]),
                float(past[i, 1]),
                float(past[i, 2]),
            )
    else:
        for i in range(1, 11):
            unemployment = last[0] + (0.05 - last[0]) * min(1.0, i / 5)
            rows[start + i] = (float(unemployment), 0.03, 0.02)
    return Scenario(name, rows)
