"""Jobs over HTTP: the bytes of `saga score`, once each, whatever is killed."""

from __future__ import annotations

import asyncio
import errno
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, get_args

import httpx
import polars as pl
import pytest
from saga.api.jobs import job_folders, job_service, job_worker
from saga.api.jobs.job_folders import (
    JOB_ID,
    MAX_ATTEMPTS,
    HolderJobs,
    JobFolder,
    JobFolders,
    JobOrder,
    Outcome,
    Progress,
    State,
)
from saga.api.jobs.job_process import _check_time, _expected_bytes, _take_room, run_job
from saga.api.jobs.job_queue import UNAVAILABLE, JobQueue
from saga.api.jobs.job_service import JobService
from saga.api.key_file import revoke_key
from saga.api.logs import make_logger
from saga.api.request_models import JobOptions
from saga.api.settings import Settings

from saga.batch.engine import score
from saga.batch.products import Recipe
from saga.batch.run_folder import MANIFEST, REJECTED, merge_parts
from saga.data.reading import Source
from saga.errors import BudgetError
from saga.files.atomic import FolderInUseError, digest_json
from saga.files.folders import LocalFolder
from saga.population.policy_tables import last_of
from saga.requests import Draws, ForecastRequest, PathsRequest
from tests.conftest import Running, Start
from tests.encoded import encoded
from tests.keys import make_keys
from tests.waiting import awaited

PARQUET = {"Content-Type": "application/vnd.apache.parquet"}


def look(service: Running, job: str) -> dict[str, Any]:
    view: dict[str, Any] = service.client.get(f"/v1/jobs/{job}").json()
    return view


def await_end(service: Running, job: str) -> dict[str, Any]:
    awaited(lambda: look(service, job)["state"] not in ("queued", "running"), 180)
    return look(service, job)


@pytest.fixture(scope="module")
def persons(register_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of 40 persons, some of whom cannot be forecast, and a column that no panel has."""
    frame = pl.read_parquet(register_dir / "panel" / "**" / "*.parquet")
    ids = frame["person_id"].unique().sort().sample(40, seed=1)
    path = tmp_path_factory.mktemp("persons") / "persons.parquet"
    chosen = frame.filter(pl.col("person_id").is_in(ids.implode()))
    chosen.with_columns(id2=1).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the service with jobs."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def jobs(start: Start, tiny_bundle: Path, persons: Path, root: Path) -> Iterator[Running]:
    """A service with jobs."""
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=root, job_files=persons.parent)
    with start(settings) as service:
        yield service


@pytest.mark.slow
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
    assert view["totals"].pop("columns_not_used") == ["id2"]
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


def post(service: Running, persons: Path, query: str, **headers: str) -> httpx.Response:
    return service.client.post(
        f"/v1/jobs?{query}", content=persons.read_bytes(), headers={**PARQUET, **headers}
    )


def post_when_connected(service: Running, persons: Path, **headers: str) -> httpx.Response:
    """The answer once the service has reached its queue; until then it is 503."""
    accepted: list[httpx.Response] = []

    def send() -> bool:
        accepted.append(post(service, persons, "", **headers))
        return accepted[-1].status_code != 503

    awaited(send)
    return accepted[-1]


def test_a_repeated_request_is_one_job_and_a_cancelled_one_has_no_result(
    jobs: Running, persons: Path
) -> None:
    first = post(jobs, persons, "product=paths&paths=900", **{"Idempotency-Key": "a"})
    again = post(jobs, persons, "product=paths&paths=900", **{"Idempotency-Key": "a"})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    other = post(jobs, persons, "product=paths&paths=901", **{"Idempotency-Key": "a"})
    assert (other.status_code, other.json()["type"]) == (422, "urn:saga:problem:idempotency-key")
    same_bytes = {"Idempotency-Key": "a", "Content-Type": "text/csv"}
    assert post(jobs, persons, "product=paths&paths=900", **same_bytes).status_code == 422
    address = first.headers["location"]
    assert jobs.client.get(f"{address}/result").status_code == 409
    assert jobs.client.delete(address).status_code == 204
    assert await_end(jobs, first.json()["id"])["state"] == "cancelled"
    assert jobs.client.get(f"{address}/result").status_code == 409
    assert jobs.client.delete(address).status_code == 204
    assert jobs.client.get(address).status_code == 404


def test_nobody_can_compute_the_id_of_another_holders_job(tmp_path: Path) -> None:
    """Services and workers of one folder, also after a restart, give one id to one key."""
    places = [JobFolders(tmp_path / name) for name in ("one", "one", "other")]
    for folders in places:
        folders.create()
    first, again, elsewhere = (folders.new_id("agency", "delivery-2026") for folders in places)
    assert first == again not in (elsewhere, digest_json(["agency", "delivery-2026"])[:32])
    assert re.match(JOB_ID, first)
    (secret,) = (path for path in (tmp_path / "one").iterdir() if path.is_file())
    assert (secret.stat().st_mode & 0o777, secret.stat().st_size) == (0o600, 32)


@pytest.mark.thorough
def test_a_job_deleted_while_it_runs_is_gone_with_its_files_and_its_key_is_free(
    jobs: Running, root: Path, persons: Path
) -> None:
    key = {"Idempotency-Key": "twice"}
    first = post(jobs, persons, "product=paths&paths=2000&to_age=64", **key)
    address, identifier = first.headers["location"], first.json()["id"]
    folder = root / "jobs" / identifier
    awaited((folder / "out" / "_lock").exists, 120)  # its process computes
    answers = [jobs.client.delete(address).status_code for _ in range(3)]
    assert answers == [204, 204, 404]
    assert jobs.client.get(address).status_code == 404
    time.sleep(2.0)
    assert not folder.exists()
    assert list((root / "unfinished").iterdir()) == []
    again = post(jobs, persons, "horizons=1", **key)
    assert (again.status_code, again.json()["id"]) == (202, identifier)
    assert await_end(jobs, identifier)["state"] == "succeeded"


def test_a_folder_is_deleted_only_when_no_process_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_folders, "_END_SECONDS", 0.2)
    folders = JobFolders(tmp_path)
    folders.create()
    folder = folders.folder("0" * 32)
    (folder.path / "out").mkdir(parents=True)
    with folder.sole_writer(0.0), pytest.raises(FolderInUseError):
        folders.remove(folder)
    assert [orphan.path for orphan in folders.orphans()] == [folder.path]
    folders.remove(folder)
    assert not folder.path.exists()
    with pytest.raises(FileNotFoundError):  # a writer that lives on does not make it anew
        LocalFolder(folder.out).put("_receipts/part-00000.json", b"{}")
    assert folders.orphans() == []
    assert folders.uploads() == []


@pytest.mark.parametrize("content", [None, "", '{"id": ', "[]", '{"id": "1"}', '{"of": "later"}'])
def test_what_is_no_job_stops_no_other_and_is_deleted_after_a_while(
    worker: JobFolder, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """A file of the system beside the jobs, or an order that is damaged or of another version."""
    folders = JobFolders(worker.path.parents[1])
    (worker.path.parent / ".DS_Store").touch()
    other = folders.folder("b" * 32)
    other.path.mkdir()
    (other.path / "persons.csv").touch()
    if content is not None:
        (other.path / "order.json").write_text(content)
    assert folders.of_holder("one").unfinished == 1
    run = SimpleNamespace(workflow_id="run", status="PENDING")
    monkeypatch.setattr(job_worker, "DBOS", SimpleNamespace(list_workflows=lambda **_: [run]))
    for age, is_there in ((60, True), (3_600, False)):
        os.utime(other.path, (time.time() - age,) * 2)
        job_worker.sweep_jobs(folders, 72 * 3600)
        assert other.path.exists() == is_there
    assert [job.folder.path for job in folders] == [worker.path]


def test_a_wrong_table_ends_the_job_with_what_is_wrong_and_no_path(
    jobs: Running, root: Path
) -> None:
    answer = jobs.client.post(
        "/v1/jobs", content=b"person_id,year\n1,2020\n", headers={"Content-Type": "text/csv"}
    )
    view = await_end(jobs, answer.json()["id"])
    assert view["state"] == "failed"
    assert view["problem"]["status"] == 422
    assert {problem["column"] for problem in view["problem"]["problems"]} >= {"earnings"}
    assert str(root) not in json.dumps(view)


@pytest.mark.parametrize(("on_error", "status"), [("fail", 422), ("drop", 202)])
def test_a_person_without_a_readable_id_is_refused_as_in_a_forecast(
    jobs: Running, on_error: str, status: int
) -> None:
    history = [{"year": 2020, "earnings": 1e5}]
    persons = [{"person_id": name, "birth_year": 1980, "history": history} for name in ("A\0", " ")]
    answer = jobs.client.post("/v1/jobs", json={"persons": persons, "on_error": on_error})
    assert answer.status_code == status
    if status == 422:
        forecast = jobs.client.post("/v1/forecasts", json={"persons": persons})
        assert answer.json()["problems"] == forecast.json()["problems"]
    others: list[dict[str, Any]] = [{"history": [{"earnings": 1e5}]}, {"person_id": "x" * 10_000}]
    for other in others:
        content = {"persons": [persons[0] | other], "on_error": on_error}
        assert jobs.client.post("/v1/jobs", json=content).status_code in (202, 422)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("product=lifetimes&horizons=1", 422),
        ("horizons=0", 422),
        ("record=true", 404),
        ("product=pensions&rule=base: se%0Aparameters: {rate: 16}%0A", 422),
        ("product=pensions&rule=base: se%0Aa: %26a [x]%0Ab: [*a, *a]%0A", 422),
        (f"product=pensions&rule=base: {'[' * 9_000}%0A", 422),
        (f"product=pensions&rule=base: se %23{'x' * 20_000}%0A", 422),
        ("product=pensions&reform=accrual", 422),
        ("product=pensions&rule=us", 422),
        ("product=lifetimes&tax=se-2099", 422),
    ],
)
def test_wrong_options_are_refused_before_the_table_is_stored(
    jobs: Running, persons: Path, query: str, status: int
) -> None:
    assert post(jobs, persons, query).status_code == status


@pytest.mark.thorough
def test_a_job_may_name_a_file_instead_of_sending_it(jobs: Running, persons: Path) -> None:
    sent = post(jobs, persons, "horizons=2").json()["id"]
    named = jobs.client.post("/v1/jobs", json={"file": persons.name, "horizons": [2]})
    assert named.status_code == 202, named.text
    results = []
    for job in (sent, named.json()["id"]):
        assert await_end(jobs, job)["state"] == "succeeded"
        results.append(jobs.client.get(f"/v1/jobs/{job}/result").content)
    assert results[0] == results[1]
    assert persons.exists()
    refused = jobs.client.post("/v1/jobs", json={"file": "../register.json", "horizons": [2]})
    assert (refused.status_code, refused.json()["problems"][0]["rule"]) == (422, "file")


def _table(**columns: object) -> bytes:
    return encoded(pl.DataFrame({"birth_year": 1980, **columns}, strict=False))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "columns", "rule"),
    [
        ("", {"person_id": ["x" * 2**21], "year": 2020, "earnings": 1.0}, "string_too_long"),
        ("", {"person_id": ["1"] * 1_001, "year": 2020, "earnings": 1.0}, "person-rows"),
        ("", {"person_id": ["1"], "year": 2020, "earnings": [[1.0] * 99]}, "column-type"),
        (
            "product=paths&paths=10000",
            {"person_id": [str(i) for i in range(6_000)], "year": 2020, "earnings": 1.0},
            "disk",
        ),
    ],
)
def test_a_job_that_is_too_large_fails_with_the_bound_and_without_persons(
    jobs: Running, root: Path, query: str, columns: dict[str, object], rule: str
) -> None:
    answer = jobs.client.post(f"/v1/jobs?{query}", content=_table(**columns), headers=PARQUET)
    job = await_end(jobs, answer.json()["id"])
    assert job["state"] == "failed"
    (problem,) = job["problem"]["problems"]
    assert problem["rule"] == rule
    assert "person_id" not in problem
    folder = root / "jobs" / job["id"]
    # The worker deletes the rest when the process has ended.
    rest = {"out", "persons.parquet"}
    awaited(lambda: not rest & {path.name for path in folder.iterdir()})
    kept = {path.name for path in folder.iterdir()}
    entries = {f"{name}.json" for name in ("order", "attempts", "progress", "outcome")}
    assert kept <= entries | {"outcome.lock", "_lock"}


@pytest.mark.parametrize(("ages", "measured"), [([60], 983), ([60, 61, 62, 63, 64], 4_915)])
def test_rights_at_each_age_count_for_the_disk(ages: list[int], measured: int) -> None:
    """Measured: bytes of a person with earnings in all years, parts and merged file together."""
    options = JobOptions.model_validate({"product": "pensions", "ages": ages})
    assert measured <= _expected_bytes(options, 1) < 2 * measured


def placed_job(root: Path, digit: str = "a") -> JobFolder:
    """A job that waits, in a folder of jobs."""
    folders = JobFolders(root)
    folders.create()
    order = JobOrder(digit * 32, "run", "one", "2026-01-01T00:00:00", "", "persons.parquet", {})
    folders.place(folders.new_upload(), order)
    return folders.folder(order.id)


def state_of(folder: JobFolder) -> State:
    job = folder.job()
    assert job is not None
    return job.state


def failure_of(folder: JobFolder) -> Mapping[str, Any]:
    """The problem document of a job that has failed."""
    outcome = folder.read(Outcome)
    assert outcome is not None
    assert outcome.problem is not None
    return outcome.problem


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "memory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no-space"),
        (pl.exceptions.ComputeError(os.strerror(errno.EDQUOT)), "no-space"),
    ],
)
def test_a_job_with_too_little_memory_or_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str
) -> None:
    """The limits are those of the process and the machine: what does not fit ends this job."""
    folder = placed_job(tmp_path)

    def compute(*_: object) -> None:
        raise error

    monkeypatch.setattr("saga.api.jobs.job_process._compute", compute)
    run_job(folder, Settings(bundle=tmp_path, jobs=tmp_path))
    assert failure_of(folder)["type"] == f"urn:saga:problem:{kind}"


def test_tables_that_take_hours_end_their_job() -> None:
    """Of 3,000 persons in three groups of 20, some 20 of 3,441 small cells took a minute."""
    within_a_year = (None for _ in range(10**6))
    with pytest.raises(BudgetError, match="small groups"):
        last_of(within_a_year, partial(_check_time, time.monotonic()))


def test_a_holder_whose_disk_is_full_sends_no_job(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path
) -> None:
    settings = Settings(
        bundle=tiny_bundle, threads=1, jobs=tmp_path, job_workers=0, holder_bytes=100
    )
    with start(settings) as service:
        first = post_when_connected(service, persons)
        assert first.status_code == 202
        again = post(service, persons, "")
        assert (again.status_code, again.json()["problems"][0]["rule"]) == (507, "disk")


@pytest.mark.parametrize(("free", "holder_bytes"), [(100, 10**9), (10**9, 100)])
def test_jobs_that_begin_at_once_do_not_take_the_same_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, holder_bytes: int
) -> None:
    """Of six results that need 40 of 100 bytes each, two begin."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(JobFolder, "size", lambda _: 0)  # nothing is written yet
    settings = Settings(bundle=tmp_path, jobs=tmp_path, holder_bytes=holder_bytes)
    folders = [placed_job(tmp_path, digit) for digit in "abcdef"]

    def begin(folder: JobFolder) -> bool:
        try:
            return _take_room(folder, "one", 3, 40, settings).persons == 3
        except BudgetError:
            return False

    with ThreadPoolExecutor(len(folders)) as pool:
        begun = list(pool.map(begin, folders))
    assert sum(begun) == 2
    assert [folder.read(Progress) is not None for folder in folders] == begun
    folders[begun.index(True)].finish("cancelled")
    assert begin(folders[begun.index(False)]), "the room of a job that has ended is free again"


def test_persons_in_json_are_refused_if_the_disk_has_no_room(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = {"person_id": "a", "birth_year": 1980, "history": [{"year": 2020, "earnings": 1e5}]}
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path, job_workers=0)
    with start(settings) as service:
        assert post_when_connected(service, persons).status_code == 202
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        answer = service.client.post("/v1/jobs", json={"persons": [person], "horizons": [1]})
        assert (answer.status_code, answer.json()["type"]) == (507, "urn:saga:problem:no-space")
    assert not list((tmp_path / "unfinished").iterdir())


def test_jobs_that_have_ended_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new job of anybody asks, and there may be thousands."""
    folder, folders = placed_job(tmp_path), JobFolders(tmp_path)
    (folder.path / "persons.parquet").write_bytes(b"1234")
    folder.finish("failed")
    before = folders.of_holder("one")
    folder.discard_data()
    after = folders.of_holder("one")
    assert before.n_bytes - after.n_bytes == 4, "the persons are deleted after the job has ended"
    monkeypatch.setattr(job_folders, "read_json", None)
    assert folders.of_holder("one") == after == HolderJobs(0, 1, folder.size())
    assert folders.of_holder("two") == HolderJobs(0, 0, 0)
    assert folders.counts()[0] == {"failed": 1}


def test_a_holder_keeps_a_bounded_number_of_jobs_that_have_ended(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_service, "_ENDED_JOBS", 1)
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path, job_workers=0, max_jobs=1)
    with start(settings) as service:
        job = post_when_connected(service, persons).json()["id"]
        service.client.delete(f"/v1/jobs/{job}")
        refusal = post(service, persons, "")
        assert refusal.status_code == 429
        assert "have ended" in refusal.json()["detail"]
        service.client.delete(f"/v1/jobs/{job}")
        assert post(service, persons, "").status_code == 202


def test_groups_that_nobody_has_fail_before_persons_are_computed_and_jobs_are_counted(
    jobs: Running, persons: Path
) -> None:
    groups = ",".join(["occupation", "industry", "county", "birth_year", "sex"])
    queries = "horizons=1", "product=populations&by=sex&compare=men/women"
    done, refused, many = (
        await_end(jobs, post(jobs, persons, query).json()["id"])
        for query in (*queries, f"product=populations&by={groups}")
    )
    assert (done["state"], refused["state"], refused["persons"]) == ("succeeded", "failed", None)
    assert "which no group has" in refused["problem"]["detail"]
    assert (many["state"], many["persons"]) == ("failed", None)
    assert many["problem"]["detail"] == "Too many groups for one job"

    def counted() -> dict[str, str]:
        lines = jobs.client.get("/metrics").text.splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line.startswith("saga_jobs{"))

    awaited(lambda: float(counted().get('saga_jobs{state="failed"}', 0)) >= 1)
    counts = counted()
    assert len(counts) == len(get_args(State))
    assert float(counts['saga_jobs{state="succeeded"}']) >= 1


@pytest.mark.thorough
def test_a_job_continues_after_a_restart_of_the_service(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path
) -> None:
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path / "jobs")
    with start(settings) as service:
        answer = post(service, persons, "product=paths&paths=20&seed=5")
        job = answer.json()["id"]
        awaited(lambda: look(service, job)["state"] != "queued", 120)
    with start(settings) as service:
        assert await_end(service, job)["state"] == "succeeded"
        served = service.client.get(f"/v1/jobs/{job}/result/part-00000.parquet").content
    recipe = Recipe(tiny_bundle, PathsRequest(), Draws(20, 5))
    score(Source(persons), tmp_path / "out", recipe)
    assert served == (tmp_path / "out" / "part-00000.parquet").read_bytes()


@pytest.mark.thorough
def test_a_job_that_ends_its_process_each_time_fails_whichever_worker_starts_it(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path
) -> None:
    settings = Settings(bundle=tiny_bundle, threads=1, jobs=tmp_path / "jobs")
    with start(settings.model_copy(update={"job_workers": 0})) as service:
        job = post(service, persons, "").json()["id"]
    folder = JobFolders(tmp_path / "jobs").folder(job)
    assert [folder.count_attempt() for _ in range(MAX_ATTEMPTS + 1)] == [True] * 3 + [False]
    folder.write(Progress(10, 40, 0))
    assert [folder.count_attempt() for _ in range(MAX_ATTEMPTS)] == [True] * 3, "it got further"
    folder.take_attempt_back()
    assert folder.count_attempt(), "the service ended the last one"
    with start(settings) as service:
        view = await_end(service, job)
    assert (view["state"], view["problem"]["type"]) == ("failed", "urn:saga:problem:killed")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """The folder of a job that waits for the worker of this process, which pauses for no time."""
    context = job_worker._WorkerContext
    monkeypatch.setattr(context, "folders", JobFolders(tmp_path), raising=False)
    monkeypatch.setattr(context, "log", make_logger(None), raising=False)
    for name, pauses in (("_PAUSE_SECONDS", 0.0), ("_FAILURE_PAUSES", (0.0, 0.0))):
        monkeypatch.setattr(job_worker, name, pauses)
    return placed_job(tmp_path)


def test_a_job_whose_process_aborts_is_not_started_again(
    worker: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native code that gets no memory aborts, and would again; a process that is killed may not."""
    codes = [-signal.SIGKILL, -signal.SIGABRT]

    async def end(_: object) -> int:
        return codes.pop(0)

    monkeypatch.setattr(job_worker, "_run_process", end)
    asyncio.run(inspect.unwrap(job_worker.compute_job)(worker.path.name))
    assert (state_of(worker), codes) == ("failed", [])
    assert failure_of(worker)["type"] == "urn:saga:problem:memory"


@pytest.mark.parametrize(("failures", "state"), [(2, "succeeded"), (3, "failed")])
def test_a_job_ends_although_a_disk_was_full(
    worker: JobFolder, failures: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker tries again; if it has to give up, the sweep says so and deletes the persons."""
    (worker.path / "persons.parquet").touch()
    errors = [OSError(errno.ENOSPC, "No space left on device")] * failures

    def count(_: object) -> bool:
        if errors:
            raise errors.pop()
        return True

    async def compute(folder: JobFolder) -> int:
        folder.finish("succeeded")
        return 0

    monkeypatch.setattr(JobFolder, "count_attempt", count)
    monkeypatch.setattr(job_worker, "_run_process", compute)
    run = SimpleNamespace(workflow_id="run", status="SUCCESS")
    try:
        asyncio.run(inspect.unwrap(job_worker.compute_job)(worker.path.name))
    except OSError:
        run.status = "ERROR"
    monkeypatch.setattr(job_worker, "DBOS", SimpleNamespace(list_workflows=lambda **_: [run]))
    job_worker.sweep_jobs(JobFolders(worker.path.parents[1]), 60.0)
    assert state_of(worker) == state
    assert not (worker.path / "persons.parquet").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_job_is_cancelled_although_the_disk_is_full(
    start: Start,
    tiny_bundle: Path,
    persons: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Whoever needs room cancels a job: it is gone with its persons, though nothing is written."""

    def write(*_: object) -> None:
        raise OSError(number, "there is no room")

    settings = Settings(bundle=tiny_bundle, jobs=tmp_path / "jobs", job_workers=0)
    with start(settings) as service:
        address = post_when_connected(service, persons).headers["location"]
        monkeypatch.setattr("saga.api.jobs.job_folders.commit_json", write)
        assert service.client.delete(address).status_code == 204
        assert service.client.get(address).status_code == 404
        assert not list((tmp_path / "jobs" / "jobs").iterdir())
        assert not list((tmp_path / "jobs").rglob("persons.*"))


@pytest.mark.thorough
def test_a_worker_whose_database_does_not_answer_says_so(tiny_bundle: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-c", "from saga.cli import main; main()", "work", str(tmp_path)]
    settings = {
        "SAGA_JOBS_DATABASE": f"sqlite:///{tmp_path}/none/x",
        "SAGA_BUNDLE": f"{tiny_bundle}",
    }
    done = subprocess.run(line, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Error: The database of the jobs cannot be used" in done.stderr


def fail(error: Exception) -> NoReturn:
    raise error


@pytest.mark.parametrize(
    "submit",
    [
        *(lambda *_, kind=kind: fail(kind("secret")) for kind in UNAVAILABLE),
        lambda *_: time.sleep(0.5),
    ],
    ids=["database", "queue", "silence"],
)
def test_of_a_job_that_the_queue_does_not_take_nothing_remains(
    start: Start,
    tiny_bundle: Path,
    persons: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    submit: Callable[..., None],
) -> None:
    """Its client has no name of it to delete it, and tries again until no job is left to it."""
    settings = Settings(bundle=tiny_bundle, jobs=tmp_path, job_workers=0, max_jobs=2)
    with start(settings) as service:
        first = post_when_connected(service, persons)
        monkeypatch.setattr(job_service, "_QUEUE_SECONDS", 0.1)
        with monkeypatch.context() as failing:
            failing.setattr(JobQueue, "submit", submit)
            answers = [post(service, persons, "") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert "secret" not in answers[0].text
        kept = [path.name for path in (tmp_path / "jobs").iterdir()]
        assert kept == [first.json()["id"]]
        monkeypatch.undo()
        assert post(service, persons, "").status_code == 202


def test_a_request_repeated_while_its_job_is_deleted_is_answered_as_before(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, submit = JobFolders(tmp_path / "jobs"), JobQueue.submit

    def submit_deleted(queue: JobQueue, order: JobOrder) -> None:
        folders.remove(folders.folder(order.id))
        submit(queue, order)

    with start(Settings(bundle=tiny_bundle, jobs=folders.root, job_workers=0)) as service:
        first = post_when_connected(service, persons, **{"Idempotency-Key": "a"})
        monkeypatch.setattr(JobQueue, "submit", submit_deleted)
        again = post(service, persons, "", **{"Idempotency-Key": "a"})
    assert again.status_code == 202, again.text
    assert again.json()["id"] == first.json()["id"]


@pytest.mark.thorough
@pytest.mark.parametrize(("of", "step"), [(JobService, "_place"), (JobQueue, "submit")])
def test_of_a_job_whose_key_ends_while_it_is_placed_nothing_remains(
    start: Start,
    tiny_bundle: Path,
    persons: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of: type,
    step: str,
) -> None:
    """Its caller has no name of it, and the persons would lie there for ten minutes or more."""
    keys, root = tmp_path / "keys", tmp_path / "jobs"
    one, two = make_keys(keys, "one", "two").values()
    settings = Settings(bundle=tiny_bundle, keys=keys, jobs=root, job_workers=0)
    with start(settings) as service:
        kept = post_when_connected(service, persons, **two).json()["id"]
        original = getattr(of, step)

        def slow(*arguments: Any) -> Any:
            time.sleep(3)
            return original(*arguments)

        monkeypatch.setattr(of, step, slow)
        threading.Timer(0.2, revoke_key, [keys, "one", datetime.now(UTC)]).start()
        assert post(service, persons, "", **one).status_code == 401
        awaited(lambda: [path.name for path in (root / "jobs").iterdir()] == [kept], 10)
        time.sleep(3)  # in which the step ends
        awaited(lambda: [path.name for path in (root / "jobs").iterdir()] == [kept], 10)
        assert len([*root.rglob("persons.*")]) == 1


@pytest.mark.parametrize(("age", "state"), [(60, "queued"), (3_600, "failed")])
def test_a_job_that_never_reached_the_queue_ends(
    worker: JobFolder, age: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was killed between the two; a young one may be on its way."""
    order = worker.read(JobOrder)
    assert order is not None
    created = datetime.now(UTC) - timedelta(seconds=age)
    worker.write(replace(order, created=created.isoformat()))
    (worker.path / "persons.parquet").touch()
    monkeypatch.setattr(job_worker, "DBOS", SimpleNamespace(list_workflows=lambda **_: []))
    job_worker.sweep_jobs(JobFolders(worker.path.parents[1]), 72 * 3600)
    assert state_of(worker) == state
    assert (worker.path / "persons.parquet").exists() == (state == "queued")


def test_a_job_does_not_exist_for_another_holder(
    start: Start, tiny_bundle: Path, persons: Path, tmp_path: Path
) -> None:
    one, two = make_keys(tmp_path / "keys", "one", "two").values()
    settings = Settings(
        bundle=tiny_bundle, keys=tmp_path / "keys", jobs=tmp_path / "jobs", job_workers=0
    )
    with start(settings) as service:
        answer = post_when_connected(service, persons, **one)
        address = answer.headers["location"]
        assert service.client.get(address, headers=one).json()["state"] == "queued"
        for method, path in (
            ("GET", address),
            ("DELETE", address),
            ("GET", f"{address}/result"),
            ("GET", f"{address}/events"),
        ):
            assert service.client.request(method, path, headers=two).status_code == 404
        assert service.client.get(address).status_code == 401
        assert service.client.delete(address, headers=one).status_code == 204
        assert service.client.get(address, headers=one).json()["state"] == "cancelled"
        assert not list((tmp_path / "jobs").rglob("persons.*"))


def test_a_service_without_jobs_says_how_to_get_them(service: Running, persons: Path) -> None:
    answer = post(service, persons, "")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:saga:problem:no-jobs")
    assert "SAGA_JOBS" in answer.text
