"""Pools of threads."""

from __future__ import annotations

from threading import get_ident

from saga.simulation.pool import thread_pool


def test_a_pool_of_one_thread_hands_no_work_to_another() -> None:
    with thread_pool(1) as pool:
        assert set(pool.map(lambda _: get_ident(), range(3))) == {get_ident()}
