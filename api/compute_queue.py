"""The queue of calls: who may enter, whose turn it is, and what is computed together.

One thread computes. A call's work is done in pieces of a fraction of a second, so that callers
alternate and a call whose client has left stops. Waiting pieces with the same `batch_key` are
computed together.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import Request
from polars.exceptions import PanicException
from saga.api.problems import client_gone
from saga.api.refusals import refused

# What happens to a call before it waits for its first piece.
Stage = Literal["body", "decode", "panel", "compute"]
Part = TypeVar("Part")
Output = TypeVar("Output")

# How long the first call waits for those that are being read, to be computed together, and for
# callers whose calls were computed together and who often call again at once. On a busy machine
# both take longer, as the last piece did, and so does the wait.
_GATHER_SECONDS, _GATHER_STEP = (0.012, 0.1), 0.002


@dataclass(frozen=True)
class Work(Generic[Part, Output]):
    """What one call computes.

    Args:
        parts: Its pieces, in order. One should take a fraction of a second (the most paths of one
            person take more); it may append another.
        compute: Computes pieces, one output each. It gets several only if their `batch_key` agrees.
        size: Path-years of all pieces.
        batch_key: Pieces of calls with the same key are computed together; None: alone.
        n_together: Most pieces that are computed together, by their `weight`.
        weight: Persons of a piece.
    """

    parts: Sequence[Part]
    compute: Callable[[list[Part]], list[Output]]
    size: int
    batch_key: Hashable = None
    n_together: int = 1
    weight: Callable[[Part], int] = lambda _: 1


@dataclass(eq=False)
class Ticket:
    """The place of one call in the service, from before its body is read until it is answered.

    It has no `work` until its body is read.
    """

    holder: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    arrived: float = field(default_factory=time.monotonic)
    work: Work[Any, Any] = Work((), lambda _: [], 0)
    outputs: list[Any] = field(default_factory=list)
    finished: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    stage: Stage = "body"
    is_computing: bool = False
    is_gone: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether all pieces are computed, or the call has failed."""
        return self.finished.done()

    @property
    def next_part(self) -> Any:
        """The first piece that is not computed."""
        return self.work.parts[len(self.outputs)]


class ComputeQueue:
    """Admits calls, and computes their work one piece at a time in the order of fair shares.

    Args:
        max_calls: Most calls from before their body is read until they are answered.
        max_seconds: Longest wait for the first piece.
        max_work: Largest work of one call.
        observe: Called with "queue" or "compute" and seconds.
        note_waiting: Called with the number of calls that wait for their first piece.
    """

    def __init__(
        self,
        *,
        max_calls: int,
        max_seconds: float,
        max_work: int,
        observe: Callable[[str, float], None] = lambda *_: None,
        note_waiting: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._max_calls, self._max_seconds = max_calls, max_seconds
        self._observe, self._note_waiting = observe, note_waiting
        # Before the first measurement, the largest call is assumed to take `max_seconds`.
        self._seconds_per_unit = max_seconds / max_work
        self._tickets: list[Ticket] = []
        self._waiting: list[Ticket] = []
        self._served: dict[str, float] = {}  # work by holder, of the holders that wait
        self._runner: asyncio.Task[None] | None = None
        self._thread = anyio.CapacityLimiter(1)
        self._closed = False
        self._last = 0.0  # seconds of the last piece
        self._last_batch: list[Ticket] = []
        self._answered = -math.inf  # when the latest call of the last batch was answered

    @property
    def waiting(self) -> int:
        """Calls that wait for their first piece."""
        return sum(not ticket.outputs and not ticket.is_computing for ticket in self._waiting)

    @asynccontextmanager
    async def admit(self, holder: str) -> AsyncIterator[Ticket]:
        """A place for a call of `holder`, before its body is read.

        Raises:
            ProblemError: Status 503 if the service is full and no other holder has more calls. Else
                the youngest call of the holder with the most calls gives way with this status.
        """
        if self._closed:
            raise refused("stopping")
        if len(self._tickets) >= self._max_calls:
            self._make_room(holder)
        ticket = Ticket(holder)
        self._tickets.append(ticket)
        try:
            with ticket.scope:
                yield ticket
            if ticket.scope.cancelled_caught:
                raise self._reason(ticket)
        finally:
            self._tickets.remove(ticket)
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if ticket in self._last_batch:
                self._answered = time.monotonic()
            self._note_waiting(self.waiting)

    def close(self) -> None:
        """Answer all calls with status 503, because the service stops."""
        self._closed = True
        for ticket in self._tickets:
            ticket.scope.cancel()

    def _reason(self, ticket: Ticket) -> Exception:
        if ticket.is_gone:
            return client_gone()
        return refused("stopping") if self._closed else self._busy("The queue is full")

    def _make_room(self, holder: str) -> None:
        n_calls: dict[str, int] = {}
        for ticket in self._tickets:
            n_calls[ticket.holder] = n_calls.get(ticket.holder, 0) + 1
        greediest = max(n_calls, key=lambda name: n_calls[name])
        idle = [t for t in self._tickets if t.holder == greediest and not t.is_computing]
        if n_calls[greediest] <= n_calls.get(holder, 0) + 1 or not idle:
            raise self._busy("The queue is full")
        idle[-1].scope.cancel()

    async def run(self, request: Request, ticket: Ticket, work: Work[Part, Output]) -> list[Output]:
        """The outputs of a call's work; the body of `request` has been read.

        If the client leaves, the call leaves the queue and no further piece is computed. Raises
        ProblemError 503 if the wait is too long, and what `work.compute` raises.
        """
        ticket.arrived = time.monotonic()
        ticket.work = work
        min_served = min((self._served[t.holder] for t in self._waiting), default=0.0)
        if not any(waiting.holder == ticket.holder for waiting in self._waiting):
            self._served[ticket.holder] = min_served
        self._waiting.append(ticket)
        self._note_waiting(self.waiting)
        timer = asyncio.get_running_loop().call_later(self._max_seconds, self._give_up, ticket)
        watcher = asyncio.create_task(_watch(request, ticket))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._serve())
        try:
            await ticket.finished
        finally:
            timer.cancel()
            watcher.cancel()
            if ticket in self._waiting:
                self._waiting.remove(ticket)
        return ticket.outputs

    def _give_up(self, ticket: Ticket) -> None:
        if not ticket.outputs and not ticket.is_computing:
            self._finish(ticket, self._busy("The wait was too long"))

    async def _serve(self) -> None:
        while self._waiting:
            await self.gather("decode", "panel")
            batch = self._next_batch()
            if batch:
                await self._compute(batch)

    async def gather(self, *stages: Stage) -> None:
        """Wait for calls in these `stages`, and for callers of the last batch who call again."""
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline and (
            any(t.stage in stages for t in self._tickets) or self._may_return()
        ):
            await asyncio.sleep(_GATHER_STEP)

    @property
    def _patience(self) -> float:
        """Seconds for which a call waits for others."""
        shortest, longest = _GATHER_SECONDS
        return min(max(shortest, self._last), longest)

    def _may_return(self) -> bool:
        """Whether callers of the last batch may soon call again."""
        n_unfinished = sum(not ticket.is_finished for ticket in self._tickets)
        if n_unfinished >= len(self._last_batch) or len(self._last_batch) == 1:
            return False
        is_answering = len(self._tickets) > n_unfinished
        return is_answering or time.monotonic() < self._answered + self._patience

    def _next_batch(self) -> list[Ticket]:
        """The call whose turn it is, and further calls with the same `batch_key`."""
        self._waiting = [t for t in self._waiting if not t.is_finished]
        # A stable sort: the calls of a holder stay in their order.
        ordered = sorted(self._waiting, key=lambda t: self._served[t.holder])
        if not ordered:
            return []
        first, batch = ordered[0].work, ordered[:1]
        weight = first.weight(ordered[0].next_part)
        if first.batch_key is not None:
            for ticket in ordered[1:]:
                if ticket.work.batch_key == first.batch_key:
                    weight += ticket.work.weight(ticket.next_part)
                    if weight > first.n_together:
                        break
                    batch.append(ticket)
        return batch

    async def _compute(self, batch: list[Ticket]) -> None:
        """Compute the next part of each call of a batch, in a thread."""
        start = time.perf_counter()
        self._last_batch = batch
        for ticket in batch:
            if not ticket.outputs:
                self._observe("queue", time.monotonic() - ticket.arrived)
            ticket.is_computing = True
        self._note_waiting(self.waiting)
        work = batch[0].work
        parts = [ticket.next_part for ticket in batch]
        try:
            outputs = await anyio.to_thread.run_sync(work.compute, parts, limiter=self._thread)
        except (Exception, PanicException) as error:
            if len(batch) > 1:  # each alone, so that the error belongs to its call
                for ticket in batch:
                    await self._compute([ticket])
            else:
                self._finish(batch[0], error)
            return
        finally:
            for ticket in batch:
                ticket.is_computing = False
        self._last = seconds = time.perf_counter() - start
        self._observe("compute", seconds)
        units = sum(t.work.size / len(t.work.parts) for t in batch)
        if seconds > 0.1:  # a shorter piece is mostly overhead
            self._seconds_per_unit += 0.2 * (seconds / units - self._seconds_per_unit)
        for ticket, output in zip(batch, outputs, strict=True):
            self._served[ticket.holder] += units / len(batch)
            ticket.outputs.append(output)
            if len(ticket.outputs) == len(ticket.work.parts):
                self._finish(ticket, None)

    def _finish(self, ticket: Ticket, error: Exception | None) -> None:
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        if ticket.is_finished:
            return
        if error is None:
            ticket.finished.set_result(None)
        else:
            ticket.finished.set_exception(error)

    def _busy(self, why: str) -> Exception:
        pending = sum(t.work.size for t in self._waiting)
        seconds = max(1, math.ceil(self._seconds_per_unit * pending))
        # At different times, because callers who come back together are refused together.
        seconds += random.randint(0, max(2, seconds // 2))
        return refused("queue", {"why": why, "seconds": seconds})


async def _watch(request: Request, ticket: Ticket) -> None:
    """Cancel a call when its client has closed the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            ticket.is_gone = True
            ticket.scope.cancel()
            return
