"""A connection to a service: how a call is made, when it is sent again, and what can go wrong.

Exceptions are made from the problem documents of the service (RFC 9457).
"""

from __future__ import annotations

import math
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import httpx

from saga.errors import Problem, SagaError, UsageError, check_type
from saga.version import current_version

_SHORTEST_SECONDS = 0.1  # of a wait, whatever the service and chance say
_LAST_PORT = 65_535
_AGAIN = frozenset({408, 429, 502, 503, 504})  # the call had no effect, or repeating it has none


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
    document = _object_in(response)
    if document is None or not document.get("title"):  # of a proxy
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


@dataclass(frozen=True)
class Retries:
    """How long a call is repeated.

    A wait is what `Retry-After` says, but not shorter than one that doubles from `first_seconds` to
    `longest_seconds`; it is randomised, so that clients do not come back together. What cannot
    pass, such as a host that nobody knows, is not repeated.

    Args:
        seconds: Longest time from the first attempt to the last one; 0: one attempt.
        first_seconds: Longest first wait without `Retry-After`.
        longest_seconds: Longest wait without `Retry-After`.
        sleep: Waits.
        clock: Seconds that only grow.
        random: A random number from 0 to 1.

    Raises UsageError unless the times are numbers of seconds.
    """

    seconds: float = 120.0
    first_seconds: float = 0.5
    longest_seconds: float = 20.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        for name in ("seconds", "first_seconds", "longest_seconds"):
            _check_seconds(name, getattr(self, name))

    def send(self, attempt: Callable[[], httpx.Response]) -> httpx.Response:
        """The first answer that is not to be tried again, or the last one.

        Raises httpx.TransportError if the last attempt has no answer, or no other one can have any.
        """
        deadline, number = self.clock() + self.seconds, 0
        while True:
            response: httpx.Response | None = None
            try:
                response = attempt()
                if _is_final(response):
                    return response
            except httpx.TransportError as error:
                if self.clock() >= deadline or _cannot_pass(error):
                    raise
            wait = self.wait(number, None if response is None else retry_after(response))
            if self.clock() + wait > deadline:
                if response is not None:
                    return response
                wait = max(0.0, deadline - self.clock())
            if response is not None:
                response.close()  # one that is not read keeps its connection
            self.sleep(wait)
            number += 1

    def wait(self, number: int, stated: float | None) -> float:
        """Seconds before the attempt after attempt `number`, which counts from 0."""
        # The exponent is bounded, because a float is.
        growing = self.random() * min(
            self.longest_seconds, self.first_seconds * 2.0 ** min(number, 60)
        )
        asked_for = 0.0 if stated is None else stated * (1 + 0.25 * self.random())
        return max(_SHORTEST_SECONDS, growing, asked_for)


def _is_final(response: httpx.Response) -> bool:
    """Whether repeating the call cannot help: a 429 without `Retry-After` waits for a person."""
    if response.status_code == 429:
        return "retry-after" not in response.headers
    return response.status_code not in _AGAIN


def _cannot_pass(error: httpx.TransportError) -> bool:
    """Whether the call itself is wrong: no wait helps against another protocol or an unknown host.

    A server that does not speak TLS, and a certificate that is not trusted, stay so.
    """
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return True
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def retry_after(response: httpx.Response) -> float | None:
    """Seconds of the header `Retry-After`, which is a number or a date; None if it is neither."""
    value = response.headers.get("retry-after", "")
    try:
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
        return max(0.0, (_in_utc(moment) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _in_utc(moment: datetime) -> datetime:
    """A date of HTTP; one without a zone is of UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UsageError(f"{name} is a number of seconds, such as 120.0 or 0.0.")


def _address(url: str) -> str:
    """An address as messages show it, without the password that it may have."""
    try:
        parts = httpx.URL(url)
        parts.raw_host.decode().encode("idna")  # as it is looked up
    except (httpx.InvalidURL, TypeError, UnicodeError):
        parts = httpx.URL("")
    if parts.scheme not in ("http", "https") or not parts.host or (parts.port or 0) > _LAST_PORT:
        fix = "the address of a service begins with http:// or https://, as in https://saga.example.org"
        raise UnreachableError(f"This is not an address of a service: {fix}.")
    return f"{parts.scheme}://{parts.netloc.decode('ascii', 'replace')}"


class ServiceConnection:
    """Calls of one service; safe for several threads.

    Args:
        url: Address of the service, such as `https://saga.example.org`.
        key: Bearer key; None for a service without keys.
        retries: How long a call is repeated while the service is busy or away.
        seconds: Longest wait for an answer, before the call counts as lost and is repeated.
        tls: Certificate authorities to trust, of `ssl.create_default_context(cafile=...)`.

    Raises ServiceError for what is no address, or no key, and UsageError for other arguments.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        retries: Retries = Retries(),  # frozen
        seconds: float = 120.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = _address(url)
        check_type("retries", retries, Retries, "Retries(seconds=0.0)")
        _check_seconds("seconds", seconds)
        if tls is not None:
            example = "ssl.create_default_context(cafile='root.crt')"
            check_type("tls", tls, ssl.SSLContext, example)
        headers = {"User-Agent": f"saga-client/{current_version()}"}
        if key is not None:
            if not isinstance(key, str) or not re.fullmatch("[!-~]+", key):
                raise AuthorisationError(
                    "The key is empty or no text, or has a character that no key has, such as the "
                    "end of a line. Strip it, or give None for a service without keys."
                )
            headers["Authorization"] = f"Bearer {key}"
        self.retries = retries
        self.http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(seconds, connect=10.0),
            verify=True if tls is None else tls,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Any call, repeated as `retries` says. Raises ServiceError unless it succeeds."""
        return self.checked(
            lambda: self.http.request(method, path, content=content, params=params, headers=headers)
        )

    @contextmanager
    def stream(
        self, path: str, *, seconds: float, headers: Mapping[str, str]
    ) -> Iterator[httpx.Response]:
        """The answer of a GET while it arrives; `seconds` is the longest pause.

        Raises:
            ServiceError: The call fails.
            httpx.TransportError: The connection breaks later.
        """
        timeout = httpx.Timeout(seconds, connect=10.0)
        request = self.http.build_request("GET", path, timeout=timeout, headers=headers)
        response = self.checked(lambda: self.http.send(request, stream=True))
        try:
            yield response
        finally:
            response.close()

    def checked(self, attempt: Callable[[], httpx.Response]) -> httpx.Response:
        """The answer of `attempt`, repeated as `retries` says; raises as `call`."""
        try:
            response = self.retries.send(attempt)
            if response.is_success:
                return response
            response.read()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self.unreachable(error) from None  # a cause may show the headers, with the key
        raise service_error(response)

    def unreachable(self, error: Exception) -> UnreachableError:
        """The error of a call without a whole answer."""
        return UnreachableError(f"No answer from {self.address} ({type(error).__name__})")


def json_of(response: httpx.Response, key: str) -> dict[str, Any]:
    """The object in an answer, with a text at `key`.

    Raises ServiceError for anything else: a proxy, or another server, may have answered.
    """
    value = _object_in(response)
    if value is None or not isinstance(value.get(key), str):
        raise foreign_answer(response)
    return value


def _object_in(response: httpx.Response) -> dict[str, Any] | None:
    """The object in an answer, if it has one that can be read."""
    try:
        value = response.json()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
