"""Dated facts of Sweden: prices, the economy, base amounts and tax parameters by year.

The facts come with SAGA as CSV files, each value with its source and a mark of how sure it is. An
office can give files of its own: their values replace those of the same series and year, and add
years.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from saga.data.fact_series import FACT_SERIES, PRICES, FactSeries
from saga.data.yearly_series import (
    DatedValue,
    YearlySeries,
    join_values,
    parse_values,
    read_shipped_values,
)
from saga.errors import InputError, Problem

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


def open_facts(source: str | Path | None) -> Facts:
    """The facts of `read_facts`, or the shipped ones if `source` is None."""
    return shipped_facts() if source is None else read_facts(Path(source))


def read_facts(source: Path) -> Facts:
    """The shipped facts, some replaced by the values of an office's CSV file or folder.

    Raises InputError with file, line and column if there is no file, a series is unknown, a year
    occurs twice or is missing, a unit differs, or a value is not possible.
    """
    files = sorted(source.glob("*.csv")) if source.is_dir() else [source]
    if not files or not files[0].is_file():
        fix = f"Give CSV files with the columns of {_TABLES[0]}.csv; see docs/how-to/facts.md."
        problem = Problem("facts", f"{source} is neither a file nor a folder with .csv", fix)
        raise InputError("There are no facts.", [problem])
    office_values = [value for file in files for value in parse_values(_read_text(file), file.name)]
    problems = [problem for value in office_values for problem in _faults(value)]
    if problems:
        raise InputError("The facts cannot be used.", problems)
    replaced = {(value.series, value.year) for value in office_values}
    others = [v for v in _shipped_values() if (v.series, v.year) not in replaced]
    values = [*others, *office_values]
    series = join_values(values)
    jumps = list(_jumps(values))
    if jumps:
        raise InputError("The facts cannot be used.", jumps)
    return Facts(series, source.resolve().name)


def _shipped_values() -> list[DatedValue]:
    return [value for table in _TABLES for value in read_shipped_values(table)]


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problem = Problem("facts", f"{file.name} is not UTF-8 text", "Save it as CSV in UTF-8.")
        raise InputError("The facts cannot be used.", [problem]) from None


def _faults(value: DatedValue) -> Iterator[Problem]:
    known: FactSeries | None = FACT_SERIES.get(value.series)
    if known is None:
        near = difflib.get_close_matches(value.series, FACT_SERIES, n=1)
        hint = f"Is it {near[0]}?" if near else "`saga facts show` lists the series."
        yield value.fault("there is no such series", hint, "series")
        return
    if value.unit != known.unit:
        yield value.fault("the unit differs", f"Give the unit {known.unit!r}.", "unit")
    if not known.lowest <= value.value <= known.highest:
        fix = f"Give a value in {known.unit} from {known.lowest:g} to {known.highest:g}."
        yield value.fault("the value is not possible", fix, "value")


def _jumps(values: Iterable[DatedValue]) -> Iterator[Problem]:
    """Problems of steady series that rise by half, or fall by a third, within a year."""
    ordered = sorted(values, key=lambda value: (value.series, value.year))
    for before, value in pairwise(ordered):
        if before.series != value.series or not FACT_SERIES[value.series].steady:
            continue
        if not 1 / _LARGEST_RATIO < value.value / before.value < _LARGEST_RATIO:
            why = f"the value is not possible after that of {before.file}, line {before.line}"
            yield value.fault(why, "Check the digits and the unit of both.", "value")
