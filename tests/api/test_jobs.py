"""Jobs over HTTP: the bytes of `saga score`, once each, whatever is killed."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from api.settings import Settings
from saga.batch.engine import score
from saga.batch.partitions import Source
from saga.batch.products import Recipe
from saga.batch.run_folder import MANIFEST, REJECTED, merge_parts
from saga.requests import Draws, ForecastRequest

if TYPE_CHECKING:
    from tests.conftest import Running

Start = Callable[[Settings], AbstractContextManager["Running"]]
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}


def await_end(service: Running, job: str, seconds: float = 180) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        view: dict[str, Any] = service.client.get(f"/v1/jobs/{job}").json()
        if view["state"] not in ("queued", "running"):
            return view
        assert time.monotonic() < deadline, view
        time.sleep(0.2)


@pytest.fixture(scope="module")
def persons(register_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of 40 persons in one Parquet file; some of them cannot be forecast."""
    frame = pl.read_parquet(register_dir / "panel" / "**" / "*.parquet")
    ids = frame["person_id"].unique().sort().sample(40, seed=1)
    path = tmp_path_factory.mktemp("persons") / "persons.parquet"
    frame.filter(pl.col("person_id").is_in(ids.implode())).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def jobs(
    start: Start, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A service with jobs."""
    folder = tmp_path_factory.mktemp("jobs")
    with start(Settings(bundle=tiny_bundle, threads=1, jobs=folder)) as service:
        service.wait_until_ready()
        yield service


def test_a_job_gives_the_bytes_of_saga_score(
    jobs: Running, persons: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    answer = jobs.client.post(
        "/v1/jobs?horizons=1,5&seed=3", content=persons.read_bytes(), headers=PARQUET
    )
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert answer.headers["location"] == job["links"]["self"] == f"/v1/jobs/{job['id']}"
    events = []
    with jobs.client.stream("GET", job["links"]["events"]) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("event: "):
                events.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                view = json.loads(line.removeprefix("data: "))
    assert events[-1] == "end"
    assert (view["state"], view["persons_done"], view["persons"]) == ("succeeded", 40, 40), view

    request = ForecastRequest(horizons=[1, 5])
    recipe = Recipe(tiny_bundle, request, Draws(seed=3))
    report = score(Source(persons), tmp_path / "out", recipe)
    assert view["totals"] == json.loads(json.dumps(report.totals))
    assert 0 < report.persons_out < 40
    names = ["part-00000.parquet", MANIFEST, REJECTED]
    assert {link.rsplit("/", 1)[1] for link in view["links"]["files"]} == set(names)
    for name in names:
        served = jobs.client.get(f"{view['links']['self']}/result/{name}").content
        assert served == (tmp_path / "out" / name).read_bytes(), name
    merge_parts(tmp_path / "out", tmp_path / "result.parquet")
    result = jobs.client.get(view["links"]["result"])
    assert result.content == (tmp_path / "result.parquet").read_bytes()
    rows = pl.read_parquet(io.BytesIO(result.content))
    assert rows.equals(pl.read_parquet(tmp_path / "out" / "part-00000.parquet"))
