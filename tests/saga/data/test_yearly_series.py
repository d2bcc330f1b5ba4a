"""Shipped yearly series: complete, in order, each value with a mark and a source."""

from __future__ import annotations

import pytest

from saga.data.facts import MARKS, join_values, parse_values, read_shipped_series
from saga.errors import InputError

HEADER = "series,year,value,unit,mark,source\n"
TABLES = {
    "cpi_sweden": range(1980, 2026),
    "macro_sweden": range(1990, 2026),
    "base_amounts_sweden": range(1990, 2027),
    "tax_sweden": range(2020, 2027),
}
FIRST_YEAR = {"income_base_amount": 2020, "nominal_wage_growth": 2020}  # later than the table


@pytest.mark.parametrize("table", TABLES)
def test_a_shipped_table_has_every_year_with_mark_and_source(table: str) -> None:
    for name, series in read_shipped_series(table).items():
        years = [year for year in TABLES[table] if year >= FIRST_YEAR.get(name, 0)]
        assert list(series.values) == list(series.marks) == list(series.sources) == years
        assert set(series.marks.values()) <= set(MARKS)


def test_price_base_amounts_are_whole_hundreds_of_sek() -> None:
    amounts = read_shipped_series("base_amounts_sweden")["price_base_amount"]
    assert amounts.unit == "SEK"
    assert all(value % 100 == 0 for value in amounts.values.values())


def test_derived_inflation_is_the_change_of_the_price_index_to_one_decimal() -> None:
    prices = read_shipped_series("cpi_sweden")["consumer_price_index"].values
    inflation = read_shipped_series("macro_sweden")["inflation"]
    assert inflation.unit == "per cent"
    for year, value in inflation.values.items():
        assert abs(100 * (prices[year] / prices[year - 1] - 1) - value) < 0.051, year


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("a,2000,1,SEK,V,book\na,2000,2,SEK,V,book\n", "line 3, series a: 2000 is in toy.csv"),
        ("a,2000,1,SEK,V,book\na,2002,2,SEK,V,book\n", "line 3, series a: no row for 2001"),
        ("a,2000,1,SEK,X,book\n", "line 2, series a: unknown mark"),
        ("a,2000,1,SEK,V,\n", "line 2, series a: the source is empty"),
        ("a,2000,1,SEK,V,book\na,2001,2,USD,V,book\n", "line 3, series a: the unit changes"),
        ("a,2000,1 000,SEK,V,book\n", "line 2, series a: the value is not a number"),
        ("a,2000,nan,SEK,V,book\n", "line 2, series a: the value is not a number"),
        ("a,MM,1,SEK,V,book\n", "line 2: the year is not a whole number"),
    ],
)
def test_a_faulty_table_is_refused_with_its_place(rows: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        join_values(parse_values(HEADER + rows, "toy.csv"))
    (problem,) = caught.value.problems
    assert f"toy.csv, {complaint}" in str(problem)
    assert problem.column in HEADER.strip().split(",")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=r"toy.csv, line 1: no column mark"):
        parse_values("series,year,value,unit,source\n", "toy.csv")


def test_missing_years_are_admitted_on_request() -> None:
    rows = "a,2005,2,SEK,M,book\na,2000,1,SEK,V,book\n"
    values = parse_values(HEADER + rows, "toy.csv")
    assert join_values(values, gaps=True)["a"].values == {2000: 1.0, 2005: 2.0}
