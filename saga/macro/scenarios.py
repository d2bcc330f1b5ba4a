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

    None and "baseline" mean drawn futures. Files and rows have the columns
    `year,unemployment,real_wage_growth,inflation` (fractions); other years are drawn. Raises
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
            problem = Problem("scenario", f"{path} is not CSV text", fix)
            raise InputError("The scenario cannot be used.", [problem]) from None
        return _from_rows(path.stem, rows)
    return _from_rows("given", list(source))


def _from_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> Scenario:
    give_columns = f"Give the columns {', '.join(('year', *SERIES))}"
    problems: list[Problem] = []
    values_by_year: dict[int, tuple[float, float, float]] = {}

    def report(message: str, fix: str, year: int | None = None, column: str | None = None) -> None:
        problems.append(Problem("scenario", message, fix, column=column, year=year))

    for number, row in enumerate(rows, start=1):
        missing = [column for column in ("year", *SERIES) if row.get(column) in (None, "")]
        if missing:
            lacks = f"Scenario row {number} lacks {', '.join(missing)}"
            report(lacks, f"{give_columns}, separated by commas.")
            continue
        try:
            calendar_year, *values = (float(row[column]) for column in ("year", *SERIES))
        except (TypeError, ValueError):
            message = f"Scenario row {number} has a value that is not a number"
            report(message, "Use numbers; shares as fractions.")
            continue
        if not calendar_year.is_integer():
            message = f"Scenario row {number} gives no whole year"
            report(message, "Give a calendar year, such as 2023.")
            continue
        year, n_problems = int(calendar_year), len(problems)
        for column, value, (low, high) in zip(SERIES, values, _RANGES, strict=True):
            if not low <= value <= high:
                fix = f"Give a fraction (0.07 for 7 %) from {low:g} to {high:g}."
                report(f"{column} is out of range", fix, year, column)
        if len(problems) > n_problems:
            continue
        if year in values_by_year:
            report("A scenario year appears twice", "Keep one row per year.", year)
        values_by_year[year] = (values[0], values[1], values[2])
    if not rows:
        report("The scenario has no rows", f"{give_columns}.")
    if problems:
        raise InputError("The scenario cannot be used.", problems)
    return Scenario(name, values_by_year)


def _named(name: str, history: MacroHistory) -> Scenario:
    """A scenario by name; it starts in the year after the history."""
    start, last = history.last_year, float(history.values[-1, 0])
    if name == "recession-1990s":
        # Sweden 1991-97 again: the rise of unemployment since 1990 is added to its last value.
        past = sweden().values.tolist()
        rows = {
            start + i: (last + past[i][0] - past[0][0], past[i][1], past[i][2]) for i in range(1, 8)
        }
    else:
        rows = {
            start + i: (last + (0.05 - last) * min(1.0, i / 5), 0.03, 0.02) for i in range(1, 11)
        }
    return Scenario(name, rows)
