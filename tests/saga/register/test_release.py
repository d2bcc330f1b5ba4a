"""The release: complete, true to its own panel, the same bytes from the same seed, and checked by the ordinary tool."""

import json
import shutil
import subprocess

import polars as pl
import pytest
from typer.testing import CliRunner

from saga import schema
from saga.cli import app
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.errors import UsageError
from saga.register import release as release_module
from saga.register.release import misfits, release_register
from saga.register.validation.register_check import check_register

WANTED = {
    "persons": 1_000,
    "seed": 3,
    "first_year": 2018,
    "last_year": 2020,
    "future_to": 2024,
    "future_draws": 1,
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    out = tmp_path_factory.mktemp("release") / "data-set"
    release_register(out, **WANTED, workers=2)
    return out


def sums(folder):
    return dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )


def test_the_command_gives_the_same_bytes_under_another_name_and_with_one_worker(release, tmp_path):
    out = tmp_path / "another"
    command = "--persons 1000 --seed 3 --years 2018-2020 --future-to 2024 --json"
    run = CliRunner().invoke(app, ["register", "release", str(out), *command.split()])
    assert run.exit_code == 0, run.stderr
    assert (out / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
    assert json.loads(run.stdout)["files"] == len(sums(out)) + 1
    assert (
        "saga register release OUT --persons 1000 --seed 3 --years 2018-2020 --future-to 2024 --future-draws 1"
        in (out / "README.md").read_text()
    )


def test_the_sums_cover_every_file_and_sha256sum_agrees_until_a_byte_changes(release, tmp_path):
    copy = shutil.copytree(release, tmp_path / "copy")
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert set(sums(copy)) == files - {"SHA256SUMS"}
    check = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=copy, capture_output=True, check=False).returncode == 0
    part = copy / "split" / "test.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    broken = subprocess.run(check, cwd=copy, capture_output=True, check=False, text=True)
    assert broken.returncode != 0
    assert "split/test.parquet: FAILED" in broken.stdout


def test_the_split_is_that_of_training_and_covers_everybody_once(release):
    panel = read_panel(release)
    parts = {
        path.stem: pl.read_parquet(path)["person_id"].to_list()
        for path in (release / "split").iterdir()
    }
    assert parts == {
        part: persons_of(panel, part) for part in ("train", "validation", "calibration", "test")
    }
    assert sum(map(len, parts.values())) == WANTED["persons"]


def test_the_moments_are_those_of_this_register(release):
    moments = pl.read_parquet(release / "moments.parquet")
    assert moments.equals(check_register(release, paper=True, descriptive=True))
    page = (release / "moments.md").read_text()
    assert all(f"`{key}`" in page for key in moments.filter("enforced")["key"])


def test_the_data_sheet_tells_columns_gaps_and_misfits_as_they_are(release):
    sheet = (release / "README.md").read_text()
    rows = pl.read_parquet(release / "panel/**/*.parquet", hive_partitioning=False)
    lines = {line.split("`")[1]: line for line in sheet.splitlines() if line.startswith("| `")}
    for column in schema.COLUMNS:
        assert column.description in lines[column.name]
        assert all(code in lines[column.name] for code in column.codes)
        assert lines[column.name].endswith(
            f"| {rows[column.name].null_count() / rows.height:.2%} |"
        )
    moments = pl.read_parquet(release / "moments.parquet")
    known = sheet.partition("## Known misfits")[2].partition("## Use and misuse")[0]
    missed = moments.filter(pl.col("holds").eq(False), pl.col("source") != "")["key"].to_list()
    assert [word for word in missed if f"`{word}`" not in known] == []
    held = moments.filter("holds")["key"]
    assert not [word for word in held if f"`{word}`" in known]
    assert f"| person-years | {rows.height:,} |" in sheet


def test_a_figure_that_is_missed_is_a_known_misfit(release):
    moments = pl.read_parquet(release / "moments.parquet")
    key = moments.filter(pl.col("verdict") == "inside")["key"][0]
    this = pl.col("key") == key
    missed = moments.with_columns(
        holds=pl.col("holds") & ~this,
        verdict=pl.when(this).then(pl.lit("outside")).otherwise(pl.col("verdict")),
    )
    assert f"`{key}`" not in "\n".join(misfits(moments))
    assert f"`{key}`" in "\n".join(misfits(missed))


def test_a_failure_at_the_last_step_leaves_nothing_and_the_same_command_starts_anew(
    tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise RuntimeError("power")

    monkeypatch.setattr(release_module, "check_register", fail)
    monkeypatch.setattr(release_module, "FEWEST", 1)
    with pytest.raises(RuntimeError, match="power"):
        release_register(tmp_path / "out", persons=3, seed=3, first_year=2020, last_year=2020)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_released_is_refused_before_any_work(tmp_path):
    with pytest.raises(UsageError, match="at least 1,000 persons"):
        release_register(tmp_path / "out", persons=999, seed=3, first_year=2020, last_year=2020)
    (tmp_path / "precious.txt").write_text("keep")
    with pytest.raises(UsageError, match="exists already"):
        release_register(tmp_path, persons=1_000, seed=3, first_year=2020, last_year=2020)
