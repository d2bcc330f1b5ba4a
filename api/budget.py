"""Limits of a call, of the bodies in memory and of the calls of a key, each refused early.

While the interpreter decodes a body, it answers no other call. JSON that cannot be a call is
therefore refused before it is complete.
"""

from __future__ import annotations

import math
import random
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from fastapi import Request
from saga.api.panel_batches import MAX_TOGETHER
from saga.api.problems import client_gone
from saga.api.refusals import refused
from starlette.requests import ClientDisconnect

Scan = Callable[[bytes], None]
# Most commas and opening brackets of a body, which has at most one value more than these. 1,000
# persons with 40 years of 13 columns have nearly this number.
MAX_MARKS = 600_000
# Most bytes in a row without a comma or opening bracket: the texts of a call are names and codes.
MAX_STRETCH = 256 * 1024
_PIECE_PATH_YEARS = 100_000  # of a piece: they are computed in some tenths of a second
# Persons x paths whose statistics take as long as what a cell takes anyway; path-years that a call
# may have for each cell of a year.
_CELL_PATHS, _WORK_PER_CELL = 40_000, 10_000
_MARKS = (b",", b"[", b"{")
_BURST_SECONDS = 10.0  # a full bucket is the quota of so many seconds
# Takes a token, if there is one; a bucket that is not in the table is full.
_TAKE = """
INSERT INTO buckets VALUES (:holder, :capacity - 1, :now) ON CONFLICT (holder) DO UPDATE
SET tokens = min(:capacity, tokens + (:now - time) * :rate) - 1, time = :now
WHERE tokens + (:now - time) * :rate >= 1 RETURNING tokens
"""
_LEFT = "SELECT tokens + (:now - time) * :rate FROM buckets WHERE holder = :holder"


def check_persons(n_persons: int, max_persons: int) -> None:
    """Raise BudgetError if there are more than `max_persons` persons; this check runs first."""
    if n_persons > max_persons:
        raise refused("max-persons", {"number": n_persons, "limit": max_persons})


def check_work(n_persons: int, n_paths: int, n_years: int, max_work: int) -> int:
    """The simulated path-years of a call: persons x paths x largest number of years.

    Raises BudgetError if they exceed `max_work`; the error states how many persons are possible.
    """
    work = n_persons * n_paths * n_years
    if work > max_work:
        n_fitting = max_work // (n_paths * n_years)
        fix = (
            f"Send at most {n_fitting} persons per call at these options, or ask for at most "
            f"{max_work // (n_persons * n_years)} paths"
            if n_fitting
            else "Ask for fewer paths or years"
        )
        size = f"{n_persons} persons x {n_paths} paths x {n_years} years = {work}"
        raise refused("max-work", {"size": size, "limit": max_work, "fix": fix})
    return work


def persons_of_piece(n_paths: int, n_years: int) -> int:
    """Most persons of a piece, at least one; of few paths, the records take the time."""
    return max(1, min(MAX_TOGETHER, _PIECE_PATH_YEARS // (n_paths * n_years)))


def check_cells(n_cells: int, n_persons: int, n_paths: int, max_work: int) -> None:
    """Raise BudgetError if the cells and comparisons of a year are too many for one piece.

    A cell takes some milliseconds, and as long again for each `_CELL_PATHS` persons x paths: at
    the default of `max_work` a year takes a second or two.
    """
    if n_cells * (1 + n_persons * n_paths / _CELL_PATHS) > max_work / _WORK_PER_CELL:
        raise refused("max-cells", {"cells": n_cells, "persons": n_persons, "paths": n_paths})


class JsonScan:
    """Counts the commas and opening brackets of a body, and the bytes since the last of them."""

    def __init__(self) -> None:
        self._marks = self._stretch = 0

    def take(self, chunk: bytes) -> None:
        """Count one part of a body.

        Raises:
            BudgetError: The body has more values than a call needs.
            ProblemError: Status 422 if it has a text or number of very many bytes.
        """
        self._marks += sum(chunk.count(mark) for mark in _MARKS)
        if self._marks > MAX_MARKS:
            raise refused("json-values", {"limit": MAX_MARKS})
        last = max(chunk.rfind(mark) for mark in _MARKS)
        self._stretch = len(chunk) - last - 1 if last >= 0 else self._stretch + len(chunk)
        if self._stretch > MAX_STRETCH:
            raise refused("json-text", {"limit": MAX_STRETCH})


class BodyMemory:
    """Reads bodies; together they have at most `max_total` bytes until their calls let go of them.

    One holder has at most half of them, or one body. Beyond that, the holder with the most bytes
    loses the largest body that is still arriving, so bodies of one do not keep out another's.

    Args:
        max_bytes: Largest body.
        max_total: Bytes of all bodies in memory.
        seconds: Longest time for one body to arrive.
    """

    def __init__(self, *, max_bytes: int, max_total: int, seconds: float) -> None:
        self._max_bytes, self._max_total, self._seconds = max_bytes, max_total, seconds
        self._max_of_holder = max(max_bytes, max_total // 2)
        self._arriving: dict[anyio.CancelScope, tuple[str, bytearray]] = {}
        self.used = Counter[str]()  # bytes by holder

    @asynccontextmanager
    async def body(self, request: Request, holder: str, scan: Scan) -> AsyncIterator[bytes]:
        """The body of a holder's request, which counts until the context is left.

        `scan` is called with each part of it that arrives, and may refuse the body.

        Raises:
            ProblemError: Status 413 as soon as the body is larger than allowed, 408 if it takes too
                long to arrive, 503 if there is no memory for it, 499 if the client leaves.
        """
        self._refuse_large(int(request.headers.get("content-length") or 0))
        content = bytearray()
        try:
            await self._receive(request, holder, content, scan)
            yield bytes(content)
        finally:
            self.used[holder] -= len(content)

    async def _receive(self, request: Request, holder: str, content: bytearray, scan: Scan) -> None:
        """Append the body to `content` as it arrives.

        Raises ProblemError if it is too large or too slow, or if it has to give way.
        """
        with anyio.move_on_after(self._seconds) as scope:
            self._arriving[scope] = holder, content
            try:
                async for chunk in request.stream():
                    content += chunk
                    self.used[holder] += len(chunk)
                    self._refuse_large(len(content))
                    scan(chunk)
                    if (
                        self.used[holder] > self._max_of_holder
                        or self.used.total() > self._max_total
                    ):
                        max(self._arriving, key=self._weight).cancel()
            except ClientDisconnect:
                raise client_gone() from None
            finally:
                del self._arriving[scope]
        if scope.cancelled_caught and anyio.current_time() >= scope.deadline:
            raise refused("body-seconds", {"seconds": self._seconds})
        if scope.cancelled_caught:
            raise refused("body-memory")

    def _weight(self, scope: anyio.CancelScope) -> tuple[int, int]:
        """Bytes of the holder of an arriving body, and its own."""
        holder, content = self._arriving[scope]
        return self.used[holder], len(content)

    def _refuse_large(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise refused("max-body-bytes", {"limit": self._max_bytes})


class Quotas:
    """Counts the calls of each holder.

    Args:
        per_minute: Calls of a holder a minute.
        clock: Seconds, the same in all processes.
        shared: Folder in which the processes of one service count together; None: in memory.
    """

    def __init__(
        self,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        shared: Path | None = None,
    ) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._rate = per_minute / 60
        self._capacity = max(1.0, self._rate * _BURST_SECONDS)
        self._cleared = clock()
        self._buckets = sqlite3.connect(
            ":memory:" if shared is None else shared / "quotas.sqlite",
            isolation_level=None,
            check_same_thread=False,
        )
        # Nothing of it outlives the service.
        for pragma in ("journal_mode = MEMORY", "synchronous = OFF"):
            self._buckets.execute(f"PRAGMA {pragma}")
        table = "buckets (holder TEXT PRIMARY KEY, tokens REAL, time REAL) WITHOUT ROWID"
        self._buckets.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    def take(self, holder: str) -> Mapping[str, str]:
        """Count one call of a holder, and give the RateLimit headers of its answer.

        Raises ProblemError 429 if the quota is used up; Retry-After says when a call is possible.
        """
        now = self._clock()
        if now - self._cleared > _BURST_SECONDS:
            # A bucket that has had time to fill is a full one.
            self._buckets.execute(
                "DELETE FROM buckets WHERE time < ?", (now - self._capacity / self._rate,)
            )
            self._cleared = now
        values = {"holder": holder, "capacity": self._capacity, "rate": self._rate, "now": now}
        taken = self._buckets.execute(_TAKE, values).fetchall()
        if not taken:
            ((tokens,),) = self._buckets.execute(_LEFT, values).fetchall()
            seconds = max(1, math.ceil((1 - tokens) / self._rate))
            # At different times, so that callers do not come back together.
            seconds += random.randint(0, max(1, seconds // 2))
            policy, left = self._headers(0, seconds).values()
            limit = self._per_minute
            raise refused(
                "quota", {"limit": limit, "seconds": seconds, "policy": policy, "left": left}
            )
        ((tokens,),) = taken
        return self._headers(int(tokens), math.ceil(_BURST_SECONDS))

    def _headers(self, remaining: int, seconds: int) -> Mapping[str, str]:
        quota, window = int(self._capacity), int(_BURST_SECONDS)
        return {
            "RateLimit-Policy": f'"calls";q={quota};w={window}',
            "RateLimit": f'"calls";r={remaining};t={seconds}',
        }
