"""Many clients at once, in processes of their own, each of which sends call after call."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.service.conftest import make_person

PROCESSES = 2


@dataclass(frozen=True)
class Client:
    """One client: persons of each of its calls, its headers, and seconds between two calls."""

    persons: int
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0.0
    options: Mapping[str, Any] = field(default_factory=lambda: {"horizons": [1, 5, 10]})


@dataclass
class Outcome:
    """What a client got: calls by status, and the seconds of each call that succeeded."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def success(self) -> float:
        """Share of calls that succeeded."""
        return self.statuses[200] / max(1, self.statuses.total())


def run_clients(port: int, clients: Sequence[Client], seconds: float) -> list[Outcome]:
    """Run all clients for some seconds; the outcome of each."""
    context = multiprocessing.get_context("spawn")
    groups = [list(range(i, len(clients), PROCESSES)) for i in range(PROCESSES)]
    with context.Pool(PROCESSES) as pool:
        parts = pool.starmap(
            _run_group, [(port, [clients[i] for i in group], seconds) for group in groups]
        )
    outcomes = {
        i: o
        for group, part in zip(groups, parts, strict=True)
        for i, o in zip(group, part, strict=True)
    }
    return [outcomes[i] for i in range(len(clients))]


def _run_group(port: int, clients: Sequence[Client], seconds: float) -> list[Outcome]:
    outcomes = [Outcome() for _ in clients]
    deadline = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_run_client, args=(port, client, outcome, deadline))
        for client, outcome in zip(clients, outcomes, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _run_client(port: int, client: Client, outcome: Outcome, deadline: float) -> None:
    persons = [make_person(f"P{i}") for i in range(client.persons)]
    body = json.dumps({"persons": persons, **client.options}).encode()
    headers = {"Content-Type": "application/json", **client.headers}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while time.monotonic() < deadline:
        start = time.perf_counter()
        try:
            connection.request("POST", "/v1/forecasts", body, headers)
            answer = connection.getresponse()
            answer.read()
            outcome.statuses[answer.status] += 1
            if answer.status == 200:
                outcome.seconds.append(time.perf_counter() - start)
        except (OSError, http.client.HTTPException):
            outcome.statuses[0] += 1
            connection.close()
        time.sleep(client.pause)
    connection.close()
