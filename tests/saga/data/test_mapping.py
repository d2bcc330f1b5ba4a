"""Mappings: names, codes, units and prices of another register; faulty keys are named."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from saga.data.mapping_file import load_mapping, shipped_mappings
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, UsageError
from tests.problems import problem_of

REAL = Path(os.environ.get("SAGA_NLSY79", Path(__file__).resolve().parents[4] / "shared" / "data"))
needs_nlsy79 = pytest.mark.skipif(
    not (REAL / "nlsy79_wages.parquet").is_file(),
    reason="the NLSY79 panel is not here; SAGA_NLSY79 names its folder",
)


def _mapping(folder: Path, text: str) -> Path:
    file = folder / "mapping.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def _wages() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "ID": [7, 7, 8, 8],
            "YR": [2000, 2001, 2000, 2001],
            "birth_year": [1970, 1970, 1975, 1975],
            "wage": [10.0, 20.0, 0.5, 30.0],
            "guess": [False, False, False, True],
            "g": ["f", "f", "m", "m"],
            "school": [9.0, 9.0, 16.0, None],
        }
    )


WAGES = """
name: wages
currency: USD
scale: 100
floor: none
macro: none
deflator: {file: cpi.csv, base_year: 2001}
columns: {person_id: ID, year: yr, earnings: wage, sex: g, education_level: school}
codes:
  sex: {f: female, m: male}
  education_level: {0-11: compulsory, 12-15: upper_secondary, 16-30: long_tertiary}
keep: {wage: [1, 300]}
null_if: {guess: true}
"""


def test_every_key_of_a_mapping_is_applied(tmp_path: Path) -> None:
    (tmp_path / "cpi.csv").write_text("year,index\n2000,50\n2001,100\n")
    panel = read_panel(_wages(), mapping=_mapping(tmp_path, WAGES))
    assert panel.frame["person_id"].to_list() == ["7", "7", "8", "8"]
    # 10 x 100 x (100 / 50); 20 x 100; below 1: unknown; imputed: unknown
    assert panel.frame["earnings"].to_list() == [2000.0, 2000.0, None, None]
    assert panel.frame["sex"].to_list() == ["female", "female", "male", "male"]
    assert panel.frame["education_level"].to_list() == [
        "compulsory",
        "compulsory",
        "long_tertiary",
        None,
    ]
    meta = panel.meta
    assert (meta.panel_id, meta.currency, meta.price_year, meta.floor, meta.macro) == (
        "wages",
        "USD",
        2001,
        None,
        None,
    )
    assert meta.nulled == {"keep wage": 1, "null_if guess: true": 1}
    assert meta.ignored == ()


def test_the_deflator_is_found_beside_the_mapping_or_beside_the_data(tmp_path: Path) -> None:
    """The folder's other CSV file is the price index, not data."""
    mapping, data = _mapping(tmp_path, WAGES), tmp_path / "data"
    data.mkdir()
    _wages().write_csv(data / "wages.csv")
    with pytest.raises(InputError, match=r"cpi\.csv was not found"):
        read_panel(data, mapping=mapping)
    for folder in (data, tmp_path):
        (folder / "cpi.csv").write_text("year,index\n2000,50\n2001,100\n")
    panel = read_panel(data, mapping=mapping)
    assert panel.frame["earnings"].to_list() == [2000.0, 2000.0, None, None]
    assert panel.frame.equals(read_panel(_wages(), mapping=mapping).frame)


def test_a_file_of_the_panel_may_have_the_name_of_the_price_index(tmp_path: Path) -> None:
    """Its persons were left out without a word."""
    mapping, data = _mapping(tmp_path, WAGES), tmp_path / "data"
    data.mkdir()
    (tmp_path / "cpi.csv").write_text("year,index\n2000,50\n2001,100\n")
    _wages().write_csv(data / "wages.csv")
    _wages().with_columns(pl.col("ID") + 10).write_csv(data / "cpi.csv")
    assert read_panel(data, mapping=mapping).persons() == ["17", "18", "7", "8"]
    (data / "cpi.csv").write_text("year,index\n2000,50\n2001,99\n")
    with pytest.raises(InputError, match=r"cpi\.csv lacks the required column"):
        read_panel(data, mapping=mapping)


def test_foreign_money_without_a_deflator_needs_the_price_year(tmp_path: Path) -> None:
    mapping = _mapping(tmp_path, WAGES.replace("deflator: {file: cpi.csv, base_year: 2001}", ""))
    with pytest.raises(InputError, match="USD has no deflator"):
        read_panel(_wages(), mapping=mapping)
    panel = read_panel(_wages(), mapping=mapping, prices=2015)
    assert (panel.frame["earnings"][0], panel.meta.price_year) == (1000.0, 2015)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colums: {year: yr}", "`colums` is not known"),
        ("columns: {wage: w}", "names wage, which the panel does not have"),
        ("deflator: {file: x.csv}", "deflator.base_year"),
        ("scale: much", "`scale`"),
        ("scale: 0", "`scale`"),
        ("currency: USD", "needs `floor`"),
        ("keep: {wage: 3}", "keep.wage"),
        ("keep: {wage: [1, 2, 3]}", "Write `keep: {NAME: [0, 500000]}`"),
        ("macro: norway", "Write `macro: none`, or `macro: {file"),
        ("deflator: cpi.csv", "Write `deflator: {file: cpi.csv"),
        ("columns: [1", "is not YAML"),
        ("- a list", "Input should be"),
        ("extends: ours.yaml", "`extends` names no shipped mapping"),
        ("encoding: latin-99", "there is no encoding latin-99"),
        ("encoding: base64", "there is no encoding base64"),
        ("codes: {children: {0-2: 1, 2-3: 2}}", "the ranges 0-2 and 2-3, which overlap"),
        ("codes: {children: {-9-3: 1, 1-2: 2}}", "the ranges -9-3 and 1-2, which overlap"),
        ("columns: {earnings: {sum: [wage, Wage ]}}", "the sum of earnings has a column twice"),
        ("extra: {race: {kind: colour}}", "extra.race.kind"),
        ("extra: {race: {}}", "line 1: race has no content"),
        ("keep: {wage: [null, null]}", "neither a lowest nor a highest"),
        ("extra: {race: category}", "Write `extra: {NAME: {kind: category}}`"),
        ("extra: [race]", "Write `extra: {NAME: {kind: category}}`"),
        ("extra: {race: {kind: number, fixed: true}}", "race.fixed"),
        ("extra: {sex: {kind: category}}", "`extra` names sex, which the panel has"),
        ("extra: {a b: {kind: number}, a_b: {kind: number}}", "rename one of them"),
        ("codes: {race: {1: white}}", "`codes` names race"),
        ("keep: {wage: [0, 5]}\nkeep: {age: [16, 64]}", "line 2: keep stands twice"),
        ("codes: {sex: {1: male, 1: female}}", "line 1: 1 stands twice"),
        ("codes: {sex: {1: male, '1': female}}", "1 stands twice"),
        ("codes: {sex: {1: male, 1.0: female}}", "sex has two entries for the code 1"),
        ("columns: {[a, b]: c}", "line 1: a key is no text"),
        ("codes: {county: {3-1: '01'}}", "the range 3-1, which ends before it begins"),
        ("keep: {wage: [300, 1]}", "below the lowest"),
        ("columns:\n\tyear: yr", "line 2 is not YAML: it contains a tab"),
        (
            "columns: {year: 2013}",
            "`columns.year` is missing or of another form. Write a column's name",
        ),
        ("null_if: {wage: null}", "null_if.wage"),
        ("null_if: {wage: []}", "`null_if`: wage has no value"),
        ("extends: {a: b}", "`extends` names no shipped mapping"),
        (
            "columns: {earnings: {sum: [wage, profit]}}\ncodes: {earnings: {-9: null}}",
            "`keep: {wage: [0, null]}`",
        ),
        (
            "extends: lisa\ncodes: {youngest_child: {Barn0_3: infant}}",
            "`codes` and `digits` of youngest_child do nothing",
        ),
    ],
)
def test_a_faulty_mapping_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_mapping(_mapping(tmp_path, text))
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_the_encoding_of_a_mapping_is_recognised_or_named(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("# the income\ncolumns: {earnings: Lön}", encoding=encoding)
    if encoding == "latin-1":
        with pytest.raises(
            UsageError, match=r"line 2 is not UTF-8 text.*Save the mapping as UTF-8"
        ):
            load_mapping(file)
    else:
        assert load_mapping(file)[0].columns == {"earnings": "Lön"}


CODES = [  # a key of `codes`, and of the cells those that it matches
    ("yes", ["yes", "no", "on", "true"], ["yes"]),
    ("NO", ["NO", "no"], ["NO"]),
    ("off", ["off", "false"], ["off"]),
    ("TRUE", ["TRUE", "true"], ["TRUE"]),
    ("true", [True, False], [True]),
    ("FALSE", [True, False], [False]),
    ("011", ["011", "11", "9"], ["011"]),
    ("01", [1, 2], [1]),
    ("1.10", ["1.10", "1.1"], ["1.10"]),
    ("1.0", ["1", "1.0", "1.00", " 1 ", "10"], ["1", "1.0", "1.00", " 1 "]),
    ("1:30", ["1:30", "90"], ["1:30"]),
    ("1_0", ["1_0", "10"], ["1_0"]),
    ("-9", [-9.0, 9.0], [-9.0]),
    ("-9--1", ["-9", "-1", "1", "-10"], ["-9", "-1"]),
    ("'-9 - -1'", [-9, -5, 0], [-9, -5]),
    ("1 - 3", [1, 2, 3, 4], [1, 2, 3]),
    ("1..3", ["1", "3", "31"], ["1", "3"]),
    ("-1..1.5", [-1.0, 1.0, 2.0], [-1.0, 1.0]),
    ("1\u20133", [0, 1, 3], [1, 3]),
    ("1-4", ["1-4", "5-9", "4"], ["1-4", "4"]),
    ("null", ["null", "x"], ["null"]),
]


@pytest.mark.parametrize(("code", "cells", "matched"), CODES, ids=[c[0] for c in CODES])
def test_a_code_is_the_text_that_is_written_or_a_range(
    tmp_path: Path, code: str, cells: list[object], matched: list[object]
) -> None:
    text = f"extra: {{x: {{kind: category}}}}\ncodes: {{x: {{{code}: found, other: null}}}}"
    rows = {"person_id": "a", "year": range(2000, 2000 + len(cells)), "birth_year": 1970}
    frame = pl.DataFrame({**rows, "earnings": 1.0, "x": cells})
    panel = read_panel(frame, mapping=_mapping(tmp_path, text), prices=2022)
    found = [
        cell for cell, new in zip(cells, panel.frame["extra_x"], strict=True) if new == "found"
    ]
    assert found == matched
    assert panel.meta.unmatched == ("codes x: other",)
    flags = {"null_if": {"x": [code.strip("'")]}}
    flagged = read_panel(frame, mapping=flags, prices=2022).frame["earnings"].is_null()
    unknown = zip(cells, flagged, strict=True)
    lower = {str(cell).lower() for cell in matched}  # flags are found in whatever case
    assert all(is_null == (str(cell).lower() in lower) for cell, is_null in unknown)


NOT_FOUND = [  # part of a mapping, and the entry that finds nothing in `_wages`; True: an error
    ("keep: {wages: [1, 300]}", "`keep`.*Is it wage", True),
    ("keep: {earnings: [1, 300]}", "`keep`.*earnings is made from wage", True),
    ("null_if: {guessed: true}", "`null_if`", True),
    (
        "columns: {earnings: {sum: [wage, profit]}}",
        "required column profit|profit.*`columns.earnings`",
        True,
    ),
    ("columns: {sex: gender}", "columns sex", False),
    ("columns: {sex: [gender, sex]}", "columns sex", False),
    ("columns: {transfers: {sum: [a, b]}}", "columns transfers", False),
    ("columns: {earnings: [wage, wagee]}", "columns earnings: wagee", False),
    ("digits: {industry: 2}", "digits industry", False),
    ("codes: {county: {1: '01'}}", "codes county", False),
    ("codes: {sex: {F: female}}", "codes sex: F", False),
    ("extra: {unoin: {kind: category}}", "extra unoin", False),
    ("family: kin", "family", False),
    ("null_if: {guess: 1}", "null_if guess: 1", False),
    ("null_if: {guess: [true, -8]}", "null_if guess: -8", False),
    ("{keep: {g: [0, 9]}, extra: {g: {kind: category}}}", "keep g", False),  # texts
    ("keep: {g: [0, 9]}", "keep g", False),  # the panel has no column of it
    ("decimal: ','", "decimal", False),  # all cells are numbers
]


@pytest.mark.parametrize(("text", "entry", "is_error"), NOT_FOUND, ids=[n[0] for n in NOT_FOUND])
@pytest.mark.parametrize("as_folder", [False, True])
def test_an_entry_that_finds_nothing_is_an_error_or_is_told(
    tmp_path: Path, text: str, entry: str, is_error: bool, as_folder: bool
) -> None:
    content: dict[str, Any] = {"columns": {"person_id": "ID", "year": "YR", "earnings": "wage"}}
    if "sex: {F" in text:
        content["columns"]["sex"] = "g"
    for part, of in yaml.safe_load(text).items():
        content[part] = {**content.get(part, {}), **of} if isinstance(of, dict) else of
    mapping = _mapping(tmp_path, json.dumps(content))
    source: pl.DataFrame | Path = _wages().with_columns(g=pl.lit("female"))
    if as_folder:
        (tmp_path / "in").mkdir()
        for (year,), rows in _wages().with_columns(g=pl.lit("female")).group_by("YR"):
            rows.write_parquet(tmp_path / "in" / f"{year}.parquet")
        source = tmp_path / "in"
    if is_error:
        with pytest.raises(InputError, match=entry):
            read_panel(source, mapping=mapping, prices=2022)
    else:
        panel = read_panel(source, mapping=mapping, prices=2022)
        assert panel.meta.unmatched == (entry,)
        assert f"match nothing  {entry}" in str(panel)


def test_a_shipped_mapping_may_find_less_than_it_names(tmp_path: Path) -> None:
    """Also below entries of one's own, which are told."""
    frame = _lisa(2015).select("LOPNR", "FodelseAr", "LoneInk", "FInk", year=pl.lit(2015))
    assert read_panel(frame, mapping="lisa", prices=2022).meta.unmatched == ()
    own = _mapping(tmp_path, "extends: lisa\ndigits: {occupation: 3}\ncodes: {sex: {1: male}}")
    unmatched = read_panel(frame, mapping=own, prices=2022).meta.unmatched
    assert unmatched == ("digits occupation", "codes sex")


@pytest.mark.parametrize(
    "text", ["extends: lisa", "extends: lisa\ncolumns: {earnings: {sum: [LoneInk, FInk]}}"]
)
@pytest.mark.parametrize("part", ["LoneInk", "FInk"])
@pytest.mark.parametrize("years", [(2015,), (2016,), (2015, 2016)])
def test_earnings_of_a_shipped_mapping_need_all_parts_of_their_sum(
    text: str, part: str, years: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for year in (2015, 2016):
        rows = _lisa(year).rename({part: f"{part}x"} if year in years else {})
        rows.write_csv(tmp_path / "in" / f"LISA{year}.csv")
    for source in (tmp_path / "in", tmp_path / "in" / f"LISA{years[0]}.csv"):
        with pytest.raises(InputError, match=f"{part}.*") as caught:
            read_panel(source, mapping=_mapping(tmp_path, text), prices=2022)
        assert caught.value.problems[0].column == part


def test_parts_of_other_shipped_sums_that_some_files_lack_are_told(tmp_path: Path) -> None:
    for year, lost in ((2015, []), (2016, ["Barn4_6"])):
        _lisa(year).drop(lost).write_csv(tmp_path / f"LISA{year}.csv")
    assert read_panel(tmp_path, mapping="lisa", prices=2022).meta.partly == {"Barn4_6": "1 of 2"}


def test_an_unknown_name_lists_the_shipped_mappings() -> None:
    with pytest.raises(UsageError, match=", ".join(shipped_mappings())):
        load_mapping("no-such")


def test_the_first_known_alternative_counts_and_sums_skip_unknown_parts(tmp_path: Path) -> None:
    text = (
        "columns: {person_id: [nr, ID], earnings: {sum: [wages, business]}, "
        "sex: [new, old]}\ncodes: {sex: {1: male, 2: female}}"
    )
    frame = pl.DataFrame(
        {"ID": ["01"] * 4, "year": [2000, 2001, 2002, 2003], "birth_year": [1970] * 4}
        | {
            "wages": [1.0, None, None, 4.0],
            "business": [2.0, 3.0, None, -4.0],
            "new": [1, None, None, 1],
            "old": [None, "1", None, "2"],
        }
    )
    panel = read_panel(frame, mapping=_mapping(tmp_path, text), prices=2022)
    assert panel.frame["earnings"].to_list() == [3.0, 3.0, None, 0.0]
    assert panel.frame["sex"].to_list() == ["male", "male", None, "male"]


LISTS = [  # a column of the panel, its source columns in order, and its values
    ("earnings", {"p": ["", "  ", "1", None], "q": ["0", "2", "3", "4"]}, [0.0, 2.0, 1.0, 4.0]),
    ("sex", {"p": ["", " ", None, "female"], "q": ["female"] * 4}, ["female"] * 4),
    ("year", {"p": [date(2000, 1, 1), date(2001, 12, 31), None, None], "q": [1, 1, 2002, 2003]},
     [2000, 2001, 2002, 2003]),
    ("person_id", {"p": [1001.0, None, 1001.0, None], "q": ["7", "1001", None, "1001"]},
     ["1001"] * 4),
    ("children", {"p": pl.Series(["1", "", None, "2"], dtype=pl.Enum(["", "1", "2"])),
                  "q": [3, 3, 2, 1]}, ["1", "3", "2", "2"]),
    ("children", {"p": pl.Series(["1", "", None, "2"], dtype=pl.Categorical),
                  "q": pl.Series(["3"] * 4, dtype=pl.Categorical)}, ["1", "3", "3", "2"]),
    ("earnings", {"p": [None] * 4, "q": ["0", "2", "3", "4"]}, [0.0, 2.0, 3.0, 4.0]),
    ("earnings", {"p": [None, 1, None, 2], "q": [0.5, 0.0, 3.0, 4.0]}, [0.5, 1.0, 3.0, 2.0]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "parts", "values"), LISTS)
@pytest.mark.parametrize("codes", [{}, {"sex": {"m": "male"}}])
def test_the_first_known_cell_of_a_list_counts_whatever_its_type(
    column: str, parts: dict[str, Any], values: list[object], codes: dict[str, Any]
) -> None:
    base = {"person_id": ["a"] * 4, "year": [2000, 2001, 2002, 2003], "birth_year": [1970] * 4}
    frame = pl.DataFrame({**base, "earnings": [1.0] * 4, **parts}).drop(column, strict=False)
    mapping = {"columns": {column: list(parts)}, "codes": codes}
    assert read_panel(frame, mapping=mapping, prices=2022).frame[column].to_list() == values


COUNTS = [  # counts of one row, its category or whether it is refused, further keys
    ({"k03": "0", "k710": "2"}, "school", ""),
    ({"k03": "1", "k710": None}, "preschool", ""),
    ({"k03": "0", "k710": ""}, "none", ""),
    ({"k03": None, "k710": ""}, None, ""),
    ({"k03": False, "k710": True}, "school", ""),
    ({"k03": "0,0", "k710": "1,0"}, "school", "decimal: ','"),
    ({"k03": "NA", "k710": "0"}, "refused", ""),
    ({"k03": "1", "k710": "."}, "refused", ""),
    ({"k03": "nej", "k710": None}, "refused", ""),
    ({"k03": float("nan"), "k710": 1.0}, "refused", ""),
    ({"k03": "0,0", "k710": "1,0"}, "refused", ""),
]


@pytest.mark.parametrize(("counts", "category", "keys"), COUNTS)
def test_the_first_positive_count_is_a_number(
    tmp_path: Path, counts: dict[str, object], category: str | None, keys: str
) -> None:
    source = "{first_positive: {k03: preschool, k710: school}, otherwise: none}"
    frame = pl.DataFrame(
        {"person_id": ["a"], "year": 2000, "birth_year": 1970, "earnings": "1"}
        | {name: [value] for name, value in counts.items()}
    )
    mapping = _mapping(tmp_path, f"columns: {{youngest_child: {source}}}\n{keys}")
    if category == "refused":
        with pytest.raises(InputError, match=r"youngest_child.*person a"):
            read_panel(frame, mapping=mapping, prices=2022)
    else:
        panel = read_panel(frame, mapping=mapping, prices=2022)
        assert panel.frame["youngest_child"].to_list() == [category]


@pytest.mark.parametrize("text", ["320,000", "330 000", "many"])
def test_keep_makes_no_text_unknown(text: str) -> None:
    frame = pl.DataFrame(
        {"person_id": "a", "year": [2000, 2001, 2002], "birth_year": 1970}
        | {"wage": ["-9", "5", text]}
    )
    mapping = {"columns": {"earnings": "wage"}, "keep": {"wage": [0, None]}}
    with pytest.raises(InputError, match="something that is not a number"):
        read_panel(frame, mapping=mapping, prices=2022)
    panel = read_panel(frame[:2], mapping=mapping, prices=2022)
    assert (panel.meta.nulled, panel.frame["earnings"].to_list()) == ({"keep wage": 1}, [None, 5.0])


@pytest.mark.parametrize(
    "predicted", [[True, False], [1, 0], [1.0, 0.0], ["T", "F"], ["yes", "no"]]
)
def test_predicted_wages_of_nlsy79_are_unknown_however_the_flag_is_written(
    predicted: list[object], tmp_path: Path
) -> None:
    (tmp_path / "us_cpi_u_annual.csv").write_text("year,cpi\n2017,100\n2018,100\n")
    pl.DataFrame(
        {"person_id": "a", "year": [2017, 2018], "birth_year": 1970, "hourly_wage": 10.0}
        | {"wage_is_predicted": predicted}
    ).write_parquet(tmp_path / "p.parquet")
    panel = read_panel(tmp_path, mapping="nlsy79")
    assert panel.frame["earnings"].to_list() == [None, 10.0]


def test_a_code_of_dots_is_itself_beside_a_decimal_comma(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "person_id;year;birth_year;earnings\na;2000;1970;.\na;2001;1970;1,5\n"
    )
    mapping = {"decimal": ",", "codes": {"earnings": {".": None}}}
    panel = read_panel(tmp_path / "a.csv", mapping=mapping, prices=2022)
    assert panel.frame["earnings"].to_list() == [None, 1.5]


def test_a_column_that_two_names_of_a_sum_mean_counts_once() -> None:
    rows: dict[str, list[object]] = {"person_id": ["a"], "year": [2000], "birth_year": [1970]}
    rows["wage"] = [1.0]
    mapping = {"columns": {"earnings": {"sum": ["wage", "wa*"]}}}
    assert read_panel(rows, mapping=mapping, prices=2022).frame["earnings"].to_list() == [1.0]


def test_what_a_mapping_does_not_fit_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cpi.csv").write_text("year,index\n2000,50\n2001,100\n")
    with pytest.raises(InputError, match="the column guess is missing"):
        read_panel(_wages().drop("guess"), mapping=_mapping(tmp_path, WAGES))
    rows = {"person_id": ["a"], "year": [2000], "birth_year": [1970], "x": ["1"], "y": ["many"]}
    mapping = _mapping(tmp_path, "columns: {earnings: {sum: [x, y]}}")
    problem = problem_of(read_panel, pl.DataFrame(rows), mapping=mapping)
    assert (problem.rule, problem.column, problem.person_id) == ("not-finite", "earnings", "a")


def _lisa(year: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "LOPNR": ["0012", "0013"],
            "FodelseAr": ["1970", "1980"],
            "KON": ["1", "2"],
            "LoneInk": ["3000", "0"],
            "FInk": ["", "25"],
            "KapInk": ["-12", ""],
            "SUN2000Niva": ["336", "640"],
            "Sun2000Inr": ["340a", "999z"],
            "AstSNI2007": ["01110", "00000"],
            "Ssyk3_2012": ["011", "***"],
            "Lan": ["11", "01"],
            "Civil": ["OG", "Ä"],
            "Barn0_3": ["0", "1"],
            "Barn4_6": ["0", "2"],
            "Barn11_15": ["0", "1"],
            "AntalSys": ["0", "25"],
            "DispInk": ["1", str(year)],
        }
    )


def test_yearly_lisa_tables_become_a_panel(tmp_path: Path) -> None:
    for year in (2015, 2016):
        _lisa(year).write_csv(tmp_path / f"LISA{year}_Individ.csv")
    panel = read_panel(tmp_path, mapping="lisa", prices=2022)
    first, *_, last = panel.frame.drop("birth_year").rows(named=True)
    assert panel.frame["year"].to_list() == [2015, 2016, 2015, 2016]
    expected_first = {
        "person_id": "0012", "earnings": 300_000.0, "capital_income": -1200.0, "sex": "male",
        "county": "12", "education_level": "upper_secondary", "education_field": "3",
        "industry": "01", "occupation": "011", "marital_status": "single", "children": "0",
        "youngest_child": "none", "employer_size": None,
    }  # fmt: skip
    expected_last = {
        "person_id": "0013", "earnings": 2500.0, "capital_income": None, "sex": "female",
        "county": "01", "education_level": "long_tertiary", "education_field": None,
        "industry": None, "occupation": None, "marital_status": "widowed", "children": "3",
        "youngest_child": "preschool", "employer_size": 25.0,
    }  # fmt: skip
    assert {name: first[name] for name in expected_first} == expected_first
    assert {name: last[name] for name in expected_last} == expected_last
    assert panel.meta.ignored == ("DispInk",)
    assert panel.meta.panel_id == "lisa"


def test_a_file_name_with_two_years_has_none(tmp_path: Path) -> None:
    """The later one may be the year of a delivery."""
    rows = pl.DataFrame({"person_id": ["a"], "birth_year": 1980, "earnings": 1.0})
    mapping = _mapping(tmp_path, "year_in_filename: true")
    for name, year in (("LISA2015", 2015), ("LISA2015_2015", 2015), ("LISA2015_v2017", None)):
        file = tmp_path / f"{name}.csv"
        rows.write_csv(file)
        if year is None:
            with pytest.raises(InputError, match="column year is missing"):
                read_panel(file, mapping=mapping, prices=2022)
        else:
            assert read_panel(file, mapping=mapping, prices=2022).frame["year"].to_list() == [year]


def test_a_year_in_the_name_and_in_a_column_is_one_too_many(tmp_path: Path) -> None:
    file, rows = tmp_path / "p2015.csv", {"person_id": ["a"], "birth_year": 1980, "earnings": 1.0}
    pl.DataFrame({**rows, " Year": 2010}).write_csv(file)
    with pytest.raises(InputError, match="a column year, and the mapping says that its name has"):
        read_panel(file, mapping=_mapping(tmp_path, "year_in_filename: true"), prices=2022)
    shipped = _mapping(
        tmp_path,
        "extends: lisa\ncolumns: {person_id: person_id, birth_year: "
        "birth_year, earnings: earnings}",
    )
    assert read_panel(file, mapping=shipped, prices=2022).frame["year"].to_list() == [2010]


def test_a_column_of_another_meaning_is_left_out(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "person_id": ["1"],
            "year": [2020],
            "birth_year": [1980],
            "earnings": [1.0],
            "occupation": [7],
        }
    )
    with pytest.raises(InputError, match=r"codes of 3 digits.*`columns: \{occupation: \[\]\}`"):
        read_panel(frame)
    panel = read_panel(frame, mapping=_mapping(tmp_path, "columns: {occupation: []}"))
    assert panel.frame["occupation"].to_list() == [None]
    assert panel.meta.ignored == ("occupation",)


def test_a_mapping_extends_a_shipped_one(tmp_path: Path) -> None:
    """LISA's tables as a CSV export of Windows programs: only what differs is written down."""
    data = tmp_path / "data"
    data.mkdir()
    text = _lisa(2015).write_csv(separator=";")
    (data / "LISA2015_Individ.csv").write_text(text, encoding="latin-1")
    lines = (
        "extends: lisa",
        "name: ours",
        "encoding: latin-1",
        "codes: {sex: {1: female, 2: male}}",
    )
    panel = read_panel(data, mapping=_mapping(tmp_path, "\n".join(lines)), prices=2022)
    (tmp_path / "plain").mkdir()
    _lisa(2015).write_csv(tmp_path / "plain" / "LISA2015_Individ.csv")
    plain = read_panel(tmp_path / "plain", mapping="lisa", prices=2022).frame
    assert panel.meta.panel_id == "ours"
    assert panel.frame["sex"].to_list() == plain["sex"].to_list()[::-1]
    assert panel.frame.drop("sex").equals(plain.drop("sex"))  # the other tables of codes stay


def test_codes_stored_as_numbers_are_refused_where_leading_zeros_matter(tmp_path: Path) -> None:
    frame = _lisa(2015).with_columns(pl.col("AstSNI2007").cast(pl.Int64), year=pl.lit(2015))
    with pytest.raises(InputError, match="leading zeros"):
        read_panel(frame, mapping="lisa")
    frame.write_parquet(tmp_path / "1.parquet")
    _lisa(2016).with_columns(year=pl.lit(2016)).write_parquet(tmp_path / "2.parquet")
    with pytest.raises(InputError, match="leading zeros"):
        read_panel(tmp_path, mapping="lisa")


@pytest.fixture(scope="module")
def nlsy79() -> Panel:
    return read_panel(REAL / "nlsy79_wages.parquet", mapping="nlsy79")


@needs_nlsy79
def test_the_real_panel_is_read_completely_with_wages_in_2018_dollars(nlsy79: Panel) -> None:
    raw = pl.read_parquet(REAL / "nlsy79_wages.parquet")
    meta, young = nlsy79.meta, raw.filter(pl.col("age") < 16).height
    assert (len(nlsy79) + young, meta.excluded) == (raw.height, {"age-range": young})
    assert (meta.dropped, meta.floor, meta.macro) == ({}, None, None)
    assert (meta.currency, meta.price_year) == ("USD", 2018)
    assert {"race", "educ_years_ever"} <= set(meta.ignored)
    index = pl.read_csv(REAL / "us_cpi_u_annual.csv").rename({"cpi_u_1982_84_100": "cpi"})
    wages = raw.select(
        pl.col("person_id").cast(pl.String),
        pl.col("year").cast(pl.Int64),
        "hourly_wage",
        "wage_is_predicted",
    ).join(index, on="year")
    both = nlsy79.frame.cast({"year": pl.Int64}).join(wages, on=["person_id", "year"])
    base = index.filter(pl.col("year") == 2018)["cpi"].item()
    credible = pl.col("hourly_wage").is_between(1, 300) & ~pl.col("wage_is_predicted")
    real = pl.when(credible).then(pl.col("hourly_wage") * base / pl.col("cpi"))
    expected = both.select(real).to_series()
    assert (both["earnings"].is_null() == expected.is_null()).all()
    assert (both["earnings"] / expected - 1).abs().max() < 1e-12  # type: ignore[operator]
