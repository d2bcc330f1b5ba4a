"""Factors that convert amounts in prices of their own year to prices of one year.

A price index has one value per year; amounts of year t are multiplied by index[base] / index[t].
The Swedish index is one of the dated facts (`saga.data.facts`). Other countries give a file with a
column `year` and one column of index values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from saga.errors import InputError, Problem


def read_index(path: Path) -> dict[int, float]:
    """The price index of a CSV file: a column `year` and one column of positive values.

    Raises `InputError` if the file has another form.
    """

    def refuse(why: str) -> InputError:
        fix = (
            "Give a CSV file with a header, a column `year` and one column of index values, "
            "one row per year."
        )
        return InputError(
            f"the price index {path} cannot be used", [Problem("price-index", why, fix)]
        )

    try:
        table = pl.read_csv(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError):
        raise refuse("the file cannot be read as CSV") from None
    columns = [name for name in table.columns if name != "year"]
    if len(columns) != 1 or table.width != 2:
        raise refuse("the columns are not `year` and one index")
    if table.is_empty():
        raise refuse("there is no row")
    index = table[columns[0]]
    if (
        not table["year"].dtype.is_integer()
        or not index.dtype.is_numeric()
        or table.null_count().sum_horizontal().item()
    ):
        raise refuse("a year is not a whole number, or an index value is not a number")
    if table["year"].is_duplicated().any() or not (index.is_finite() & (index > 0)).all():
        raise refuse("a year occurs twice, or an index value is not positive")
    return dict(zip(table["year"].to_list(), index.cast(pl.Float64).to_list(), strict=True))


def real_factors(
    years: Iterable[int], index: Mapping[int, float], base_year: int
) -> dict[int, float]:
    """Factors from prices of each year to prices of `base_year`.

    They are index[base_year] / index[year]. Raises `InputError` if the index lacks a year.
    """
    years = sorted(set(years))
    missing = sorted({year for year in (base_year, *years) if year not in index})
    if missing:
        why = (
            f"the price index covers {min(index)} to {max(index)} and lacks "
            f"{', '.join(map(str, missing[:10]))}"
        )
        fix = (
            f"Convert the amounts to prices of {base_year} and state it, or give an index with "
            "these years. If a file is read, a mapping may give it as a deflator."
        )
        problem = Problem(
            "no-price-index", why, fix, column="year", year=missing[0], count=len(missing)
        )
        raise InputError("some years cannot be deflated", [problem])
    return {year: index[base_year] / index[year] for year in years}
