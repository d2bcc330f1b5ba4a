"""Quotas: how many calls a key may make, as a token bucket, and the headers that tell it."""

from __future__ import annotations

import math
import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from saga.api.refusals import refused

_BURST_SECONDS = 10.0  # a full bucket is the quota of so many seconds
# Takes a token, if there is one; a bucket that is not in the table is full.
_TAKE = """
INSERT INTO buckets VALUES (:holder, :capacity - 1, :now) ON CONFLICT (holder) DO UPDATE
SET tokens = min(:capacity, tokens + (:now - time) * :rate) - 1, time = :now
WHERE tokens + (:now - time) * :rate >= 1 RETURNING tokens
"""
_LEFT = "SELECT tokens + (:now - time) * :rate FROM buckets WHERE holder = :holder"


class Quotas:
    """Counts the calls of each holder.

    Args:
        per_minute: Calls of a holder a minute; None sets no quota.
        clock: Seconds, the same in all processes.
        shared: Folder in which the processes of one service count together; None: in memory.
    """

    def __init__(
        self,
        per_minute: int | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        shared: Path | None = None,
    ) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._rate = (per_minute or 0) / 60
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
        if self._per_minute is None:
            return {}
        now = self._clock()
        if now - self._cleared > _BURST_SECONDS:
            self._buckets.execute("DELETE FROM buckets WHERE time < ?", (now - self._fill_seconds,))
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

    @property
    def _fill_seconds(self) -> float:
        """Seconds in which an empty bucket fills."""
        return self._capacity / self._rate

    def _headers(self, remaining: int, seconds: int) -> Mapping[str, str]:
        quota, window = int(self._capacity), int(_BURST_SECONDS)
        return {
            "RateLimit-Policy": f'"calls";q={quota};w={window}',
            "RateLimit": f'"calls";r={remaining};t={seconds}',
        }
