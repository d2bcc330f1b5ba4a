"""A release is complete, describes its panel, and has the same bytes for a seed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from saga import schema
from saga.errors import UsageError
from saga.register import RegisterSettings
from saga.register.release import describe_impossible, release_register
from tests.command_line import answer

SETTINGS = RegisterSettings(
    persons=1_000, seed=3, first_year=2018, last_year=2020, future_to=2024, future_draws=1
)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release") / "data-set"
    release_register(out, SETTINGS)
    return out


def checksums(folder: Path) -> dict[str, str]:
    """File -> checksum."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


@pytest.mark.thorough
def test_the_command_writes_the_same_bytes_under_another_name_and_with_two_workers(
    release: Path, tmp_path: Path
) -> None:
    out = tmp_path / "another"
    options = "--persons 1000 --seed 3 --years 2018-2020 --future-to 2024 --workers 2"
    about = answer("register generate --data-set --out", out, options)
    different = dict(checksums(out).items() ^ checksums(release).items())
    assert set(different) <= {"sample/panel.dta", "sample/panel.sav"}, "they have dates"
    assert about["files"] == len(checksums(out)) + 1
    full_command = "saga register generate --data-set --persons 1000 --seed 3 --years 2018-2020"
    full_command += " --out OUT --future-to 2024 --future-draws 1"
    assert full_command in (out / "README.md").read_text()


@pytest.mark.thorough
def test_checksums_cover_every_file_and_sha256sum_detects_a_changed_byte(
    release: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(release, tmp_path / "copy")
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert set(checksums(copy)) == files - {"SHA256SUMS"}
    check = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=copy, capture_output=True, check=False).returncode == 0
    part = copy / "split" / "test.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    broken = subprocess.run(check, cwd=copy, capture_output=True, check=False, text=True)
    assert broken.returncode != 0
    assert "split/test.parquet: FAILED" in broken.stdout


@pytest.mark.thorough
def test_the_data_sheet_states_columns_missing_cells_and_misfits(release: Path) -> None:
    sheet = (release / "README.md").read_text()
    rows = pl.read_parquet(release / "panel/**/*.parquet", hive_partitioning=False)
    lines = {line.split("`")[1]: line for line in sheet.splitlines() if line.startswith("| `")}
    for column in schema.COLUMNS:
        line = lines[column.name]
        assert column.description in line
        assert all(code in line for code in column.codes)
        assert line.endswith(f"| {rows[column.name].null_count() / rows.height:.2%} |")
    moments = pl.read_parquet(release / "moments.parquet")
    misfits = sheet.partition("## Known misfits")[2].partition("## Use and misuse")[0]
    missed = moments.filter(pl.col("holds").eq(False), pl.col("source") != "")["key"].to_list()
    assert [key for key in missed if f"`{key}`" not in misfits] == []
    assert not [key for key in moments.filter("holds")["key"] if f"`{key}`" in misfits]
    assert f"| person-years | {rows.height:,} |" in sheet


@pytest.mark.parametrize("broken", [{}, {"a work of no weeks": 2}, {"a birth": 1, "a death": 1234}])
def test_the_data_sheet_counts_the_rows_that_break_a_rule(broken: dict[str, int]) -> None:
    rules = {"two rows of a year": 0, **broken, "an age below 16": 0}
    table = pl.DataFrame({"impossible": list(rules), "rows": list(rules.values())})
    sheet = describe_impossible(table)
    assert f"{len(rules)} rules were checked on every row.\n\n" in sheet
    assert sheet.endswith("\n\nNo row has two rows of a year, an age below 16.")
    assert ("No row breaks any." in sheet) == (not broken)
    lines = [f"| {rule} | {rows:,} |" for rule, rows in broken.items()]
    assert [line for line in sheet.splitlines() if line.startswith("| a ")] == lines


def test_an_impossible_release_is_refused_before_any_work(tmp_path: Path) -> None:
    too_small = RegisterSettings(persons=999, seed=3, first_year=2020, last_year=2020)
    with pytest.raises(UsageError, match="at least 1,000 persons"):
        release_register(tmp_path / "out", too_small)
    (tmp_path / "precious.txt").write_text("keep")
    with pytest.raises(UsageError, match="exists already"):
        release_register(
            tmp_path, RegisterSettings(persons=1_000, seed=3, first_year=2020, last_year=2020)
        )
