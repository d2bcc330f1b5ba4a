"""Places that holders take in turn."""

from __future__ import annotations

import asyncio

import pytest
from saga.api.turns import Turns


async def served(n_places: int, callers: str) -> str:
    """The order in which calls get their turn; a call in capitals leaves while it waits."""
    turns, order = Turns(n_places), list[str]()

    async def call(holder: str) -> None:
        async with turns.turn(holder):
            order.append(holder)
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(call(holder.lower())) for holder in callers]
    await asyncio.sleep(0.001)
    for task, holder in zip(tasks, callers, strict=True):
        if holder.isupper():
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert turns.has_place
    return "".join(order)


@pytest.mark.parametrize(
    ("n_places", "callers", "order"),
    [
        (1, "aaaab", "aabaa"),
        (1, "aaabbc", "aabcab"),
        (2, "aaaaab", "aaabaa"),
        (1, "aAAAbab", "aabb"),
        (1, "aB", "a"),
        (2, "ab", "ab"),
    ],
)
def test_holders_are_served_in_turn(n_places: int, callers: str, order: str) -> None:
    assert asyncio.run(served(n_places, callers)) == order


def test_a_place_that_comes_as_its_call_leaves_is_passed_on() -> None:
    async def leave() -> bool:
        turns = Turns(1)

        async def call() -> None:
            async with turns.turn("a"):
                await asyncio.sleep(0)

        first, second = (asyncio.create_task(call()) for _ in range(2))
        await first
        second.cancel()  # it has the place, and does not know yet
        await asyncio.gather(second, return_exceptions=True)
        return turns.has_place

    assert asyncio.run(leave())
