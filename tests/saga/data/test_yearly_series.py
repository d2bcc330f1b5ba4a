"""Shipped yearly series: complete, in order, each value with a mark and a source."""

from __future__ import annotations

import pytest

from saga.data.yearly_series import MARKS, parse_series, read_shipped_series

HEADER = "series,year,value,unit,mark,source\n"
TABLES = {
    "cpi_sweden": range(1980, 2024),
    "macro_sweden": range(1990, 2023),
    "base_amounts_sweden": range(1990, 2023),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_shipped_table_has_every_year_with_mark_and_source(table: str) -> None:
    for series in read_shipped_series(table).values():
        years = list(TABLES[table])
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
        ("a,2000,1,SEK,V,book\na,2000,2,SEK,V,book\n", "2000 follows 2000"),
        ("a,2001,1,SEK,V,book\na,2000,2,SEK,V,book\n", "2000 follows 2001"),
        ("a,2000,1,SEK,V,book\na,2002,2,SEK,V,book\n", "2002 follows 2000"),
        ("a,2000,1,SEK,X,book\n", "year 2000"),
        ("a,2000,1,SEK,V,\n", "year 2000"),
        ("a,2000,1,SEK,V,book\na,2001,2,USD,V,book\n", "year 2001"),
    ],
)
def test_a_faulty_table_is_refused_with_its_place(rows: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=rf"toy\.csv, series a.*{complaint}"):
        parse_series(HEADER + rows, "toy")


def test_missing_years_are_admitted_on_request() -> None:
    rows = "a,2000,1,SEK,V,book\na,2005,2,SEK,M,book\n"
    assert parse_series(HEADER + rows, "toy", gaps=True)["a"].values == {2000: 1.0, 2005: 2.0}
