"""A result table is on disk completely and with its provenance, or not at all."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from saga.errors import InputError, UsageError
from saga.files.atomic import sole_output
from saga.files.tables import check_out, read_provenance, write_table
from saga.pages.layout import MARK, check_page
from tests.command_line import run

TABLE = pl.DataFrame({"person_id": ["007", "Åsa"], "mean": [312_345.125, None], "horizon": [1, 2]})
PROVENANCE = {"bundle": "ab" * 32, "seed": 3, "scenario": None, "note": "små"}


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "new/folder/t.PARQUET"])
def test_table_and_provenance_are_read_back(tmp_path: Path, name: str) -> None:
    out = write_table(TABLE, tmp_path / name, PROVENANCE)
    read = pl.read_csv(out, schema=TABLE.schema) if out.suffix == ".csv" else pl.read_parquet(out)
    assert read.equals(TABLE)
    assert read_provenance(out) == PROVENANCE


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_failed_write_leaves_the_old_table(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_table(TABLE, tmp_path / name, PROVENANCE)
    before = out.read_bytes()

    def half(_frame: pl.DataFrame, file: Path, **_: object) -> None:
        file.write_bytes(b"half a tab")
        raise OSError("disk full")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", half)
    monkeypatch.setattr(pl.DataFrame, "write_csv", half)
    with pytest.raises(OSError, match="disk full"):
        write_table(TABLE.head(1), out, PROVENANCE)
    assert out.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["t.csv", "t.xlsx", "t.dta"])
def test_table_and_provenance_appear_and_change_together(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two fails: no provenance without its table, none of another table."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for old in (False, True):
        if old:
            write_table(TABLE, tmp_path / name, {"seed": 1})
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        for fault in ("saga.files.tables._write", "os.fsync"):
            with monkeypatch.context() as patch:
                patch.setattr(fault, full)
                with pytest.raises(OSError, match="No space"):
                    write_table(TABLE.head(1), tmp_path / name, {"seed": 2})
            assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_foreign_table_or_a_foreign_file_beside_is_not_replaced(tmp_path: Path) -> None:
    """Also where the provenance of an earlier table is left, or the user changed the table."""
    out = write_table(TABLE, tmp_path / "t.csv", PROVENANCE)
    out.write_text("my own table")
    with pytest.raises(InputError, match="no provenance"):
        read_provenance(out)
    with pytest.raises(UsageError, match="SAGA did not write it"):
        write_table(TABLE, out, PROVENANCE)
    assert out.read_text() == "my own table"
    (tmp_path / "u.csv.json").write_text("{}")
    with pytest.raises(UsageError, match=r"u\.csv\.json exists"):
        check_out(tmp_path / "u.csv")


@pytest.mark.parametrize("name", ["metrics", "estimates"])
def test_an_evaluation_neither_replaces_nor_removes_tables_of_others(
    tmp_path: Path, name: str
) -> None:
    """It removes what it wrote before and does not write again."""
    (tmp_path / f"{name}.parquet").write_text("my own table")
    result = run("evaluate bundle --panel panel.csv --out", tmp_path)
    assert (result.exit_code, "SAGA did not write it" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.csv.json", "t.html"])
@pytest.mark.parametrize("target", ["ours", "absent"])
def test_a_link_is_not_replaced(tmp_path: Path, name: str, target: str) -> None:
    """Who reads its target would read the table of an earlier run."""
    if target == "ours":
        write_table(TABLE, tmp_path / "ours.csv", PROVENANCE)
        (tmp_path / "ours.html").write_text(MARK)
    aim = {"t.csv.json": "ours.csv.json", "t.html": "ours.html"}.get(name, "ours.csv")
    link = tmp_path / name
    link.symlink_to(tmp_path / aim)
    check = partial(check_page, what="page", suffixes=(".html",)) if ".html" in name else check_out
    with pytest.raises(UsageError, match="SAGA did not write it"):
        check(link.with_name(name.removesuffix(".json")))


def test_a_second_process_is_refused_an_output_that_one_is_writing(tmp_path: Path) -> None:
    script = (
        "import sys; from saga.files.atomic import sole_output\nwith sole_output(sys.argv[1]): pass"
    )
    command = [sys.executable, "-c", script]
    with sole_output(tmp_path / "bundle"):
        second = subprocess.run([*command, tmp_path / "bundle"], capture_output=True, text=True)
        other = subprocess.run([*command, tmp_path / "other"], capture_output=True, text=True)
    assert "Another process is writing" in second.stderr
    assert not other.returncode
    with sole_output(tmp_path / "bundle"):
        pass


def test_locks_of_a_user_without_a_name_are_not_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    with sole_output("mine"):
        assert len(list(tmp_path.glob("saga-outputs-*/*"))) == 1
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    with sole_output("mine"):
        assert len(list(tmp_path.glob("saga-outputs-*/*"))) == 1


def test_an_unusable_output_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.parquet, \.csv"):
        check_out(tmp_path / "t.ods")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(UsageError, match="is a directory"):
        check_out(tmp_path / "d.csv")


def test_a_table_of_another_origin_has_no_provenance(tmp_path: Path) -> None:
    TABLE.write_parquet(tmp_path / "t.parquet")
    TABLE.write_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(InputError, match="no provenance"):
            read_provenance(tmp_path / name)


def test_stata_and_excel_files_have_the_values_and_the_provenance(tmp_path: Path) -> None:
    from polars_readstat import read_readstat

    frame = TABLE.with_columns(pl.lit(True).alias("includes_zero_97.5"))
    stata = write_table(frame, tmp_path / "t.dta", PROVENANCE)
    back = read_readstat(str(stata))
    assert back["person_id"].to_list() == TABLE["person_id"].to_list()
    assert back["mean"].to_list() == TABLE["mean"].to_list()
    assert back["includes_zero_97_5"].to_list() == [1, 1]
    excel = write_table(frame, tmp_path / "t.xlsx", PROVENANCE)
    with zipfile.ZipFile(excel) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert "312345.125" in sheet
    for path in (stata, excel):
        assert read_provenance(path) == PROVENANCE


def test_no_code_or_name_is_a_formula_in_excel(tmp_path: Path) -> None:
    """Nor a link, which shows `c.xlsx` for `external:c.xlsx`: another id."""
    texts = ["=1+1", "{=1}", "@SUM(1)", "+1", "'=1", "http://example.org/a", "mailto:a@b.se"]
    texts += ["internal:Sheet1!A1", "external:c.xlsx", "ftp://a", "file://c", "0012", "1e5", "TRUE"]
    frame = pl.DataFrame({"region": texts, "value": 1.0})
    write_table(frame, tmp_path / "t.xlsx", PROVENANCE)
    with zipfile.ZipFile(tmp_path / "t.xlsx") as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
        strings = archive.read("xl/sharedStrings.xml").decode()
    assert not any(word in sheet for word in ("<f", "hyperlink"))
    assert re.findall("<t[^>]*>(.*?)</t>", strings) == ["region", "value", *texts]


def test_a_table_that_is_too_long_for_excel_is_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"mean": pl.zeros(1_048_576, eager=True)})
    with pytest.raises(UsageError, match=r"at most 1,048,575 rows"):
        write_table(frame, tmp_path / "t.xlsx", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
