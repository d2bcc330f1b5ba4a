"""Errors as RFC 9457 problem documents: position and fix, but no value of the request.

This module never reads `input`, `msg` or `str()` of a library's exception, because they may contain
a value of a person. From a request only positions are repeated: person_id, year and column name,
each cut to the length of a name. Other texts are cut, too: a file of rules may have long names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from asgi_correlation_id import correlation_id
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from saga.api.jobs import QueueError
from saga.calibration.adaptive.database import LedgerError
from saga.calibration.adaptive.outcome_entries import ConflictLimitError
from starlette.exceptions import HTTPException

from saga.errors import BudgetError, BundleError, InputError, Problem, SagaError, UsageError
from saga.requests import JOB_REQUESTS, Draws, options_of

MEDIA_TYPE = "application/problem+json"
MAX_PROBLEMS = 50
_MAX_NAME = 64  # characters of a person_id or column in a response
_MAX_TEXT, _MAX_DETAIL = 1_000, 10_000  # of a message or fix, and of all together


class SetupError(SagaError):
    """The service cannot use its bundle, ledger or key file (HTTP 503)."""

    title = "The service is not set up correctly"


_STATUS: dict[type[SagaError], tuple[int, str]] = {
    InputError: (422, "input"),
    UsageError: (422, "usage"),
    BudgetError: (413, "budget"),
    BundleError: (503, "bundle"),
    LedgerError: (503, "ledger"),
    QueueError: (503, "job-queue"),
    ConflictLimitError: (429, "conflict-limit"),
    SetupError: (503, "setup"),
}
_INTERNAL = (
    500,
    "internal",
    "Internal error",
    "The service failed; its log names the place under this instance",
)
# Parts of a pydantic location that are not in the request, of the unions of
# `saga.api.request_models` -> what the other part of the union allows beside the words of this one.
_UNION_TAGS = dict.fromkeys(("<year>", "<rows>", "<word>", "<row>"), "")
_UNION_TAGS |= {"<prices>": ", or a year", "<scenario>": ", or a list of years and values"}
# pydantic's error type -> message and fix; bounds come from our schema, never from the input.
_RULES: dict[str, tuple[str, str]] = {
    "missing": ("A required entry is missing", "Add it"),
    "extra_forbidden": ("This entry is not known here", "Remove it or correct its name; {allowed}"),
    "float_type": ("This must be a number", "Send a number, in JSON without quotes"),
    "int_type": (
        "This must be a whole number",
        "Send a number without decimals; in JSON without quotes, several in a query as 1,5,10",
    ),
    "bool_type": ("This must be true or false", "Send true or false, in JSON without quotes"),
    "string_type": ("This must be text", "Send a JSON string"),
    "list_type": ("This must be a list", "Send a JSON array"),
    "model_type": ("This must be an object", "Send a JSON object"),
    "model_attributes_type": ("This must be an object", "Send a JSON object"),
    "dict_type": ("This must be an object", "Send a JSON object"),
    "literal_error": ("This is not one of the allowed words", "Allowed: {expected}"),
    "enum": ("This is not one of the allowed words", "Allowed: {expected}"),
    "greater_than": ("This is too small", "Give more than {gt}"),
    "greater_than_equal": ("This is too small", "Give {ge} or more"),
    "less_than": ("This is too large", "Give less than {lt}"),
    "less_than_equal": ("This is too large", "Give {le} or less"),
    "too_short": ("This list is too short", "Give at least {min_length}"),
    "too_long": ("This list is too long", "Give at most {max_length}"),
    "string_too_long": ("This text is too long", "Give at most {max_length} characters"),
    "string_too_short": ("This text is too short", "Give {min_length} or more characters"),
    "string_pattern_mismatch": ("This text is not one of the allowed forms", "Allowed: {pattern}"),
    "coverage": ("Intervals have no such coverage", "Allowed: {expected}"),
    "finite_number": ("This must be a finite number", "Send a finite number"),
}
# Name of an option -> what to use in place of a number that it does not allow.
_HINTS = {
    option.name or name: option.hint
    for request in (Draws, *JOB_REQUESTS.values())
    for name, (_, option) in options_of(request).items()
}


class ProblemDocument(BaseModel):
    """RFC 9457 problem details.

    `problems` lists what is wrong, where, and how to correct it. It has no value of the request.
    """

    type: str = Field(examples=["urn:saga:problem:input"])
    title: str
    status: int
    detail: str
    instance: str = Field(description="Names this call in the logs of the service")
    problems: list[Problem] = []


class ProblemError(Exception):
    """An error of the HTTP layer itself, such as 401, 404, 408, 413, 415 or 503."""

    def __init__(
        self,
        status: int,
        slug: str,
        title: str,
        problems: Sequence[Problem] = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(title)
        self.status, self.slug, self.title = status, slug, title
        self.problems, self.headers = tuple(problems), dict(headers or {})


def client_gone() -> ProblemError:
    """The error of a call whose client has left; nobody reads it, the log counts it as 499."""
    return ProblemError(499, "client-gone", "The client closed the connection")


def wrong_shape(*problems: Problem) -> ProblemError:
    """The error of a request that does not fit the schema."""
    return ProblemError(422, "request", "The request has the wrong shape", problems)


def problem_response(
    status: int,
    slug: str,
    title: str,
    detail: str | None,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The problem document as a response.

    Args:
        status: HTTP status.
        slug: Last part of the `type`.
        title: The kind of error in words.
        detail: What went wrong; None to give the entries in words.
        problems: Entries of the document, shown as in `visible_problems`.
        headers: Headers of the response.
    """
    body = problem_document(status, slug, title, detail, problems)
    body["instance"] = f"urn:saga:request:{correlation_id.get() or 'none'}"
    return JSONResponse(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def problem_document(
    status: int, slug: str, title: str, detail: str | None, problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """The content of a problem document but its `instance`; arguments as `problem_response`."""
    entries = visible_problems(problems)
    return {
        "type": f"urn:saga:problem:{slug}",
        "title": title,
        "status": status,
        "detail": _cut(
            " ".join(map(str, entries)) or title if detail is None else detail, _MAX_DETAIL
        ),
        "problems": [problem.as_dict() for problem in entries],
    }


def visible_problems(problems: Sequence[Problem]) -> list[Problem]:
    """The first `MAX_PROBLEMS` problems, with long names and texts cut."""
    return [
        replace(
            p,
            message=_cut(p.message, _MAX_TEXT),
            fix=_cut(p.fix, _MAX_TEXT),
            column=_short(p.column),
            person_id=_short(p.person_id),
        )
        for p in problems[:MAX_PROBLEMS]
    ]


def _short(name: str | None) -> str | None:
    if name is None:
        return None
    if not name.isprintable():
        return "(unprintable name)"
    return _cut(name, _MAX_NAME)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def error_document(error: SagaError) -> dict[str, Any]:
    """The problem document of an error that SAGA raised, as `response_to`."""
    return problem_document(*_status_of(error), error.title, error.args[0], error.problems)


def _status_of(error: SagaError) -> tuple[int, str]:
    return next(
        (entry for kind, entry in _STATUS.items() if isinstance(error, kind)), (422, "saga")
    )


def response_to(error: ProblemError | SagaError) -> JSONResponse:
    """The response that says what the error does; of SAGA's own, its class has the status."""
    if isinstance(error, ProblemError):
        return problem_response(
            error.status, error.slug, error.title, None, error.problems, error.headers
        )
    status, slug = _status_of(error)
    seconds = "5" if isinstance(error, LedgerError) else "60"
    headers = {"Retry-After": seconds} if status == 503 else {}
    return problem_response(status, slug, error.title, error.args[0], error.problems, headers)


def startup_error(error: SagaError) -> SagaError:
    """The error that clients see if the service cannot start: only its kind.

    The message may contain paths of the server, so it is only in the log.
    """
    kind = next(
        (kind for kind in (BundleError, LedgerError) if isinstance(error, kind)), SetupError
    )
    return kind("The service cannot work with its present setup; its log says what is wrong")


def internal_error() -> JSONResponse:
    """The response for an unexpected error; the log has its position under the same `instance`."""
    return problem_response(*_INTERNAL)


def internal_document() -> dict[str, Any]:
    """The problem document of an unexpected error in a job."""
    return problem_document(*_INTERNAL)


def shape_problems(
    errors: Sequence[Mapping[str, Any]], body: Any, options: Sequence[str] = ()
) -> list[Problem]:
    """Make one problem for each rule and column of pydantic's errors, with its first position.

    `body` is the parsed request; only person_id and year are read from it. `options` are the
    entries that it may have.
    """
    first: dict[tuple[str, str], Problem] = {}
    counts: dict[tuple[str, str], int] = {}
    for error in errors:
        location = [part for part in error["loc"] if part not in _UNION_TAGS]
        column = ".".join(part for part in location if isinstance(part, str)) or None
        for prefix in ("persons.history.", "persons.", "outcomes.", "corrections."):
            column = column.removeprefix(prefix) if column else column
        key = (error["type"], column or "")
        counts[key] = counts.get(key, 0) + 1
        if key not in first:
            message, fix = _RULES.get(
                error["type"], ("This is not valid here", "See the schema under /docs")
            )
            fix += "".join(_UNION_TAGS.get(part, "") for part in error["loc"])
            if error["type"].startswith(("greater", "less")) and (hint := _HINTS.get(column or "")):
                fix += f". {hint.removesuffix('.')}"
            if error["type"] == "float_type" and location[:1] == ["persons"]:
                fix += ", or null for unknown"
            person_id, year = _person_and_year(location, body)
            bounds = _Bounds(error.get("ctx", {}), allowed=_allowed_entries(location, options))
            first[key] = Problem(
                error["type"], message, fix.format_map(bounds), column, person_id, year
            )
    return [
        Problem(p.rule, p.message, p.fix, p.column, p.person_id, p.year, counts[key])
        for key, p in first.items()
    ]


class _Bounds(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "what the schema under /docs allows"


def _allowed_entries(location: Sequence[str | int], options: Sequence[str]) -> str:
    if len(location) == 1 and options:
        return f"known are {', '.join(options)}"
    return (
        "GET /v1/variables lists the columns"
        if location[:1] == ["persons"]
        else "see the schema under /docs"
    )


def _person_and_year(location: Sequence[str | int], body: Any) -> tuple[str | None, int | None]:
    """The person_id and year at a location such as `persons, 3, history, 2, earnings`."""
    person = (
        _at(_at(body, location[0]), location[1])
        if len(location) > 1 and location[0] in ("persons", "outcomes", "corrections")
        else None
    )
    row = (
        _at(_at(person, "history"), location[3])
        if len(location) > 3 and location[2] == "history"
        else person
    )
    person_id, year = _at(person, "person_id"), _at(row, "year")
    is_id = isinstance(person_id, (str, int)) and not isinstance(person_id, bool)
    is_year = isinstance(year, int) and 1000 <= year <= 9999
    return (str(person_id) or None) if is_id else None, year if is_year else None


def _at(container: Any, key: Any) -> Any:
    try:
        return container[key]
    except (KeyError, IndexError, TypeError):
        return None


async def _on_own_error(_: Request, error: ProblemError | SagaError) -> JSONResponse:
    return response_to(error)


async def _on_http_exception(_: Request, error: HTTPException) -> JSONResponse:
    return library_error(error.status_code, error.headers)


def library_error(status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for an error of a library, of which only the status is known."""
    title = HTTPStatus(status).phrase
    detail = {
        400: "The call or one of its headers, such as Range, is malformed",
        404: "There is nothing at this address; /docs lists what there is",
        405: "This address does not take this method",
        416: "The file has no such bytes; Content-Range says how many it has",
    }
    slug = f"http-{status}"
    return problem_response(status, slug, title, detail.get(status, title), headers=headers)


async def _on_unexpected_error(_: Request, __: Exception) -> JSONResponse:
    return internal_error()


async def _on_validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
    # A location starts with "body", "query" or the like.
    errors = [{**entry, "loc": entry["loc"][1:]} for entry in error.errors()]
    return problem_response(
        422,
        "request",
        "The request has the wrong shape",
        "See `problems`",
        shape_problems(errors, error.body),
    )


def install(app: FastAPI) -> None:
    """Register the handlers: every error becomes a problem document."""
    for kind in (SagaError, ProblemError):
        app.exception_handler(kind)(_on_own_error)
    app.exception_handler(HTTPException)(_on_http_exception)
    app.exception_handler(RequestValidationError)(_on_validation_error)
    app.exception_handler(Exception)(_on_unexpected_error)  # beyond all middleware of ours
