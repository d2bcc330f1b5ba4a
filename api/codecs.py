"""Request bodies in (JSON, Parquet, Arrow), forecast tables out (JSON, Parquet, Arrow).

Whatever the format, the persons become one frame in the columns of a panel, which `read_panel` checks like a file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import polars as pl
import pyarrow.ipc
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from api.budget import check_persons
from api.messages import MAX_YEARS, Options
from api.problems import HTTPProblem, shape_problems
from saga.errors import InputError, Problem
from saga.files.tables import KEY
from saga.schema import BY_NAME, STATIC, polars_schema

JSON, PARQUET = "application/json", "application/vnd.apache.parquet"
ARROW_STREAM, ARROW_FILE = (
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.arrow.file",
)
TABLES = (PARQUET, ARROW_STREAM, ARROW_FILE)
_ENTRIES = 100  # more entries than this has no person, year or request
_LISTS = ("horizons", "coverage", "quantiles")

Chosen = TypeVar("Chosen", bound=Options)
Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True)
class Call(Generic[Chosen]):
    """What a request asks for: the person-years as they were sent, and the options."""

    frame: pl.DataFrame
    options: Chosen


def media_type(header: str | None) -> str:
    """The media type of a Content-Type header, without parameters."""
    return (header or "").partition(";")[0].strip().lower()


def parse_json(body: bytes, model: type[Chosen], max_persons: int) -> Call[Chosen]:
    """A JSON body as a call. Raises HTTPProblem 422 for what is not JSON or has a wrong shape, BudgetError for too many persons."""
    try:
        content = from_json(body)
    except ValueError as error:
        place = re.search(r"at (line \d+ column \d+)$", str(error))
        problem = Problem(
            "json",
            f"The JSON breaks off {'at ' + place[1] if place else 'somewhere'}",
            "Send one JSON object in UTF-8",
        )
        raise HTTPProblem(422, "json", "The request body is not valid JSON", [problem]) from None
    check_persons(len(_items(content, "persons")), max_persons)
    _check_entries(content)
    request = shaped(model, content)
    return Call(
        _person_years(request.model_dump(include={"persons"}, exclude_unset=True)["persons"]),
        request,
    )


def _check_entries(content: Any) -> None:
    """Objects with absurdly many entries are refused unread: each unknown entry would become an error of its own."""
    persons = [p for p in _items(content, "persons") if isinstance(p, dict)]
    rows = [r for p in persons for r in _items(p, "history") if isinstance(r, dict)]
    if any(
        len(entry) > _ENTRIES for entry in (content, *persons, *rows) if isinstance(entry, dict)
    ):
        problem = Problem(
            "entries",
            f"An object has more than {_ENTRIES} entries",
            "GET /v1/variables lists the columns",
        )
        raise HTTPProblem(422, "request", "The request has the wrong shape", [problem])


def _items(container: Any, name: str) -> list[Any]:
    found = container.get(name) if isinstance(container, dict) else None
    return found if isinstance(found, list) else []


def shaped(model: type[Shape], content: Any) -> Shape:
    """What a client sent as a `model`. Raises HTTPProblem 422 for a wrong shape."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = [dict(entry) for entry in error.errors(include_url=False, include_input=False)]
        problems = shape_problems(found, content, tuple(model.model_fields))
        raise HTTPProblem(422, "request", "The request has the wrong shape", problems) from None


def _person_years(persons: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Persons with nested histories as one row a person-year; what a person holds is repeated in each of the rows."""
    problems: list[Problem] = []
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for person in persons:
        person_id = person["person_id"].strip()
        if person_id in seen:
            problems.append(
                Problem(
                    "person-twice",
                    "The person appears twice",
                    "Send all years in one history",
                    person_id=person_id,
                )
            )
        seen.add(person_id)
        fixed = {name: value for name, value in person.items() if name != "history"}
        for row in person["history"]:
            for name in STATIC:
                if name in fixed and row.get(name, fixed[name]) != fixed[name]:
                    fix = "Give it once, beside person_id"
                    problems.append(
                        Problem(
                            "static",
                            "The year says otherwise than the person",
                            fix,
                            name,
                            person_id,
                            row.get("year"),
                        )
                    )
            rows.append({**fixed, **row})
    if problems:
        raise InputError("The persons contradict themselves", problems)
    present = set().union(*rows)
    schema = {name: dtype for name, dtype in polars_schema().items() if name in present}
    return pl.DataFrame(rows, schema=schema)


def parse_table(
    body: bytes, kind: str, query: Sequence[tuple[str, str]], model: type[Chosen], max_persons: int
) -> Call[Chosen]:
    """A Parquet or Arrow body with the columns of a panel, options in the query. Raises like `parse_json`."""
    options = shaped(model, from_query(query))
    frame = read_table(io.BytesIO(body), kind, max_persons * MAX_YEARS + 1)
    unknown = [name for name in frame.columns if name not in BY_NAME]
    if unknown:
        fix = "Remove it or correct its name; GET /v1/variables lists the columns"
        raise InputError(
            "The table has columns that are not known",
            [Problem("extra_forbidden", "Not a column of a panel", fix, c) for c in unknown],
        )
    check_persons(-(-frame.height // MAX_YEARS), max_persons)
    if "person_id" in frame.columns:
        check_persons(frame["person_id"].n_unique(), max_persons)
    return Call(frame, options)


def read_table(body: io.BytesIO, kind: str, rows: int) -> pl.DataFrame:
    """The first `rows` rows of a Parquet or Arrow body. Raises HTTPProblem 422 where it is none."""
    read = {PARQUET: pl.read_parquet, ARROW_STREAM: pl.read_ipc_stream, ARROW_FILE: pl.read_ipc}[
        kind
    ]
    try:
        frame: pl.DataFrame = read(body, n_rows=rows)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        problem = Problem(
            "table", "The bytes are not a table of this type", f"Send a file that is {kind}"
        )
        raise HTTPProblem(422, "table", "The request body cannot be read", [problem]) from None
    return frame


def from_query(query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Query parameters as the JSON they stand for: numbers as numbers, lists separated by commas.

    Raises HTTPProblem 422 for a parameter given twice: which value is meant is not guessed.
    """
    found: dict[str, Any] = {}
    for name, text in query:
        if name in found:
            raise HTTPProblem(
                422,
                "request",
                "A query parameter appears twice",
                [Problem("query-twice", "Given twice", "Give it once", name)],
            )
        found[name] = (
            [_scalar(part) for part in text.split(",")] if name in _LISTS else _scalar(text)
        )
    return found


def _scalar(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def encode_table(table: pl.DataFrame, kind: str, provenance: Mapping[str, Any]) -> bytes:
    """A forecast table as Parquet or Arrow bytes; the provenance is JSON in its metadata, as in files."""
    metadata = {KEY: json.dumps(provenance, sort_keys=True)}
    buffer = io.BytesIO()
    if kind == PARQUET:
        table.write_parquet(buffer, metadata=metadata)
        return buffer.getvalue()
    arrow = table.to_arrow().replace_schema_metadata(metadata)
    opened = pyarrow.ipc.new_stream if kind == ARROW_STREAM else pyarrow.ipc.new_file
    with opened(buffer, arrow.schema) as writer:
        writer.write_table(arrow)
    return buffer.getvalue()
