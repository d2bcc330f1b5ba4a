"""read_panel: the same rows from any format; broken rules are named, all rows are counted."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars_readstat import write_readstat

from saga.data.reading import Source, read_panel
from saga.errors import InputError, Problem, UsageError
from saga.schema import BY_NAME, polars_schema

SECRET = 123_456_789.0


def _rows(**columns: Any) -> pl.DataFrame:
    """Two persons, three years each, valid; `columns` replaces or adds."""
    base: dict[str, Any] = {
        "person_id": ["007"] * 3 + ["12"] * 3,
        "year": [2000, 2001, 2003] * 2,
        "birth_year": [1970] * 3 + [1980] * 3,
        "earnings": [100.0, 0.0, None, 300.0, 310.0, 320.0],
    }
    return pl.DataFrame(base | columns, strict=False)


def _problems(source: pl.DataFrame | Path, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        read_panel(source, prices=2022, **options)
    return caught.value.problems


def test_a_gap_a_null_and_a_zero_stay_distinct() -> None:
    panel = read_panel(_rows(), prices=2022).frame.filter(pl.col("person_id") == "007")
    assert panel.select("year", "earnings").rows() == [(2000, 100.0), (2001, 0.0), (2003, None)]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *(
            (make, kind)
            for make in (pa.ipc.new_stream, pa.ipc.new_file)
            for kind in (pa.decimal256(20, 2), pa.decimal256(50, 2), pa.decimal128(9, -3))
        ),
        (pq.ParquetWriter, pa.decimal256(50, 2)),
    ],
)
def test_decimals_that_are_not_read_are_named_and_no_damage(
    tmp_path: Path, make: Callable[..., Any], kind: pa.DataType
) -> None:
    columns = {"person_id": ["A"], "birth_year": [1985], "year": [2022]}
    table = pa.table({**columns, "earnings": pa.array([Decimal(47_000)], kind)})
    file = tmp_path / ("p.parquet" if make is pq.ParquetWriter else "p.arrow")
    with make(file, table.schema) as writer:
        writer.write_table(table)
    (problem,) = _problems(file)
    assert problem.rule == "unreadable-file"
    assert "'earnings' has" in problem.message
    assert ("of more than 38 digits" in problem.message) == (kind.precision > 38)
    assert "floating-point" in problem.fix


def _write_partitioned(frame: pl.DataFrame, folder: Path) -> None:
    """One file per year of birth, as partitions by Hive, and files that are not data."""
    for (birth_year,), part in frame.group_by("birth_year"):
        inner = folder / f"birth_year={birth_year}"
        inner.mkdir(parents=True)
        part.drop("birth_year").write_parquet(inner / "part-0.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "readme.md").write_text("not data")


WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "p.parquet": pl.DataFrame.write_parquet,
    "p.csv": lambda frame, file: frame.write_csv(file, separator=";"),
    "p.feather": pl.DataFrame.write_ipc,
    "p.arrow": pl.DataFrame.write_ipc_stream,
    "p.dta": lambda frame, file: write_readstat(frame, str(file)),
    "p.sav": lambda frame, file: write_readstat(frame, str(file)),
    "folder": _write_partitioned,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_panel(name: str, tmp_path: Path) -> None:
    frame = _rows(
        sex=["female"] * 3 + ["male"] * 3,
        children=[0, 1, None, 3, 3, 3],
        full_time=[1.0, 0.0, None, 1.0, 1.0, 1.0],
    )
    WRITERS[name](frame, tmp_path / name)
    expected, panel = (read_panel(source, prices=2022) for source in (frame, tmp_path / name))
    assert panel.frame.equals(expected.frame, null_equal=True)
    assert panel.meta == expected.meta
    assert panel.persons() == ["007", "12"]


def test_a_generated_register_is_read_from_its_folder_with_its_id(tmp_path: Path) -> None:
    (tmp_path / "latent").mkdir()
    _write_partitioned(_rows(), tmp_path / "panel")
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "latent" / "state.parquet")
    (tmp_path / "register.json").write_text(json.dumps({"register_id": "r-1", "prices": 2022}))
    whole = read_panel(tmp_path)
    cohort = read_panel(tmp_path / "panel" / "birth_year=1970" / "part-0.parquet")
    assert (whole.meta.panel_id, cohort.meta.panel_id) == ("r-1", "r-1")
    assert whole.frame["earnings"].max() == 320.0
    assert cohort.frame.equals(whole.only(["007"]).frame)
    assert read_panel(tmp_path, panel_id="mine").meta.panel_id == "mine"


def test_codes_written_as_numbers_become_codes() -> None:
    frame = _rows(
        person_id=[7, 7, 7, 12, 12, 12],
        children=["1.0", "2", " 3 ", "", None, "0"],
        county=[1, 3, 25, 1, 1, 1],
        occupation=[11.0, 211.0, None, 21.0, 21.0, 21.0],
        industry=["1", "47", "47", "01", "47", "47"],
        education_field=[0, 1, 2, 3, 4, 5],
        full_time=[True, False, None, True, True, True],
        year=["2000", "2001.0", "2003", "2000", "2001", "2003"],
    )
    panel = read_panel(frame, prices=2022).frame
    assert panel["person_id"].to_list() == ["12"] * 3 + ["7"] * 3
    assert panel["children"].to_list() == [None, None, "0", "1", "2", "3"]
    assert panel["county"].to_list() == ["01", "01", "01", "01", "03", "25"]
    assert panel["occupation"].to_list() == ["021", "021", "021", "011", "211", None]
    assert panel["industry"].to_list() == ["01", "47", "47", "01", "47", "47"]
    assert panel["full_time"].to_list() == [1.0, 1.0, 1.0, 1.0, 0.0, None]


BROKEN: list[tuple[str, pl.DataFrame, str | None, str | None, int | None, int]] = [
    ("not-a-number", _rows(earnings=["1", "none", "2", "3", "x", "5"]), "earnings", "007", 2001, 2),
    ("not-a-year", _rows(year=[2000.0, 2001.5, 2003.0] * 2), "year", "007", None, 2),
    ("not-text", _rows(person_id=[1.0, 1.0, 1.0, 2.5, 2.5, 2.5]), "person_id", None, 2000, 3),
    ("not-text", _rows(person_id=["007"] * 3 + ["007\0"] * 3), "person_id", None, 2000, 3),
    (
        "not-text",
        _rows(person_id=["007"] * 3 + ["1\t2", "1\x7f2", "1\x9b2"]),
        "person_id",
        None,
        2000,
        3,
    ),
    ("missing-value", _rows(birth_year=[1970] * 3 + [None] * 3), "birth_year", "12", 2000, 3),
    (
        "not-finite",
        _rows(earnings=[1.0, float("inf"), float("nan"), 1.0, 1.0, 1.0]),
        "earnings",
        "007",
        2001,
        2,
    ),
    ("negative", _rows(earnings=[1.0, 2.0, 3.0, 4.0, -SECRET, 6.0]), "earnings", "12", 2001, 1),
    ("too-large", _rows(earnings=[1.0, 2.0, 3.0, 4.0, 1e300, 6.0]), "earnings", "12", 2001, 1),
    (
        "too-large",
        _rows(capital_income=[1.0, 2.0, 3.0, 4.0, -1.1e12, 1e12]),
        "capital_income",
        "12",
        2001,
        1,
    ),
    ("negative", _rows(transfers=[1.0, 2.0, 3.0, 4.0, -SECRET, 6.0]), "transfers", "12", 2001, 1),
    (
        "out-of-range",
        _rows(employment_rate=[0.5, 1.0, 0.0, 1.5, 1.0, 1.0]),
        "employment_rate",
        "12",
        2000,
        1,
    ),
    ("word-for-unknown", _rows(person_id=["007"] * 3 + ["nan"] * 3), "person_id", "nan", 2000, 3),
    ("word-for-unknown", _rows(person_id=["007"] * 3 + ["None"] * 3), "person_id", "None", 2000, 3),
    (
        "lost-digits",
        _rows(person_id=["007"] * 3 + ["1.98005E+11"] * 3),
        "person_id",
        "1.98005E+11",
        2000,
        3,
    ),
    (
        "lost-digits",
        _rows(person_id=["007"] * 3 + ["1.98005E11"] * 3),
        "person_id",
        "1.98005E11",
        2000,
        3,
    ),
    ("unknown-code", _rows(sex=["f"] * 3 + ["male"] * 3), "sex", "007", 2000, 3),
    ("unknown-code", _rows(children=[0, 1, 2, 3, 4, 5]), "children", "12", 2001, 2),
    (
        "unknown-code",
        _rows(occupation=["211", "2x1", None, None, None, None]),
        "occupation",
        "007",
        2001,
        1,
    ),
    ("duplicate", _rows(year=[2000, 2001, 2003, 2000, 2000, 2003]), None, "12", 2000, 2),
    ("born-after-record", _rows(birth_year=[1970] * 3 + [2001] * 3), None, "12", None, 1),
    (
        "not-constant",
        _rows(birth_year=[1970, 1970, 1971] + [1980] * 3),
        "birth_year",
        "007",
        None,
        1,
    ),
    (
        "not-constant",
        _rows(sex=["female", None, "male", None, "male", "male"]),
        "sex",
        "007",
        None,
        1,
    ),
    (
        "record-before-entry",
        _rows(entry_year=[2001] * 3 + [1990] * 3),
        "entry_year",
        "007",
        None,
        1,
    ),
    (
        "record-after-exit",
        _rows(exit_year=[None] * 3 + [2003] * 3, exit_reason=[None] * 3 + ["dead"] * 3),
        "exit_year",
        "12",
        None,
        1,
    ),
    (
        "exit-without-year",
        _rows(exit_year=[None] * 6, exit_reason=[None] * 5 + ["dead"]),
        "exit_reason",
        "12",
        None,
        1,
    ),
]


@pytest.mark.parametrize(
    ("rule", "frame", "column", "person", "year", "count"),
    BROKEN,
    ids=[f"{b[0]}-{b[2]}" for b in BROKEN],
)
def test_a_broken_rule_is_named_with_its_place_and_count_and_no_value(
    rule: str,
    frame: pl.DataFrame,
    column: str | None,
    person: str | None,
    year: int | None,
    count: int,
) -> None:
    (problem,) = _problems(frame)
    assert (problem.rule, problem.column, problem.person_id, problem.year, problem.count) == (
        rule,
        column,
        person,
        year,
        count,
    )
    assert problem.fix.endswith(".")
    assert "123" not in str(problem)


@pytest.mark.parametrize(
    ("rule", "frame"), [(b[0], b[1]) for b in BROKEN], ids=[f"{b[0]}-{b[2]}" for b in BROKEN]
)
def test_dropped_rows_are_counted_and_the_rest_is_a_valid_panel(
    rule: str, frame: pl.DataFrame, tmp_path: Path
) -> None:
    rejected = tmp_path / "rejected.parquet"
    panel = read_panel(frame, prices=2022, on_error="drop", rejected=rejected)
    assert len(panel) + sum(panel.meta.dropped.values()) == frame.height
    assert set(panel.meta.dropped) == {rule}
    out = pl.read_parquet(rejected)
    assert out.height == panel.meta.dropped[rule]
    assert out["broken_rules"].str.starts_with(rule).all()
    # Rejected rows are written as in the source, so that they can be corrected.
    assert (
        out.drop("broken_rules").join(frame, on=frame.columns, how="anti", nulls_equal=True).height
        == 0
    )
    assert read_panel(panel.frame, prices=2022).frame.equals(panel.frame)


def test_rules_about_persons_drop_the_person_and_others_the_row() -> None:
    frame = _rows(
        birth_year=[1970, 1970, 1971] + [1980] * 3, earnings=[1.0, 2.0, 3.0, 4.0, -5.0, 6.0]
    )
    panel = read_panel(frame, prices=2022, on_error="drop")
    assert panel.frame.select("person_id", "year").rows() == [("12", 2000), ("12", 2003)]
    assert panel.meta.dropped == {"negative": 1, "not-constant": 3}


_RENAMED = _rows().rename({"earnings": "earning", "birth_year": "born"})


@pytest.mark.parametrize(
    ("frame", "on_error", "expected"),
    [
        pytest.param(
            _rows(sex=["x"] * 6, earnings=[-1.0, 1, 1, 1, 1, 1], county=["99"] * 6),
            "fail",
            [
                ("negative", "earnings", 1),
                ("unknown-code", "county", 6),
                ("unknown-code", "sex", 6),
            ],
            id="all rules at once",
        ),
        pytest.param(
            _RENAMED,
            "fail",
            [("missing-column", "birth_year", 1), ("missing-column", "earnings", 1)],
            id="required columns",
        ),
        pytest.param(_rows().clear(), "fail", [("no-rows", None, 1)], id="no row"),
        pytest.param(_rows(birth_year=[1900] * 6), "fail", [("no-rows", None, 1)], id="too old"),
        pytest.param(
            _rows(sex=["x"] * 6),
            "drop",
            [("no-rows", None, 1), ("unknown-code", "sex", 6)],
            id="no valid row",
        ),
        pytest.param(
            # Nothing is known of who they are: they may be two persons.
            _rows(person_id=["7", None, "7", "12", "12", None], birth_year=[1970] * 3 + [1980] * 3),
            "fail",
            [("missing-value", "person_id", 2)],
            id="rows without a person contradict no other",
        ),
        pytest.param(
            # If the age of the row of 1900 excluded it, the contradiction would be lost.
            _rows(birth_year=[1970, 1970, 1900] + [1980] * 3),
            "fail",
            [("not-constant", "birth_year", 1)],
            id="an age outside the range hides no contradiction",
        ),
        pytest.param(
            _rows().with_columns(pl.concat_list("earnings").alias("earnings")),
            "fail",
            [("not-a-number", "earnings", 6)],
            id="a list",
        ),
        pytest.param(
            _rows(earnings=[True, False] * 3),
            "fail",
            [("not-a-number", "earnings", 6)],
            id="true and false",
        ),
    ],
)
def test_everything_that_is_wrong_is_reported(
    frame: pl.DataFrame, on_error: str, expected: list[tuple[str, str | None, int]]
) -> None:
    problems = _problems(frame, on_error=on_error)
    assert [(p.rule, p.column, p.count) for p in problems] == expected


def test_a_fix_names_the_allowed_codes_or_a_likely_column() -> None:
    assert "female, male" in _problems(_rows(sex=["x"] * 6))[0].fix
    assert "Is it earning?" in _problems(_RENAMED)[1].fix


def test_rejected_rows_are_written_even_if_reading_fails(tmp_path: Path) -> None:
    _problems(_rows(earnings=[-1.0, 1, 1, 1, 1, 1]), rejected=tmp_path / "r.csv")
    assert pl.read_csv(tmp_path / "r.csv")["broken_rules"].to_list() == ["negative earnings"]


def test_rows_outside_16_to_64_are_set_aside_and_counted_even_with_errors() -> None:
    frame = _rows(birth_year=[1985] * 3 + [1937] * 3, earnings=[-1.0, 1, 1, 1, 1, -1.0])
    panel = read_panel(frame, prices=2022)
    kept = [("007", 2001), ("007", 2003), ("12", 2000), ("12", 2001)]
    assert panel.frame.select("person_id", "year").rows() == kept
    assert (panel.meta.excluded, panel.meta.outside_ages) == ({"age-range": 2}, 2)


def test_an_exit_given_in_one_row_applies_to_all_rows_of_the_person() -> None:
    frame = _rows(
        exit_year=[None, None, 2004, None, None, None],
        exit_reason=[None, None, "emigrated", None, None, None],
    )
    panel = read_panel(frame, prices=2022)
    assert (
        panel.frame.select("exit_year", "exit_reason").rows()
        == [(2004, "emigrated")] * 3 + [(None, None)] * 3
    )


def test_a_folder_without_or_with_mixed_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no panel file"):
        read_panel(tmp_path)
    _rows().write_parquet(tmp_path / "p.parquet")
    _rows().write_csv(tmp_path / "p.csv")
    with pytest.raises(InputError, match="mixes file types"):
        read_panel(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_panel(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("column", "value"), [("year", 20160), ("birth_year", 80), ("birth_year", 0), ("year", -9)]
)
def test_a_year_that_is_not_possible_is_broken_and_not_an_age_outside(
    column: str, value: int
) -> None:
    good = {"year": [2000, 2001, 2003] * 2, "birth_year": [1970] * 3 + [1980] * 3}
    if column == "year":
        frame = _rows(**good | {"year": [2000, 2001, 2003, 2000, 2001, value]})
    else:
        frame = _rows(**good | {"birth_year": [1970] * 3 + [value] * 3})
    problem = next(p for p in _problems(frame) if p.rule == "out-of-range")
    assert (problem.column, problem.person_id) == (column, "12")
    assert "age-range" not in read_panel(frame, prices=2022, on_error="drop").meta.excluded


def test_values_of_folders_are_decoded_and_may_be_unknown(tmp_path: Path) -> None:
    for n, value in enumerate(("V%C3%A4st", "__HIVE_DEFAULT_PARTITION__")):
        (tmp_path / f"region={value}").mkdir()
        years = [year + n * 10 for year in [2000, 2001, 2003] * 2]
        _rows(year=years).write_parquet(tmp_path / f"region={value}" / "a.parquet")
    panel = read_panel(tmp_path, prices=2022, mapping={"extra": {"region": {"kind": "category"}}})
    assert panel.frame["extra_region"].to_list() == (["Väst"] * 3 + [None] * 3) * 2


CELLS = {
    "Binary": pl.Series([b"\xe5"] * 6),
    "List": pl.Series([["f"]] * 6),
    "Struct": pl.Series([{"a": 1}] * 6),
    "Duration": pl.Series([1] * 6, dtype=pl.Duration),
}


@pytest.mark.parametrize("dtype", CELLS)
@pytest.mark.parametrize(
    "mapping",
    [
        {"columns": {"sex": "x"}, "codes": {"sex": {"f": "female"}}},
        {"columns": {"earnings": {"sum": ["x", "wage"]}}},
        {"keep": {"x": [0, None]}},
        {"null_if": {"x": 1}},
    ],
)
def test_a_column_of_cells_that_cannot_be_read_is_named_with_its_file(
    dtype: str, mapping: dict[str, Any], tmp_path: Path
) -> None:
    frame = _rows(x=CELLS[dtype], wage=1.0)
    frame.write_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", frame):
        with pytest.raises(InputError, match=f"column x has cells of type {dtype}") as caught:
            read_panel(source, prices=2022, mapping=mapping)
        assert ("a.parquet" in str(caught.value)) == isinstance(source, Path)


LEFT_OUT: dict[str, Callable[[Path], object]] = {
    "linked": lambda place: place.symlink_to(place.parent.parent / "elsewhere"),
    "2019.parquet": lambda place: place.symlink_to(place.parent / "absent.parquet"),
    "closed": lambda place: place.mkdir(),
    "LISA2019.zip": lambda place: place.write_bytes(b"PK"),
    "2019.parquet.gz": lambda place: place.write_bytes(b"PK"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_folder_has_and_cannot_be_read_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / "in"
    folder.mkdir()
    _rows().write_parquet(folder / "2018.parquet")
    (folder / "linked.parquet").symlink_to(folder / "2018.parquet")  # a link to a file is read
    (folder / "_linked").symlink_to(tmp_path)
    LEFT_OUT[name](folder / name)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "closed")
    (problem,) = _problems(folder)
    assert problem.rule == "unreadable-file"
    assert "would be left out" in problem.message
    (folder / name).rmdir() if name == "closed" else (folder / name).unlink()
    assert {problem.rule for problem in _problems(folder)} == {"duplicate"}


def test_tables_of_other_types_beside_the_data_are_told(tmp_path: Path) -> None:
    _rows().write_csv(tmp_path / "2018.csv")
    told = ("2019.TXT", "2020.xlsx", "2021.pq", "2022.csv.1", "2023.CSV.old", "part-0007")
    for name in (*told, "notes.md", "_2022.tsv", ".part"):
        (tmp_path / name).touch()
    panel = read_panel(tmp_path, prices=2022)
    assert panel.meta.unread == told
    assert "files not read" in str(panel)
    assert read_panel(tmp_path / "2018.csv", prices=2022).meta.unread == ()


@pytest.mark.parametrize("ids", [[12] * 6, [12.0] * 6], ids=["integers", "floats"])
def test_a_person_is_one_whether_a_file_has_text_or_numbers(
    ids: list[float], tmp_path: Path
) -> None:
    """Reading at once, and in blocks as for a batch, know the same persons."""
    _rows().write_parquet(tmp_path / "a.parquet")
    _rows(person_id=ids, year=range(2010, 2016), birth_year=1980).write_parquet(
        tmp_path / "b.parquet"
    )
    assert read_panel(tmp_path, prices=2022).persons() == ["007", "12"]
    source = Source(tmp_path)
    assert source.persons().to_list() == ["007", "12"]
    assert {person for block in source.blocks() for person in source.person_of(block)} == {
        "007",
        "12",
    }


@pytest.mark.parametrize(
    ("first", "second", "persons"),
    [
        (["007", "12"], ["12", "007"], ["007", "12"]),
        (["007", "7"], ["7", "12"], ["007", "12", "7"]),  # the first file has both: two persons
        (["198005131234", "x"], ["19800513-1234", "x"], None),
        (["8005131234", "x"], ["800513\u20131234", "x"], None),
        (["198005131234", "x"], ["8005131234", "x"], None),
        (["19800513-1234", "x"], ["800513+1234", "x"], None),
        (["199905131234", "x"], ["9913131234", "x"], ["199905131234", "9913131234", "x"]),
        (
            ["0a1b2c3d-0000-4000-8000-0123456789ab", "x"],
            ["{0A1B2C3D0000400080000123456789ab}", "x"],
            None,
        ),
        (["a  1", "x"], ["a 1", "x"], None),
        (["1001", "x"], ["1,001", "x"], None),
        (["1001", "x"], ["1 001", "x"], None),
        (["1001", "x"], ["1\u00a0001", "x"], None),
        (["100001", "x"], ["1,00,001", "x"], None),
        (["007", "12"], ["'007", "12"], None),
        (["{ab}", "x"], ["ab", "x"], None),
        (["1-11", "x"], ["1\u201311", "x"], None),
        (["1-11", "x"], ["11-1", "x"], ["1-11", "11-1", "x"]),  # households and their members
        (["1-11", "x"], ["111", "x"], ["1-11", "111", "x"]),
        (["007", "12"], ["7", "12"], None),
        (["007", "12"], [7, 12], None),
        (["007", "12"], [7.0, 12.0], None),
        (["0", "12"], ["00", "12"], None),
        (["7.0", "12.0"], ["7", "12"], None),
        (["\u00c5sa", "12"], ["A\u030asa", "12"], None),
        (["a7", "12"], ["A7", "12"], None),
        (["+7", "12"], ["7", "12"], None),
        (['="7"', "12"], ["7", "12"], None),
        (["'7'", "12"], ["7", "12"], None),
        (["7,0", "12"], ["7", "12"], None),
        (["1.50", "12"], ["1.5", "12"], None),
        (["1.50", "1.5"], ["1.5", "x"], ["1.5", "1.50", "x"]),
        (["7\u00ad", "12"], ["7", "12"], None),
        (["\uff17", "12"], ["7", "12"], None),
        (["100000", "12"], ["1E+05", "12"], None),
        (["1001", "12"], ["1.001e3", "12"], None),
        (["1.5e0", "a7"], ["1", "a-7"], ["1", "1.5e0", "a-7", "a7"]),
        (["7", "12"], pl.Series([7, 12], dtype=pl.Decimal(10, 2)), ["12", "7"]),
    ],
)
def test_ids_that_may_be_one_person_are_refused_between_files(
    first: list[str], second: list[object] | pl.Series, persons: list[str] | None, tmp_path: Path
) -> None:
    for name, ids, years in (("a", first, [2000, 2001]), ("b", second, [2002, 2003])):
        rows = {"person_id": ids, "year": years, "birth_year": 1970, "earnings": 1.0}
        pl.DataFrame(rows).write_parquet(tmp_path / f"{name}.parquet")
    for read in (lambda: read_panel(tmp_path).persons(), Source(tmp_path).persons):
        if persons is not None:
            assert list(read()) == persons
            continue
        with pytest.raises(InputError, match="may be one person"):
            read()


def _stream(*batches: pa.RecordBatch) -> tuple[bytes, list[int]]:
    """An Arrow stream, and where each batch ends."""
    ends, sink = [], pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            ends.append(sink.tell())
    return sink.getvalue().to_pybytes(), ends


def test_an_arrow_stream_that_is_cut_between_batches_is_refused(tmp_path: Path) -> None:
    """Also if the last cells, -1 and 0, look like the mark of the end; libraries look for none."""
    rows = _rows(capital_income=pl.Series([5, 4, 3, 2, -1, 0], dtype=pl.Int32))
    table = rows.with_columns(pl.col("earnings").cast(pl.Float32)).to_arrow()
    whole, ends = _stream(*table.to_batches(max_chunksize=3))
    for name, content in (("a.arrow", whole), ("b.feather", whole)):
        (tmp_path / name).write_bytes(content)
        assert len(read_panel(tmp_path / name, prices=2022)) == 6
    last = _stream(table.select([*table.column_names[:-1], "capital_income"]).to_batches()[0])
    assert last[0][: last[1][-1]].endswith(b"\xff\xff\xff\xff\0\0\0\0")
    cut = [whole[:end] for end in ends]
    for content in (*cut, whole + whole, last[0][: last[1][-1]]):
        (tmp_path / "a.arrow").write_bytes(content)
        (problem,) = _problems(tmp_path / "a.arrow")
        assert (problem.rule, "rows may be missing" in problem.message) == ("unreadable-file", True)


@pytest.mark.parametrize(("kind", "first"), [(pl.Float32, 16_777_216.0), (pl.Float16, 2048.0)])
def test_ids_of_single_precision_are_refused_where_they_are_not_exact(
    kind: type[pl.DataType], first: float
) -> None:
    ids = pl.Series([first] * 3 + [5.0] * 3, dtype=kind)
    (problem,) = _problems(_rows(person_id=ids))
    assert (problem.rule, problem.column, problem.count) == ("not-text", "person_id", 3)


@pytest.mark.parametrize("other", [["16777217", "5"], [16_777_217, 5], [16_777_217.0, 5.0]])
def test_ids_that_are_not_exact_are_refused_beside_any_other_type(
    other: list[object], tmp_path: Path
) -> None:
    """As text, `16777216.0` would be a person, and as a wider number one who may be another."""
    single = pl.Series([16_777_216.0, 5.0], dtype=pl.Float32)
    for name, ids, years in (("a", single, [2000, 2001]), ("b", other, [2002, 2003])):
        rows = {"person_id": ids, "year": years, "birth_year": 1970, "earnings": 1.0}
        pl.DataFrame(rows).write_parquet(tmp_path / f"{name}.parquet")
    (problem,) = _problems(tmp_path)
    assert (problem.rule, problem.column, problem.count) == ("not-text", "person_id", 1)


@pytest.mark.parametrize(
    ("first", "second", "value", "unknown"),
    [
        ([True, False], [1, 0], True, None),  # as texts only one of them would be `true`
        ([True, False], [1, 0], [True, 1], 2),
        (["01", "x"], ["1", "x"], 1, None),
        (["01", "x"], ["1", "x"], ["01", 1], 2),
        ([1.0, 0.0], ["1", "0"], 1, 2),
        (["07", "1"], ["7", "1"], 1, 2),  # neither is named
    ],
)
def test_flags_that_files_write_otherwise_are_refused_if_a_mapping_names_only_one(
    first: list[object], second: list[object], value: object, unknown: int | None, tmp_path: Path
) -> None:
    for name, cells, years in (("a", first, [2000, 2001]), ("b", second, [2002, 2003])):
        rows = {"person_id": "p", "year": years, "birth_year": 1970, "earnings": 1.0}
        pl.DataFrame({**rows, "imputed": cells}).write_parquet(tmp_path / f"{name}.parquet")
    mapping = {"null_if": {"imputed": value}}
    if unknown is not None:
        panel = read_panel(tmp_path, mapping=mapping, prices=2022)
        assert panel.frame["earnings"].null_count() == unknown
        assert Source(tmp_path, mapping).persons().to_list() == ["p"]
        return
    for read in (lambda: read_panel(tmp_path, mapping=mapping), Source(tmp_path, mapping).persons):
        with pytest.raises(InputError, match=r"may be one code.*at column imputed"):
            read()


def test_what_only_some_files_have_is_told(tmp_path: Path) -> None:
    """Columns of the panel, and parts of an own sum; alternatives of one column are not."""
    rows = _rows(sex="male", wage=1.0, profit=2.0, old="01")
    (tmp_path / "in").mkdir()
    rows.write_csv(tmp_path / "in" / "2003.csv")
    later = rows.with_columns(pl.col("year") + 10, new=pl.lit("01"))
    later.drop("sex", "profit", "old").write_csv(tmp_path / "in" / "2006.csv")
    mapping = tmp_path / "m.yaml"
    mapping.write_text("columns: {transfers: {sum: [wage, profit]}, county: [new, old]}")
    source = Source(tmp_path / "in", mapping, 2022)
    panels = [source.panel(*source.rows())]
    source = Source(tmp_path / "in", mapping, 2022)
    assert source.persons().len() == 2
    source = pickle.loads(pickle.dumps(source))  # as in a process of a batch
    panels.append(source.panel(pl.concat(source.blocks())))
    for panel in panels:
        assert panel.meta.partly == {"sex": "1 of 2", "profit": "1 of 2"}
        assert "only some files have" in str(panel)
    assert read_panel(tmp_path / "in" / "2003.csv", mapping=mapping).meta.partly == {}


SPELLED = """
columns: {earnings: {sum: [wage, profit]}, birth_year: [born, birth_year]}
extra: {union: {kind: category}, wealth: {kind: number}}
family: kin
keep: {wage: [0, 1000]}
null_if: {guess: 1}
codes: {sex: {f: female, m: male}}
"""


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("respell", [str.upper, str.title, " {} ".format])
def test_the_spelling_of_columns_may_differ_between_files(
    suffix: str, respell: Callable[[str], str], tmp_path: Path
) -> None:
    """Required, optional, mapped and own columns, families and flags; at once and in blocks."""
    columns = {"wage": [1.0, 2, 3, 4, 5, 9999], "profit": 1.0, "born": [1970] * 3 + [1980] * 3}
    columns |= {
        "union": [1, 2, 1, 2, 1, None],
        "wealth": 5.5,
        "kin": ["k"] * 6,
        "guess": [0, 1] * 3,
    }
    frame = _rows(sex=["f"] * 3 + ["m"] * 3, **columns).drop("birth_year", "earnings")
    later = frame.with_columns(pl.col("year") + 10)
    (tmp_path / "map.yaml").write_text(SPELLED)
    panels = []
    for number, second in enumerate((later, later.rename({n: respell(n) for n in later.columns}))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, part in (("a", frame), ("b", second)):
            WRITERS[f"p{suffix}"](part, folder / f"{name}{suffix}")
        source = Source(folder, tmp_path / "map.yaml", 2022)
        assert source.persons().to_list() == ["007", "12"]
        panels += [source.panel(*source.rows()), source.panel(pl.concat(source.blocks()))]
    assert panels[0].meta.nulled == {"keep wage": 2, "null_if guess: 1": 6}
    for panel in panels[1:]:
        assert panel.frame.equals(panels[0].frame)
        assert panel.meta.nulled == panels[0].meta.nulled


@pytest.mark.parametrize(
    ("first", "second", "sums"),
    [
        (["wage", "Wage"], ["Wage"], None),  # two columns of the first file remain two
        (["wage", "Wage"], ["wage"], [3, 30]),
        (["wage", "Wage"], ["WAGE"], None),
        (["wage"], ["WAGE", "Wage"], None),
    ],
)
def test_a_name_that_may_be_one_of_two_is_refused(
    first: list[str], second: list[str], sums: list[int] | None, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text("columns: {earnings: {sum: [wage]}}")
    for year, names, amount in ((2000, first, 3.0), (2001, second, 30.0)):
        rows = {"person_id": ["a"], "year": year, "birth_year": 1970}
        (tmp_path / "in").mkdir(exist_ok=True)
        frame = pl.DataFrame({**rows, **dict.fromkeys(names, amount)})
        frame.write_parquet(tmp_path / "in" / f"{year}.parquet")
    if sums is None:
        with pytest.raises(InputError, match="may be"):
            read_panel(tmp_path / "in", mapping=tmp_path / "m.yaml")
        return
    panel = read_panel(tmp_path / "in", mapping=tmp_path / "m.yaml", prices=2022)
    assert panel.frame["earnings"].to_list() == sums


@pytest.mark.parametrize("other", ["EARNINGS", "Earnings ", "\u00a0earnings"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", None])
def test_a_column_with_two_spellings_is_refused_unless_a_mapping_names_one(
    other: str, suffix: str | None, tmp_path: Path
) -> None:
    frame = _rows().with_columns(pl.lit(9.0).alias(other))
    source: Path | pl.DataFrame = frame
    if suffix is not None:
        source = tmp_path / f"people{suffix}"
        WRITERS[f"p{suffix}"](frame, source)
    with pytest.raises(InputError, match="earnings may be earnings or"):
        read_panel(source, prices=2022)
    named = read_panel(source, mapping={"columns": {"earnings": "earnings"}}, prices=2022)
    assert named.frame.equals(read_panel(_rows(), prices=2022).frame)
    for name in ("sex", "county"):
        codes = {name: pl.lit(None), name.title(): pl.lit(None)}
        with pytest.raises(InputError, match=f"{name} may be"):
            read_panel(_rows().with_columns(**codes), prices=2022)


def test_a_file_of_a_folder_may_lack_any_column_but_a_required_one(tmp_path: Path) -> None:
    _rows(sex="male").write_csv(tmp_path / "2003.csv")
    _rows(year=[2004, 2005, 2006] * 2).write_csv(tmp_path / "2006.csv")
    assert read_panel(tmp_path, prices=2022).frame["sex"].null_count() == 6
    _rows(year=[2004, 2005, 2006] * 2).rename({"earnings": "income"}).write_csv(
        tmp_path / "2006.csv"
    )
    for reading in (
        lambda: read_panel(tmp_path, prices=2022),
        lambda: list(Source(tmp_path).blocks()),
    ):
        with pytest.raises(InputError, match=r"2006\.csv lacks the required column earnings"):
            reading()


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="fail or drop"):
        read_panel(_rows(), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rejected"):
        read_panel(_rows(), rejected=Path("x.xlsx"))


def _random_panel(seed: int, persons: int) -> pl.DataFrame:
    """A valid panel with every column, some cells missing, and gaps."""
    rng = np.random.default_rng(seed)
    years = np.arange(2000, 2020)
    n = persons * years.size
    columns: dict[str, Any] = {
        "person_id": np.repeat([f"{p:06d}" for p in range(persons)], years.size),
        "year": np.tile(years, persons),
        "birth_year": np.repeat(rng.integers(1960, 1980, persons), years.size),
    }
    for column in BY_NAME.values():
        if column.kind in ("money", "number"):
            columns[column.name] = rng.random(n) * (1.0 if column.maximum == 1.0 else 1e5)
        elif column.codes and column.static:
            columns[column.name] = np.repeat(rng.choice(column.codes, persons), years.size)
        elif column.kind == "category":
            columns[column.name] = rng.choice(
                column.codes
                or {"occupation": ("211", "011"), "industry": ("01", "47")}[column.name],
                n,
            )
    frame = pl.DataFrame(columns | {"exit_year": np.full(n, 2030)})
    cells = [name for name in frame.columns if name not in ("person_id", "year", "birth_year")]
    frame = frame.with_columns(
        pl.when(pl.Series(rng.random(n) > 0.1)).then(pl.col(name)).alias(name) for name in cells
    )
    return frame.filter(pl.Series(rng.random(n) > 0.2))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), shuffle=st.integers(0, 2**31))
def test_a_valid_panel_passes_in_any_order_of_rows_and_columns(seed: int, shuffle: int) -> None:
    frame = _random_panel(seed, 5)
    rng = np.random.default_rng(shuffle)
    other = frame.sample(fraction=1.0, shuffle=True, seed=shuffle % 1000).select(
        rng.permutation(frame.columns).tolist()
    )
    panel, same = read_panel(frame, prices=2022), read_panel(other, prices=2022)
    assert panel.frame.equals(same.frame)
    assert panel.meta.dropped == panel.meta.excluded == {}
    assert len(panel) == frame.height
    assert dict(panel.frame.schema) == polars_schema()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), rows=st.sets(st.integers(0, 60), min_size=1, max_size=8))
def test_exactly_the_damaged_cells_are_found(seed: int, rows: set[int]) -> None:
    # The check must find all damaged rows and no others.
    frame = _random_panel(seed, 5)
    money = (
        pl.when(pl.int_range(pl.len()).is_in(sorted(rows)))
        .then(-1.0)
        .otherwise(pl.col("transfers"))
        .alias("transfers")
    )
    (problem,) = _problems(frame.with_columns(money))
    assert (problem.rule, problem.column, problem.count) == ("negative", "transfers", len(rows))
    assert (problem.person_id, problem.year) == frame.select("person_id", "year").row(min(rows))


def test_a_wide_table_is_told_how_to_become_long() -> None:
    wide = {"person_id": ["1", "2"], "birth_year": [1970, 1980], "inc2000": [1, 2]}
    with pytest.raises(InputError, match="one person in one year") as caught:
        read_panel(pl.DataFrame(wide))
    assert "are years" not in str(caught.value), "one column may be of any meaning"
    with pytest.raises(InputError, match="columns inc2000 to inc2001 are years, make one row"):
        read_panel(pl.DataFrame({**wide, "inc2001": [3, 4]}))
