"""Yearly series that come with SAGA: CSV files with a source and a mark for each value.

The files lie in `saga/data/tables/`, one row per year. Their columns are `series`, `year`, `value`,
`unit`, `mark` and `source`; a file may hold several series.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

# How well a value is sourced (see the glossary). Shipped files use V, D, M and C.
MARKS = {
    "V": "read in a public source",
    "D": "derived from values read in a public source",
    "M": "from memory of the literature, or derived from such values",
    "C": "calibrated or assumed",
}


@dataclass(frozen=True)
class YearlySeries:
    """One series: values in `unit`, marks (keys of MARKS) and sources by ascending year."""

    unit: str
    values: Mapping[int, float]
    marks: Mapping[int, str]
    sources: Mapping[int, str]


def read_shipped_series(table: str, *, gaps: bool = False) -> dict[str, YearlySeries]:
    """The series of a shipped table by name; with `gaps`, years without a row are allowed.

    Raises ValueError if a year occurs twice, is out of order or missing, a unit changes, a mark is
    unknown or a source is empty.
    """
    text = resources.files("saga.data").joinpath("tables", f"{table}.csv").read_text("utf-8")
    return parse_series(text, table, gaps=gaps)


def parse_series(text: str, table: str, *, gaps: bool = False) -> dict[str, YearlySeries]:
    """The series of a CSV text; `table` names it in errors. See `read_shipped_series`."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
        rows.setdefault(row["series"], []).append(row)
    return {name: _series(part, f"{table}.csv, series {name}", gaps) for name, part in rows.items()}


def _series(rows: list[dict[str, str]], location: str, gaps: bool) -> YearlySeries:
    years = [int(row["year"]) for row in rows]
    for before, year in pairwise(years):
        if year <= before or (year > before + 1 and not gaps):
            order = "is out of order" if year < before else "leaves a gap"
            fault = "is a duplicate" if year == before else order
            raise ValueError(
                f"{location}: {year} follows {before} and {fault}. "
                "Give each year one row, in order."
            )
    for row in rows:
        at_year = f"{location}, year {row['year']}"
        if row["unit"] != rows[0]["unit"]:
            raise ValueError(f"{at_year}: the unit changes. Give the unit {rows[0]['unit']}.")
        if row["mark"] not in MARKS:
            raise ValueError(f"{at_year}: unknown mark. Give one of {', '.join(MARKS)}.")
        if not row["source"]:
            raise ValueError(f"{at_year}: the source is empty. Give a source.")
    return YearlySeries(
        rows[0]["unit"],
        {int(row["year"]): float(row["value"]) for row in rows},
        {int(row["year"]): row["mark"] for row in rows},
        {int(row["year"]): row["source"] for row in rows},
    )
