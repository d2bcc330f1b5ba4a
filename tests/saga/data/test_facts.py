"""Dated facts: an office's values replace the shipped ones, and faulty files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from saga.training.fit import macro_of

from saga.data.facts import (
    ASSUMED_INFLATION,
    FACT_SERIES,
    MARKS,
    join_values,
    parse_values,
    read_facts,
    read_shipped_series,
    shipped_facts,
)
from saga.data.reading import read_panel
from saga.errors import InputError
from tests.panels import rows_of
from tests.problems import problem_of, problems_of

HEADER = "series,year,value,unit,mark,source\n"
CPI_2026 = "consumer_price_index,2026,422.5,1980 = 100,V,statistics office\n"


def office_file(folder: Path, rows: str, name: str = "own.csv") -> Path:
    (folder / name).write_text(HEADER + rows, encoding="utf-8")
    return folder


def test_every_shipped_series_is_described_and_in_its_range() -> None:
    series = shipped_facts().series
    assert set(series) == set(FACT_SERIES)
    for name, part in series.items():
        known = FACT_SERIES[name]
        assert part.unit == known.unit
        assert all(known.lowest <= value <= known.highest for value in part.values.values()), name


def test_real_wages_grow_by_nominal_wages_less_inflation_since_2023() -> None:
    series = shipped_facts().series
    for year in (2023, 2024, 2025):
        nominal, inflation = (
            series[name].values[year] for name in ("nominal_wage_growth", "inflation")
        )
        assert series["real_wage_growth"].values[year] == pytest.approx(nominal - inflation)


def test_prices_after_the_last_published_year_follow_the_stated_assumption() -> None:
    facts = shipped_facts()
    last = max(facts.published_prices)
    ratio = facts.price_index[last + 2] / facts.price_index[last]
    assert ratio == pytest.approx((1 + ASSUMED_INFLATION) ** 2)
    assert facts.unpublished_prices([2022, 2025, 2026]) == {2025: "E", 2026: "C"}
    assert last + 6 not in facts.price_index


def test_values_of_an_office_replace_and_extend_the_shipped_ones(tmp_path: Path) -> None:
    rows = CPI_2026 + "unemployment,2024,8.3,per cent,V,statistics office\n"
    facts, shipped = read_facts(office_file(tmp_path, rows)), shipped_facts()
    assert facts.price_index[2026] == 422.5
    assert facts.unpublished_prices([2026]) == {}
    assert facts.series["unemployment"].values[2024] == 8.3
    assert facts.series["unemployment"].values[2023] == shipped.series["unemployment"].values[2023]
    assert facts.source == tmp_path.name
    assert facts.digest != shipped.digest


def test_a_panel_keeps_its_facts_so_that_prices_and_the_trained_economy_follow_them(
    tmp_path: Path,
) -> None:
    """Deflated by the office's index, and trained on the office's unemployment."""
    rows = "unemployment,2024,9.9,per cent,V,office\n"
    rows += "consumer_price_index,2024,430,1980 = 100,V,office\n"
    own = read_facts(office_file(tmp_path, rows))
    people = rows_of(("P1", year, 1980, 300_000.0) for year in range(2010, 2025))
    shipped_panel, panel = read_panel(people), read_panel(people, facts=own)
    amounts = [p.frame.filter(year=2024)["earnings"].item() for p in (shipped_panel, panel)]
    index = shipped_facts().price_index[2024]
    assert amounts[1] / amounts[0] == pytest.approx(index / 430)
    (before, shipped_record), (after, record) = macro_of(shipped_panel), macro_of(panel)
    assert before is not None
    assert after is not None
    moved = 0.099 - shipped_facts().series["unemployment"].values[2024] / 100
    assert after.of_year(2024)[0] - before.of_year(2024)[0] == pytest.approx(moved)
    assert record["facts"] == own.provenance()
    assert "facts" not in shipped_record


RATE = "municipal_rate,2026,32.38,share,V,SKR\n"


@pytest.mark.parametrize(
    ("rows", "line", "why", "column"),
    [
        (CPI_2026.replace("2026", "2027"), 2, "no row for 2026", "year"),
        (CPI_2026 * 2, 3, "2026 is in own.csv, line 2", "year"),
        (CPI_2026.replace("422.5", "42.25"), 2, "not possible after that of cpi_sweden", "value"),
        (RATE, 2, "the value is not possible", "value"),
        (RATE.replace("share", "per cent"), 2, "the unit differs", "unit"),
        (CPI_2026 + RATE.replace("rate", "rates"), 3, "there is no such series", "series"),
    ],
)
def test_a_faulty_file_is_refused_with_file_line_and_column(
    rows: str, line: int, why: str, column: str, tmp_path: Path
) -> None:
    problem = problems_of(read_facts, office_file(tmp_path, rows))[0]
    assert problem.message.startswith(f"own.csv, line {line}, series")
    assert why in problem.message
    assert problem.column == column


def test_a_year_in_two_files_of_an_office_is_refused(tmp_path: Path) -> None:
    office_file(tmp_path, CPI_2026, "a.csv")
    with pytest.raises(InputError, match=r"b\.csv, line 2.*2026 is in a\.csv, line 2"):
        read_facts(office_file(tmp_path, CPI_2026, "b.csv"))


def test_no_file_of_an_office_is_left_out(tmp_path: Path) -> None:
    office_file(tmp_path, CPI_2026, "OWN.CSV")
    (tmp_path / ".hidden").write_text("")
    assert read_facts(tmp_path).price_index[2026] == 422.5
    for name in ("taxes.xlsx", "2026/b.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        office_file(path.parent, CPI_2026, path.name)
        with pytest.raises(InputError, match=f"{name.split('/')[0]} is neither a"):
            read_facts(tmp_path)
        path.unlink()


def test_an_empty_folder_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a \.csv file nor a folder"):
        read_facts(tmp_path)
    (tmp_path / "own.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_facts(tmp_path)


TABLES = {
    "cpi_sweden": range(1980, 2026),
    "macro_sweden": range(1990, 2026),
    "base_amounts_sweden": range(1990, 2027),
    "tax_sweden": range(2020, 2027),
}
FIRST_YEAR = {"income_base_amount": 2002, "nominal_wage_growth": 2020}  # later than the table


@pytest.mark.parametrize("table", TABLES)
def test_a_shipped_table_has_every_year_with_mark_and_source(table: str) -> None:
    for name, series in read_shipped_series(table).items():
        years = [year for year in TABLES[table] if year >= FIRST_YEAR.get(name, 0)]
        assert list(series.values) == list(series.marks) == list(series.sources) == years
        assert set(series.marks.values()) <= set(MARKS)


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
        ("a,2000,1,SEK,V,book, page 5\n", "line 2 has more cells than the header"),
        ("a,2000,1,SEK,V,book\na,2001,1,SEK\n", "line 3 has fewer cells than the header"),
        ('a,2000,1,SEK,V,"book\n', "line 2 has a quotation mark that is not closed"),
    ],
)
def test_a_faulty_table_is_refused_with_its_place(rows: str, complaint: str) -> None:
    problem = problem_of(lambda: join_values(parse_values(HEADER + rows, "toy.csv")))
    assert f"toy.csv, {complaint}" in str(problem)
    assert problem.column in (None, *HEADER.strip().split(","))


def test_a_table_may_have_semicolons_and_sources_of_two_lines() -> None:
    rows = 'a,2000,1,SEK,V,"book\npage"\n\na,2001,x,SEK,V,book\n'
    with pytest.raises(InputError, match=r"toy.csv, line 5, series a"):
        parse_values(HEADER + rows, "toy.csv")
    text = (HEADER + "a,2000,1,SEK,V,book\n").replace(",", ";")
    assert parse_values(text, "toy.csv")[0].value == 1.0


def test_missing_years_are_admitted_on_request_and_a_missing_column_is_named() -> None:
    rows = "a,2005,2,SEK,M,book\na,2000,1,SEK,V,book\n"
    values = parse_values(HEADER + rows, "toy.csv")
    assert join_values(values, gaps=True)["a"].values == {2000: 1.0, 2005: 2.0}
    with pytest.raises(InputError, match=r"toy.csv, line 1: no column mark"):
        parse_values("series,year,value,unit,source\n", "toy.csv")
