"""A job whose services, workers and processes are killed: the bytes of `saga score`, once.

`SAGA_TEST_PERSONS=100000` makes the job as large as the promise of the service, and
`SAGA_TEST_POSTGRESQL=postgresql://...` puts the queue into PostgreSQL.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

from saga.batch.engine import score
from saga.batch.products import Recipe
from saga.batch.run_folder import MANIFEST, REJECTED, merge_parts
from saga.bundle import default_bundle
from saga.data.reading import Source
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.requests import Draws, ForecastRequest
from tests.service.conftest import Figures, Served, descendants, resident_mb

pytestmark = pytest.mark.service

PERSONS = int(os.environ.get("SAGA_TEST_PERSONS", "4000"))
SECONDS = 600 + PERSONS / 5
POSTGRESQL = os.environ.get("SAGA_TEST_POSTGRESQL")  # the queue is there instead of in SQLite


def job_processes(pid: int) -> list[int]:
    """The processes of jobs under a service."""
    return [
        number
        for number in descendants(pid)
        if b"saga.api.jobs.job_process" in Path(f"/proc/{number}/cmdline").read_bytes()
    ]


def state(services: list[Served], address: str) -> dict[str, Any]:
    """The job, as any living service sees it."""
    for service in services:
        try:
            view: dict[str, Any] = httpx.get(f"{service.url}{address}", timeout=60).json()
            return view
        except httpx.TransportError:
            continue
    raise AssertionError("no service answers")


def test_a_job_killed_three_times_under_two_services_is_done_once(
    serve: Callable[..., AbstractContextManager[Served]], tmp_path: Path, figures: Figures
) -> None:
    generate_register(tmp_path / "register", RegisterSettings(persons=PERSONS, seed=11))
    persons = tmp_path / "persons.parquet"
    pl.scan_parquet(tmp_path / "register" / "panel" / "**" / "*.parquet").sink_parquet(persons)
    settings = {"jobs": str(tmp_path / "jobs")}
    if POSTGRESQL is not None:
        settings["jobs_database"] = POSTGRESQL
    memory, kills = 0.0, 0
    with ExitStack() as stack:
        services = [stack.enter_context(serve(**settings)) for _ in range(2)]
        answer = httpx.post(
            f"{services[0].url}/v1/jobs?horizons=1,5,10",
            content=persons.read_bytes(),
            headers={"Content-Type": "application/vnd.apache.parquet", "Idempotency-Key": "k"},
            timeout=120,
        )
        assert answer.status_code == 202, answer.text
        address, deadline, done_at_kill = answer.headers["location"], time.monotonic() + SECONDS, -1
        while (view := state(services, address))["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, view
            memory = max(memory, *(resident_mb(service.pid) for service in services))
            if kills < 3 and view["persons_done"] > done_at_kill and view["persons"]:
                running = next((s for s in services if job_processes(s.pid)), None)
                if running is not None:
                    # The process of the job, its worker, then the whole service.
                    target = [
                        job_processes(running.pid)[:1],
                        [pid for pid in descendants(running.pid) if job_processes(pid)],
                        [running.pid],
                    ][kills]
                    for pid in target:
                        os.kill(pid, signal.SIGKILL)
                    done_at_kill, kills = view["persons_done"], kills + 1
                    if kills == 3:
                        services.remove(running)
            time.sleep(0.05)
        assert view["state"] == "succeeded", view
        files = {
            name: httpx.get(f"{services[0].url}{address}/result/{name}").content
            for name in (link.rsplit("/", 1)[1] for link in view["links"]["files"])
        }
        result = httpx.get(f"{services[0].url}{view['links']['result']}", timeout=120).content

    recipe = Recipe(default_bundle(), ForecastRequest(horizons=[1, 5, 10]), Draws())
    report = score(Source(persons), tmp_path / "out", recipe)
    merge_parts(tmp_path / "out", tmp_path / "result.parquet")
    expected = [path.name for path in (tmp_path / "out").glob("part-*.parquet")]
    differing = {
        name
        for name in {*files, *expected, MANIFEST, REJECTED}
        if files.get(name) != (tmp_path / "out" / name).read_bytes()
    }
    where = "SQLite" if POSTGRESQL is None else "PostgreSQL"
    figures.at_least(f"jobs: kills survived, {PERSONS:,} persons, {where}", kills, 3)
    figures.at_most("jobs: files that differ from `saga score`", len(differing), 0)
    assert result == (tmp_path / "result.parquet").read_bytes()
    assert view["persons_done"] == view["totals"]["persons_in"] == report.persons_in
    figures.at_most("jobs: resident memory of a service with its job", memory, 3_000, "MB")
