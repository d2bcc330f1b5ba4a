"""Bodies that attack: the answer is 4xx and fast, memory stays bounded, others are served."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import pytest
from saga.api.codecs import JSON

from tests.service.conftest import make_person
from tests.service.hostile_bodies import damaged_tables, json_bombs, table_bombs, wrong_bodies
from tests.service.watch import watch

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service


def post(client: httpx.Client, kind: str, body: bytes, path: str = "/v1/forecasts") -> int:
    return client.post(path, content=body, headers={"Content-Type": kind}).status_code


def test_tables_that_unfold_are_refused_at_once(served: Served, figures: Figures) -> None:
    bombs = list(table_bombs())
    before, seconds = served.memory_mb(), {}
    with watch(served) as seen, served.client() as client:
        for name, kind, body in bombs:
            start = time.perf_counter()
            status = post(client, kind, body)
            seconds[name] = time.perf_counter() - start
            assert 400 <= status < 500, name
    slowest = max(seconds, key=lambda name: seconds[name])
    figures.at_most(f"table bombs: slowest answer ({slowest})", seconds[slowest], 1.0, "s")
    figures.at_most("table bombs: more memory", seen.memory_mb - before, 256, "MB")
    figures.at_most("table bombs: slowest /livez meanwhile", seen.slowest_ms, 100, "ms")


@pytest.mark.parametrize("path", ["/v1/forecasts", "/v1/outcomes"])
def test_json_that_costs_much_is_refused_cheaply(
    ledger_served: Served, figures: Figures, path: str
) -> None:
    costs = {}
    with watch(ledger_served) as calm:
        time.sleep(10)
    figures.context("slowest /livez in 10 s without any call", calm.slowest_ms, "ms")
    with watch(ledger_served) as seen, ledger_served.client() as client:
        for name, body in json_bombs():
            before = ledger_served.cpu_seconds()
            assert 400 <= post(client, JSON, body, path) < 500, name
            costs[name] = ledger_served.cpu_seconds() - before
    figures.at_most(f"JSON bombs, {path}: most CPU of a call", max(costs.values()), 1.0, "s")
    figures.at_most(f"JSON bombs, {path}: slowest /livez", seen.slowest_ms, 250, "ms")


def test_wrong_bodies_get_problem_documents(served: Served, figures: Figures) -> None:
    """825 bodies: no 5xx, nothing but problems, and every line of the log is JSON."""
    valid = {"persons": [make_person()], "horizons": [1, 5], "coverage": [0.9]}
    bodies = [*wrong_bodies(valid, 625, seed=1), *damaged_tables(200, seed=2)]
    failures = 0
    with served.client() as client:
        for kind, body in bodies:
            answer = client.post("/v1/forecasts", content=body, headers={"Content-Type": kind})
            failures += answer.status_code >= 500
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
    figures.at_most(f"{len(bodies)} wrong bodies: answers 5xx", failures, 0)
    assert served.log_events()
