"""A name is a name: no character of a path or URL is a pattern, a fragment or an option."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from carry import Carry
from polars_readstat import write_readstat
from saga.api.jobs.job_queue import JobQueue
from saga.api.settings import Settings
from saga.calibration.adaptive.database import parse_database_url, sqlite_url
from saga.calibration.adaptive.ledger import open_ledger
from scored_folder import path_rows, write_scored

from saga.batch.engine import score
from saga.batch.run_folder import MANIFEST
from saga.data.reading import read_panel
from saga.errors import UsageError
from saga.files.folders import find_file, open_place
from saga.files.object_store import ObjectFolder
from saga.files.tables import read_provenance, write_table
from saga.population.scored_paths import ScoredPaths

NAMES = (
    "people[1]",
    "a*b",
    "who?",
    "one #1",
    "p%41",
    "p%20q",
    "år b",
    "a{b}c",
    "a+b&c=d",
    "[x]",
    "file:x",
)


def rows_of(person: str) -> pl.DataFrame:
    return pl.DataFrame(
        {"person_id": person, "year": [2020, 2021], "birth_year": 1985, "earnings": [3e5, 3.1e5]}
    )


WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    ".csv": pl.DataFrame.write_csv,
    ".parquet": pl.DataFrame.write_parquet,
    ".arrow": pl.DataFrame.write_ipc,
    ".dta": lambda rows, file: write_readstat(rows, str(file)),
}


def write(rows: pl.DataFrame, file: Path) -> None:
    file = file.absolute()  # polars takes `file:` for a URL
    file.parent.mkdir(exist_ok=True)
    part = file.parent / "part.dta"  # whose writer has names of its own
    WRITERS[file.suffix](rows, part)
    part.rename(file)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".dta"])
def test_the_named_file_is_read_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Beside each file are those that its name would match as a pattern or after decoding."""
    monkeypatch.chdir(tmp_path)
    for other in ("people1", "aXb", "whoX", "one ", "pA", "p q", "ab", "x"):
        write(rows_of("another"), tmp_path / f"{other}{suffix}")
    for name in NAMES:
        write(rows_of(name), tmp_path / f"{name}{suffix}")
        write(rows_of(name), tmp_path / name / f"{name}{suffix}")
        for place in (Path(f"{name}{suffix}"), Path(name)):
            assert list(read_panel(place).persons()) == [name], place


@pytest.mark.parametrize("name", NAMES)
def test_a_run_and_tables_are_written_to_the_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source, out = Path(name, f"{name}.csv"), Path(f"{name} out")
    write(rows_of("one"), source)
    score(source, out, Carry())
    write_scored((out / "paths").absolute(), path_rows(np.ones((2, 1, 3))))
    assert ScoredPaths(out / "paths").rows.collect().height == 6
    url = (tmp_path / f"url {name}").as_uri()
    score(source.absolute().as_uri(), url, Carry())
    assert (tmp_path / f"url {name}" / MANIFEST).exists()
    for suffix in (".csv", ".parquet"):
        table = write_table(rows_of("one"), out / f"{name}{suffix}", {"seed": 1})
        assert read_provenance(table) == {"seed": 1}
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {name, f"{name} out", f"url {name}"}


@pytest.mark.parametrize("name", NAMES)
def test_a_database_is_the_file_of_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    open_ledger(sqlite_url(folder / f"{name}.sqlite")).close()
    queue = JobQueue(Settings.of(jobs=folder).job_queue_url)
    queue.close()
    names = {f"{name}.sqlite", f"{name}.sqlite.key", "queue.sqlite"}
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(files) == names
    assert min(files.values()) > 0
    assert list(tmp_path.iterdir()) == [folder]


def test_a_number_sign_in_the_url_of_a_ledger_is_part_of_the_name(tmp_path: Path) -> None:
    open_ledger(f"sqlite:///{tmp_path}/prod#1.sqlite").close()
    assert {path.name for path in tmp_path.iterdir()} == {"prod#1.sqlite", "prod#1.sqlite.key"}


def test_a_folder_of_jobs_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        _ = Settings.of(jobs=tmp_path / os.fsdecode(b"jobs\xff")).job_queue_url


@pytest.mark.parametrize("url", ["sqlite:///a?b.sqlite", "sqlite:///a.sqlite?mode=ro"])
def test_an_sqlite_url_has_no_options(url: str) -> None:
    with pytest.raises(UsageError, match="%3F"):
        parse_database_url(url)
    with pytest.raises(UsageError, match="%3F"):
        _ = Settings.of(jobs=Path("jobs"), jobs_database=url).job_queue_url


@pytest.mark.parametrize("url", ["postgresql://u:pw@h:port/d", "sqlite+other:///a.sqlite"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError) as told:
        parse_database_url(url)
    assert "pw" not in f"{told.value}{told.value.problems}"


def names_in(url: str) -> object:
    return ObjectFolder(url).names()


@pytest.mark.parametrize(
    ("door", "name", "told"),
    [
        *(
            (open_place, f"file://{name}", "%23 for #")
            for name in ("/data/o#1", "/data/a?b", "/a%00", "data/a.csv")
        ),
        # Its tables would be read as the panel where a variable of a script is not set.
        *((door, "", "is empty") for door in (open_place, read_panel, find_file)),
        *(
            (names_in, f"s3://bucket/{name}", r"empty name, \. or \.\.")
            for name in ("a/../b", "./a", "a//b")
        ),
    ],
)
def test_an_unclear_or_empty_name_is_refused(
    door: Callable[[str], object], name: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        door(name)


READERS = {f"{verb}_{kind}" for verb in ("read", "scan") for kind in ("parquet", "csv", "ipc")}
ROOMS = ("saga", "api", "training", "calibration", "evaluation", "studies")


@pytest.mark.parametrize("room", ROOMS)
def test_no_reader_of_files_is_given_a_pattern(room: str) -> None:
    """Polars takes a path for a pattern: of a folder `run[1]` it would read the files of `run1`."""
    calls = [
        (f"{file}:{call.lineno}", call)
        for file in sorted((Path(__file__).parents[3] / room).rglob("*.py"))
        for call in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).removeprefix("pl.") in READERS
    ]
    for place, call in calls:
        options = {keyword.arg for keyword in call.keywords}
        assert "glob" in options or "bytes" in ast.unparse(call.args[0]).lower(), place
