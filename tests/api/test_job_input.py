"""The table of a job: long texts are refused before the engine has them in memory."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from saga.api.table_process import MAX_TEXT
from saga.api.table_reader import check_file

from saga.errors import InputError

SUFFIXES = [".parquet", ".arrow", ".stream.arrow", ".csv"]


def write(frame: pl.DataFrame, path: Path) -> Path:
    match path.suffixes:
        case [".parquet"]:
            frame.write_parquet(path)
        case [".arrow"]:
            frame.write_ipc(path)
        case [".stream", ".arrow"]:
            frame.write_ipc_stream(path)
        case _:
            frame.write_csv(path)
    return path


def persons(name: str, n: int = 50) -> pl.DataFrame:
    """`n` rows, the last of which is of a person of this name."""
    ids = [f"P{i}" for i in range(n - 1)]
    return pl.DataFrame({"person_id": [*ids, name], "year": [2020] * n, "earnings": [1.0] * n})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_texts_up_to_the_limit_pass(tmp_path: Path, suffix: str) -> None:
    frame = persons("é" * MAX_TEXT).with_columns(note=pl.lit("n" * 1_000))  # not of a panel
    check_file(write(frame, tmp_path / f"panel{suffix}"))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["x" * 2**17, "x" * 2**21])
def test_a_long_text_is_refused(tmp_path: Path, suffix: str, name: str) -> None:
    with pytest.raises(InputError) as caught:
        check_file(write(persons(name), tmp_path / f"panel{suffix}"))
    (problem,) = caught.value.problems
    assert problem.rule == "string_too_long"
    assert problem.column == (None if suffix == ".csv" else "person_id")
    assert "xxxx" not in str(caught.value)


def test_a_text_that_unfolds_to_gigabytes_is_refused_with_little_memory(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(
        pa.array([0] * 90_000, pa.int32()), pa.array(["y" * 2**20])
    )
    table = pa.table({"person_id": repeated, "year": pa.array([2020] * 90_000)})
    pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < 10_000
    with pytest.raises(InputError) as caught:
        check_file(tmp_path / "bomb.parquet")
    assert caught.value.problems[0].rule == "string_too_long", "found within the limit of memory"


def test_a_batch_that_unfolds_to_gigabytes_is_refused(tmp_path: Path) -> None:
    pieces = pa.array(["z" * 2**20] * 1_900, pa.large_string())
    table = pa.table({"person_id": pieces, "year": pa.array([2020] * len(pieces))})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(tmp_path / "bomb.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    with pytest.raises(InputError) as caught:
        check_file(tmp_path / "bomb.arrow")
    assert caught.value.problems[0].rule == "table-memory"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_damaged_table_is_left_to_the_engine(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"panel{suffix}").write_bytes(b"no table at all")
    check_file(tmp_path / f"panel{suffix}")
