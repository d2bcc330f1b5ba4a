"""Parts of the OpenAPI schema that FastAPI cannot derive: bodies, tables, errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from saga.api.codecs import CSV, JSON, LIST_OPTIONS, TABLES
from saga.api.example import example_csv
from saga.api.negotiation import NOTES_HEADER
from saga.api.problems import MEDIA_TYPE, ProblemDocument
from saga.api.request_models import (
    CorrectionsRequest,
    ForecastBody,
    JobBody,
    JobFileRequest,
    LifetimeBody,
    OutcomesRequest,
    PopulationBody,
)

from saga.macro.scenarios import SCENARIOS

_REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {
    body.__name__: body
    for body in (
        ForecastBody,
        LifetimeBody,
        PopulationBody,
        OutcomesRequest,
        JobBody,
        JobFileRequest,
        CorrectionsRequest,
    )
}
_HEADERS: dict[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After", "RateLimit-Policy", "RateLimit"),
    503: ("Retry-After",),
}
HEADER_TEXTS = {
    "X-Request-ID": "Names this call in the logs of the service",
    "WWW-Authenticate": "How to send a key, and what is wrong with the one that was sent",
    "Retry-After": "Seconds until the call can succeed; absent if repeating it cannot help",
    "RateLimit-Policy": "The quota of the key: calls `q` in `w` seconds",
    "RateLimit": "What remains of it: calls `r`, full again in `t` seconds",
    NOTES_HEADER: "With CSV: provenance, codes of warnings and number of persons left out, as JSON",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` for these statuses and 500: each is a problem document."""
    schema = {"$ref": _REF.format(model=ProblemDocument.__name__)}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
            "headers": {
                name: _header(name) for name in ("X-Request-ID", *_HEADERS.get(status, ()))
            },
        }
        for status in (*statuses, 500)
    }


def _header(name: str) -> dict[str, Any]:
    kind = "integer" if name == "Retry-After" else "string"
    return {"description": HEADER_TEXTS[name], "schema": {"type": kind}}


def compute_responses() -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of an endpoint that computes: the table formats and errors."""
    headers = {
        name: _header(name)
        for name in ("X-Request-ID", "RateLimit-Policy", "RateLimit", NOTES_HEADER)
    }
    return problem_responses(401, 403, 406, 408, 413, 415, 422, 429, 503) | {
        200: {"content": _table_content(), "headers": headers}
    }


def request_body(component: str, *, or_component: str | None = None) -> dict[str, Any]:
    """OpenAPI `requestBody` and query parameters: JSON of a component, or a table with a query.

    `or_component` is another shape of the JSON. A body has its options from its base.
    """
    schema: dict[str, Any] = {"$ref": _REF.format(model=component)}
    if or_component is not None:
        schema = {"oneOf": [schema, {"$ref": _REF.format(model=or_component)}]}
    content = {JSON: {"schema": schema}} | _table_content()
    content[CSV]["example"] = example_csv(_BODIES[component].model_json_schema()["example"])
    return {
        "requestBody": {"required": True, "content": content},
        "parameters": _query_parameters(_BODIES[component].__bases__[0]),
    }


def _query_parameters(options: type[BaseModel]) -> list[dict[str, Any]]:
    """The options as query parameters; a list has commas, and a scenario is a name.

    Without defaults, because generated clients send them, and a JSON call has no query parameters.
    """
    parameters = []
    for name, entry in options.model_json_schema()["properties"].items():
        schema = _without_objects(
            {k: v for k, v in entry.items() if k not in ("title", "description", "default")}
        )
        if name in ("scenario", "reference"):
            schema = {"type": "string", "enum": list(SCENARIOS)}
        description = entry.get("description", "")
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": f"{description} (only with a table as the body)".strip(),
                "schema": schema,
                **({"style": "form", "explode": False} if name in LIST_OPTIONS else {}),
            }
        )
    return parameters


def _without_objects(schema: dict[str, Any]) -> dict[str, Any]:
    """The alternatives of an option that a query parameter can have: an object is not text."""
    if "items" in schema:
        schema = schema | {"items": _without_objects(schema["items"])}
    for kind in ("anyOf", "oneOf"):
        if kind in schema:
            simple = [choice for choice in schema[kind] if "$ref" not in choice]
            rest = {key: value for key, value in schema.items() if key != kind}
            return rest | (simple[0] if len(simple) == 1 else {kind: simple})
    return schema


def json_body(component: str) -> dict[str, Any]:
    """OpenAPI `requestBody`: JSON of a component of `body_components`."""
    content = {JSON: {"schema": {"$ref": _REF.format(model=component)}}}
    return {"requestBody": {"required": True, "content": content}}


def body_components() -> dict[str, Any]:
    """JSON schemas of the request bodies and of the problem document, by component name.

    Endpoints read their bodies themselves, in several formats, so FastAPI does not know them. Jobs
    show no defaults, because generated clients send them, and a product refuses others' options.
    """
    _, schema = models_json_schema(
        [*((body, "validation") for body in _BODIES.values()), (ProblemDocument, "serialization")],
        ref_template=_REF,
    )
    components: dict[str, Any] = schema["$defs"]
    for job in (JobBody, JobFileRequest):
        for entry in components[job.__name__]["properties"].values():
            entry.pop("default", None)
    return components


def _table_content() -> dict[str, Any]:
    binary = {"schema": {"type": "string", "format": "binary"}}
    return dict.fromkeys(TABLES, binary) | {CSV: {"schema": {"type": "string"}}}
