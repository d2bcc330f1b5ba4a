"""What another client sees while the service is attacked: its slowest answer, and the memory."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from tests.service.conftest import Served


class Watch:
    """The slowest answer of /livez in ms and the largest memory in MB."""

    def __init__(self) -> None:
        self.slowest_ms = self.memory_mb = 0.0


def look(served: Served, stop: Connection, result: Connection) -> None:
    """Ask for /livez until `stop` says so, then send the extremes."""
    slowest = memory = 0.0
    with served.client() as client:
        result.send(None)
        while not stop.poll(0.02):
            start = time.perf_counter()
            try:
                alive = client.get("/livez").status_code == 200
            except httpx.TransportError:
                alive = False
            seconds = time.perf_counter() - start if alive else float("inf")
            slowest, memory = max(slowest, seconds), max(memory, served.memory_mb())
    result.send((1000 * slowest, memory))


@contextmanager
def watch(served: Served) -> Iterator[Watch]:
    """Watch the service from a process of its own, which shares no interpreter with the attack."""
    seen, context = Watch(), multiprocessing.get_context("spawn")
    (stopped, stop), (result, sent) = context.Pipe(False), context.Pipe(False)
    process = context.Process(target=look, args=(served, stopped, sent))
    process.start()
    result.recv()
    try:
        yield seen
    finally:
        stop.send(None)
        seen.slowest_ms, seen.memory_mb = result.recv()
        process.join()
