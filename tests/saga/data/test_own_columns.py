"""Columns of a panel's own, families and macro files: read, checked and kept in the panel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from saga.data.panel import Panel
from saga.data.reading import Source, read_panel
from saga.data.rules import MAX_CODES
from saga.errors import InputError

HEAD = "currency: USD\nfloor: none\nmacro: none\n"
EXTRA = """
extra:
  Race: {kind: category, static: true}
  net wealth: {kind: number, lasting: true}
  union: {kind: category}
codes: {Race: {1: white, 2: black}}
family: fam
"""


def source(**columns: Sequence[object]) -> pl.DataFrame:
    rows: dict[str, Sequence[object]] = {
        "person_id": ["a", "a", "b"],
        "year": [2000, 2001, 2000],
        "birth_year": [1970] * 3,
        "earnings": [1e4, 2e4, 3e4],
        "race": [1.0, 1.0, 2.0],
        "Net Wealth": [5.0, None, -3.0],
        "union": [True, False, None],
        "fam": [7.0, 7.0, 8.0],
        "unused": [1, 2, 3],
    }
    return pl.DataFrame({**rows, **columns})


def read(folder: Path, text: str, frame: pl.DataFrame | None = None) -> Panel:
    file = folder / "mapping.yaml"
    file.write_text(HEAD + text, encoding="utf-8")
    return read_panel(source() if frame is None else frame, mapping=file, prices=2010)


def test_own_columns_are_read_by_their_kind(tmp_path: Path) -> None:
    panel = read(tmp_path, EXTRA)
    assert panel.frame["extra_race"].to_list() == ["white", "white", "black"]
    assert panel.frame["extra_net_wealth"].to_list() == [5.0, None, -3.0]
    assert panel.frame["extra_union"].to_list() == ["true", "false", None]
    assert panel.frame["family_id"].to_list() == ["7", "7", "8"]
    assert panel.meta.ignored == ("unused",)
    assert panel.meta.extra_names("category") == ("extra_race", "extra_union")
    assert panel.meta.extra_names("number") == ("extra_net_wealth",)
    race = panel.meta.extra[0]
    assert (race.static, race.lasting) == (True, False)
    assert dict(panel.frame.schema) == panel.meta.schema
    assert panel.only(["a"]).frame["extra_race"].to_list() == ["white", "white"]


def test_the_digest_depends_on_own_columns_and_their_kind(tmp_path: Path) -> None:
    plain = read(tmp_path, "")
    own = read(tmp_path, "extra: {union: {kind: category}}")
    lasting = read(tmp_path, "extra: {union: {kind: category, lasting: true}}")
    assert len({plain.digest, own.digest, lasting.digest}) == 3


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("first", "second", "codes", "read"),
    [
        (["1", "2"], ["2", "1"], {}, ["1", "2", "2", "1"]),
        ([1, 2], [2.0, 1.0], {}, ["1", "2", "2", "1"]),
        ([1, 2], ["2 ", " 1.0"], {}, ["1", "2", "2", "1"]),
        (["1", "01"], ["01", "1"], {}, ["1", "01", "01", "1"]),  # one file has both: two codes
        (["1", "2"], ["01", "2"], {}, None),
        ([1, 2], ["01", "2"], {}, None),
        ([True, False], [1, 0], {}, None),
        (["TRUE", "FALSE"], ["True", "False"], {}, None),
        (["White", "2"], ["white", "2"], {}, None),
        (["1.5", "2"], ["1.50", "2"], {}, None),
        ([1.5, 2.0], ["1.50", "2"], {}, None),
        (["0.5", "2"], [".5", "2"], {}, None),
        (["-1.5", "2"], ["-1,50", "2"], {}, None),
        (["1.5", "2"], ["15e-1", "2"], {}, None),
        (["1.5", "1.50"], ["1.50", "1.5"], {}, ["1.5", "1.50", "1.50", "1.5"]),
        (["1.5", "2"], ["1.50", "2"], {"1.50": "1.5"}, ["1.5", "2", "1.5", "2"]),
        ([1, 2], ["01", "2"], {1: "white"}, None),  # 01 would be a code beside white
        ([1, 2], ["01", "2"], {1: "white", "01": "white"}, ["white", "2", "white", "2"]),
        (["1", "2"], ["01", "2"], {"01": "1"}, ["1", "2", "1", "2"]),
        ([True, False], [1, 0], {True: 1, False: 0}, ["1", "0", "1", "0"]),
    ],
)
def test_a_code_that_two_files_may_write_otherwise_is_refused_unless_a_mapping_makes_it_one(
    first: list[object],
    second: list[object],
    codes: dict[object, str],
    read: list[str] | None,
    suffix: str,
    tmp_path: Path,
) -> None:
    """At once, and before a batch is read in blocks."""
    for name, cells, persons in (("a", first, ["p", "q"]), ("b", second, ["r", "s"])):
        rows = {"person_id": persons, "year": 2000, "birth_year": 1970, "earnings": 1.0}
        frame = pl.DataFrame({**rows, "union": cells, "fam": "k"})
        getattr(frame, f"write_{suffix}")(tmp_path / f"{name}.{suffix}")
    mapping = {
        "extra": {"union": {"kind": "category"}},
        "family": "fam",
        "codes": {"union": codes},
    }
    if read is not None:
        panel = read_panel(tmp_path, mapping=mapping, prices=2022)
        assert panel.frame["extra_union"].to_list() == read
        assert Source(tmp_path, mapping).persons().len() == 4
        return
    for reading in (
        lambda: read_panel(tmp_path, mapping=mapping),
        Source(tmp_path, mapping).persons,
    ):
        with pytest.raises(InputError, match="may be one code") as caught:
            reading()
        (problem,) = caught.value.problems
        assert problem.column == "extra_union"
        assert f"b.{suffix}" in problem.message


@pytest.mark.parametrize("column", ["union", "fam"])
def test_a_word_for_unknown_cells_is_no_code_unless_a_mapping_says_what_it_is(
    column: str, tmp_path: Path
) -> None:
    """Persons without a family would be one family, and unknown a code beside the others."""
    text = "extra: {union: {kind: category}}\nfamily: fam\n"
    frame = source(**{column: ["NA"] * 3})
    name = {"union": "extra_union", "fam": "family_id"}[column]
    with pytest.raises(InputError, match=f"{name} has a word by which programs write unknown"):
        read(tmp_path, text, frame)
    if column == "union":
        panel = read(tmp_path, f"{text}codes: {{union: {{NA: null}}}}\n", frame)
        assert panel.frame[name].null_count() == 3
    assert read(tmp_path, text, source(**{column: ["NAM"] * 3})).frame[name].null_count() == 0


def test_a_family_that_two_files_may_write_otherwise_is_refused(tmp_path: Path) -> None:
    for person, family in (("p", "007"), ("q", "7")):
        frame = source(person_id=[person] * 3, year=[2000, 2001, 2002], fam=[family] * 3)
        frame.write_parquet(tmp_path / f"{person}.parquet")
    with pytest.raises(InputError, match="may be one code"):
        read_panel(tmp_path, mapping={"family": "fam"}, prices=2022)


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("race", [1, 2, 2], "extra_race changes within a person"),
        ("Net Wealth", ["1", "many", "2"], "extra_net_wealth contains something that is not a num"),
    ],
)
def test_own_columns_have_the_rules_of_their_kind(
    tmp_path: Path, column: str, cells: list[object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, EXTRA, source(**{column: cells}))


def test_a_category_with_very_many_codes_is_refused(tmp_path: Path) -> None:
    n = MAX_CODES + 1
    frame = pl.DataFrame(
        {
            "person_id": [f"p{i}" for i in range(n)],
            "year": [2000] * n,
            "birth_year": [1970] * n,
            "earnings": [1.0] * n,
            "street": [f"s{i}" for i in range(n)],
        }
    )
    with pytest.raises(InputError, match="extra_street is a category with 501 codes"):
        read(tmp_path, "extra: {street: {kind: category}}", frame)
    assert len(read(tmp_path, "extra: {street: {kind: category}}", frame[:-1])) == n - 1


SERIES = "year,unemployment,real_wage_growth,inflation\n"


def macro_csv(folder: Path, years: range) -> None:
    lines = [
        f"{year},0.05,0.01,0.0{2 + year % 3}" if year % 2 else f"{year},0.06,0.02,0.01"
        for year in years
    ]
    (folder / "us.csv").write_text(SERIES + "\n".join(lines), encoding="utf-8")


def read_macro(folder: Path, people: Path | None = None) -> Panel:
    file = folder / "mapping.yaml"
    file.write_text("currency: USD\nfloor: none\nmacro: {file: us.csv}", encoding="utf-8")
    return read_panel(people or source(), mapping=file, prices=2010)


def test_a_macro_file_is_read_beside_the_mapping_and_is_part_of_the_digest(tmp_path: Path) -> None:
    macro_csv(tmp_path, range(1990, 2011))
    panel = read_macro(tmp_path)
    assert (panel.meta.macro, list(panel.meta.macro_rows or ())) == ("us", list(range(1990, 2011)))
    assert (panel.meta.macro_rows or {})[2000] == (0.06, 0.02, 0.01)
    macro_csv(tmp_path, range(1990, 2012))
    assert read_macro(tmp_path).digest != panel.digest


def test_a_macro_file_in_the_folder_of_the_data_is_no_panel_file(tmp_path: Path) -> None:
    macro_csv(tmp_path, range(1990, 2011))
    columns = ["person_id", "year", "birth_year", "earnings"]
    source().select(columns).write_csv(tmp_path / "people.csv")
    assert len(read_macro(tmp_path, tmp_path)) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"the macro file us.csv was not found"),
        (f"{SERIES}1990,5.0,0,0\n", "unemployment is out of range"),
        (f"{SERIES}1990,0,05,0,01,0,02\n", "line 2 has more cells than the header"),
        (f"{SERIES}1990,0.05,0,0\n1992,0.05,0,0\n", "no row for 1991"),
        (f"{SERIES}1990,0.05,0.01,0\n1991,0.06,0.01,0.01\n", "real_wage_growth is constant"),
        ("year,unemployment\n1990,0.05\n", "row 1 lacks real_wage_growth, inflation"),
    ],
)
def test_a_faulty_macro_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "us.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_macro(tmp_path)
