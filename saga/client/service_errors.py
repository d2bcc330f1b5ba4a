"""What can go wrong with a call, as exceptions made from the problem documents (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from saga.errors import Problem, SagaError


class ServiceError(SagaError):
    """The service has refused a call or failed.

    `status` is that of HTTP, `kind` the last part of the document's `type` (such as "request" or
    "quota"), `instance` names the call in the log of the service.
    """

    title = "The service has refused the call"

    def __init__(
        self,
        message: str,
        problems: tuple[Problem, ...] = (),
        *,
        status: int = 0,
        kind: str = "none",
        instance: str | None = None,
    ) -> None:
        super().__init__(message, problems)
        self.status, self.kind, self.instance = status, kind, instance


class RefusedError(ServiceError):
    """The persons or options are not valid, or too many (400, 409, 413, 415, 422)."""


class AuthorisationError(ServiceError):
    """There is no valid key (401), or the key may not do this (403)."""


class MissingError(ServiceError):
    """There is no such address or job (404); or the service has no ledger or no jobs."""


class BusyError(ServiceError):
    """The quota is used up (429) or the service cannot answer (5xx), also after all retries."""


class UnreachableError(ServiceError):
    """No answer arrived, also after all retries."""

    title = "The service cannot be reached"


class JobError(ServiceError):
    """A job has failed or was cancelled."""

    title = "The job has no result"


def service_error(response: httpx.Response) -> ServiceError:
    """The exception of an answer whose body has been read."""
    status = response.status_code
    if status in (401, 403):
        kind: type[ServiceError] = AuthorisationError
    elif status in (404, 410):
        kind = MissingError
    elif status == 429 or status >= 500:
        kind = BusyError
    else:
        kind = RefusedError
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "title" not in document:  # of a proxy
        return kind(f"HTTP status {status} {response.reason_phrase}", status=status)
    return document_error(kind, {**document, "status": status})


def foreign_answer(response: httpx.Response) -> ServiceError:
    """The exception of a successful answer that is not of the service, such as a page to log in."""
    kind = response.headers.get("content-type", "no type")
    return ServiceError(
        f"The answer is not of a SAGA service ({kind}). Check the address, and what is before it.",
        status=response.status_code,
    )


def document_error(kind: type[ServiceError], document: Mapping[str, Any]) -> ServiceError:
    """The exception of a problem document, of which anything but the title may be missing."""
    entries = document.get("problems")
    problems = [_problem(entry) for entry in entries] if isinstance(entries, list) else []
    title, status = document["title"], document.get("status")
    text = title if problems else document.get("detail") or title
    return kind(
        str(text),
        tuple(problems),
        status=status if isinstance(status, int) else 0,
        kind=str(document.get("type", "none")).rsplit(":", 1)[-1],
        instance=document.get("instance"),
    )


def _problem(entry: object) -> Problem:
    """An entry of a problem document; what is not as SAGA writes it is shown as text."""
    if not isinstance(entry, dict):
        return Problem("foreign", str(entry), "")
    rule, message, fix = (str(entry.get(name) or "") for name in ("rule", "message", "fix"))
    column, person = (
        None if entry.get(name) is None else str(entry[name]) for name in ("column", "person_id")
    )
    year, count = (
        value if isinstance(value := entry.get(name), int) else None for name in ("year", "count")
    )
    return Problem(rule, message, fix, column, person, year, count or 1)
