"""Limits of a call and of the queue of calls; a call that is too large is rejected early."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from fastapi import Request

from api.problems import ProblemError
from saga.errors import BudgetError, Problem

Result = TypeVar("Result")

_BATCH = "`saga score` does any number of persons in batch"


def check_persons(n_persons: int, max_persons: int) -> None:
    """Raise BudgetError if there are more than `max_persons` persons; this check runs first."""
    if n_persons > max_persons:
        message = f"{n_persons} persons in one call, {max_persons} are allowed"
        fix = f"Send at most {max_persons} persons per call; {_BATCH}"
        raise BudgetError("Too many persons for one call", [Problem("max-persons", message, fix)])


def check_work(n_persons: int, n_paths: int, n_years: int, max_work: int) -> int:
    """The simulated path-years of a call: persons x paths x largest number of years.

    Raises BudgetError if they exceed `max_work`; the error states how many persons are possible.
    """
    work = n_persons * n_paths * n_years
    if work > max_work:
        n_fitting = max_work // (n_paths * n_years)
        message = (
            f"{n_persons} persons x {n_paths} paths x {n_years} years = {work},"
            f" {max_work} are allowed"
        )
        fix = (
            f"Send at most {n_fitting} persons per call at these options"
            if n_fitting
            else "Ask for fewer paths or years"
        )
        raise BudgetError(
            "Too much simulation for one call", [Problem("max-work", message, f"{fix}; {_BATCH}")]
        )
    return work


async def read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The request body.

    Raises:
        ProblemError: Status 413 as soon as the body is larger than `max_bytes`, 408 if it takes
            longer than `seconds` to arrive.
    """
    limit, fix = f"A body may have {max_bytes} bytes", f"Send fewer persons, or Parquet; {_BATCH}"
    too_large = ProblemError(
        413,
        "body-size",
        "The request body is too large",
        [Problem("max-body-bytes", limit, fix)],
        headers={"Connection": "close"},
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        message = f"The body must arrive within {seconds:g} seconds"
        raise ProblemError(
            408,
            "body-slow",
            "The request body did not arrive in time",
            [Problem("body-seconds", message, "Send it faster, or send less")],
            headers={"Connection": "close"},
        ) from None
    return bytes(body)


class ComputeSlot:
    """Runs one forecast at a time in a thread; a bounded number of calls wait in order.

    Two forecasts at once would each take twice as long on the same cores, so a queue serves all
    calls sooner. Work is measured in path-years.

    Args:
        max_waiting: Number of calls that may wait; further calls are rejected.
        max_seconds: Longest wait.
        max_work: Largest work of one call.
    """

    def __init__(self, *, max_waiting: int, max_seconds: float, max_work: int) -> None:
        self._lock = asyncio.Lock()
        self._max_waiting, self._max_seconds = max_waiting, max_seconds
        # Before the first measurement, the largest call is assumed to take `max_seconds`.
        self._seconds_per_unit = max_seconds / max_work
        self._pending_work = 0  # of the calls that compute or wait
        self.waiting = 0

    async def run(self, request: Request, work: Callable[[], Result], *, size: int) -> Result:
        """Run `work` of `size` path-years.

        Raises:
            ProblemError: Status 503 if the queue is full or the wait too long; Retry-After is the
                estimated seconds of the earlier calls. Status 499 if the client has closed the
                connection.
        """
        if self._lock.locked() and self.waiting >= self._max_waiting:
            raise self._busy("The queue is full", self._pending_work)
        self._pending_work += size
        try:
            await self._wait(size)
            try:
                return await self._compute(request, work, size)
            finally:
                self._lock.release()
        finally:
            self._pending_work -= size

    async def _wait(self, size: int) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(self._max_seconds):
                await self._lock.acquire()
        except TimeoutError:
            raise self._busy("The wait was too long", self._pending_work - size) from None
        finally:
            self.waiting -= 1

    async def _compute(self, request: Request, work: Callable[[], Result], size: int) -> Result:
        if await request.is_disconnected():
            raise ProblemError(
                499, "client-gone", "The client closed the connection while it waited"
            )
        start = time.perf_counter()
        # A cancelled call keeps its thread and its slot until the work is done.
        result = await anyio.to_thread.run_sync(work)
        seconds = time.perf_counter() - start
        if seconds > 1:  # a shorter call is mostly overhead
            self._seconds_per_unit += 0.5 * (seconds / size - self._seconds_per_unit)
        return result

    def _busy(self, message: str, pending_work: int) -> ProblemError:
        seconds = max(1, math.ceil(self._seconds_per_unit * pending_work))
        fix = f"Try again in {seconds} second{'s' if seconds > 1 else ''}; {_BATCH}"
        return ProblemError(
            503,
            "busy",
            "The service is busy",
            [Problem("queue", message, fix)],
            headers={"Retry-After": str(seconds)},
        )
