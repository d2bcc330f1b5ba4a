"""`saga serve --workers`: several processes are one service to its callers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import polars as pl
import pytest

from tests.keys import make_keys
from tests.service.conftest import make_person
from tests.service.load import Client, run_clients
from tests.waiting import awaited

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service

Serve = Callable[..., AbstractContextManager["Served"]]
BODY = {"persons": [make_person()], "horizons": [1]}
WORKERS = 2


def processes(served: Served) -> set[int]:
    """The processes that answer calls."""
    text = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text()
    return {
        pid
        for pid in map(int, text.split())
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    }


def call(served: Served, path: str = "/v1/forecasts", **options: Any) -> httpx.Response:
    """A call over a connection of its own, so that any process may get it."""
    with served.client() as client:
        method = "POST" if "json" in options or "content" in options else "GET"
        return client.request(method, path, **options)


def count(served: Served, headers: dict[str, str], name: str) -> float:
    lines = call(served, "/metrics", headers=headers).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_keys_quotas_and_metrics_are_those_of_all_processes(
    serve: Serve, figures: Figures, tmp_path: Path
) -> None:
    headers = make_keys(tmp_path / "keys", "one", scopes=("forecast", "metrics"))["one"]
    quota = 60  # a minute: 10 at once, then one a second
    settings = {"keys": str(tmp_path / "keys"), "quota": str(quota)}
    with serve("--workers", str(WORKERS), **settings) as served:
        wait_until_ready(served, WORKERS)
        start = time.monotonic()
        clients = [Client(1, headers)] * 8
        outcomes = run_clients(served.port, clients, seconds=6)
        elapsed = time.monotonic() - start
        answered = sum(outcome.statuses[200] for outcome in outcomes)
        refused = sum(outcome.statuses[429] for outcome in outcomes)
        assert sum(outcome.statuses.total() for outcome in outcomes) == answered + refused
        allowed = 10 + elapsed * quota / 60 + 1
        figures.at_most(f"{WORKERS} processes, one quota: calls answered", answered, allowed)
        assert answered >= 10 + 4
        # Any process tells the metrics of all.
        for _ in range(10):
            label = 'saga_http_requests_total{method="POST",route="/v1/forecasts",status='
            assert count(served, headers, f'{label}"200"') == answered
            assert count(served, headers, f'{label}"429"') == refused
            assert count(served, headers, "saga_persons_total") == answered
            assert count(served, headers, "saga_ready") == 1
        resident = count(served, headers, "process_resident_memory_bytes") / 2**20
    figures.context(f"memory of {WORKERS} processes that answer", resident, "MB")


def test_a_process_that_is_killed_is_replaced_and_the_others_answer(
    serve: Serve, figures: Figures, tmp_path: Path
) -> None:
    ledger = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    failures = calls = 0
    with serve("--workers", str(WORKERS), database=ledger) as served:
        wait_until_ready(served, WORKERS)
        expected = call(served, json=BODY).json()["forecasts"]
        killed = min(processes(served))
        os.kill(killed, signal.SIGKILL)
        while n_ready(served) == WORKERS:
            calls += 1
            try:
                answer = call(served, json=BODY)
                failures += answer.status_code != 200 or answer.json()["forecasts"] != expected
            except httpx.TransportError:  # it was in the process that was killed
                failures += 1
        assert len(processes(served) - {killed}) == WORKERS
        record = BODY | {"record": True, "horizons": [1, 2]}
        kinds = [call(served, json=record).json()["provenance"]["recorded"] for _ in range(6)]
    figures.at_most("a process is killed: calls that fail", failures, 1)
    assert calls > 10
    assert sum(kind["new"] for kind in kinds) == 2
    assert sum(kind["repeated"] for kind in kinds) == 10


def n_ready(served: Served) -> int:
    """How many processes have become ready since the start."""
    return sum('"event": "ready"' in line for line in served.log_lines())


def wait_until_ready(served: Served, n_processes: int) -> None:
    awaited(lambda: n_ready(served) >= n_processes, 300)


def wait_until_gone(pids: set[int]) -> None:
    awaited(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_one_job_at_a_time_whatever_the_number_of_processes(serve: Serve, tmp_path: Path) -> None:
    persons = pl.DataFrame(
        {"person_id": ["A", "A"], "year": [2019, 2020], "birth_year": 1980, "earnings": [2e5, 3e5]}
    )
    persons.write_parquet(tmp_path / "persons.parquet")
    content = (tmp_path / "persons.parquet").read_bytes()
    headers = {"Content-Type": "application/vnd.apache.parquet", "Idempotency-Key": "same"}
    with serve("--workers", str(WORKERS), jobs=str(tmp_path / "jobs")) as served:
        sent = [
            call(served, "/v1/jobs?horizons=1", content=content, headers=headers) for _ in range(6)
        ]
        (address,) = {answer.headers["location"] for answer in sent}
        awaited(lambda: call(served, address).json()["state"] == "succeeded", 120)
        workers = [
            pid
            for process in processes(served)
            for task in Path(f"/proc/{process}/task").glob("*/children")
            for pid in task.read_text().split()
            if b"job_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert len(workers) == 1


def test_processes_end_when_their_supervisor_is_killed(serve: Serve) -> None:
    with serve("--workers", str(WORKERS), drain_seconds="0") as served:
        wait_until_ready(served, WORKERS)
        alive = processes(served)
        os.kill(served.pid, signal.SIGKILL)
        wait_until_gone(alive)


def test_all_processes_answer_their_calls_before_they_end(serve: Serve, figures: Figures) -> None:
    with serve("--workers", str(WORKERS), drain_seconds="8") as served:
        wait_until_ready(served, WORKERS)
        alive = processes(served)
        os.kill(served.pid, signal.SIGTERM)
        time.sleep(0.7)
        ready = {call(served, "/readyz").status_code for _ in range(8)}
        answers = [call(served, json=BODY).status_code for _ in range(8)]
        wait_until_gone(alive)
        events = served.log_events()
    assert ready == {503}
    refused = sum(status != 200 for status in answers)
    figures.at_most(f"{WORKERS} processes drain: calls refused", refused, 0)
    assert events
