"""What endpoints that take a body share: which bodies are read at all; a panel from any format, a table or a JSON document back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio.to_thread
import polars as pl
from fastapi import Request, Response

from api import budget
from api.codecs import JSON, TABLES, Call, encode_table, media_type, parse_json, parse_table
from api.messages import Options
from api.openapi import json_response
from api.problems import HTTPProblem
from api.service import RequestPanel, Service, read_request_panel
from saga.errors import Problem
from saga.forecast_tables import percent_label
from saga.requests import ForecastRequest, LifetimeRequest

Chosen = TypeVar("Chosen", bound=Options)
Asked = TypeVar("Asked", ForecastRequest, LifetimeRequest)


def admit(request: Request) -> tuple[str, list[tuple[str, str]]]:
    """The media type of a body that is going to be read, and the query, which is empty beside JSON.

    Raises HTTPProblem 415 for another type or a compressed body, 422 for a query beside JSON: nothing that a client says is ignored.
    """
    kind = media_type(request.headers.get("content-type"))
    if kind not in (JSON, *TABLES):
        fix = f"Set Content-Type to {', '.join((JSON, *TABLES))}"
        raise HTTPProblem(
            415,
            "media-type",
            "The type of the body is not known",
            [Problem("content-type", "Not a known type", fix)],
        )
    if request.headers.get("content-encoding", "identity") != "identity":
        problem = Problem(
            "content-encoding",
            "The body is compressed",
            "Send it as it is, or as Parquet, which compresses within",
        )
        raise HTTPProblem(415, "encoding", "Compressed bodies are not read", [problem])
    query = request.query_params.multi_items()
    if kind == JSON and query:
        problem = Problem(
            "query", "A JSON call has no query parameters", "Put the options into the body"
        )
        raise HTTPProblem(422, "request", "The request has the wrong shape", [problem])
    return kind, query


async def receive(
    request: Request,
    service: Service,
    in_body: type[Chosen],
    in_query: type[Chosen],
    *,
    to_request: Callable[[Chosen], Asked],
) -> tuple[Chosen, Asked, RequestPanel]:
    """The options, the typed request and the people of a call. `in_body` models a JSON body, `in_query` the options beside a Parquet
    or Arrow body; `to_request` checks the options before the panel is built."""
    kind, query = admit(request)
    forecaster, settings = service.forecaster, service.settings
    body = await budget.read_body(
        request, max_bytes=settings.max_body_bytes, seconds=settings.body_seconds
    )

    def prepare() -> tuple[Chosen, Asked, RequestPanel]:
        most = settings.max_persons
        call: Call[Chosen] = (
            parse_json(body, in_body, most)
            if kind == JSON
            else parse_table(body, kind, query, in_query, most)
        )
        return call.options, to_request(call.options), read_request_panel(forecaster, call)

    return await anyio.to_thread.run_sync(prepare)


async def answer(
    request: Request,
    table: pl.DataFrame,
    provenance: Mapping[str, Any],
    nested: Callable[[], Mapping[str, Any]],
) -> Response:
    """The table as Parquet or Arrow where `Accept` asks for one, else `nested()` as JSON beside the provenance."""
    accepted = media_type(request.headers.get("accept"))
    if accepted in TABLES:
        return Response(
            await anyio.to_thread.run_sync(encode_table, table, accepted, provenance),
            media_type=accepted,
        )
    return await anyio.to_thread.run_sync(
        lambda: json_response({"provenance": provenance, **nested()})
    )


def quantiles(row: Mapping[str, Any], levels: Sequence[float]) -> dict[str, Any]:
    """The q.. columns of a row by level: {"0.05": ...}."""
    return {f"{level:g}": row[f"q{percent_label(level)}"] for level in levels}


def interval(
    row: Mapping[str, Any], level: float, reason: Callable[..., str], kind: str = ""
) -> dict[str, Any]:
    """The interval columns of a row at one coverage, of another `kind` where its prefix is given ("band_"); `reason` explains its
    guarantee."""
    name = percent_label(level)
    guarantee = row[f"guarantee_{kind}{name}"]
    ends = {
        "coverage": level,
        "lower": row[f"{kind}lower_{name}"],
        "upper": row[f"{kind}upper_{name}"],
    }
    # A lifetime's table has no such column: a sum of years is not published as {0} and an interval.
    has_zero = f"{kind}includes_zero_{name}"
    zero = (
        {"includes_zero": row[has_zero] if guarantee != "none" else None} if has_zero in row else {}
    )
    return {
        **ends,
        **zero,
        "guarantee": guarantee,
        "reason": reason(guarantee, *([row["cell"]] if "cell" in row and not kind else [])),
    }
