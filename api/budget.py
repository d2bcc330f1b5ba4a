"""What one call may cost, and how many calls may wait: the service says no early instead of slowing down for all."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from fastapi import Request

from api.problems import HTTPProblem
from saga.errors import BudgetError, Problem

Result = TypeVar("Result")

_BATCH = "`saga score` does any number of persons in batch"


def check_persons(persons: int, allowed: int) -> None:
    """At most `allowed` persons in a call: raises BudgetError with the number. Cheap, so it runs before anything else."""
    if persons > allowed:
        message = f"{persons} persons in one call, {allowed} are allowed"
        raise BudgetError(
            "Too many persons for one call",
            [Problem("max-persons", message, f"Send at most {allowed} persons a call; {_BATCH}")],
        )


def check_work(persons: int, paths: int, years: int, allowed: int) -> int:
    """The simulated path-years of a call: `persons` x `paths` x `years` (the longest of them), at most `allowed`.

    Raises BudgetError that says how many persons fit at these options.
    """
    work = persons * paths * years
    if work > allowed:
        fit = allowed // (paths * years)
        message = (
            f"{persons} persons x {paths} paths x {years} years = {work}, {allowed} are allowed"
        )
        few = (
            f"Send at most {fit} persons a call at these options"
            if fit
            else "Ask for fewer paths or years"
        )
        raise BudgetError(
            "Too much simulation for one call", [Problem("max-work", message, f"{few}; {_BATCH}")]
        )
    return work


async def read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The request body: 413 as soon as it is larger than `max_bytes`, 408 if it takes longer than `seconds` to arrive."""
    too_large = HTTPProblem(
        413,
        "body-size",
        "The request body is too large",
        [
            Problem(
                "max-body-bytes",
                f"A body may have {max_bytes} bytes",
                f"Send fewer persons, or Parquet; {_BATCH}",
            )
        ],
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
        fix = Problem(
            "body-seconds",
            f"The body must arrive within {seconds:g} seconds",
            "Send it faster, or send less",
        )
        raise HTTPProblem(
            408,
            "body-slow",
            "The request body did not arrive in time",
            [fix],
            headers={"Connection": "close"},
        ) from None
    return bytes(body)


class ComputeSlot:
    """One forecast at a time, in a thread beside the event loop; a bounded number of calls wait in order of arrival.

    Two forecasts at once would each take twice as long on the same cores, so a queue serves everyone sooner.
    """

    def __init__(self, *, queue: int, seconds: float, most: int) -> None:
        self._lock = asyncio.Lock()
        self._queue, self._seconds = queue, seconds
        # Seconds for a path-year: until a call is timed, the largest allowed is taken to last as long as one may wait.
        self._pace = seconds / most
        self._line = 0  # path-years of the calls that compute or wait
        self.waiting = 0

    async def run(self, request: Request, work: Callable[[], Result], *, size: int) -> Result:
        """Run `work` of `size` path-years in the slot.

        Raises HTTPProblem 503 where the queue is full or the wait too long, with the seconds that the calls in line will take as
        Retry-After, and 499 where the client has gone before its turn came (nobody reads that answer).
        """
        if self._lock.locked() and self.waiting >= self._queue:
            raise self._busy("The queue is full", self._line)
        self._line += size
        try:
            await self._wait(size)
            try:
                return await self._compute(request, work, size)
            finally:
                self._lock.release()
        finally:
            self._line -= size

    async def _wait(self, size: int) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._lock.acquire()
        except TimeoutError:
            raise self._busy("The wait was too long", self._line - size) from None
        finally:
            self.waiting -= 1

    async def _compute(self, request: Request, work: Callable[[], Result], size: int) -> Result:
        if await request.is_disconnected():
            raise HTTPProblem(
                499, "client-gone", "The client closed the connection while it waited"
            )
        began = time.perf_counter()
        # Not abandoned on cancellation: the thread keeps computing, so the slot stays taken until it is done.
        result = await anyio.to_thread.run_sync(work)
        took = time.perf_counter() - began
        if took > 1:  # a shorter call is mostly overhead, which says nothing about a large one
            self._pace += 0.5 * (took / size - self._pace)
        return result

    def _busy(self, message: str, line: int) -> HTTPProblem:
        seconds = max(1, math.ceil(self._pace * line))
        fix = f"Try again in {seconds} second{'s' if seconds > 1 else ''}; {_BATCH}"
        return HTTPProblem(
            503,
            "busy",
            "The service is busy",
            [Problem("queue", message, fix)],
            headers={"Retry-After": str(seconds)},
        )
