"""The queue: order, fair shares, pieces that are computed together, and calls that leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from fastapi import Request
from saga.api.budget import Quotas
from saga.api.compute_queue import ComputeQueue, Ticket, Work
from saga.api.problems import ProblemError

pytestmark = pytest.mark.anyio


class Client:
    """A client whose body has been read; it stays until `leave` is set."""

    def __init__(self) -> None:
        self.leave = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leave.wait()
        return {"type": "http.disconnect"}


class Office:
    """A queue, and what it computed in which order; a piece takes some `seconds`."""

    def __init__(self, *, seconds: float = 0.0, **limits: Any) -> None:
        options = {"max_calls": 10, "max_seconds": 5.0, "max_work": 10} | limits
        self.seconds = seconds
        self.queue = ComputeQueue(**options)
        self.computed: list[list[str]] = []

    def compute(self, parts: list[str]) -> list[str]:
        self.computed.append(list(parts))
        time.sleep(self.seconds)
        if "wrong" in parts:
            raise ZeroDivisionError
        return [part.upper() for part in parts]

    async def call(
        self, holder: str, *parts: str, like: str | None = None, client: Client | None = None
    ) -> list[str]:
        async with self.queue.admit(holder) as ticket:
            return await self.run(ticket, *parts, like=like, client=client)

    async def run(
        self, ticket: Ticket, *parts: str, like: str | None = None, client: Client | None = None
    ) -> list[str]:
        work = Work(parts, self.compute, size=len(parts), batch_key=like, n_together=3)
        return await self.queue.run(cast(Request, client or Client()), ticket, work)


def gather(*calls: Awaitable[Any]) -> Awaitable[list[Any]]:
    return asyncio.gather(*calls, return_exceptions=True)


async def test_calls_of_one_holder_are_computed_in_their_order() -> None:
    office = Office()
    answers = await gather(*(office.call("A", part) for part in "abc"))
    assert (answers, office.computed) == ([["A"], ["B"], ["C"]], [["a"], ["b"], ["c"]])


async def test_waiting_pieces_that_are_alike_are_computed_together_up_to_a_limit() -> None:
    office = Office()
    calls = [office.call(str(i), part, like="same") for i, part in enumerate("abcde")]
    answers = await gather(*calls, office.call("x", "f", like="other"))
    assert answers == [["A"], ["B"], ["C"], ["D"], ["E"], ["F"]]
    assert [len(parts) for parts in office.computed if "f" not in parts] == [3, 2]
    assert ["f"] in office.computed


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.001), (0.08, 0.02)])
async def test_callers_who_call_again_at_once_stay_together(seconds: float, pause: float) -> None:
    """Three callers, each with a pause between its calls: without a wait they fall apart.

    On a busy machine pieces take longer, and so do callers until they are back.
    """
    office = Office(seconds=seconds)

    async def caller(name: str, pause: float) -> None:
        for i in range(6):
            await office.call(name, f"{name}{i}", like="same")
            await asyncio.sleep(pause)

    await gather(*(caller(name, pause * i) for i, name in enumerate("abc")))
    assert [len(parts) for parts in office.computed] == [3] * 6


async def test_a_small_call_does_not_wait_for_all_pieces_of_a_large_one() -> None:
    office = Office()
    await gather(office.call("greedy", *"abcdef"), office.call("modest", "m"))
    assert office.computed.index(["m"]) <= 1


async def test_holders_take_turns_however_many_calls_one_of_them_has() -> None:
    office = Office()
    greedy = [office.call("greedy", f"g{i}") for i in range(6)]
    modest = [office.call("modest", f"m{i}") for i in range(2)]
    await gather(*greedy, *modest)
    computed = [parts[0] for parts in office.computed]
    assert computed.index("m1") <= 4
    assert [name for name in computed if name[0] == "g"] == [f"g{i}" for i in range(6)]


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    office = Office(max_calls=3)
    answers = await gather(*(office.call("A", str(i)) for i in range(5)))
    assert answers[:3] == [["0"], ["1"], ["2"]]
    for refused in answers[3:]:
        assert isinstance(refused, ProblemError)
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1


async def test_the_holder_with_most_calls_gives_way_in_a_full_queue() -> None:
    office = Office(max_calls=4)
    calls = [office.call("greedy", f"g{i}") for i in range(4)]
    *greedy, modest = await gather(*calls, office.call("modest", "m"))
    assert modest == ["M"]
    assert [isinstance(answer, ProblemError) for answer in greedy] == [False, False, False, True]


async def test_an_error_belongs_to_its_call_alone() -> None:
    office = Office()
    calls = (office.call(p, p, like="same") for p in ("a", "wrong", "b"))
    first, wrong, last = await gather(*calls)
    assert (first, last) == (["A"], ["B"])
    assert isinstance(wrong, ZeroDivisionError)


async def test_a_call_leaves_the_queue_with_its_client_and_is_not_computed() -> None:
    office, client = Office(), Client()
    calls = gather(office.call("A", *"abc", client=client), office.call("B", "d", "e"))
    while not office.computed:
        await asyncio.sleep(0)
    client.leave.set()
    left, stayed = await calls
    assert isinstance(left, ProblemError)
    assert left.status == 499
    assert stayed == ["D", "E"]
    assert len([parts for parts in office.computed if parts[0] in "abc"]) <= 2
    assert office.queue.waiting == 0


async def test_a_wait_that_is_too_long_ends_with_503() -> None:
    office = Office(max_seconds=0.0)
    answers = await gather(*(office.call("A", str(i)) for i in range(2)))
    assert {getattr(answer, "status", 200) for answer in answers} in ({503}, {200, 503})


async def test_a_queue_that_closes_answers_every_call() -> None:
    office = Office()
    calls = gather(*(office.call("A", str(i)) for i in range(3)))
    await asyncio.sleep(0)
    office.queue.close()
    answers, (late,) = await calls, await gather(office.call("B", "late"))
    refused = [answer for answer in [*answers, late] if isinstance(answer, ProblemError)]
    assert {answer.status for answer in refused} == {503}
    assert late.slug == "stopping"


def test_a_quota_refills_with_time_and_is_apart_by_holder() -> None:
    now = 0.0
    quotas = Quotas(12, clock=lambda: now)  # two at once, then one in five seconds
    headers = [quotas.take("A") for _ in range(2)]
    assert [entry["RateLimit"] for entry in headers] == [
        '"calls";r=1;t=10',
        '"calls";r=0;t=10',
    ]
    with pytest.raises(ProblemError) as caught:
        quotas.take("A")
    assert caught.value.status == 429
    assert 5 <= int(caught.value.headers["Retry-After"]) <= 8
    quotas.take("B")
    now = 5.0
    quotas.take("A")
    with pytest.raises(ProblemError):
        quotas.take("A")
