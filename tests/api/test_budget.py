"""Limits of a call, and of the bodies in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest
from fastapi import Request
from saga.api.budget import BodyMemory, check_cells, check_work
from saga.api.codecs import parse_json
from saga.api.problems import ProblemError
from saga.api.request_models import ForecastBody

from saga.errors import BudgetError


class Client:
    """The parts of a request that `saga.api.budget` reads: headers and chunks of the body."""

    def __init__(
        self,
        chunks: tuple[bytes, ...] = (),
        *,
        length: int | None = None,
        pause: float = 0.0,
    ) -> None:
        self.headers = {} if length is None else {"content-length": str(length)}
        self._chunks, self._pause = chunks, pause

    async def stream(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await asyncio.sleep(self._pause)
            yield chunk


def fake_request(*chunks: bytes, **options: Any) -> Request:
    return cast(Request, Client(chunks, **options))


@pytest.mark.parametrize(
    ("check", "sizes", "message"),
    [
        (check_work, (20, 500, 30, 300_000), None),
        (check_work, (21, 500, 30, 300_000), r"at most 20 persons.*at most 476 paths; a job"),
        (check_work, (1, 10_000, 48, 1_000), "fewer paths or years"),
        (check_cells, (20, 1_000, 1_000, 6_000_000), None),
        (check_cells, (615, 900, 150, 6_000_000), "groups and comparisons"),
    ],
)
def test_a_call_that_is_too_large_is_told_what_would_fit(
    check: Callable[..., None], sizes: tuple[int, ...], message: str | None
) -> None:
    with pytest.raises(BudgetError, match=message) if message else nullcontext():
        check(*sizes)


def test_too_many_persons_are_refused_before_they_are_validated() -> None:
    """None of these persons is valid, so a validation would refuse them otherwise."""
    body = json.dumps({"persons": [{"person_id": i} for i in range(10_000)]}).encode()
    with pytest.raises(BudgetError, match=r"10000 persons.*1000 are allowed.*/v1/jobs.*saga score"):
        parse_json(body, ForecastBody, 1_000)


async def read_body(request: Request, bodies: BodyMemory, holder: str = "one") -> bytes:
    async with bodies.body(request, holder, lambda _: None) as body:
        return body


def test_a_body_is_read_completely() -> None:
    bodies = BodyMemory(max_bytes=4, max_total=4, seconds=1)
    assert asyncio.run(read_body(fake_request(b"ab", b"cd"), bodies)) == b"abcd"
    assert bodies.used.total() == 0


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


def test_bodies_of_one_holder_leave_room_for_another() -> None:
    async def crowd() -> list[object]:
        bodies = BodyMemory(max_bytes=50, max_total=100, seconds=5)
        small = [fake_request(*(b"a",) * 30, pause=0.01) for _ in range(4)]
        calls = [read_body(request, bodies) for request in small]
        large = read_body(fake_request(*(b"b" * 10,) * 5, pause=0.02), bodies, "two")
        return list(await asyncio.gather(*calls, large, return_exceptions=True))

    *small, large = asyncio.run(crowd())
    assert large == b"b" * 50
    assert sum(isinstance(answer, ProblemError) for answer in small) == 3


def test_the_largest_body_that_arrives_gives_way_when_memory_is_full() -> None:
    async def crowd() -> list[object]:
        bodies = BodyMemory(max_bytes=80, max_total=100, seconds=5)
        large = [fake_request(*(b"a" * 10,) * 8, pause=0.01) for _ in range(2)]
        small = fake_request(*(b"b",) * 12, pause=0.01)
        calls = [read_body(request, bodies) for request in (*large, small)]
        answers = list(await asyncio.gather(*calls, return_exceptions=True))
        return [*answers, bodies.used.total()]

    first, second, small, used = asyncio.run(crowd())
    refused = [answer for answer in (first, second) if isinstance(answer, ProblemError)]
    assert [answer.status for answer in refused] == [503]
    assert b"a" * 80 in (first, second)
    assert small == b"b" * 12
    assert used == 0
