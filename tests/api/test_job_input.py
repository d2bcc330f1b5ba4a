"""The table of a job: what unfolds to gigabytes is refused before the engine has it in memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from saga.api.table_process import MAX_TEXT
from saga.api.table_reader import check_file

from saga.data.reading import MAX_ROWS, Source
from saga.errors import InputError
from tests.encoded import encoded
from tests.problems import problem_of

MAX_BYTES = 2**26
STREAM = pytest.param(".stream.arrow", marks=pytest.mark.thorough)  # batches as those of a file
SUFFIXES = [".parquet", ".arrow", STREAM, ".csv"]


def rule_of(path: Path, max_bytes: int = 2 * 2**30) -> str | None:
    """The rule that refuses a table; None if it passes."""
    try:
        check_file(path, max_bytes)
    except InputError as error:
        return error.problems[0].rule
    return None


WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    ".parquet": pl.DataFrame.write_parquet,
    ".arrow": pl.DataFrame.write_ipc,
    ".stream.arrow": pl.DataFrame.write_ipc_stream,
    ".csv": pl.DataFrame.write_csv,
}


def write(frame: pl.DataFrame, folder: Path, suffix: str) -> Path:
    path = folder / f"panel{suffix}"
    WRITERS[suffix](frame, path)
    return path


def persons(name: str, n: int = 50) -> pl.DataFrame:
    """`n` rows, the last of which is of a person of this name."""
    ids = [f"P{i}" for i in range(n - 1)]
    return pl.DataFrame({"person_id": [*ids, name], "year": [2020] * n, "earnings": [1.0] * n})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_texts_up_to_the_limit_pass(tmp_path: Path, suffix: str) -> None:
    frame = persons("é" * MAX_TEXT).with_columns(note=pl.lit("n" * 1_000))  # not of a panel
    assert rule_of(write(frame, tmp_path, suffix)) is None


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["x" * 2**17, "x" * 2**21])
def test_a_long_text_is_refused(tmp_path: Path, suffix: str, name: str) -> None:
    path = write(persons(name), tmp_path, suffix)
    problem = problem_of(check_file, path, 2 * 2**30)
    assert problem.rule == "string_too_long"
    assert problem.column == (None if suffix == ".csv" else "person_id")
    assert "xxxx" not in str(problem)


def test_a_text_that_unfolds_to_gigabytes_is_refused_with_little_memory(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(
        pa.array([0] * 90_000, pa.int32()), pa.array(["y" * 2**20])
    )
    table = pa.table({"person_id": repeated, "year": pa.array([2020] * 90_000)})
    pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < 10_000
    rule = rule_of(tmp_path / "bomb.parquet")
    assert rule == "string_too_long", "found within the limit of memory"


@pytest.mark.thorough
def test_a_batch_that_unfolds_to_gigabytes_is_refused(tmp_path: Path) -> None:
    pieces = pa.array(["z" * 2**20] * 1_900, pa.large_string())
    table = pa.table({"person_id": pieces, "year": pa.array([2020] * len(pieces))})
    assert rule_of(compressed(tmp_path / "bomb.arrow", table)) == "table-memory"


@pytest.mark.parametrize("last", [-1, 2, 10**6, 2**30])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_text_that_lies_outside_its_table_is_damage(
    tmp_path: Path, kind: pa.DataType, last: int
) -> None:
    """Whoever follows the position reads other memory, or ends by it."""
    table = pa.table({"person_id": pa.array(["AAAA"] * 9, kind), "year": [2020] * 9})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    size = 4 if kind == pa.string() else 8
    stored = b"".join((4 * i).to_bytes(size, "little") for i in range(10))
    damaged = stored[:-size] + last.to_bytes(size, "little", signed=True)
    content = sink.getvalue().to_pybytes()
    assert content.count(stored) == 1
    (tmp_path / "panel.arrow").write_bytes(content.replace(stored, damaged))
    assert rule_of(tmp_path / "panel.arrow") == "unreadable-file"


PERSON = persons("A")


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        # Otherwise the engine, whose library may read what the check could not, had it unchecked.
        ("panel.parquet", b"no table at all", "unreadable-file"),
        ("panel.arrow", b"no table at all", "unreadable-file"),
        ("panel.stream.arrow", encoded(PERSON, "ipc_stream"), None),
        ("panel.stream.arrow", encoded(PERSON, "ipc_stream")[:-8], "table-end"),
    ],
)
def test_a_damaged_table_is_refused(
    tmp_path: Path, name: str, content: bytes, rule: str | None
) -> None:
    (tmp_path / name).write_bytes(content)
    assert rule_of(tmp_path / name) == rule


def columns(n: int, **others: pa.Array) -> pa.Table:
    """`n` equal rows of a panel, which take next to nothing when they are compressed."""
    numbers = {"person_id": 1, "year": 2020, "birth_year": 1980, "earnings": 1.0}
    return pa.table({name: pa.repeat(value, n) for name, value in numbers.items()} | others)


def compressed(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, compression="zstd")
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        make = pa.ipc.new_stream if ".stream" in path.suffixes else pa.ipc.new_file
        with make(path, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=max(1, table.num_rows))
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", STREAM])
@pytest.mark.parametrize(
    ("table", "rule"),
    [
        (columns(2_200_000), "table-cells"),
        (pa.table({name: pa.nulls(2_200_000) for name in columns(0).column_names}), "table-cells"),
        (columns(1, sex=pa.array([[1.0] * 100_000])), "column-type"),
        (columns(1, sex=pa.array([b"x" * 100])), "column-type"),
        (columns(1, employers=pa.array([1], pa.decimal256(39, 2))), "column-type"),
        (columns(2_000_000), None),
        # A table without a column of a panel still has rows.
        (
            columns(2_200_000).select([]).append_column("note", pa.repeat(1, 2_200_000)),
            "table-cells",
        ),
    ],
)
def test_cells_are_counted_before_the_table_is_read(
    tmp_path: Path, suffix: str, table: pa.Table, rule: str | None
) -> None:
    assert rule_of(compressed(tmp_path / f"bomb{suffix}", table), MAX_BYTES) == rule


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_texts_are_counted_uncompressed(tmp_path: Path, suffix: str) -> None:
    texts = pa.array([f"{i:064d}" for i in range(1_100)] * 1_000)
    table = columns(len(texts)).set_column(0, "person_id", texts)
    if suffix == ".parquet":
        pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd", use_dictionary=False)
    else:
        compressed(tmp_path / "bomb.arrow", table)
    assert rule_of(tmp_path / f"bomb{suffix}", MAX_BYTES) == "table-bytes"


@pytest.mark.parametrize(
    ("suffix", "rule"), [(".parquet", None), (".arrow", None), (".stream.arrow", "table-bytes")]
)
@pytest.mark.parametrize(
    "others",
    [
        {"note": pa.array(["x" * 70_000_000])},
        {f"note{i}": pa.repeat(1.0, 10_000) for i in range(1_000)},
    ],
    ids=["a long text", "many columns"],
)
def test_columns_that_are_not_of_a_panel_count_where_the_engine_reads_them(
    tmp_path: Path, others: dict[str, pa.Array], suffix: str, rule: str | None
) -> None:
    table = columns(len(next(iter(others.values()))), **others)
    assert rule_of(compressed(tmp_path / f"bomb{suffix}", table), MAX_BYTES) == rule


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        (b"a,\n" * 10, None),
        (b'a""\n' * 10, None),
        (b"a\n" * 60_000, "string_too_long"),
        (b'a""\n' * 30_000, "string_too_long"),
    ],
)
def test_a_cell_with_line_ends_is_measured_whole(
    tmp_path: Path, cell: bytes, rule: str | None
) -> None:
    path, head = tmp_path / "panel.csv", b"person_id,year,birth_year,earnings\n"
    row = b"1,2020,1980,1\n"
    path.write_bytes(head + row * 100_000 + b'"' + cell + b'",2020,1980,1\n' + row)
    assert rule_of(path) == rule


# The levels have four different first bytes.
@pytest.mark.parametrize("level", [0, 5, 6, 9, "gzip", "zstd"])
def test_packed_csv_is_refused(tmp_path: Path, level: int | str) -> None:
    """The engine would unpack it: 9 kB of zstd are 100 MB of rows, which nobody has counted."""
    path, rows = tmp_path / "panel.csv", PERSON.write_csv().encode()
    packed = zlib.compress(rows, level) if isinstance(level, int) else pa.compress(rows, level)
    path.write_bytes(packed)
    assert pl.read_csv(path).height == 50, "the engine reads it"
    assert rule_of(path) == "unreadable-file"


def test_rows_of_csv_are_counted(tmp_path: Path) -> None:
    (tmp_path / "panel.csv").write_bytes(b"person_id\n" + b",\n" * 2_200_000)
    assert rule_of(tmp_path / "panel.csv", MAX_BYTES) == "table-cells"


@pytest.mark.parametrize(
    ("person", "n", "passes"),
    [("A", MAX_ROWS, True), ("A", MAX_ROWS + 1, False), (None, MAX_ROWS + 1, True)],
)
def test_rows_of_one_person_are_bounded(
    tmp_path: Path, person: str | None, n: int, passes: bool
) -> None:
    """Rows of a person are read together, and so are those without a person, of which more pass."""
    frame = pl.concat([persons("B", 3), persons("C", n).with_columns(person_id=pl.lit(person))])
    frame.with_columns(birth_year=1980).write_parquet(tmp_path / "panel.parquet")
    source = Source(tmp_path / "panel.parquet")
    if passes:
        assert "B" in source.persons().to_list()
        return
    assert problem_of(source.persons).rule == "person-rows"
