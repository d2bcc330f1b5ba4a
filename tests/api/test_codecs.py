"""Decoding of request bodies and encoding of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pytest
from saga.api.codecs import (
    ARROW_FILE,
    ARROW_STREAM,
    CSV,
    PARQUET,
    Call,
    parse_json,
    parse_table,
)
from saga.api.problems import ProblemError
from saga.api.request_models import MAX_OUTCOMES, ForecastBody, ForecastOptions
from saga.api.table_process import MAX_TEXT
from saga.api.table_reader import READER

from saga.schema import NAMES
from tests.encoded import encoded
from tests.problems import problem_of, problems_of

Person = Callable[..., dict[str, Any]]
Place = tuple[str, str | None, int | None, str | None]  # rule, person, year and column


def _json(*persons: dict[str, Any], **options: Any) -> Call[ForecastOptions]:
    return parse_json(json.dumps({"persons": persons, **options}).encode(), ForecastBody, 100)


def _bytes(frame: pl.DataFrame, kind: str) -> bytes:
    kinds = {PARQUET: "parquet", ARROW_STREAM: "ipc_stream", ARROW_FILE: "ipc"}
    return encoded(frame, kinds[kind])


def test_a_year_may_have_every_column_of_the_panel() -> None:
    schema = ForecastBody.model_json_schema()
    assert set(schema["$defs"]["HistoryRow"]["properties"]) == {*NAMES, "extra"}


def test_columns_beside_the_history_are_repeated_in_each_year(person: Person) -> None:
    frame = _json(
        person(
            "007",
            history=[
                {"year": 2020, "earnings": None},
                {"year": 2021, "earnings": 0, "county": "01"},
            ],
        )
    ).frame
    assert frame.rows(named=True) == [
        {
            "person_id": "007",
            "year": 2020,
            "birth_year": 1984,
            "earnings": None,
            "county": None,
            "sex": "female",
        },
        {
            "person_id": "007",
            "year": 2021,
            "birth_year": 1984,
            "earnings": 0.0,
            "county": "01",
            "sex": "female",
        },
    ]


def test_a_column_that_is_not_sent_is_absent_not_null(person: Person) -> None:
    """`read_panel` distinguishes a missing column from missing values."""
    assert "earnings" not in _json(person(history=[{"year": 2020}])).frame.columns


def test_whole_numbers_may_be_written_with_decimals_or_as_codes(person: Person) -> None:
    year = {"year": 2020.0, "earnings": 1, "children": 2}
    frame = _json(
        person(12, birth_year=1984.0, history=[year]), person(2.0**53 - 1, history=[year])
    ).frame
    columns = ["person_id", "year", "birth_year", "earnings", "children"]
    assert frame.select(columns).rows() == [
        ("12", 2020, 1984, 1.0, "2"),
        ("9007199254740991", 2020, 1984, 1.0, "2"),
    ]


def a_year(**cells: object) -> list[dict[str, Any]]:
    return [{"history": [{"year": 2020, "earnings": 1, **cells}]}]


REFUSED_PERSONS: list[tuple[list[dict[str, Any]], Place]] = [
    # Such a number may be the id of another person.
    *(
        ([{"person_id": number}], ("string_type", None, None, "person_id"))
        for number in (2.0**53, 12345678901234567.0, 1e300, 7.5)
    ),
    *(
        (a_year(earnings=value), ("float_type", "A1", 2020, "earnings"))
        for value in ("1", True, [1], {"a": 1})
    ),
    (a_year(sex="male"), ("static", "A1", 2020, "sex")),
    ([{"person_id": "A1"}, {"person_id": " A1"}], ("person-twice", "A1", None, None)),
]


@pytest.mark.parametrize(("changes", "place"), REFUSED_PERSONS)
def test_persons_that_cannot_be_read_are_refused_with_the_place(
    person: Person, changes: list[dict[str, Any]], place: Place
) -> None:
    problem = problem_of(_json, *(person(**change) for change in changes))
    assert (problem.rule, problem.person_id, problem.year, problem.column) == place


@pytest.mark.parametrize("object_kind", ["request", "person", "year"])
def test_very_many_unknown_entries_give_one_error(person: Person, object_kind: str) -> None:
    unknown = {f"x{i}": 1 for i in range(100_000)}
    sent = person(**(unknown if object_kind == "person" else {}))
    sent["history"][0] |= unknown if object_kind == "year" else {}
    options = unknown if object_kind == "request" else {}
    assert problem_of(_json, sent, **options).rule == "entries"


@pytest.mark.parametrize("kind", [PARQUET, ARROW_STREAM, ARROW_FILE])
def test_a_table_is_read_like_the_same_persons_in_json(person: Person, kind: str) -> None:
    call = _json(person("A1"), person("B2"), horizons=[1, 5], coverage=[0.9], seed=3)
    query = [("horizons", "1,5"), ("coverage", ".9"), ("seed", "3")]
    table = parse_table(_bytes(call.frame, kind), kind, query, ForecastOptions, 100)
    assert table.frame.equals(call.frame)
    assert table.options.model_dump() == call.options.model_dump(exclude={"persons"})


@pytest.mark.parametrize(
    ("first", "separator", "line_end"),
    [("", ",", "\n"), ("\ufeffsep=;\r\n", ";", "\r\n"), ("", "\t", "\r")],
)
def test_csv_of_any_program_is_read_like_the_same_persons_in_json(
    person: Person, first: str, separator: str, line_end: str
) -> None:
    """Leading zeros stay; empty lines and columns without a name, as of row names, are no data."""
    frame = _json(person("007"), person("B2")).frame
    named = frame.with_row_index("").cast(pl.String)
    lines = named.write_csv(separator=separator, quote_style="always", line_terminator=line_end)
    body = f"{first}{lines}{separator * (named.width - 1)}{line_end}{line_end}".encode()
    table = parse_table(body, CSV, [("horizons", "1,5")], ForecastOptions, 100)
    assert table.frame.cast(frame.schema).equals(frame)


@pytest.mark.parametrize("kind", [CSV, PARQUET])
def test_case_and_blanks_of_names_do_not_matter_as_in_files(person: Person, kind: str) -> None:
    frame = _json(person()).frame
    names = {"person_id": " PERSON_ID", "birth_year": "Birth_Year ", "earnings": "Earnings"}
    other = frame.rename(names)
    body = other.write_csv().encode() if kind == CSV else _bytes(other, kind)
    read = parse_table(body, kind, [], ForecastOptions, 10).frame
    assert read.cast(frame.schema).equals(frame)


def _stream(table: pa.Table, rows: int | None = None) -> tuple[bytes, list[int]]:
    """An Arrow stream in batches of so many rows, and where each batch ends."""
    sink, ends = pa.BufferOutputStream(), []
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
            ends.append(sink.tell())
    return sink.getvalue().to_pybytes(), ends


def _decimals(kind: pa.DataType) -> bytes:
    """Earnings of a type of decimals, in an Arrow stream."""
    earnings = pa.array([Decimal(47_000)], kind)
    return _stream(pa.table({"person_id": ["A"], "earnings": earnings}))[0]


MOST = 2_000  # persons of a call
HEADER, ROW = b"person_id,birth_year,year,earnings\n", b"A1,1985,2021,340000\n"
ONE = pl.DataFrame({"person_id": ["A1"], "year": [2020], "birth_year": [1984], "earnings": [1.0]})
BATCHES, ENDS = _stream(pl.concat([ONE, ONE]).to_arrow(), rows=1)
REFUSED_TABLES: list[tuple[str, bytes, str, str]] = [
    (CSV, b"", "table", ""),
    (CSV, b"person_id,year\nA1\n", "table", ""),
    (CSV, b"person_id,year\n\xe5,2020\n", "table", ""),
    (CSV, b'person_id,year\n"A1,2020\n', "table", ""),
    (
        CSV,
        ROW + ROW,
        "no-columns",
        "No column has the name of a column",
    ),  # nor are its cells repeated
    (CSV, b"year,year\n1,2\n", "column-twice", ""),
    (CSV, b"person_id\n" + b"A\n" * (100 * MOST + 1), "table-rows", ""),
    (CSV, b"person_id\n" + b"A" * 65, "string_too_long", ""),
    (CSV, b"a," * 100 + b"a\n", "table-columns", ""),
    (CSV, b"," * 99 + b"\n" + b"," * 2**25, "table", ""),
    (CSV, (b"," * 99 + b"\n") * 300_000, "table-bytes", ""),
    # A row with another number of cells is named by its line.
    (CSV, HEADER + ROW + b"A1,1985,2022,1,\n", "table", "Line 3 has more cells than the header"),
    (CSV, b"sep=,\n" + HEADER + b"A1,1985,1\n", "table", "Line 3 has fewer cells than the header"),
    (CSV, HEADER + b'\n"A\nB",1,2,1\nA1,1,2,1,2\n', "table", "Line 5 has more cells"),
    (CSV, HEADER + ROW * 100_000 + b"1\n", "table", "Line 100002 has fewer cells"),
    (CSV, HEADER[:-1] + b",\n" + ROW[:-1] + b",000\n", "table", "Line 2 has a value in a column"),
    # It may be cut off within the last cell, or between two batches of an Arrow stream.
    *(
        (CSV, HEADER + ROW + b"A1,1985,2022," + end, "table", "Line 3 has a quotation mark that is")
        for end in (b'"1', b'"1\n', b'1"\n', b'"1\nB,1985,2021,2\n')
    ),
    *(
        (ARROW_STREAM, content, "table-end", "rows may be missing")
        for content in (BATCHES[: ENDS[0]], BATCHES[: ENDS[-1]], BATCHES + BATCHES)
    ),
    *(
        (kind, _bytes(ONE, kind)[:cut], "table", "")
        for kind in (PARQUET, ARROW_STREAM, ARROW_FILE)
        for cut in (0, 10, 300)
    ),
    *(
        (
            ARROW_STREAM,
            _decimals(kind),
            "column-type",
            "at column earnings). Send text, whole or floating-point",
        )
        for kind in (pa.decimal256(39, 2), pa.decimal256(20, 2), pa.decimal128(10, -3))
    ),
    *(
        (PARQUET, _bytes(ONE.with_columns(pl.lit(True).alias(name)), PARQUET), "float_type", name)
        for name in ("earnings", "year", "birth_year")
    ),
    (PARQUET, _bytes(ONE.with_columns(Earnings=1.0), PARQUET), "extra_forbidden", "Earnings"),
    (PARQUET, _bytes(pl.DataFrame({"year": range(100 * MOST + 1)}), PARQUET), "table-rows", ""),
    (
        PARQUET,
        _bytes(pl.DataFrame({"person_id": map(str, range(MOST + 1))}), PARQUET),
        "max-persons",
        "",
    ),
]


@pytest.mark.parametrize(
    ("kind", "body", "rule", "words"), REFUSED_TABLES, ids=[case[2] for case in REFUSED_TABLES]
)
def test_a_table_that_cannot_be_read_is_refused_with_the_reason(
    kind: str, body: bytes, rule: str, words: str
) -> None:
    problem = problem_of(parse_table, body, kind, [], ForecastOptions, MOST)
    assert problem.rule == rule
    assert words in str(problem)
    assert not re.search("A1|340000", str(problem))


def test_an_arrow_stream_with_its_end_is_read() -> None:
    assert parse_table(BATCHES, ARROW_STREAM, [], ForecastOptions, MOST).frame.height == 2


@pytest.mark.parametrize(
    "query",
    [[("horizons", "0")], [("horizons", "x")], [("path", "5")], [("seed", "1"), ("seed", "2")]],
)
def test_invalid_query_parameters_are_problems(query: list[tuple[str, str]]) -> None:
    problem = problem_of(parse_table, b"", PARQUET, query, ForecastOptions, 10)
    assert problem.column == query[0][0]


@pytest.mark.parametrize("horizons", ["1-5", "1 5", "1.5", "1,,5"])
def test_the_fix_of_a_list_in_a_query_shows_a_list(horizons: str) -> None:
    query = [("horizons", horizons)]
    problem = problem_of(parse_table, b"", PARQUET, query, ForecastOptions, 10)
    assert "in a query as 1,5,10" in problem.fix


def test_an_entry_that_is_given_twice_is_refused_at_any_depth(person: Person) -> None:
    text = json.dumps({"persons": [person()], "seed": 1})
    for once, twice in (('"seed": 1', '"seed": 1, "seed": 1'), ('"sex"', '"sex": "male", "sex"')):
        problem = problem_of(parse_json, text.replace(once, twice).encode(), ForecastBody, 10)
        assert problem.rule == "json-twice"


LARGE: dict[str, tuple[Callable[[], pl.DataFrame], str]] = {
    "long text": (lambda: pl.DataFrame({"person_id": ["x" * 2**21]}), "string_too_long"),
    "repeated long text": (
        lambda: (
            pl.DataFrame({"person_id": ["y" * 2**20]})
            .cast(pl.Categorical)
            .select(pl.all().repeat_by(2_000).explode())
        ),
        "string_too_long",
    ),
    "bytes": (
        lambda: pl.DataFrame({f"c{i}": pl.zeros(5_000, eager=True) for i in range(99)}),
        "extra_forbidden",
    ),
    "columns": (lambda: pl.DataFrame({f"c{i}": [1] for i in range(101)}), "table-columns"),
    "lists": (lambda: pl.DataFrame({"person_id": ["A"], "earnings": [[1.0]]}), "column-type"),
}


@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("kind", [PARQUET, ARROW_STREAM, ARROW_FILE])
def test_tables_beyond_the_limits_name_what_is_too_large(kind: str, case: str) -> None:
    make, rule = LARGE[case]
    problems = problems_of(parse_table, _bytes(make(), kind), kind, [], ForecastOptions, 100)
    assert problems[0].rule == rule


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ("person_id,wage", {"year", "birth_year", "earnings"}),
        ("id,year,earnings", {"person_id", "birth_year"}),
        ("person_id,year,birth_year,earnings,kids", set()),
    ],
)
def test_unknown_columns_are_named_with_those_that_are_missing(
    names: str, missing: set[str]
) -> None:
    body = f"{names}\n{','.join('1' for _ in names.split(','))}\n".encode()
    problems = problems_of(parse_table, body, CSV, [], ForecastOptions, 100)
    told = {problem.column for problem in problems if problem.rule == "missing-column"}
    assert told == missing


@pytest.mark.parametrize("kind", [PARQUET, ARROW_STREAM, ARROW_FILE])
@pytest.mark.parametrize("length", [7, MAX_TEXT])
def test_a_table_with_as_many_rows_as_allowed_fits_into_the_memory(kind: str, length: int) -> None:
    n = MAX_OUTCOMES
    frame = pl.DataFrame(
        {
            "person_id": pl.int_range(n, eager=True).cast(pl.String).str.zfill(length),
            "year": pl.repeat(2023, n, eager=True),
            "earnings": pl.int_range(n, eager=True).cast(pl.Float64),
        }
    )
    assert READER.read(_bytes(frame, kind), kind, n).equals(frame)


def test_a_table_that_needs_more_memory_than_allowed_is_refused_and_the_next_is_read(
    person: Person,
) -> None:
    """The process that decodes has a limit of its own, so the size in the file need not be true."""
    bomb = pl.DataFrame({"person_id": ["x" * (300 * 2**20)]})
    content = encoded(bomb, "ipc_stream", compression="zstd")
    with pytest.raises(ProblemError) as caught:
        parse_table(content, ARROW_STREAM, [], ForecastOptions, 100)
    assert caught.value.status == 413
    valid = _json(person()).frame
    call = parse_table(_bytes(valid, PARQUET), PARQUET, [], ForecastOptions, 100)
    assert call.frame.equals(valid)
