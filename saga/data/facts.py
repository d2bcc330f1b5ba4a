"""Dated facts of Sweden: prices, the economy, base amounts and tax parameters by year.

The facts come with SAGA as CSV files, each value with its source and a mark of how sure it is. An
office can give files of its own: their values replace those of the same series and year, and add
years.

A file has the columns `series`, `year`, `value`, `unit`, `mark` and `source`, one row per year; it
may hold several series. Amounts of year t are multiplied by index[base] / index[t].
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from saga.data.csv_text import LineFault, find_separator, require_whole_rows, rows_of
from saga.errors import InputError, Problem, with_nearest

PRICE_BASE = "price base amounts"
INCOME_BASE = "income base amounts"


@dataclass(frozen=True)
class FactSeries:
    """A series: values lie in [lowest, highest].

    A `steady` series rises by less than half, and falls by less than a third, from one year to the
    next.
    """

    title: str
    unit: str
    lowest: float
    highest: float
    steady: bool = False


def _rate(title: str) -> FactSeries:
    return FactSeries(title, "share", 0.0, 1.0)


def _amount(title: str, *, steady: bool = False) -> FactSeries:
    return FactSeries(title, "SEK", 0.0, 1e7, steady)


def _in_base_amounts(title: str) -> FactSeries:
    return FactSeries(title, PRICE_BASE, 0.0, 100.0)


def _growth(title: str) -> FactSeries:
    return FactSeries(title, "per cent", -50.0, 50.0)


# Parameters of the income tax have the names of the fields of `saga.tax.swedish_tax.SwedishTax`.
TAX_SERIES: dict[str, FactSeries] = {
    "price_base_amount": FactSeries(
        "Price base amount (prisbasbelopp)", "SEK", 1_000.0, 1e6, steady=True
    ),
    "income_base_amount": FactSeries(
        "Income base amount (inkomstbasbelopp)", "SEK", 1_000.0, 1e6, steady=True
    ),
    "municipal_rate": FactSeries("Mean municipal and regional tax rate", "share", 0.1, 0.6),
    "state_threshold": _amount("Taxable income from which state tax is due (skiktgrans)"),
    "state_rate": _rate("State income tax"),
    "allowance_limit_1": _in_base_amounts("Basic allowance (grundavdrag): end of band 1"),
    "allowance_limit_2": _in_base_amounts("Basic allowance: end of band 2"),
    "allowance_limit_3": _in_base_amounts("Basic allowance: end of band 3"),
    "allowance_limit_4": _in_base_amounts("Basic allowance: end of band 4"),
    "allowance_amount_1": _in_base_amounts("Basic allowance, band 1: amount"),
    "allowance_amount_2": _in_base_amounts("Basic allowance, band 2: amount"),
    "allowance_share_2": _rate("Basic allowance, band 2: share of income added"),
    "allowance_amount_3": _in_base_amounts("Basic allowance, band 3: amount"),
    "allowance_amount_4": _in_base_amounts("Basic allowance, band 4: amount"),
    "allowance_share_4": _rate("Basic allowance, band 4: share of income subtracted"),
    "allowance_amount_5": _in_base_amounts("Basic allowance, band 5: amount"),
    "work_credit_limit_1": _in_base_amounts("Work credit (jobbskatteavdrag): end of band 1"),
    "work_credit_limit_2": _in_base_amounts("Work credit: end of band 2"),
    "work_credit_limit_3": _in_base_amounts("Work credit: end of band 3"),
    "work_credit_share_2": _rate("Work credit, band 2: share of income above band 1"),
    "work_credit_amount_3": _in_base_amounts("Work credit, band 3: amount"),
    "work_credit_share_3": _rate("Work credit, band 3: share of income above band 2"),
    "work_credit_amount_4": _in_base_amounts("Work credit, band 4: amount"),
    "work_credit_fall_from": _in_base_amounts("Work credit: income from which it falls"),
    "work_credit_fall_share": _rate("Work credit: share of income by which it falls"),
    "pension_fee_rate": _rate("General pension fee (allman pensionsavgift)"),
    "pension_fee_from": _in_base_amounts("Income from which the pension fee is due"),
    "pension_fee_to": FactSeries("Income to which the pension fee is due", INCOME_BASE, 0.0, 100.0),
    "income_credit_from": _amount("Credit for earned income: taxable income from which it rises"),
    "income_credit_share": _rate("Credit for earned income: share of taxable income"),
    "income_credit_most": _amount("Credit for earned income: maximum"),
    "temporary_credit_from": _amount("Temporary work credit: income from which it rises"),
    "temporary_credit_share": _rate("Temporary work credit: share of income"),
    "temporary_credit_most": _amount("Temporary work credit: maximum"),
    "temporary_credit_fall_from": _amount("Temporary work credit: income from which it falls"),
    "temporary_credit_fall_share": _rate("Temporary work credit: share by which it falls"),
    "temporary_credit_to": _amount("Temporary work credit: income at which it ends"),
}
MACRO_SERIES: dict[str, FactSeries] = {
    "unemployment": FactSeries(
        "Unemployment, by the definition of its year", "per cent", 0.5, 30.0
    ),
    "real_wage_growth": _growth("Growth of real wages"),
    "inflation": _growth("Growth of the consumer price index"),
}
PRICES = "consumer_price_index"
FACT_SERIES: dict[str, FactSeries] = {
    PRICES: FactSeries("Consumer price index, annual mean", "1980 = 100", 1.0, 1e6, steady=True),
    **MACRO_SERIES,
    "nominal_wage_growth": _growth("Growth of nominal wages"),
    **TAX_SERIES,
}


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
    unknown mark or an empty source; and with the line of a row with more or fewer cells.
    """
    lines, dialect = text.encode().splitlines(keepends=True), find_separator(text)
    try:
        require_whole_rows(rows_of(lines, *dialect))
    except LineFault as fault:
        _refuse_if([Problem("facts", f"{file}, {fault}", fault.fix)])
    rows = rows_of(lines, *dialect)
    _, header = next(rows, (1, []))
    fix = f"Give the columns {', '.join(COLUMNS)}."
    _refuse_if(
        Problem("facts", f"{file}, line 1: no column {name}", fix, name)
        for name in COLUMNS
        if name not in header
    )
    values = [
        _dated_value(dict(zip(header, cells, strict=False)), file, line)
        for line, cells in rows
        if cells
    ]
    _refuse_if(value for value in values if isinstance(value, Problem))
    if not values:
        why = f"{file}: there is no row"
        _refuse_if([Problem("facts", why, "Write one, or leave the file out.")])
    return [value for value in values if isinstance(value, DatedValue)]


def _refuse_if(problems: Iterable[Problem]) -> None:
    """Raise InputError if there are problems."""
    if faults := list(problems):
        raise InputError("The facts cannot be used.", faults)


def _dated_value(row: Mapping[str, str], file: str, line: int) -> DatedValue | Problem:
    """The dated value of a row, or what is wrong with the row."""
    cells: dict[str, Any] = {name: row[name].strip() for name in COLUMNS}
    at_line = f"{file}, line {line}"
    if not cells["year"].isdecimal():
        fix = "Give a calendar year, such as 2024."
        return Problem("facts", f"{at_line}: the year is not a whole number", fix, "year")
    try:
        amount = float(cells["value"])
    except ValueError:
        amount = math.nan
    cells |= {"year": int(cells["year"]), "value": amount}
    value = DatedValue(**cells, file=file, line=line)
    if not math.isfinite(amount):
        return value.fault("the value is not a number", "Give a number with a point.", "value")
    if value.mark not in MARKS:
        return value.fault("unknown mark", f"Give one of {', '.join(MARKS)}.", "mark")
    if not value.source:
        return value.fault("the source is empty", "Say where the value is from.", "source")
    return value


def join_values(values: Iterable[DatedValue], *, gaps: bool = False) -> dict[str, YearlySeries]:
    """The series of rows in any order, by name; with `gaps`, years without a row are allowed.

    Raises InputError for a year that occurs twice or is missing, a change of unit, and a steady
    series that rises by half, or falls by a third, within a year.
    """
    by_series: dict[str, list[DatedValue]] = {}
    for value in sorted(values, key=lambda value: value.year):
        by_series.setdefault(value.series, []).append(value)
    _refuse_if(
        problem
        for rows in by_series.values()
        for before, value in pairwise(rows)
        for problem in _breaks(before, value, gaps=gaps)
    )
    return {
        name: YearlySeries(
            rows[0].unit,
            {row.year: row.value for row in rows},
            {row.year: row.mark for row in rows},
            {row.year: row.source for row in rows},
        )
        for name, rows in by_series.items()
    }


def _breaks(before: DatedValue, value: DatedValue, *, gaps: bool) -> Iterator[Problem]:
    """What is wrong with a value after the one before it in its series."""
    place, one_row = f"{before.file}, line {before.line}", "Give each year one row."
    if value.year == before.year:
        yield value.fault(f"{value.year} is in {place}, too", one_row, "year")
    elif value.year > before.year + 1 and not gaps:
        yield value.fault(f"no row for {before.year + 1}, after {place}", one_row, "year")
    if value.unit != before.unit:
        yield value.fault("the unit changes", f"Give the unit {before.unit!r}.", "unit")
    known = FACT_SERIES.get(value.series)
    if known is None or not known.steady:
        return
    if not 1 / _LARGEST_RATIO < value.value / before.value < _LARGEST_RATIO:
        why = f"the value is not possible after that of {place}"
        yield value.fault(why, "Check the digits and the unit of both.", "value")


SHIPPED = "shipped"
_TABLES = ("cpi_sweden", "macro_sweden", "base_amounts_sweden", "tax_sweden")
# Largest ratio of two neighbouring years of a steady series: finds 41.8 written as 418.0.
_LARGEST_RATIO = 1.5
# Later than the last published year, prices rise by the inflation target of the central bank.
ASSUMED_INFLATION = 0.02
ASSUMED_YEARS = 5  # after the last published year


@dataclass(frozen=True, eq=False)
class Facts:
    """Yearly series by name, and where they come from.

    `source` is "shipped", or the name of the folder of an office that replaces some of them.
    """

    series: Mapping[str, YearlySeries]
    source: str = SHIPPED

    @cached_property
    def digest(self) -> str:
        """sha256 of all values."""
        values = {name: sorted(series.values.items()) for name, series in self.series.items()}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def provenance(self) -> dict[str, str]:
        """What identifies the facts in a result."""
        return {"digest": self.digest, "source": self.source}

    @cached_property
    def published_prices(self) -> Mapping[int, float]:
        """The consumer price index by year, as far as there are values."""
        return self.series[PRICES].values

    @cached_property
    def price_index(self) -> Mapping[int, float]:
        """The consumer price index by year, continued for 5 years at 2 % a year."""
        last = max(self.published_prices)
        level = self.published_prices[last]
        assumed = range(1, ASSUMED_YEARS + 1)
        continued = {last + k: level * (1 + ASSUMED_INFLATION) ** k for k in assumed}
        return {**self.published_prices, **continued}

    def unpublished_prices(self, years: Iterable[int]) -> dict[int, str]:
        """The years whose price level is estimated (mark "E") or assumed ("C"), with the mark."""
        marks = self.series[PRICES].marks
        by_year = {year: marks.get(year, "C") for year in years if year in self.price_index}
        return {year: mark for year, mark in sorted(by_year.items()) if mark in ("E", "C")}


@cache
def shipped_facts() -> Facts:
    """The facts that come with SAGA."""
    return Facts(join_values(_shipped_values()))


def open_facts(source: str | Path | Facts | None) -> Facts:
    """The facts of `read_facts`, or themselves, or the shipped ones if `source` is None."""
    if isinstance(source, Facts):
        return source
    return shipped_facts() if source is None else read_facts(source)


def read_facts(source: str | Path) -> Facts:
    """The shipped facts, some replaced by the values of an office's CSV file or folder.

    All files of a folder count, but for names that begin with "." or "_". Raises InputError with
    file, line and column if there is no file, or another one than CSV, a series is unknown, a year
    occurs twice or is missing, a unit differs, or a value is not possible.
    """
    source = Path(source)
    shown = (path for path in source.glob("*") if not path.name.startswith((".", "_")))
    files = sorted(shown) if source.is_dir() else [source]
    unread = [file for file in files if not file.is_file() or file.suffix.lower() != ".csv"]
    if unread or not files:
        raise InputError.of(
            "The facts cannot be used.",
            "facts",
            f"{(unread or [source])[0]} is neither a .csv file nor a folder of such files alone",
            f"Give CSV files with the columns of {_TABLES[0]}.csv; see docs/how-to/facts.md.",
        )
    office_values = [value for file in files for value in parse_values(_read_text(file), file.name)]
    _refuse_if(problem for value in office_values for problem in _faults(value))
    replaced = {(value.series, value.year) for value in office_values}
    others = [v for v in _shipped_values() if (v.series, v.year) not in replaced]
    return Facts(join_values([*others, *office_values]), source.resolve().name)


def _shipped_values() -> list[DatedValue]:
    return [value for table in _TABLES for value in read_shipped_values(table)]


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError.of(
            "The facts cannot be used.",
            "facts",
            f"{file.name} is not UTF-8 text",
            "Save it as CSV in UTF-8.",
        ) from None


def _faults(value: DatedValue) -> Iterator[Problem]:
    known: FactSeries | None = FACT_SERIES.get(value.series)
    if known is None:
        fix = with_nearest("Take one of docs/how-to/facts.md.", value.series, FACT_SERIES)
        yield value.fault("there is no such series", fix, "series")
        return
    if value.unit != known.unit:
        yield value.fault("the unit differs", f"Give the unit {known.unit!r}.", "unit")
    if not known.lowest <= value.value <= known.highest:
        fix = f"Give a value in {known.unit} from {known.lowest:g} to {known.highest:g}."
        yield value.fault("the value is not possible", fix, "value")
