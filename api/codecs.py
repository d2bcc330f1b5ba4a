"""Decode request bodies and encode responses: JSON, Parquet, Arrow and CSV.

In every format the persons become one frame with the columns of a panel, which `read_panel` checks
like a file.
"""

from __future__ import annotations

import io
import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jiter
import polars as pl
import pyarrow.ipc
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from saga.api.budget import check_persons
from saga.api.problems import shape_problems, wrong_shape
from saga.api.refusals import refused
from saga.api.request_models import MAX_YEARS, CallOptions
from saga.api.table_reader import READER

from saga.errors import InputError, Problem
from saga.files.tables import KEY
from saga.requests import JOB_REQUESTS, options_of
from saga.schema import BY_NAME, EXTRA_PREFIX, REQUIRED, STATIC, polars_schema

JSON, PARQUET = "application/json", "application/vnd.apache.parquet"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
CSV = "text/csv"
TABLES = (PARQUET, ARROW_STREAM, ARROW_FILE, CSV)
# Query parameters that are lists.
LIST_OPTIONS = frozenset(
    option.name or name
    for request in JOB_REQUESTS.values()
    for name, (field, option) in options_of(request).items()
    if isinstance(field.default, tuple)
)
_MAX_ENTRIES = 100  # no request, person or year has more entries than this

OptionsT = TypeVar("OptionsT", bound=CallOptions)
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Call(Generic[OptionsT]):
    """A decoded body: the person-years as they were sent, and the options."""

    frame: pl.DataFrame
    options: OptionsT


def media_type(header: str | None) -> str:
    """The media type of a Content-Type header, without parameters."""
    return (header or "").partition(";")[0].strip().lower()


def parse_json(body: bytes, model: type[OptionsT], max_persons: int) -> Call[OptionsT]:
    """Decode a JSON body, whose `model` has the entry `persons`.

    Raises:
        ProblemError: Status 422 if the body is not JSON or has a wrong shape.
        BudgetError: There are too many persons.
        InputError: A person appears twice or contradicts itself.
    """
    return parse_persons(decode_json(body), model, max_persons)


def parse_persons(content: Any, model: type[OptionsT], max_persons: int) -> Call[OptionsT]:
    """The persons and options of a decoded JSON body; raises as `parse_json`."""
    persons = content.get("persons") if isinstance(content, dict) else None
    if isinstance(persons, list):
        check_persons(len(persons), max_persons)
    options = validate(model, content)
    persons = options.model_dump(include={"persons"}, exclude_unset=True)["persons"]
    return Call(_person_years(persons), options)


def decode_json(body: bytes) -> Any:
    """The content of a JSON body.

    Raises:
        ProblemError: Status 422 if it is not JSON, if an object has an entry twice, or if the
            request, a person or a year has more than 100 entries (validation would report every
            unknown one).
    """
    try:
        content = jiter.from_json(body.removeprefix(BOM_UTF8), catch_duplicate_keys=True)
    except ValueError as error:
        position = re.search(r"at (line \d+ column \d+)$", str(error))
        where = f" at {position[1]}" if position else ""
        if str(error).startswith("Detected duplicate key"):
            raise refused("json-twice", {"where": where}) from None
        what = f"The JSON is broken{where}" if position else "The body is not JSON"
        raise refused("json", {"what": what}) from None
    _check_entry_counts(content)
    return content


def _check_entry_counts(content: Any) -> None:
    """Reject over 100 entries in a request, in one of its persons or in one of their years."""
    objects = [content] if isinstance(content, dict) else []
    for _ in range(3):
        if any(len(entry) > _MAX_ENTRIES for entry in objects):
            raise refused("entries", {"limit": _MAX_ENTRIES})
        objects = [
            entry
            for container in objects
            for entries in container.values()
            if isinstance(entries, list)
            for entry in entries
            if isinstance(entry, dict)
        ]


def validate(model: type[ModelT], content: Any) -> ModelT:
    """The content of a request as a `model`. Raises ProblemError 422 for a wrong shape."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        errors = [dict(entry) for entry in error.errors(include_url=False, include_input=False)]
        problems = shape_problems(errors, content, tuple(model.model_fields))
        raise wrong_shape(*problems) from None


def _person_years(persons: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """One row per person and year; the entries outside the history are repeated in each row."""
    problems: list[Problem] = []
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for person in persons:
        person_id = person["person_id"].strip()
        if person_id in seen:
            fix = "Send all years in one history"
            problems.append(
                Problem("person-twice", "The person appears twice", fix, person_id=person_id)
            )
        seen.add(person_id)
        fixed = {name: value for name, value in person.items() if name != "history"}
        for row in person["history"]:
            problems += [
                Problem(
                    "static",
                    "The year contradicts the person",
                    "Give it once, next to person_id",
                    name,
                    person_id,
                    row.get("year"),
                )
                for name in STATIC
                if name in fixed and row.get(name, fixed[name]) != fixed[name]
            ]
            extra = {
                f"{EXTRA_PREFIX}{name}": value
                for name, value in (row.pop("extra", None) or {}).items()
            }
            rows.append({**fixed, **row, **extra})
    if problems:
        raise InputError("The persons contradict themselves", problems)
    present = set().union(*rows)
    schema = {name: dtype for name, dtype in polars_schema().items() if name in present}
    extra = {name: _own_cells(name, rows) for name in sorted(present - set(schema))}
    frame = pl.DataFrame(rows, schema=schema)
    return frame.with_columns(**extra) if extra else frame


def _own_cells(name: str, rows: Sequence[Mapping[str, Any]]) -> pl.Series:
    """An own column of the panel: texts if one of its cells is a text, else numbers."""
    cells = [row.get(name) for row in rows]
    if any(isinstance(cell, str) for cell in cells):
        return pl.Series(name, [None if c is None else str(c) for c in cells], dtype=pl.String)
    return pl.Series(name, cells, dtype=pl.Float64)


def parse_table(
    body: bytes,
    kind: str,
    query: Sequence[tuple[str, str]],
    model: type[OptionsT],
    max_persons: int,
) -> Call[OptionsT]:
    """Decode a Parquet, Arrow or CSV body with the columns of a panel.

    Args:
        body: The bytes of the table.
        kind: Its media type, one of TABLES.
        query: The query parameters, which are the options.
        model: Model of the options.
        max_persons: Most persons of a call.

    Raises:
        ProblemError: Status 422 if the options have a wrong shape or the bytes are not a table, 413
            if the uncompressed table is too large or takes too long to decode.
        BudgetError: There are too many persons or rows.
        InputError: There are too many columns, one is unknown, appears twice or has another type
            (for example true and false in place of numbers), or a text is too long.
    """
    options = validate(model, read_query(query))
    frame = with_plain_names(READER.read(body, kind, max_persons * MAX_YEARS))
    # The first person's cells may stand for names.
    if kind == CSV and not BY_NAME.keys() & set(frame.columns):
        raise refused("no-columns")
    unknown = [n for n in frame.columns if n not in BY_NAME and not n.startswith(EXTRA_PREFIX)]
    if unknown:
        fix = "Remove it or correct its name; GET /v1/variables lists the columns"
        raise InputError(
            "The table has unknown columns",
            [
                *(Problem("extra_forbidden", "Not a column of a panel", fix, c) for c in unknown),
                *(
                    Problem("missing-column", "The table lacks this column", "Add it", name)
                    for name in REQUIRED
                    if name not in frame.columns
                ),
            ],
        )
    check_no_flags(frame)
    if "person_id" in frame.columns:
        check_persons(frame["person_id"].n_unique(), max_persons)
    return Call(frame, options)


def with_plain_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with names of a panel's columns as they are, whatever their case and blanks.

    Names that would then be one stay as they are.
    """
    plain = [name.strip().lower() for name in frame.columns]
    renamed = {
        name: folded
        for name, folded in zip(frame.columns, plain, strict=True)
        if folded in BY_NAME and plain.count(folded) == 1
    }
    return frame.rename(renamed)


def check_no_flags(frame: pl.DataFrame) -> None:
    """Raise InputError if a column that must have numbers has true and false."""
    flags = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.Boolean and name in BY_NAME and BY_NAME[name].dtype.is_numeric()
    ]
    if flags:
        fix = "Send numbers, or null for unknown"
        raise InputError(
            "A column has another type",
            [Problem("float_type", "This must be a number", fix, name) for name in flags],
        )


def read_query(query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Query parameters as JSON values: numbers as numbers, lists separated by commas.

    Raises ProblemError 422 for a parameter that is given twice.
    """
    options: dict[str, Any] = {}
    for name, text in query:
        if name in options:
            raise refused("query-twice", column=name)
        is_list = name in LIST_OPTIONS
        options[name] = [_scalar(part) for part in text.split(",")] if is_list else _scalar(text)
    return options


def _scalar(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def encode_json(content: Mapping[str, Any]) -> bytes:
    """JSON with every float in its shortest exact form; NaN and infinity become null."""
    return to_json(content, inf_nan_mode="null")


def encode_table(table: pl.DataFrame, kind: str, provenance: Mapping[str, Any]) -> bytes:
    """A table as bytes; the metadata of Parquet and Arrow have the provenance as JSON."""
    metadata = {KEY: json.dumps(provenance, sort_keys=True)}
    buffer = io.BytesIO()
    if kind == PARQUET:
        table.write_parquet(buffer, metadata=metadata)
        return buffer.getvalue()
    if kind == CSV:
        table.write_csv(buffer)
        return buffer.getvalue()
    arrow = table.to_arrow().replace_schema_metadata(metadata)
    open_writer = pyarrow.ipc.new_stream if kind == ARROW_STREAM else pyarrow.ipc.new_file
    with open_writer(buffer, arrow.schema) as writer:
        writer.write_table(arrow)
    return buffer.getvalue()
