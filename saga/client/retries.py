"""When a call is sent again, and after how long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

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
                if response.status_code not in _AGAIN:
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
