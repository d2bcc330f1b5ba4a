"""The documented errors of an endpoint, the answer in JSON, and the body it takes, as OpenAPI."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import Response
from pydantic_core import to_json

from api.codecs import JSON, TABLES
from api.problems import MEDIA_TYPE, HTTPProblem
from saga.errors import Problem

_SCHEMA = {"$ref": "#/components/schemas/ProblemDocument"}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` for these statuses: each is a problem document."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": _SCHEMA}},
        }
        for status in statuses
    }


def computing() -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of an endpoint that computes: a table beside the JSON of its model, and the errors it may give."""
    tables = {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in TABLES}
    return problems(401, 408, 413, 415, 422, 503) | {200: {"content": tables}}


def request_body(model: str) -> dict[str, Any]:
    """OpenAPI `requestBody`: JSON of the named component, or Parquet or Arrow with the columns of a panel."""
    content: dict[str, Any] = {JSON: {"schema": {"$ref": f"#/components/schemas/{model}"}}}
    content |= {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in TABLES}
    return {"requestBody": {"required": True, "content": content}}


def no_ledger_problem() -> HTTPProblem:
    """The answer of what needs a ledger, where the service keeps none."""
    fix = "Start the service with SAGA_DATABASE, for example sqlite:///ledger.sqlite"
    return HTTPProblem(
        404,
        "no-ledger",
        "This service keeps no ledger",
        [Problem("no-ledger", "No database is configured", fix)],
    )


def json_response(content: Any) -> Response:
    """JSON with every float in its shortest exact form; what is not a number is null."""
    return Response(to_json(content, inf_nan_mode="null"), media_type=JSON)
