"""A connection to a service: how a call is made, when it is sent again, and after how long."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self

import httpx

from saga.client.service_errors import UnreachableError, service_error
from saga.version import current_version

_AGAIN = frozenset({408, 429, 502, 503, 504})  # the call had no effect, or repeating it has none


@dataclass(frozen=True)
class Retries:
    """How long a call is repeated.

    A wait is what `Retry-After` says, or doubles from `first_seconds` to `longest_seconds`; it is
    randomised, so that clients do not come back together.

    Args:
        seconds: Longest time from the first attempt to the last one; 0: one attempt.
        first_seconds: Longest first wait without `Retry-After`.
        longest_seconds: Longest wait without `Retry-After`.
        sleep: Waits.
        clock: Seconds that only grow.
        random: A random number from 0 to 1.
    """

    seconds: float = 120.0
    first_seconds: float = 0.5
    longest_seconds: float = 20.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)

    def send(self, attempt: Callable[[], httpx.Response]) -> httpx.Response:
        """The first answer that is not to be tried again, or the last one.

        Raises httpx.TransportError if the last attempt has no answer.
        """
        deadline, number = self.clock() + self.seconds, 0
        while True:
            response: httpx.Response | None = None
            try:
                response = attempt()
                if _is_final(response):
                    return response
            except httpx.TransportError:
                if self.clock() >= deadline:
                    raise
            wait = self.wait(number, None if response is None else retry_after(response))
            if self.clock() + wait > deadline:
                if response is not None:
                    return response
                wait = max(0.0, deadline - self.clock())
            self.sleep(wait)
            number += 1

    def wait(self, number: int, stated: float | None) -> float:
        """Seconds before the attempt after attempt `number`, which counts from 0."""
        if stated is not None:
            return stated * (1 + 0.25 * self.random())
        return self.random() * min(self.longest_seconds, self.first_seconds * 2.0**number)


def _is_final(response: httpx.Response) -> bool:
    """Whether repeating the call cannot help: a 429 without `Retry-After` waits for a person."""
    if response.status_code == 429:
        return "retry-after" not in response.headers
    return response.status_code not in _AGAIN


def retry_after(response: httpx.Response) -> float | None:
    """Seconds of the header `Retry-After`, which is a number or a date."""
    value = response.headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


class ServiceConnection:
    """Calls of one service; safe for several threads.

    Args:
        url: Address of the service, such as `https://saga.example.org`.
        key: Bearer key; None for a service without keys.
        retries: How long a call is repeated while the service is busy or away.
        seconds: Longest wait for an answer, before the call counts as lost and is repeated.
        tls: Certificate authorities to trust, of `ssl.create_default_context(cafile=...)`.
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
        headers = {"User-Agent": f"saga-client/{current_version()}"}
        if key is not None:
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
    def stream(self, path: str, *, seconds: float) -> Iterator[httpx.Response]:
        """The answer of a GET while it arrives; `seconds` is the longest pause.

        Raises:
            ServiceError: The call fails.
            httpx.TransportError: The connection breaks later.
        """
        timeout = httpx.Timeout(seconds, connect=10.0)
        request = self.http.build_request("GET", path, timeout=timeout)
        response = self.checked(lambda: self.http.send(request, stream=True))
        try:
            yield response
        finally:
            response.close()

    def checked(self, attempt: Callable[[], httpx.Response]) -> httpx.Response:
        """The answer of `attempt`, repeated as `retries` says; raises as `call`."""
        try:
            response = self.retries.send(attempt)
        except httpx.TransportError as error:
            message = f"No answer from {self.http.base_url} ({type(error).__name__})"
            raise UnreachableError(message) from error
        if response.is_success:
            return response
        response.read()
        raise service_error(response)
