"""Load: goodput with many clients, the cost of small calls and of refusals, fair shares."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.keys import make_keys
from tests.service.conftest import make_person, slowness
from tests.service.load import Client, run_clients

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service
SECONDS = 8.0


def goodput(served: Served, n_clients: int, persons: int = 1) -> tuple[float, float]:
    """Persons forecast in a CPU second of the service, and in a second."""
    before = served.cpu_seconds()
    outcomes = run_clients(served.port, [Client(persons)] * n_clients, SECONDS)
    n_persons = persons * sum(outcome.statuses[200] for outcome in outcomes)
    return n_persons / (served.cpu_seconds() - before), n_persons / SECONDS


def test_goodput_does_not_fall_with_the_number_of_clients(served: Served, figures: Figures) -> None:
    goodput(served, 2)
    by_clients = {n: goodput(served, n) for n in (1, 8, 16, 64)}
    peak = max(per_cpu for per_cpu, _ in by_clients.values())
    figures.at_least("64 clients: persons a CPU second / peak", by_clients[64][0] / peak, 0.9)
    peak = max(per_second for _, per_second in by_clients.values())
    figures.at_least("64 clients: persons a second / peak", by_clients[64][1] / peak, 0.9)
    # 70 ms a person was the cost of 8 clients before calls were computed together.
    slower = slowness()
    figures.context("bounds in ms are those of a faster core, by", slower)
    for n, name, bound in ((8, "8 one-person clients", 70 / 5), (1, "1 one-person client", 30)):
        cost = 1000 / by_clients[n][0] / slower
        figures.at_most(f"{name}: CPU a person", cost, bound, "ms")


def test_eight_small_calls_cost_little_more_than_one_batch(
    served: Served, figures: Figures
) -> None:
    """Rounds of both alternate, because the speed of a machine changes within seconds."""
    rounds = [(goodput(served, 8)[0], goodput(served, 1, persons=8)[0]) for _ in range(3)]
    ratio = float(np.median([batch / small for small, batch in rounds]))
    figures.at_most("CPU of 8 one-person clients / one client with 8 persons", ratio, 1.5)


def test_a_refusal_costs_little(
    serve: Callable[..., AbstractContextManager[Served]], figures: Figures
) -> None:
    """One call fills a service with one place, by sending its body slowly."""
    body = json.dumps({"persons": [make_person()]}).encode()
    head = "POST /v1/forecasts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with serve(queue="1") as served, served.socket() as slow:
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
        time.sleep(0.3)
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        before, n_refused = served.cpu_seconds(), 0
        for _ in range(600):
            connection.request("POST", "/v1/forecasts", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            n_refused += answer.status == 503
        cost = (served.cpu_seconds() - before) / 600
        connection.close()
        assert n_refused == 600
    figures.at_most("a 503: CPU of the service", 1000 * cost / slowness(), 1.0, "ms")


@pytest.mark.parametrize("n_keys", [1, 9])
def test_a_modest_client_succeeds_beside_nine_greedy_ones(
    serve: Callable[..., AbstractContextManager[Served]],
    figures: Figures,
    tmp_path: Path,
    n_keys: int,
) -> None:
    file = tmp_path / "keys.txt"
    keys = list(make_keys(file, *(f"key{i}" for i in range(10))).values())
    greedy = [Client(100, headers=keys[i % n_keys]) for i in range(9) for _ in range(10)]
    modest = Client(1, headers=keys[9], pause=0.2)
    with serve(keys=str(file)) as served:
        *_, outcome = run_clients(served.port, [*greedy, modest], 3 * SECONDS)
    name = f"modest client beside 9 greedy ones of {n_keys} keys (90 connections)"
    figures.at_least(f"{name}: success", 100 * outcome.success, 95, "%")
    assert np.median(outcome.seconds) < 30
