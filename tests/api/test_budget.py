"""Limits of a call, and the compute slot with its queue."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Request

from api.budget import BodyMemory, ComputeSlot, check_work
from api.codecs import parse_json
from api.problems import ProblemError
from api.request_models import ForecastBody
from saga.errors import BudgetError


class Client:
    """The parts of a request that `api.budget` reads: body chunks and connection."""

    def __init__(
        self,
        chunks: tuple[bytes, ...] = (),
        *,
        length: int | None = None,
        gone: bool = False,
        pause: float = 0.0,
    ) -> None:
        self.headers = {} if length is None else {"content-length": str(length)}
        self._chunks, self._gone, self._pause = chunks, gone, pause

    async def is_disconnected(self) -> bool:
        return self._gone

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await asyncio.sleep(self._pause)
            yield chunk


def fake_request(*chunks: bytes, **options: Any) -> Request:
    return cast(Request, Client(chunks, **options))


def test_the_error_says_how_many_persons_fit() -> None:
    check_work(20, 500, 30, 300_000)
    with pytest.raises(BudgetError, match=r"at most 20 persons.*saga score"):
        check_work(21, 500, 30, 300_000)


def test_the_error_proposes_fewer_paths_if_no_person_fits() -> None:
    with pytest.raises(BudgetError, match="fewer paths or years"):
        check_work(1, 10_000, 48, 1_000)


def test_too_many_persons_are_refused_before_they_are_validated() -> None:
    """None of these persons is valid; their number is checked first, in milliseconds."""
    body = json.dumps({"persons": [{"person_id": i} for i in range(10_000)]}).encode()
    start = time.perf_counter()
    with pytest.raises(BudgetError, match=r"10000 persons.*1000 are allowed.*saga score"):
        parse_json(body, ForecastBody, 1_000)
    assert time.perf_counter() - start < 1


async def read_body(request: Request, bodies: BodyMemory) -> bytes:
    async with bodies.body(request) as body:
        return body


def test_a_body_is_read_completely() -> None:
    bodies = BodyMemory(max_bytes=4, max_total=4, seconds=1)
    assert asyncio.run(read_body(fake_request(b"ab", b"cd"), bodies)) == b"abcd"
    assert bodies.used == 0


@pytest.mark.parametrize("client_request", [fake_request(b"ab", b"cde"), fake_request(length=5)])
def test_a_too_large_body_is_refused_with_or_without_content_length(
    client_request: Request,
) -> None:
    with pytest.raises(ProblemError) as caught:
        asyncio.run(read_body(client_request, BodyMemory(max_bytes=4, max_total=40, seconds=1)))
    assert caught.value.status == 413


def test_a_slow_body_is_refused() -> None:
    with pytest.raises(ProblemError) as caught:
        asyncio.run(
            read_body(
                fake_request(*(b"a",) * 50, pause=0.01),
                BodyMemory(max_bytes=100, max_total=100, seconds=0.05),
            )
        )
    assert caught.value.status == 408


def test_the_largest_body_that_arrives_gives_way_when_memory_is_full() -> None:
    async def crowd() -> list[object]:
        bodies = BodyMemory(max_bytes=80, max_total=100, seconds=5)
        large = [fake_request(*(b"a" * 10,) * 8, pause=0.01) for _ in range(2)]
        small = fake_request(*(b"b",) * 12, pause=0.01)
        calls = [read_body(request, bodies) for request in (*large, small)]
        answers = list(await asyncio.gather(*calls, return_exceptions=True))
        return [*answers, bodies.used]

    first, second, small, used = asyncio.run(crowd())
    refused = [answer for answer in (first, second) if isinstance(answer, ProblemError)]
    assert [answer.status for answer in refused] == [503]
    assert b"a" * 80 in (first, second)
    assert small == b"b" * 12
    assert used == 0


def test_calls_compute_one_at_a_time_in_order_and_the_queue_is_bounded() -> None:
    running, max_running, order = 0, 0, []
    lock = threading.Lock()

    def work(name: int) -> int:
        nonlocal running, max_running
        with lock:
            running += 1
            max_running = max(max_running, running)
            order.append(name)
        time.sleep(0.02)
        with lock:
            running -= 1
        return name

    async def crowd() -> list[int | BaseException]:
        slot = ComputeSlot(max_waiting=3, max_seconds=5, max_work=10)
        calls = [slot.run(fake_request(), partial(work, i), size=1) for i in range(6)]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(crowd())
    assert results[:4] == [0, 1, 2, 3], "one computes, three wait"
    assert order == [0, 1, 2, 3]
    assert max_running == 1
    for refused in results[4:]:
        assert isinstance(refused, ProblemError)
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("n_before", "call_seconds", "retry_after"), [(0, 22, 14), (5, 22, 198), (5, 0.1, 14)]
)
def test_a_refused_call_gets_the_seconds_of_the_calls_before_it(
    monkeypatch: pytest.MonkeyPatch, n_before: int, call_seconds: float, retry_after: int
) -> None:
    """Nine calls of 390 path-years compute or wait.

    Before a call is timed, the largest allowed one (7,800) is assumed to last 30 seconds. Short
    calls do not change this.
    """
    clock = count(0, call_seconds)
    monkeypatch.setattr("api.budget.time", SimpleNamespace(perf_counter=lambda: next(clock)))

    async def crowd() -> list[object]:
        slot = ComputeSlot(max_waiting=8, max_seconds=30, max_work=7_800)
        for _ in range(n_before):
            await slot.run(fake_request(), bool, size=390 if call_seconds > 1 else 1)
        release = threading.Event()
        calls = [slot.run(fake_request(), release.wait, size=390) for _ in range(12)]
        asyncio.get_running_loop().call_later(0.1, release.set)
        return list(await asyncio.gather(*calls, return_exceptions=True))

    refused = [answer for answer in asyncio.run(crowd()) if isinstance(answer, ProblemError)]
    assert len(refused) == 3
    assert [int(answer.headers["Retry-After"]) for answer in refused] == [
        pytest.approx(retry_after, rel=0.05)
    ] * 3
    assert f"in {refused[0].headers['Retry-After']} seconds;" in refused[0].problems[0].fix


def test_a_call_that_waited_too_long_gets_503_and_leaves_the_queue() -> None:
    async def crowd() -> tuple[list[object], int]:
        slot = ComputeSlot(max_waiting=3, max_seconds=0.05, max_work=10)
        results = await asyncio.gather(
            *(slot.run(fake_request(), lambda: time.sleep(0.3), size=1) for _ in range(2)),
            return_exceptions=True,
        )
        return list(results), slot.waiting

    (first, second), waiting = asyncio.run(crowd())
    assert first is None
    assert isinstance(second, ProblemError)
    assert (second.status, second.headers["Retry-After"]) == (503, "1")
    assert "in 1 second;" in second.problems[0].fix
    assert waiting == 0


def test_nothing_is_computed_for_a_disconnected_client() -> None:
    results: list[int] = []
    slot = ComputeSlot(max_waiting=1, max_seconds=1, max_work=10)
    with pytest.raises(ProblemError):
        asyncio.run(slot.run(fake_request(gone=True), lambda: results.append(1), size=1))
    assert results == []


def test_a_failure_frees_the_slot() -> None:
    async def twice() -> int:
        slot = ComputeSlot(max_waiting=1, max_seconds=1, max_work=10)
        with pytest.raises(ZeroDivisionError):
            await slot.run(fake_request(), lambda: 1 // 0, size=1)
        return await slot.run(fake_request(), lambda: 7, size=1)

    assert asyncio.run(twice()) == 7
