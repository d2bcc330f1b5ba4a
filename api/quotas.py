"""Quotas: how many calls a key may make, as a token bucket, and the headers that tell it."""

from __future__ import annotations

import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from api.problems import ProblemError
from saga.errors import Problem

_MAX_HOLDERS = 10_000  # buckets in memory; the one unused for longest is forgotten
_BURST_SECONDS = 10.0  # a full bucket is the quota of so many seconds


@dataclass
class _Bucket:
    tokens: float
    time: float


class Quotas:
    """Counts the calls of each holder; `per_minute` of None sets no quota."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._rate = (per_minute or 0) / 60
        self._capacity = max(1.0, self._rate * _BURST_SECONDS)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, holder: str) -> Mapping[str, str]:
        """Count one call of a holder, and give the RateLimit headers of its answer.

        Raises ProblemError 429 if the quota is used up; Retry-After says when a call is possible.
        """
        if self._per_minute is None:
            return {}
        now = self._clock()
        bucket = self._buckets.setdefault(holder, _Bucket(self._capacity, now))
        self._buckets.move_to_end(holder)
        if len(self._buckets) > _MAX_HOLDERS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(self._capacity, bucket.tokens + (now - bucket.time) * self._rate)
        bucket.time = now
        if bucket.tokens < 1:
            seconds = math.ceil((1 - bucket.tokens) / self._rate)
            # At different times, so that callers do not come back together.
            seconds += random.randint(0, max(1, seconds // 2))
            message = f"The key may make {self._per_minute} calls a minute"
            fix = f"Try again in {seconds} seconds, or send more persons in a call"
            raise ProblemError(
                429,
                "quota",
                "The quota of the key is used up",
                [Problem("quota", message, fix)],
                headers={"Retry-After": str(seconds), **self._headers(0, seconds)},
            )
        bucket.tokens -= 1
        return self._headers(int(bucket.tokens), math.ceil(_BURST_SECONDS))

    def _headers(self, remaining: int, seconds: int) -> Mapping[str, str]:
        quota, window = int(self._capacity), int(_BURST_SECONDS)
        return {
            "RateLimit-Policy": f'"calls";q={quota};w={window}',
            "RateLimit": f'"calls";r={remaining};t={seconds}',
        }
