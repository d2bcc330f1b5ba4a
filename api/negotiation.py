"""Decode a JSON, Parquet or Arrow body, and respond in the format that the client accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio.to_thread
import polars as pl
from fastapi import Request, Response
from saga.api.codecs import (
    JSON,
    TABLES,
    Call,
    encode_json,
    encode_table,
    media_type,
    parse_json,
    parse_table,
)
from saga.api.compute_queue import Ticket
from saga.api.panel_batches import SentFrame
from saga.api.problems import ProblemError, wrong_shape
from saga.api.request_models import CallOptions
from saga.api.request_panel import RequestPanel
from saga.api.service import Service

from saga.conformal.calibration_table import ALL
from saga.errors import InputError, Problem, SagaError
from saga.forecast_tables import percent_label
from saga.forecast_warnings import ForecastWarning, warning_dicts
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PopulationRequest
from saga.schema import EXTRA_PREFIX

OptionsT = TypeVar("OptionsT", bound=CallOptions)
RequestT = TypeVar("RequestT", ForecastRequest, LifetimeRequest, PopulationRequest)

TableRow = Mapping[str, Any]
_SMALL_TABLE = 32  # rows of which JSON is written without another thread
Explain = Callable[[str, str], str]  # from guarantee and cell to the reason text


@dataclass(frozen=True)
class ComputeCall(Generic[OptionsT, RequestT]):
    """A decoded call: its options, the typed request, the draws, the persons and their weights."""

    options: OptionsT
    request: RequestT
    draws: Draws
    people: RequestPanel
    weights: pl.DataFrame | None = None


@dataclass(frozen=True)
class Notes:
    """What a reader of an answer must know: its warnings, and who is left out and why."""

    warnings: tuple[ForecastWarning, ...]
    left_out: tuple[Problem, ...]

    def as_dict(self) -> dict[str, Any]:
        """The notes as entries of JSON."""
        return {
            "warnings": warning_dicts(self.warnings),
            "left_out": [problem.as_dict() for problem in self.left_out],
        }


def check_body_type(request: Request, *further: str) -> tuple[str, list[tuple[str, str]]]:
    """The media type of the body, and the query parameters.

    JSON, tables and the `further` types are accepted.

    Raises:
        ProblemError: Status 415 for another type or a compressed body, 422 for query parameters
            together with a JSON body.
    """
    kind = media_type(request.headers.get("content-type"))
    accepted = (JSON, *TABLES, *further)
    if kind not in accepted:
        fix = f"Set Content-Type to {', '.join(accepted)}"
        problem = Problem("content-type", "Not a known type", fix)
        raise ProblemError(415, "media-type", "The type of the body is not known", [problem])
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        problem = Problem(
            "content-encoding",
            "The body is compressed",
            "Send it uncompressed, or as Parquet, which is compressed itself",
        )
        raise ProblemError(415, "encoding", "Compressed bodies are not read", [problem])
    query = request.query_params.multi_items()
    if kind == JSON and query:
        raise wrong_shape(
            Problem("query", "A JSON call has no query parameters", "Put the options into the body")
        )
    return kind, query


def accepted_type(request: Request) -> str:
    """The type of the answer that the client likes best. Raises ProblemError 406 if there is none.

    `Accept` is a list of types with weights; the first of the best counts, and JSON for a wildcard.
    """
    best, weight = "", 0.0
    for entry in request.headers.get("accept", "*/*").split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        kind = JSON if kind in ("*/*", "application/*", "") else kind
        stated = [text[2:] for text in parameters if text.startswith("q=")]
        try:
            quality = float(stated[0]) if stated else 1.0
        except ValueError:
            quality = 0.0
        if kind in (JSON, *TABLES) and quality > weight:
            best, weight = kind, quality
    if not best:
        fix = f"Set Accept to {', '.join((JSON, *TABLES))}"
        problem = Problem("accept", "No accepted type is served", fix)
        raise ProblemError(406, "not-acceptable", "The answer has none of these types", [problem])
    return best


async def read_call(
    request: Request,
    service: Service,
    ticket: Ticket,
    body_model: type[OptionsT],
    query_model: type[OptionsT],
    to_request: Callable[[OptionsT], RequestT],
) -> ComputeCall[OptionsT, RequestT]:
    """Read and decode a call.

    Args:
        request: The HTTP request.
        service: The service, whose settings limit the body and whose bundle has the prices.
        ticket: The place of the call.
        body_model: Model of a JSON body.
        query_model: Model of the query parameters of a call with a Parquet or Arrow body.
        to_request: Makes the typed request, before the panel is read.
    """
    kind, query = check_body_type(request)
    accepted_type(request)  # refused before the work
    max_persons = service.settings.max_persons

    def decode(body: bytes) -> tuple[Call[OptionsT], RequestT]:
        if kind == JSON:
            call = parse_json(body, body_model, max_persons)
        else:
            call = parse_table(body, kind, query, query_model, max_persons)
        return call, to_request(call.options)

    call, typed = await service.parse(request, ticket, decode)
    frame, weights = split_weights(call.frame, call.options.own_column)
    ticket.stage = "panel"
    people = await service.panels.submit(SentFrame(frame, call.options.prices, call.options.origin))
    ticket.stage = "compute"
    if isinstance(people, SagaError):
        raise people
    return ComputeCall(call.options, typed, call.options.draws(), people, weights)


def split_weights(
    frame: pl.DataFrame, column: str | None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The person-years without their own column of weights, and the weight of each person.

    Raises InputError if the column is missing, or differs between the years of a person.
    """
    if column is None:
        return frame, None
    name = column if column.startswith(EXTRA_PREFIX) else f"{EXTRA_PREFIX}{column}"
    if name not in frame.columns or "person_id" not in frame.columns:
        fix = f"Send it in `extra` of each year, or as the column {name} of a table"
        raise InputError("There are no weights", [Problem("weights", "No such column", fix, name)])
    known = frame.select(
        pl.col("person_id").cast(pl.String).str.strip_chars(), weight=pl.col(name)
    ).unique()
    if known["person_id"].is_duplicated().any():
        problem = Problem("weights", "A person has two weights", "Give one weight a person", name)
        raise InputError("The weights contradict themselves", [problem])
    return frame.drop(name), known


async def respond(
    request: Request,
    table: pl.DataFrame,
    provenance: Mapping[str, Any],
    notes: Notes,
    to_json: Callable[[], Mapping[str, Any]],
) -> Response:
    """The response: the table as Parquet or Arrow if the client accepts that, else JSON.

    A table has the `notes` in its provenance. `to_json` builds the JSON entries without provenance
    and notes.
    """
    accepted, listed = accepted_type(request), notes.as_dict()
    if accepted in TABLES:
        content = await anyio.to_thread.run_sync(
            encode_table, table, accepted, {**provenance, **listed}
        )
        return Response(content, media_type=accepted)

    def encode() -> Response:
        return json_response({"provenance": provenance, **listed, **to_json()})

    if table.height <= _SMALL_TABLE:
        return encode()
    return await anyio.to_thread.run_sync(encode)


def json_response(content: Mapping[str, Any]) -> Response:
    """A JSON response; see `encode_json`."""
    return Response(encode_json(content), media_type=JSON)


def quantiles_json(row: TableRow, quantiles: Sequence[float]) -> dict[str, Any]:
    """The quantile columns of a row, by quantile: {"0.05": ...}."""
    return {f"{quantile:g}": row[f"q{percent_label(quantile)}"] for quantile in quantiles}


def limits_json(row: TableRow, coverage: float, explain: Explain) -> dict[str, Any]:
    """The one-sided limits of a row at one coverage."""
    name = percent_label(coverage)
    guarantee = row[f"guarantee_limits_{name}"]
    return {
        "coverage": coverage,
        **{end: row[f"{end}_{name}"] for end in ("at_least", "at_most")},
        "guarantee": guarantee,
        "reason": explain(guarantee, ALL),
    }


def interval_json(
    row: TableRow, coverage: float, explain: Explain, prefix: str = ""
) -> dict[str, Any]:
    """The interval columns of a row at one coverage; `prefix`: "band_", "positive_" for others."""
    name = percent_label(coverage)
    guarantee = row[f"guarantee_{prefix}{name}"]
    interval = {
        "coverage": coverage,
        "lower": row[f"{prefix}lower_{name}"],
        "upper": row[f"{prefix}upper_{name}"],
    }
    zero_column = f"{prefix}includes_zero_{name}"
    if zero_column in row:  # those of present values and of positive earnings have no such column
        interval["includes_zero"] = row[zero_column]
    cell = row["cell"] if "cell" in row and not prefix else ALL
    return interval | {"guarantee": guarantee, "reason": explain(guarantee, cell)}
