"""Prices: from money of the day to money of one year.

An index is a price level per year; amounts of year t become real by the factor index[base] / index[t]. The Swedish
index is built in; any other country brings a file with a `year` column and one column of index levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import polars as pl

from saga.errors import InputError, Problem

Mark = Literal["published", "recalled"]

# Swedish consumer price index (KPI), annual mean of the fixed figures, 1980 = 100, Statistics Sweden. "published": read
# on scb.se, table "Konsumentprisindex (1980=100), fastställda tal". "recalled": one decimal, known to the authors and in
# line with the published levels of 1990 (208) and 2000 (260), to be checked against the table.
_CPI_SWEDEN: dict[Mark, dict[int, float]] = {
    "recalled": {
        1980: 100.0, 1981: 112.1, 1982: 121.7, 1983: 132.6, 1984: 143.2, 1985: 153.8, 1986: 160.3, 1987: 167.0, 1988: 176.7,
        1989: 188.1, 1990: 207.8, 1991: 227.2, 1992: 232.4, 1993: 243.2, 1994: 248.5, 1995: 254.8, 1996: 256.0, 1997: 257.3,
        1998: 257.0, 1999: 258.1, 2000: 260.7, 2001: 267.1, 2002: 272.8, 2003: 278.1, 2004: 279.2, 2005: 280.4,
    },
    "published": {
        2006: 284.22, 2007: 290.51, 2008: 300.61, 2009: 299.66, 2010: 303.46, 2011: 311.43, 2012: 314.20, 2013: 314.06,
        2014: 313.49, 2015: 313.35, 2016: 316.43, 2017: 322.11, 2018: 328.40, 2019: 334.26, 2020: 335.92, 2021: 343.19,
        2022: 371.91, 2023: 403.70,
    },
}  # fmt: skip
CPI_SWEDEN: Mapping[int, float] = {**_CPI_SWEDEN["recalled"], **_CPI_SWEDEN["published"]}
CPI_SWEDEN_SOURCE: Mapping[int, Mark] = {
    year: mark for mark, levels in _CPI_SWEDEN.items() for year in levels
}


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
