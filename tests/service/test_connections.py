"""Connections: silent, slow and many clients do not stop the service, and errors are problems."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.service.conftest import make_person
from tests.service.watch import watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service


def test_half_open_connections_do_not_stop_the_service(served: Served, figures: Figures) -> None:
    lines = len(served.log_lines())
    sockets: list[socket.socket] = []
    try:
        with watch(served) as seen:
            for _ in range(1_100):
                connection = served.socket()
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
                sockets.append(connection)
            time.sleep(3)
        figures.at_most("1,100 half-open connections: slowest /livez", seen.slowest_ms, 100, "ms")
        start = time.monotonic()
        sockets[-1].settimeout(30)
        answer = sockets[-1].recv(4_096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"application/problem+json" in answer
        figures.at_most("headers that never end: closed after", time.monotonic() - start, 10.5, "s")
    finally:
        for connection in sockets:
            connection.close()
    answered = [line for line in served.log_lines()[lines:] if '"/livez"' in line]
    new = len(served.log_lines()) - lines - len(answered)
    figures.at_most("1,100 half-open connections: lines in the log", new, 100)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        (
            "400,000 chunks of a byte",
            b"POST /v1/forecasts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\n \r\n" * 400_000,
        ),
        (
            "12,000 headers",
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 12_000 + b"\r\n",
        ),
        (
            "15,000 options in a query",
            b"GET /livez?" + b"a=b&" * 15_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ),
    ],
)
def test_requests_that_take_long_to_read_do_not_stop_the_service(
    served: Served, figures: Figures, name: str, sent: bytes
) -> None:
    with watch(served) as seen, ThreadPoolExecutor(20) as pool:

        def attack(_: int) -> None:
            with served.socket() as connection, suppress(OSError):  # refused before all is sent
                connection.sendall(sent)
                connection.recv(1)

        list(pool.map(attack, range(60)))
    figures.at_most(
        f"60 calls of {name}, without a key: slowest /livez", seen.slowest_ms, 500, "ms"
    )


def test_a_wrong_header_writes_no_line_that_is_not_json(served: Served) -> None:
    """Libraries have loggers of their own, for example of identifiers that are not valid."""
    with served.client() as client:
        answer = client.get("/livez", headers={"X-Request-ID": "nonsense"})
    assert answer.status_code == 200
    sources = [event["source"] for event in served.log_events() if event["event"] == "server"]
    assert "asgi_correlation_id" in sources
    assert "nonsense" not in served.log.read_text()


def test_bodies_that_arrive_slowly_do_not_fill_the_memory(
    serve: Callable[..., AbstractContextManager[Served]], figures: Figures
) -> None:
    """40 bodies of 31 MB, each without its last byte; small calls are answered meanwhile."""
    size = 31 * 2**20
    head = (
        "POST /v1/forecasts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {size + 1}\r\n\r\n"
    ).encode()
    content = b" " * size
    with serve() as served, served.client() as client:
        before = served.memory_mb()
        sockets = []
        for _ in range(40):
            connection = served.socket()
            connection.settimeout(20)
            try:
                connection.sendall(head)
                connection.sendall(content)
            except OSError:  # refused before it was read
                pass
            sockets.append(connection)
        more = served.memory_mb() - before
        answer = client.post("/v1/forecasts", json={"persons": [make_person()], "horizons": [1]})
        for connection in sockets:
            connection.close()
        assert answer.status_code == 200
    figures.at_most("40 bodies of 31 MB that do not end: more memory", more, 256, "MB")


def test_a_call_whose_client_leaves_is_computed_no_further(
    served: Served, figures: Figures
) -> None:
    persons = [make_person(f"P{i}") for i in range(300)]
    body = json.dumps({"persons": persons, "paths": 600}).encode()
    head = (
        "POST /v1/lifetimes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with served.client() as client:
        with served.socket() as connection:
            connection.sendall(head + body)
            time.sleep(2)
        before = served.cpu_seconds()
        small = {"persons": [make_person()], "horizons": [1]}
        start = time.perf_counter()
        assert client.post("/v1/forecasts", json=small).status_code == 200
        waited = time.perf_counter() - start
        time.sleep(6)
        figures.at_most(
            "client gone: CPU that is still spent", served.cpu_seconds() - before, 1.5, "s"
        )
        figures.at_most("client gone: the next call waits", waited, 1.0, "s")
        text = client.get("/metrics").text
    assert 'route="/v1/lifetimes",status="499"' in text
