from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from itertools import count
from types import SimpleNamespace

import pytest

from api.budget import ComputeSlot, check_work, read_body
from api.codecs import parse_json
from api.problems import ProblemError
from api.request_models import ForecastBody
from saga.errors import BudgetError


class Client:
    """The two things that limits ask of a request: its body in chunks, and whether somebody still waits."""

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


def test_the_budget_says_how_many_persons_fit() -> None:
    check_work(20, 500, 30, 300_000)
    with pytest.raises(BudgetError, match=r"at most 20 persons.*saga score"):
        check_work(21, 500, 30, 300_000)


def test_a_budget_that_one_person_breaks_speaks_of_paths() -> None:
    with pytest.raises(BudgetError, match="fewer paths or years"):
        check_work(1, 10_000, 48, 1_000)


def test_ten_thousand_persons_are_refused_before_they_are_looked_at() -> None:
    """Not one of these persons is valid; the number alone decides, in milliseconds."""
    body = json.dumps({"persons": [{"person_id": i} for i in range(10_000)]}).encode()
    began = time.perf_counter()
    with pytest.raises(BudgetError, match=r"10000 persons.*1000 are allowed.*saga score"):
        parse_json(body, ForecastBody, 1_000)
    assert time.perf_counter() - began < 1


def test_a_body_is_read_whole() -> None:
    body = asyncio.run(read_body(Client((b"ab", b"cd")), max_bytes=4, seconds=1))  # type: ignore[arg-type]
    assert body == b"abcd"


@pytest.mark.parametrize("client", [Client((b"ab", b"cde")), Client(length=5)])
def test_a_body_too_large_is_refused_whether_declared_or_not(client: Client) -> None:
    with pytest.raises(ProblemError) as caught:
        asyncio.run(read_body(client, max_bytes=4, seconds=1))  # type: ignore[arg-type]
    assert caught.value.status == 413


def test_a_body_that_trickles_is_refused() -> None:
    with pytest.raises(ProblemError) as caught:
        asyncio.run(read_body(Client((b"a",) * 50, pause=0.01), max_bytes=100, seconds=0.05))  # type: ignore[arg-type]
    assert caught.value.status == 408


def test_one_call_computes_at_a_time_in_order_of_arrival_and_the_queue_is_bounded() -> None:
    running, most, order = 0, 0, []
    lock = threading.Lock()

    def work(name: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            order.append(name)
        time.sleep(0.02)
        with lock:
            running -= 1
        return name

    async def crowd() -> list[int | BaseException]:
        slot = ComputeSlot(max_waiting=3, max_seconds=5, max_work=10)
        calls = [slot.run(Client(), lambda i=i: work(i), size=1) for i in range(6)]  # type: ignore[arg-type,misc]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(crowd())
    assert results[:4] == [0, 1, 2, 3], "one computes, three wait"
    assert order == [0, 1, 2, 3]
    assert most == 1
    for refused in results[4:]:
        assert isinstance(refused, ProblemError)
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(("before", "each", "told"), [(0, 22, 14), (5, 22, 198), (5, 0.1, 14)])
def test_who_is_refused_is_told_how_long_the_line_is(
    monkeypatch: pytest.MonkeyPatch, before: int, each: float, told: int
) -> None:
    """Nine calls of 390 in line. Before any is timed, one of the most allowed, 7,800, is taken to last the 30 seconds that one may wait;
    small calls, however many, say nothing about large ones."""
    clock = count(0, each)
    monkeypatch.setattr("api.budget.time", SimpleNamespace(perf_counter=lambda: next(clock)))

    async def crowd() -> list[object]:
        slot = ComputeSlot(max_waiting=8, max_seconds=30, max_work=7_800)
        for _ in range(before):
            await slot.run(Client(), bool, size=390 if each > 1 else 1)  # type: ignore[arg-type]
        held = threading.Event()
        calls = [slot.run(Client(), held.wait, size=390) for _ in range(12)]  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(0.1, held.set)
        return list(await asyncio.gather(*calls, return_exceptions=True))

    refused = [answer for answer in asyncio.run(crowd()) if isinstance(answer, ProblemError)]
    assert len(refused) == 3
    assert [int(answer.headers["Retry-After"]) for answer in refused] == [
        pytest.approx(told, rel=0.05)
    ] * 3
    assert f"in {refused[0].headers['Retry-After']} seconds;" in refused[0].problems[0].fix


def test_a_call_that_waited_too_long_gets_503_and_leaves_the_queue() -> None:
    async def crowd() -> tuple[list[object], int]:
        slot = ComputeSlot(max_waiting=3, max_seconds=0.05, max_work=10)
        results = await asyncio.gather(
            *(slot.run(Client(), lambda: time.sleep(0.3), size=1) for _ in range(2)),
            return_exceptions=True,
        )  # type: ignore[arg-type]
        return list(results), slot.waiting

    (first, second), waiting = asyncio.run(crowd())
    assert first is None
    assert isinstance(second, ProblemError)
    assert (second.status, second.headers["Retry-After"]) == (503, "1")
    assert "in 1 second;" in second.problems[0].fix
    assert waiting == 0


def test_nothing_is_computed_for_a_client_that_has_gone() -> None:
    done: list[int] = []
    slot = ComputeSlot(max_waiting=1, max_seconds=1, max_work=10)
    with pytest.raises(ProblemError):
        asyncio.run(slot.run(Client(gone=True), lambda: done.append(1), size=1))  # type: ignore[arg-type]
    assert done == []


def test_a_failure_frees_the_slot() -> None:
    async def twice() -> int:
        slot = ComputeSlot(max_waiting=1, max_seconds=1, max_work=10)
        with pytest.raises(ZeroDivisionError):
            await slot.run(Client(), lambda: 1 // 0, size=1)  # type: ignore[arg-type]
        return await slot.run(Client(), lambda: 7, size=1)  # type: ignore[arg-type]

    assert asyncio.run(twice()) == 7
