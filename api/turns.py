"""Places that holders take in turn, so that nobody waits behind all the calls of another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A number of places; of those who wait each holder is served once, then each again.

    Args:
        n_places: Calls that have a place at a time.
    """

    def __init__(self, n_places: int) -> None:
        self._free = n_places
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by holder, the next one first

    @property
    def has_place(self) -> bool:
        """Whether a call would get a place at once."""
        return self._free > 0

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        """A place for a call of a holder."""
        if self._free:
            self._free -= 1
        else:
            place = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(holder, deque()).append(place)
            try:
                await place
            except asyncio.CancelledError:
                if not place.cancelled():  # it became free at the same moment
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give a place that is free to the holder whose turn it is."""
        while self._waiting:
            holder = next(iter(self._waiting))
            calls = deque(place for place in self._waiting.pop(holder) if not place.done())
            if calls:
                calls.popleft().set_result(None)
                if calls:
                    self._waiting[holder] = calls  # behind the others
                return
        self._free += 1
