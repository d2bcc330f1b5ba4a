"""Prices: deflation keeps ratios within a year; a year without an index is refused."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from saga.data.deflation import read_index, real_factors
from saga.data.facts import shipped_facts
from saga.data.reading import read_panel
from saga.errors import InputError
from tests.problems import problem_of

CPI_SWEDEN = shipped_facts().published_prices


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
    problem = problem_of(real_factors, [1970, 2000, 2100], CPI_SWEDEN, 2022)
    assert (problem.rule, problem.year, problem.count) == ("no-price-index", 1970, 2)


def test_the_column_of_an_index_file_may_have_any_name_and_late_decimals(tmp_path: Path) -> None:
    whole = "".join(f"{year},100\n" for year in range(1800, 2000))
    (tmp_path / "cpi.csv").write_text(f"year,anything\n{whole}2000,99.5\n")
    assert real_factors([2000], read_index(tmp_path / "cpi.csv"), 1999) == {2000: 100 / 99.5}


@pytest.mark.parametrize(
    "rows",
    [
        "",
        "year\n2000\n",
        "year,index\n",
        "year,a,b\n2000,1,2\n",
        "year,a\n2000,x\n",
        "year,a\n2000,0\n",
        "year,a\n2000,1\n2000,2\n",
        "year,a\n2000,\n",
        "year,a\n2000.5,1\n",
        "year,inflation\n2002,2.2\n2000,0.9\n2001,0.4\n",
    ],
)
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, rows: str) -> None:
    (tmp_path / "cpi.csv").write_text(rows)
    with pytest.raises(InputError, match="price index"):
        read_index(tmp_path / "cpi.csv")


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
    for prices, year in ((None, 1995), (2022, 2022), (2010, 2010)):
        panel, factor = (
            read_panel(_person(1995), prices=prices),
            CPI_SWEDEN[2022] / CPI_SWEDEN[year],
        )
        amounts = panel.frame.select("earnings", "capital_income").row(0)
        assert amounts == pytest.approx((100 * factor, -10 * factor))
        assert panel.meta.price_year == 2022
