"""Prices: deflation keeps ratios within a year; a year without an index is refused."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from saga.data.facts import read_index, read_shipped_series, real_factors, shipped_facts
from saga.data.reading import read_panel
from saga.errors import InputError

CPI_SWEDEN = shipped_facts().published_prices


def test_the_swedish_index_has_every_year_and_a_source_mark_for_each() -> None:
    years = sorted(CPI_SWEDEN)
    assert years == list(range(years[0], years[-1] + 1))
    assert set(range(1990, 2023)) <= set(years)
    marks = read_shipped_series("cpi_sweden")["consumer_price_index"].marks
    assert set(marks) == set(years)
    assert all(marks[year] == "V" for year in range(2006, 2023))


def test_yearly_inflation_stays_in_the_range_since_1980() -> None:
    # A typing error would show as a jump: inflation was between -0.5 % (2009) and 12 % (1981).
    years = sorted(CPI_SWEDEN)[1:]
    assert all(-0.005 < CPI_SWEDEN[year] / CPI_SWEDEN[year - 1] - 1 < 0.125 for year in years)


def test_factors_chain_and_are_one_in_the_base_year() -> None:
    factors = real_factors([1995, 2022], CPI_SWEDEN, 2022)
    assert factors[2022] == 1.0
    through_2010 = (
        real_factors([1995], CPI_SWEDEN, 2010)[1995] * real_factors([2010], CPI_SWEDEN, 2022)[2010]
    )
    assert factors[1995] == pytest.approx(through_2010, rel=1e-14)


def test_a_year_outside_the_index_is_named() -> None:
    with pytest.raises(InputError) as caught:
        real_factors([1970, 2000, 2100], CPI_SWEDEN, 2022)
    (problem,) = caught.value.problems
    assert (problem.rule, problem.year, problem.count) == ("no-price-index", 1970, 2)


def test_the_column_of_an_index_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "cpi.csv"
    file.write_text("year,anything\n2000,50\n2001,100\n")
    assert real_factors([2000], read_index(file), 2001) == {2000: 2.0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "year\n2000\n",
        "year,a,b\n2000,1,2\n",
        "year,a\n2000,x\n",
        "year,a\n2000,0\n",
        "year,a\n2000,1\n2000,2\n",
        "year,a\n2000,\n",
        "year,a\n2000.5,1\n",
    ],
)
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cpi.csv"
    file.write_text(text)
    with pytest.raises(InputError, match="price index"):
        read_index(file)


def test_an_index_file_without_rows_says_so(tmp_path: Path) -> None:
    file = tmp_path / "cpi.csv"
    file.write_text("year,index\n")
    with pytest.raises(InputError, match="there is no row"):
        read_index(file)


def test_a_long_index_may_have_its_first_decimals_late(tmp_path: Path) -> None:
    whole = "".join(f"{year},100\n" for year in range(1800, 2000))
    file = tmp_path / "cpi.csv"
    file.write_text(f"year,index\n{whole}2000,100.5\n")
    assert read_index(file)[2000] == 100.5


def _person(year: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "person_id": ["a"],
            "year": [year],
            "birth_year": [1960],
            "earnings": [100.0],
            "capital_income": [-10.0],
        }
    )


def test_nominal_money_is_deflated_and_real_money_is_not() -> None:
    nominal, real = read_panel(_person(1995)), read_panel(_person(1995), prices=2022)
    assert nominal.frame["earnings"].item() == pytest.approx(
        100 * CPI_SWEDEN[2022] / CPI_SWEDEN[1995]
    )
    assert nominal.frame["capital_income"].item() == pytest.approx(
        -10 * CPI_SWEDEN[2022] / CPI_SWEDEN[1995]
    )
    assert real.frame["earnings"].item() == 100.0
    assert nominal.meta.price_year == real.meta.price_year == 2022


def test_money_in_prices_of_another_year_has_one_factor() -> None:
    moved = read_panel(_person(1995), prices=2010)
    assert moved.frame["earnings"].item() == pytest.approx(
        100 * CPI_SWEDEN[2022] / CPI_SWEDEN[2010]
    )
