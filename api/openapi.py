"""Parts of the OpenAPI schema that FastAPI cannot derive: bodies, tables, errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.codecs import JSON, TABLES
from api.problems import MEDIA_TYPE, ProblemDocument
from api.request_models import ForecastBody, LifetimeBody, OutcomesBody

_REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {
    "ForecastRequest": ForecastBody,
    "LifetimeRequest": LifetimeBody,
    "OutcomesRequest": OutcomesBody,
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` for these statuses: each is a problem document."""
    schema = {"$ref": _REF.format(model=ProblemDocument.__name__)}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def compute_responses() -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of an endpoint that computes: the table formats and errors."""
    return problem_responses(401, 403, 408, 413, 415, 422, 503) | {
        200: {"content": _table_content()}
    }


def request_body(component: str) -> dict[str, Any]:
    """OpenAPI `requestBody`: JSON of a component of `body_components`, or a table."""
    content = {JSON: {"schema": {"$ref": _REF.format(model=component)}}} | _table_content()
    return {"requestBody": {"required": True, "content": content}}


def body_components() -> dict[str, Any]:
    """JSON schemas of the request bodies and of the problem document, by component name.

    Endpoints read their bodies themselves, in several formats, so FastAPI does not know them.
    """
    _, schema = models_json_schema(
        [*((body, "validation") for body in _BODIES.values()), (ProblemDocument, "serialization")],
        ref_template=_REF,
    )
    components: dict[str, Any] = schema["$defs"]
    for name, body in _BODIES.items():
        components[name] = components.pop(body.__name__)
    return components


def _table_content() -> dict[str, Any]:
    return {kind: {"schema": {"type": "string", "contentMediaType": kind}} for kind in TABLES}
