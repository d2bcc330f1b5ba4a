"""Small tables are read as panels are: separators, decimal commas, marks; errors name the line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from saga.data.deflation import read_index
from saga.data.facts import read_facts
from saga.data.files import place_of_row, read_small
from saga.data.macro_rows import read_macro_file
from saga.errors import InputError, UsageError
from saga.macro.scenarios import scenario_from
from saga.population.alignment import read_targets

ROWS = "person_id,weight\n01,1.5\n02,1250.25\n"
MACRO = "year,unemployment,real_wage_growth,inflation"
COMMAS = ROWS.replace(",", ";").replace(".", ",")


def written(folder: Path, content: str | bytes, name: str = "w.csv") -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


@pytest.mark.parametrize(
    "content",
    [
        ROWS,
        ROWS.replace(",", ";"),
        ROWS.replace(",", "\t"),
        COMMAS,
        COMMAS.replace("1250,25", "1.250,25"),
        COMMAS.replace("1250,25", "1 250,25"),
        COMMAS.replace("\n", ";\n\n"),
        "\ufeff" + COMMAS.replace("\n", "\r\n"),
        "sep=;\n" + COMMAS,
        COMMAS.replace("weight", " weight "),
        COMMAS.replace("person_id", " Person_ID").replace("weight", "WEIGHT"),
    ],
)
def test_a_table_is_the_same_whatever_separates_its_cells(tmp_path: Path, content: str) -> None:
    frame = read_small(written(tmp_path, content), ["weight"])
    assert frame["person_id"].to_list() == ["01", "02"]
    assert frame["weight"].to_list() == [1.5, 1250.25]


def test_numbers_of_a_parquet_table_stay_numbers(tmp_path: Path) -> None:
    pl.DataFrame({"person_id": [1], "weight": [2.5]}).write_parquet(tmp_path / "w.parquet")
    assert read_small(tmp_path / "w.parquet", ["weight"]).row(0) == (1, 2.5)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('person_id,weight\n01,1\n\n02,"1,250"\n', 4),  # thousands, not a decimal comma
        ("sep=;\nperson_id;weight\n01;1,5\n02;1.5\n", 4),  # 1.5 may be 15
        ('person_id,weight\n"a\nb",1\n02,Anna\n', 4),
    ],
)
def test_a_cell_that_is_no_number_is_named_by_its_line(
    tmp_path: Path, content: str, line: int
) -> None:
    file = written(tmp_path, content)
    with pytest.raises(InputError, match=f"line {line} has something that is not a num") as caught:
        read_small(file, ["weight"])
    (problem,) = caught.value.problems
    assert (problem.rule, problem.column) == ("not-a-number", "weight")
    assert str(file) in str(caught.value)
    assert "Anna" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"year": [2030.5]}, "whole year"),
        ({"year": [date(2030, 5, 5)]}, "whole year"),
        ({"total": [date(2030, 1, 1)]}, "not a number"),
        ({"total": [True]}, "not a number"),
        ({"total": [["5"]]}, "not a number"),
        ({"Total": [6.0]}, "two columns have one name"),
        ({" YEAR": [2031]}, "two columns have one name"),
    ],
)
def test_what_a_type_would_turn_into_another_number_is_refused(
    columns: dict[str, list[object]], why: str
) -> None:
    table = pl.DataFrame({"year": [2030], "total": [5.0]} | columns)
    with pytest.raises(InputError, match=why):
        read_targets(table)


@pytest.mark.parametrize("years", [[2030.0], [date(2030, 12, 31)], ["2030.0"], [" 2030 "]])
def test_years_are_read_as_those_of_a_panel(years: list[object]) -> None:
    assert read_targets(pl.DataFrame({"Year": years, "MEAN": [5]})).frame.row(0) == (2030, 5.0)


@pytest.mark.parametrize(
    "levels", [[1985], [1985.0], [" 1985 "], pl.Series(["1985"], dtype=pl.Categorical)]
)
def test_groups_of_targets_are_texts_as_those_of_persons_are(levels: Sequence[object]) -> None:
    targets = read_targets(pl.DataFrame({"year": 2030, "cohort": levels, "mean": 5.0}))
    assert targets.frame["target_cohort"].to_list() == ["1985"]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_dots_that_may_separate_thousands_are_refused_where_a_comma_may_be_decimal(
    tmp_path: Path, separator: str
) -> None:
    rows = "year;total\n2030;1.500\n2031;12.500\n".replace(";", separator)
    with pytest.raises(InputError, match=r"1.500 may be 1.5 or 1500 \(at column total\)"):
        read_targets(written(tmp_path, rows))
    with pytest.raises(InputError, match=r"1.500 may be 1.5 or 1500"):
        read_targets(written(tmp_path, rows.replace("12.500", "12.5")))
    plain = rows.replace("1.500", "1.125").replace("12.500", "12.5")
    assert read_targets(written(tmp_path, plain)).frame["total"].to_list() == [1.125, 12.5]
    english = rows.replace(separator, ",")
    assert read_targets(written(tmp_path, english)).frame["total"].to_list() == [1.5, 12.5]


@pytest.mark.parametrize("persons", ["1.000", "12.500", "1.234"])
def test_a_count_of_persons_has_no_three_decimals(tmp_path: Path, persons: str) -> None:
    """A thousand persons who join must not be read as one, whatever separates the cells."""
    content = "year,age,persons\n2030,20,{}\n"
    with pytest.raises(InputError, match=r"1.500 may be 1.5 or 1500 \(at column persons\)"):
        read_small(written(tmp_path, content.format(persons)), ("year", "age", "persons"))
    for plain in ("1000", "12.5", "0.250", "1e3"):
        read = read_small(written(tmp_path, content.format(plain)), ("year", "age", "persons"))
        assert read["persons"].item() == float(plain)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("w.csv", b"", "is empty"),
        ("w.csv", b"person_id,weight\n", "w.csv cannot be used\n.*there is no row"),
        ("w.csv", b"\xef\xbb\xbfperson_id;weight\r\n\r\n", "there is no row"),
        ("w.csv", b"person_id;weight\n01;1;5\n", "line 2 has more cells than the header"),
        ("w.csv", b"person_id,weight,\n01,1,\n02,1,5\n", "line 3 has a value in a column"),
        ("w.csv", "person_id,weight\nÅsa,1\n".encode("latin-1"), "line 2 is not UTF-8"),
        ("w.csv", "person_id,weight\rÅsa,1\r".encode("latin-1"), "line 2 is not UTF-8"),
        ("w.csv", b"person_id,weight\n1,1\r0\n", "line 2 has a line end of another kind"),
        ("w.csv", ROWS.encode("utf-16"), "UTF-16"),
        ("w.txt", ROWS.encode(), "files of type .txt"),
        ("w.parquet", b"PAR1", "damaged"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read_small(written(tmp_path, content, name))
    with pytest.raises(UsageError, match="no file"):
        read_small(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("read", "header"),
    [
        (read_targets, "year,total"),
        (read_index, "year,cpi"),
        (read_facts, "series,year,value,unit,mark,source"),
        (read_macro_file, MACRO),
        (lambda file: scenario_from(str(file), None), MACRO),
        (read_small, "year,age,persons"),  # an inflow
    ],
)
def test_a_table_without_rows_would_do_nothing_and_is_refused(
    tmp_path: Path, read: Callable[[Path], object], header: str
) -> None:
    with pytest.raises(InputError, match="there is no row"):
        read(written(tmp_path, f"{header}\n"))


def test_each_kind_of_small_table_may_have_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    targets = read_targets(written(tmp_path, "year;sex;total\n2030;female;1.500,5\n"))
    assert targets.frame.row(0) == (2030, "female", 1500.5)
    broken = written(tmp_path, "year;total\n\n2030;1,5\n2031;-2,5\n")
    with pytest.raises(InputError, match="line 4"):
        read_targets(broken)
    assert place_of_row(broken, 0) == "line 3"
    macro = "year;unemployment;real_wage_growth;inflation;female/male\n2030;0,07;0,01;0,02;0,9\n"
    scenario = scenario_from(written(tmp_path, macro), None)
    assert scenario is not None
    assert scenario.rows == {2030: (0.07, 0.01, 0.02)}
    assert scenario.ratios == {2030: {"female/male": 0.9}}
    assert read_index(written(tmp_path, "year;kpi\n2000;99,5\n")) == {2000: 99.5}
