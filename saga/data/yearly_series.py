"""Yearly series: CSV files with a source and a mark for each value.

The files that come with SAGA lie in `saga/data/tables/`. Their columns are `series`, `year`,
`value`, `unit`, `mark` and `source`, one row per year; a file may hold several series.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

from saga.errors import InputError, Problem

# How well a value is sourced (see the glossary).
MARKS = {
    "V": "read in a public source",
    "D": "derived from values read in a public source",
    "E": "estimate, or inferred from neighbouring years",
    "M": "from memory of the literature, or derived from such values",
    "C": "calibrated or assumed",
}
COLUMNS = ("series", "year", "value", "unit", "mark", "source")


@dataclass(frozen=True)
class DatedValue:
    """One row of a file: the value of a series in a year, in `unit`, and its line in the file."""

    series: str
    year: int
    value: float
    unit: str
    mark: str
    source: str
    file: str
    line: int

    def fault(self, why: str, fix: str, column: str) -> Problem:
        """The problem of this row, with its file and line."""
        message = f"{self.file}, line {self.line}, series {self.series}: {why}"
        return Problem("facts", message, fix, column=column, year=self.year)


@dataclass(frozen=True)
class YearlySeries:
    """One series: values in `unit`, marks (keys of MARKS) and sources by ascending year."""

    unit: str
    values: Mapping[int, float]
    marks: Mapping[int, str]
    sources: Mapping[int, str]


def read_shipped_series(table: str, *, gaps: bool = False) -> dict[str, YearlySeries]:
    """The series of a shipped table by name; with `gaps`, years without a row are allowed.

    Raises InputError as `parse_values` and `join_values` do.
    """
    return join_values(read_shipped_values(table), gaps=gaps)


def read_shipped_values(table: str) -> list[DatedValue]:
    """The rows of a shipped table."""
    text = resources.files("saga.data").joinpath("tables", f"{table}.csv").read_text("utf-8")
    return parse_values(text, f"{table}.csv")


def parse_values(text: str, file: str) -> list[DatedValue]:
    """The rows of a CSV text; `file` names it in errors.

    Raises InputError with the line and column of a missing column, a value that is not a number, an
    unknown mark or an empty source.
    """
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        fix = f"Give the columns {', '.join(COLUMNS)}."
        absent = [Problem("facts", f"{file}, line 1: no column {n}", fix, n) for n in missing]
        raise InputError("The facts cannot be used.", absent)
    values: list[DatedValue] = []
    problems: list[Problem] = []
    for row in reader:
        value = _dated_value(row, file, reader.line_num)
        if isinstance(value, Problem):
            problems.append(value)
        else:
            values.append(value)
    if problems:
        raise InputError("The facts cannot be used.", problems)
    return values


def _dated_value(row: Mapping[str, str | None], file: str, line: int) -> DatedValue | Problem:
    """The dated value of a row, or what is wrong with the row."""
    cells = {name: (row[name] or "").strip() for name in COLUMNS}
    at_line = f"{file}, line {line}"
    if not cells["year"].isdecimal():
        fix = "Give a calendar year, such as 2024."
        return Problem("facts", f"{at_line}: the year is not a whole number", fix, "year")
    try:
        amount = float(cells["value"])
    except ValueError:
        amount = math.nan
    year = int(cells["year"])
    value = DatedValue(
        cells["series"],
        year,
        amount,
        cells["unit"],
        cells["mark"],
        cells["source"],
        file,
        line,
    )
    if not math.isfinite(amount):
        return value.fault("the value is not a number", "Give a number with a point.", "value")
    if value.mark not in MARKS:
        return value.fault("unknown mark", f"Give one of {', '.join(MARKS)}.", "mark")
    if not value.source:
        return value.fault("the source is empty", "Say where the value is from.", "source")
    return value


def join_values(values: Iterable[DatedValue], *, gaps: bool = False) -> dict[str, YearlySeries]:
    """The series of rows in any order, by name; with `gaps`, years without a row are allowed.

    Raises InputError for a year that occurs twice or is missing, and for a change of unit.
    """
    by_series: dict[str, list[DatedValue]] = {}
    for value in sorted(values, key=lambda value: value.year):
        by_series.setdefault(value.series, []).append(value)
    problems: list[Problem] = []
    for rows in by_series.values():
        for before, value in pairwise(rows):
            if value.year == before.year:
                why = f"{value.year} is in {before.file}, line {before.line}, too"
                problems.append(value.fault(why, "Give each year one row.", "year"))
            elif value.year > before.year + 1 and not gaps:
                why = f"no row for {before.year + 1}, after {before.file}, line {before.line}"
                problems.append(value.fault(why, "Give each year one row.", "year"))
            if value.unit != before.unit:
                fix = f"Give the unit {before.unit!r}."
                problems.append(value.fault("the unit changes", fix, "unit"))
    if problems:
        raise InputError("The facts cannot be used.", problems)
    return {name: _series(rows) for name, rows in by_series.items()}


def _series(rows: list[DatedValue]) -> YearlySeries:
    return YearlySeries(
        rows[0].unit,
        {row.year: row.value for row in rows},
        {row.year: row.mark for row in rows},
        {row.year: row.source for row in rows},
    )
