"""Columns of a panel's own, families and macro files: read, checked and kept in the panel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from saga.data.panel import Panel
from saga.data.reading import MAX_CODES, read_panel
from saga.errors import InputError, UsageError

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


def test_rows_of_a_panel_keep_its_own_columns(tmp_path: Path) -> None:
    panel = read(tmp_path, EXTRA)
    assert panel.only(["a"]).frame["extra_race"].to_list() == ["white", "white"]
    again = Panel.of(panel.frame.drop("extra_union"), panel.meta)
    assert again.frame["extra_union"].null_count() == 3


def test_the_digest_depends_on_own_columns_and_their_kind(tmp_path: Path) -> None:
    plain = read(tmp_path, "")
    own = read(tmp_path, "extra: {union: {kind: category}}")
    lasting = read(tmp_path, "extra: {union: {kind: category, lasting: true}}")
    assert len({plain.digest, own.digest, lasting.digest}) == 3


def test_a_code_written_as_number_or_as_text_is_one_code(tmp_path: Path) -> None:
    text = "extra: {race: {kind: category}}"
    numbers = read(tmp_path, text)
    texts = read(tmp_path, text, source(race=["1.0", " 1", "2"]))
    assert numbers.frame["extra_race"].to_list() == ["1", "1", "2"]
    assert texts.frame["extra_race"].equals(numbers.frame["extra_race"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extra: {race: {kind: colour}}", "extra.race.kind"),
        ("extra: {race: {}}", "extra.race.kind"),
        ("extra: {race: {kind: number, fixed: true}}", "race.fixed"),
        ("extra: {sex: {kind: category}}", "`extra` names sex, which the panel has"),
        ("extra: {a b: {kind: number}, a_b: {kind: number}}", "rename one of them"),
        ("codes: {race: {1: white}}", "`codes` names race"),
    ],
)
def test_faulty_own_columns_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, text)


def test_a_static_column_that_changes_breaks_a_rule(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="extra_race changes within a person"):
        read(tmp_path, EXTRA, source(race=[1, 2, 2]))


def test_a_number_that_is_text_breaks_a_rule(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="extra_net_wealth contains something that is not a num"):
        read(tmp_path, EXTRA, source(**{"Net Wealth": ["1", "many", "2"]}))


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


def test_a_missing_own_column_is_unknown_in_every_row(tmp_path: Path) -> None:
    panel = read(tmp_path, EXTRA, source().drop("race"))
    assert panel.frame["extra_race"].null_count() == 3
    assert "extra_race" not in panel.meta.present


SERIES = "year,unemployment,real_wage_growth,inflation\n"


def macro_csv(folder: Path, years: range, unemployment: str = "0.05") -> None:
    lines = [
        f"{year},{unemployment},0.01,0.0{2 + year % 3}" if year % 2 else f"{year},0.06,0.02,0.01"
        for year in years
    ]
    (folder / "us.csv").write_text(SERIES + "\n".join(lines), encoding="utf-8")


def read_macro(folder: Path) -> Panel:
    file = folder / "mapping.yaml"
    file.write_text("currency: USD\nfloor: none\nmacro: {file: us.csv}", encoding="utf-8")
    return read_panel(source(), mapping=file, prices=2010)


def test_a_macro_file_is_read_beside_the_mapping(tmp_path: Path) -> None:
    macro_csv(tmp_path, range(1990, 2011))
    meta = read_macro(tmp_path).meta
    assert meta.macro == "us"
    assert meta.macro_rows is not None
    assert list(meta.macro_rows) == list(range(1990, 2011))
    assert meta.macro_rows[2000] == (0.06, 0.02, 0.01)


def test_a_macro_file_in_the_folder_of_the_data_is_no_panel_file(tmp_path: Path) -> None:
    macro_csv(tmp_path, range(1990, 2011))
    columns = ["person_id", "year", "birth_year", "earnings"]
    source().select(columns).write_csv(tmp_path / "people.csv")
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("currency: USD\nfloor: none\nmacro: {file: us.csv}", encoding="utf-8")
    assert len(read_panel(tmp_path, mapping=mapping, prices=2010)) == 3


def test_another_series_changes_the_digest(tmp_path: Path) -> None:
    macro_csv(tmp_path, range(1990, 2011))
    first = read_macro(tmp_path).digest
    macro_csv(tmp_path, range(1990, 2012))
    assert read_macro(tmp_path).digest != first


def test_faulty_macro_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the macro file us.csv was not found"):
        read_macro(tmp_path)
    macro_csv(tmp_path, range(1990, 2011), unemployment="5.0")
    with pytest.raises(InputError, match="unemployment is out of range"):
        read_macro(tmp_path)
    (tmp_path / "us.csv").write_text(f"{SERIES}1990,0.05,0,0\n1992,0.05,0,0\n")
    with pytest.raises(InputError, match="no row for 1991"):
        read_macro(tmp_path)
    (tmp_path / "us.csv").write_text(f"{SERIES}1990,0.05,0.01,0\n1991,0.06,0.01,0.01\n")
    with pytest.raises(InputError, match="real_wage_growth is constant"):
        read_macro(tmp_path)
    (tmp_path / "us.csv").write_text("year,unemployment\n1990,0.05\n")
    with pytest.raises(InputError, match="row 1 lacks real_wage_growth, inflation"):
        read_macro(tmp_path)
