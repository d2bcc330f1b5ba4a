"""Prices: from money of the day to money of one year.

An index is a price level per year; amounts of year t become real by the factor index[base] / index[t]. The Swedish
index is built in; any other country brings a file with a `year` column and one column of index levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from saga.data.yearly_series import read_shipped_series
from saga.errors import InputError, Problem

# Swedish consumer price index, annual mean, 1980 = 100: year -> index.
CPI_SWEDEN: Mapping[int, float] = read_shipped_series("cpi_sweden")["consumer_price_index"].values


def read_index(path: Path) -> dict[int, float]:
    """The price index of a CSV file: column `year` and one column of positive levels, one row a year.

    Raises `InputError` where the file is not that.
    """

    def refuse(why: str) -> InputError:
        fix = "Give a CSV file with a header, a column `year` and one column of index levels, one row a year."
        return InputError(
            f"the price index {path} cannot be used", [Problem("price-index", why, fix)]
        )

    try:
        table = pl.read_csv(path)
    except (OSError, pl.exceptions.PolarsError):
        raise refuse("the file cannot be read as CSV") from None
    levels = [name for name in table.columns if name != "year"]
    if len(levels) != 1 or table.width != 2:
        raise refuse("the columns are not `year` and one index")
    level = levels[0]
    if (
        not table["year"].dtype.is_integer()
        or not table[level].dtype.is_numeric()
        or table.null_count().sum_horizontal().item()
    ):
        raise refuse("a year or an index level is not a number")
    if (
        table["year"].is_duplicated().any()
        or not (table[level].is_finite() & (table[level] > 0)).all()
    ):
        raise refuse("a year occurs twice, or a level is not positive")
    return dict(zip(table["year"].to_list(), table[level].cast(pl.Float64).to_list(), strict=True))


def real_factors(
    years: Iterable[int], index: Mapping[int, float], base_year: int
) -> dict[int, float]:
    """The factor that turns money of each year into money of `base_year`: index[base_year] / index[year].

    Raises `InputError` naming the years that the index does not have.
    """
    wanted = sorted(set(years))
    missing = [year for year in (base_year, *wanted) if year not in index]
    if missing:
        span = f"the price index covers {min(index)} to {max(index)} and lacks {', '.join(map(str, sorted(set(missing))[:10]))}"
        fix = (
            f"Convert the amounts to prices of {base_year} and say so by the option prices. "
            "Where a file is read, a mapping may bring a deflator with these years."
        )
        problem = Problem(
            "no-price-index", span, fix, column="year", year=min(missing), count=len(set(missing))
        )
        raise InputError("some years cannot be deflated", [problem])
    return {year: index[base_year] / index[year] for year in wanted}
