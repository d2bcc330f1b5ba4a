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

from saga.errors import BudgetError, InputError
from saga.schema import NAMES
from tests.encoded import encoded

Person = Callable[..., dict[str, Any]]


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
    frame = _json(
        person(12, birth_year=1984.0, history=[{"year": 2020.0, "earnings": 1, "children": 2}])
    ).frame
    assert frame.select("person_id", "year", "birth_year", "earnings", "children").row(0) == (
        "12",
        2020,
        1984,
        1.0,
        "2",
    )


@pytest.mark.parametrize("person_id", [2.0**53, 12345678901234567.0, 1e300, 7.5])
def test_a_number_that_may_be_the_id_of_another_person_is_refused(
    person: Person, person_id: float
) -> None:
    with pytest.raises(ProblemError):
        _json(person(person_id))
    assert set(_json(person(2.0**53 - 1)).frame["person_id"]) == {"9007199254740991"}


def test_csv_without_names_does_not_answer_with_the_cells_of_the_first_person() -> None:
    with pytest.raises(InputError, match="no columns of a panel") as caught:
        parse_table(b"A1,2020,1985,340000\nA1,2021,1985,350001\n", CSV, [], ForecastOptions, 10)
    assert not re.search("A1|340000", str(caught.value))


@pytest.mark.parametrize("value", ["1", True, [1], {"a": 1}])
def test_text_and_booleans_are_not_numbers(person: Person, value: object) -> None:
    with pytest.raises(ProblemError) as caught:
        _json(person(history=[{"year": 2020, "earnings": value}]))
    assert (
        caught.value.problems[0].person_id,
        caught.value.problems[0].year,
        caught.value.problems[0].column,
    ) == ("A1", 2020, "earnings")


@pytest.mark.parametrize("object_kind", ["request", "person", "year"])
def test_very_many_unknown_entries_give_one_error(person: Person, object_kind: str) -> None:
    unknown = {f"x{i}": 1 for i in range(100_000)}
    sent = person(**(unknown if object_kind == "person" else {}))
    sent["history"][0] |= unknown if object_kind == "year" else {}
    with pytest.raises(ProblemError) as caught:
        _json(sent, **(unknown if object_kind == "request" else {}))
    assert [problem.rule for problem in caught.value.problems] == ["entries"]


def test_a_person_sent_twice_is_refused(person: Person) -> None:
    with pytest.raises(InputError, match="appears twice") as caught:
        _json(person("A1"), person(" A1"))
    assert caught.value.problems[0].person_id == "A1"


def test_a_year_that_contradicts_its_person_is_refused(person: Person) -> None:
    with pytest.raises(InputError) as caught:
        _json(person(history=[{"year": 2020, "earnings": 1, "sex": "male"}]))
    problem = caught.value.problems[0]
    assert (problem.person_id, problem.year, problem.column) == ("A1", 2020, "sex")


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


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "table"),
        (b"person_id,year\nA\n", "table"),
        (b"person_id,year\n\xe5,2020\n", "table"),
        (b'person_id,year\n"A,2020\n', "table"),
        (b"year,year\n1,2\n", "column-twice"),
        (b"person_id\n" + b"A\n" * 2_000, "table-rows"),
        (b"person_id\n" + b"A" * 65, "string_too_long"),
        (b"a," * 100 + b"a\n", "table-columns"),
        (b"," * 99 + b"\n" + b"," * 2**25, "table"),
        ((b"," * 99 + b"\n") * 300_000, "table-rows"),
    ],
)
def test_csv_that_is_broken_or_beyond_the_limits_says_why(body: bytes, rule: str) -> None:
    with pytest.raises((InputError, ProblemError, BudgetError)) as caught:
        parse_table(body, CSV, [], ForecastOptions, 10)
    assert isinstance(caught.value, InputError | ProblemError | BudgetError)
    assert {problem.rule for problem in caught.value.problems} == {rule}


HEADER = b"person_id,birth_year,year,earnings\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (HEADER + b"A,1985,2021,1\nA,1985,2022,1,\n", "Line 3 has more cells than the header"),
        (b"sep=,\n" + HEADER + b"A,1985,2021\n", "Line 3 has fewer cells than the header"),
        (
            HEADER + b'\n"A\nB",1985,2021,1\nA,1985,2022,1,2\n',
            "Line 5 has more cells than the header",
        ),
        (HEADER + b"A,1985,2021,1\n" * 100_000 + b"1\n", "Line 100002 has fewer cells"),
    ],
)
def test_a_row_of_csv_with_another_number_of_cells_is_named_by_its_line(
    body: bytes, message: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_table(body, CSV, [], ForecastOptions, 2_000)
    (problem,) = caught.value.problems
    assert problem.message.startswith(message)
    assert "as many cells as the header" in problem.fix


@pytest.mark.parametrize("end", [b'"1', b'"1\n', b'1"\n', b'"1\nB,1985,2021,2\n'])
def test_csv_that_is_cut_off_within_quotation_marks_is_refused(end: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_table(HEADER + b"A,1985,2021,1\nA,1985,2022," + end, CSV, [], ForecastOptions, 10)
    (problem,) = caught.value.problems
    assert problem.message == "Line 3 has a quotation mark that is not closed"


@pytest.mark.parametrize("kind", [CSV, PARQUET])
def test_case_and_blanks_of_names_do_not_matter_as_in_files(person: Person, kind: str) -> None:
    frame = _json(person()).frame
    names = {"person_id": " PERSON_ID", "birth_year": "Birth_Year ", "earnings": "Earnings"}
    other = frame.rename(names)
    body = other.write_csv().encode() if kind == CSV else _bytes(other, kind)
    read = parse_table(body, kind, [], ForecastOptions, 10).frame
    assert read.cast(frame.schema).equals(frame)


def test_a_name_that_is_given_twice_in_other_cases_is_refused(person: Person) -> None:
    frame = _json(person()).frame.with_columns(pl.lit(1.0).alias("Earnings"))
    with pytest.raises(InputError) as caught:
        parse_table(_bytes(frame, PARQUET), PARQUET, [], ForecastOptions, 10)
    assert [problem.column for problem in caught.value.problems] == ["Earnings"]


@pytest.mark.parametrize("kind", [PARQUET, ARROW_STREAM, ARROW_FILE])
@pytest.mark.parametrize("cut", [0, 10, 300])
def test_a_broken_table_is_a_problem(person: Person, kind: str, cut: int) -> None:
    body = _bytes(_json(person()).frame, kind)[:cut]
    with pytest.raises(ProblemError) as caught:
        parse_table(body, kind, [], ForecastOptions, 100)
    assert caught.value.status == 422


def test_an_arrow_stream_without_its_end_is_refused() -> None:
    """It may be cut between two batches, and the persons of the second would have no answer."""
    rows = {"person_id": ["A", "B"], "year": 2020, "birth_year": 1980, "earnings": 1.0}
    table = pl.DataFrame(rows).to_arrow()
    sink, ends = pa.BufferOutputStream(), []
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=1):
            writer.write_batch(batch)
            ends.append(sink.tell())
    whole = sink.getvalue().to_pybytes()
    assert parse_table(whole, ARROW_STREAM, [], ForecastOptions, 100).frame.height == table.num_rows
    for content in (whole[: ends[0]], whole[: ends[-1]], whole + whole):
        with pytest.raises(InputError, match="rows may be missing"):
            parse_table(content, ARROW_STREAM, [], ForecastOptions, 100)


@pytest.mark.parametrize(
    "kind", [pa.decimal256(39, 2), pa.decimal256(20, 2), pa.decimal128(10, -3)], ids=str
)
def test_decimals_that_are_not_read_are_named(kind: pa.DataType) -> None:
    table = pa.table({"person_id": ["A"], "earnings": pa.array([Decimal(47_000)], kind)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InputError) as caught:
        parse_table(sink.getvalue().to_pybytes(), ARROW_STREAM, [], ForecastOptions, 10)
    (problem,) = caught.value.problems
    assert (problem.rule, problem.column) == ("column-type", "earnings")
    assert "floating-point" in problem.fix


def test_a_table_with_too_many_persons_or_rows_is_refused() -> None:
    persons = pl.DataFrame({"person_id": [str(i) for i in range(11)], "year": 2020})
    rows = pl.DataFrame({"person_id": "A", "year": pl.Series(range(2_000))})
    for frame in (persons, rows):
        with pytest.raises(BudgetError):
            parse_table(_bytes(frame, PARQUET), PARQUET, [], ForecastOptions, 10)


@pytest.mark.parametrize(
    "query",
    [[("horizons", "0")], [("horizons", "x")], [("path", "5")], [("seed", "1"), ("seed", "2")]],
)
def test_invalid_query_parameters_are_problems(query: list[tuple[str, str]]) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_table(b"", PARQUET, query, ForecastOptions, 10)
    assert caught.value.problems[0].column == query[0][0]


def test_an_entry_that_is_given_twice_is_refused_at_any_depth(person: Person) -> None:
    text = json.dumps({"persons": [person()], "seed": 1})
    for once, twice in (('"seed": 1', '"seed": 1, "seed": 1'), ('"sex"', '"sex": "male", "sex"')):
        with pytest.raises(ProblemError, match="repeats") as caught:
            parse_json(text.replace(once, twice).encode(), ForecastBody, 10)
        assert caught.value.status == 422
        assert caught.value.problems[0].rule == "json-twice"


@pytest.mark.parametrize("column", ["earnings", "year", "birth_year"])
def test_true_and_false_are_not_numbers_in_a_table(person: Person, column: str) -> None:
    frame = _json(person()).frame.with_columns(pl.lit(True).alias(column))
    with pytest.raises(InputError) as caught:
        parse_table(_bytes(frame, PARQUET), PARQUET, [], ForecastOptions, 100)
    assert [problem.column for problem in caught.value.problems] == [column]


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
    with pytest.raises((InputError, ProblemError)) as caught:
        parse_table(_bytes(make(), kind), kind, [], ForecastOptions, 100)
    assert isinstance(caught.value, InputError | ProblemError)
    assert caught.value.problems[0].rule == rule


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
    with pytest.raises(InputError) as caught:
        parse_table(body, CSV, [], ForecastOptions, 100)
    told = {problem.column for problem in caught.value.problems if problem.rule == "missing-column"}
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
