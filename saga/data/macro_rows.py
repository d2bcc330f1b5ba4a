"""Reads and checks rows of macro series: a year, its unemployment, real wage growth and inflation.

Scenarios and the macro series of another country have these rows. Those of a scenario may have
ratios of groups, beside the series or instead of them: in a column such as female/male.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from saga.data.files import read_small
from saga.errors import InputError, Problem, with_nearest

SERIES = ("unemployment", "real_wage_growth", "inflation")
UNEMPLOYMENT_RANGE = (0.005, 0.30)
_RANGES = (UNEMPLOYMENT_RANGE, (-0.5, 0.5), (-0.5, 0.5))  # of valid values of SERIES
_MIN_RANGE = 1e-4  # a series with less between its lowest and highest value is constant
_RATIO_RANGE, FORECAST_YEARS = (0.05, 20.0), range(1900, 2201)
ODDS_PREFIX = "odds:"  # of columns with ratios of the odds of having earnings
MacroRow = tuple[float, float, float]
"""Values of a year in the order of SERIES, fractions."""


def parse_rows(rows: Sequence[Mapping[str, Any]], subject: str) -> dict[int, MacroRow]:
    """The values by year. Raises InputError with a problem for each row that is not valid.

    Args:
        rows: Rows with the columns `year` and those of SERIES, as fractions.
        subject: What the rows are, for messages.
    """
    give_columns = f"Give the columns {', '.join(('year', *SERIES))}"
    problems: list[Problem] = []
    values_by_year: dict[int, MacroRow] = {}

    def report(message: str, fix: str, year: int | None = None, column: str | None = None) -> None:
        problems.append(Problem(_rule(subject), message, fix, column=column, year=year))

    for number, row in enumerate(rows, start=1):
        missing = [column for column in ("year", *SERIES) if row.get(column) in (None, "")]
        if len(missing) == len(SERIES) and "year" not in missing and _ratio_columns(row):
            continue
        if missing:
            lacks = f"{subject} row {number} lacks {', '.join(missing)}"
            report(lacks, f"{give_columns}.")
            continue
        try:
            calendar_year, *values = (float(row[column]) for column in ("year", *SERIES))
        except (TypeError, ValueError):
            message = f"{subject} row {number} has a value that is not a number"
            report(message, "Use numbers; shares as fractions.")
            continue
        if not calendar_year.is_integer():
            message = f"{subject} row {number} has a year that is not a whole number"
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
            report(f"The {subject.lower()} has a year twice", "Keep one row per year.", year)
        values_by_year[year] = (values[0], values[1], values[2])
    if not rows:
        report(f"The {subject.lower()} has no rows", f"{give_columns}.")
    if problems:
        raise InputError(f"The {subject.lower()} cannot be used.", problems)
    return values_by_year


def check_columns(rows: Sequence[Mapping[str, Any]], subject: str) -> None:
    """Raise InputError for a column that is neither the year, nor one of SERIES, nor a ratio."""
    known = ("year", *SERIES)
    names = dict.fromkeys(name for row in rows for name in row)
    problems = []
    for name in names:
        if name in known or "/" in name:
            continue
        fix = f"Columns are {', '.join(known)}, and ratios of two groups, such as female/male."
        fix = with_nearest(fix, name, known)
        problems.append(Problem(_rule(subject), f"{name} is no column of it", fix, column=name))
    if problems:
        raise InputError(f"The {subject.lower()} cannot be used.", problems)


def parse_ratios(rows: Sequence[Mapping[str, Any]], subject: str) -> dict[int, dict[str, float]]:
    """The ratios of groups by year and column; an empty cell is none. Arguments as in `parse_rows`.

    Raises InputError if a ratio or its year is not valid.
    """
    by_year: dict[int, dict[str, float]] = {}
    low, high = _RATIO_RANGE
    for number, row in enumerate(rows, start=1):
        for column in _ratio_columns(row):
            with suppress(TypeError, ValueError):
                year, ratio = float(row["year"]), float(row[column])
                if year in FORECAST_YEARS and low <= ratio <= high:
                    by_year.setdefault(int(year), {})[column] = ratio
                    continue
            raise InputError.of(
                f"The {subject.lower()} cannot be used.",
                _rule(subject),
                f"{subject} row {number} has no valid ratio in its year",
                f"Give a calendar year and a number from {low:g} to {high:g}, or an empty cell.",
                column=column,
            )
    return by_year


def _ratio_columns(row: Mapping[str, Any]) -> list[str]:
    """The columns of a row that have a ratio of two groups."""
    return [c for c in row if c and "/" in c and row[c] not in (None, "")]


def _rule(subject: str) -> str:
    return subject.lower().replace(" ", "-")


def read_macro_file(path: Path) -> dict[int, MacroRow]:
    """The macro series of a CSV file by year, ascending; years must be consecutive.

    Raises InputError if the file is not valid, or a series has one value throughout.
    """
    subject = "Macro file"
    by_year = dict(sorted(parse_rows(read_small(path).to_dicts(), subject).items()))
    for before, year in pairwise(by_year):
        if year != before + 1:
            raise InputError.of(
                f"The macro file {path} has a gap.",
                _rule(subject),
                f"no row for {before + 1}",
                "Give one row for each year from the first to the last.",
                year=before + 1,
            )
    for series, values in zip(SERIES, zip(*by_year.values(), strict=True), strict=True):
        if max(values) - min(values) < _MIN_RANGE:
            raise InputError.of(
                f"The macro file {path} cannot be used.",
                _rule(subject),
                f"{series} is constant",
                "Give observed values: later years are drawn from their variation.",
                column=series,
            )
    return by_year
