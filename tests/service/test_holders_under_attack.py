"""What holders can do to each other and to a running service, tried: nothing."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from saga.api.codecs import ARROW_STREAM, CSV, JSON, PARQUET
from saga.api.jobs.job_folders import JobFolders
from saga.api.key_file import revoke_key

from tests.keys import make_keys
from tests.service.watch import watch
from tests.waiting import awaited

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service

Serve = Callable[..., AbstractContextManager["Served"]]
PERSON = "person_id,year,birth_year,earnings\n{},2020,1980,250000\n"
MB = 2**20
N_TRIES, N_SLOW = 1_000, 8


@dataclass(frozen=True)
class Holders:
    """A service with keys and jobs, a client, the headers of each holder, and its folder."""

    served: Served
    client: httpx.Client
    headers: dict[str, dict[str, str]]
    root: Path

    @property
    def folders(self) -> JobFolders:
        return JobFolders(self.root / "jobs")

    def send(
        self, holder: str, content: str | bytes, kind: str = CSV, query: str = "horizons=1"
    ) -> httpx.Response:
        """The answer to a job; a queue that is not connected yet is asked again."""
        headers = self.headers[holder] | {"Content-Type": kind}

        def answer() -> httpx.Response | None:
            sent = self.client.post(f"/v1/jobs?{query}", content=content, headers=headers)
            return None if "job-queue" in sent.text else sent

        return awaited(answer)

    def end_of(self, holder: str, answer: httpx.Response) -> dict[str, Any]:
        """The job when it has ended."""
        assert answer.status_code == 202, answer.text

        def view() -> dict[str, Any] | None:
            address, headers = answer.headers["location"], self.headers[holder]
            job: dict[str, Any] = self.client.get(address, headers=headers).json()
            return None if job["state"] in ("queued", "running") else job

        return awaited(view, 600)


@contextmanager
def _holders(serve: Serve, root: Path, **settings: str) -> Iterator[Holders]:
    """A service of the holders one, two and leaving, with a ledger; options are settings."""
    headers = make_keys(root / "keys", "one", "two", "leaving")
    for name in headers:
        (root / "files" / name).mkdir(parents=True)
        (root / "files" / name / "people.csv").write_text(PERSON.format(name))
    folders = {name: str(root / name) for name in ("keys", "jobs")}
    with (
        serve(
            **folders,
            job_files=str(root / "files"),
            quota="1000000",
            database=f"sqlite:///{root / 'ledger.sqlite'}",
            **settings,
        ) as served,
        served.client() as client,
    ):
        yield Holders(served, client, headers, root)


@pytest.fixture(scope="module")
def holders(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holders]:
    """A service whose jobs wait for ever, so that one sees what was stored."""
    root = tmp_path_factory.mktemp("holders")
    with _holders(serve, root, job_workers="0", body_seconds="15") as running:
        yield running


@pytest.fixture(scope="module")
def computing(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holders]:
    """A service that computes jobs."""
    with _holders(serve, tmp_path_factory.mktemp("computing")) as running:
        yield running


def test_a_file_named_while_links_are_swapped_is_never_another_holders(
    holders: Holders, figures: Figures
) -> None:
    """A holder names a file that is in turn its own and a link to the other's."""
    folder, stop = holders.root / "files" / "one", threading.Event()
    next_one, raced = folder / "next", folder / "race.csv"

    def swap() -> None:
        for i in itertools.count():
            if stop.is_set():
                return
            if i % 2:
                next_one.symlink_to("../two/people.csv")
            else:
                shutil.copyfile(folder / "people.csv", next_one)
            next_one.rename(raced)

    raced.write_text(PERSON.format("one"))
    assert holders.send("one", PERSON.format("one")).status_code == 202
    thread = threading.Thread(target=swap)
    thread.start()
    accepted = leaked = 0
    try:
        for _ in range(N_TRIES):
            body = {"file": "race.csv", "horizons": [1]}
            answer = holders.client.post("/v1/jobs", json=body, headers=holders.headers["one"])
            if answer.status_code != 202:
                assert answer.json()["problems"][0]["rule"] == "file", answer.text
                continue
            accepted += 1
            stored = holders.folders.folder(answer.json()["id"]).path / "persons.csv"
            leaked += "two" in stored.read_text()
            for _ in range(2):  # cancel, remove
                address = answer.headers["location"]
                holders.client.delete(address, headers=holders.headers["one"])
    finally:
        stop.set()
        thread.join()
    figures.at_most(f"{N_TRIES:,} jobs by a swapped link: of another holder", leaked, 0)
    figures.context("of them accepted, with the holder's own rows", accepted)
    assert 0 < accepted < N_TRIES, "the link was not swapped"


def table_bombs() -> Iterator[tuple[str, str, bytes]]:
    """Name, media type and bytes of tables that unfold to gigabytes in the batch engine."""
    n = 10**6
    rows = pa.table(
        {
            "person_id": pa.array(["A"] * n),
            "year": pa.array(np.full(n, 2020)),
            "birth_year": pa.array(np.full(n, 1980)),
            "earnings": pa.array(np.full(n, 2e5)),
        }
    )
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, rows.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(rows)
    yield "Parquet, 20 million rows", PARQUET, buffer.getvalue()
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(buffer, rows.schema, options=options) as stream:
        for _ in range(30):
            stream.write_table(rows)
    yield "Arrow, 30 million rows", ARROW_STREAM, buffer.getvalue()
    head, tail = PERSON.format("").split("\n", 1)
    cell = '"' + "a\n" * (50 * MB) + '"'
    yield "CSV, a cell of 100 MB", CSV, f"{head}\n{cell}{tail}".encode()


def test_jobs_that_unfold_are_refused_and_others_go_on(
    computing: Holders, figures: Figures
) -> None:
    with watch(computing.served) as seen:
        jobs = [(name, computing.send("one", body, kind)) for name, kind, body in table_bombs()]
        beside = computing.send("two", PERSON.format("two"))
        rules = {}
        for name, job in jobs:
            view = computing.end_of("one", job)
            rules[name] = (view["problem"] or {"problems": [{}]})["problems"][0].get("rule")
        assert computing.end_of("two", beside)["state"] == "succeeded"
    expected = ["person-rows", "person-rows", "string_too_long"]
    wrong = [rule for rule, due in zip(rules.values(), expected, strict=True) if rule != due]
    figures.at_most("3 job bombs: not refused by the bound that they break", len(wrong), 0)
    # An honest job of any size may take as much (test_jobs_under_kill.py).
    figures.at_most(
        "job bombs: resident memory of the service and its jobs", seen.memory_mb, 3_000, "MB"
    )
    figures.at_most("job bombs: slowest /livez", seen.slowest_ms, 250, "ms")


def test_slow_tables_of_one_holder_do_not_keep_another_out(
    holders: Holders, figures: Figures
) -> None:
    """Eight connections send a byte now and then; each is given up after the stated time in all."""
    authorization = holders.headers["one"]["Authorization"]
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
        f"Authorization: {authorization}\r\nContent-Length: 10000\r\n\r\np"
    )
    slow = [holders.served.socket() for _ in range(N_SLOW)]
    try:
        for connection in slow:
            connection.sendall(head.encode())
        start, statuses = time.monotonic(), []
        while time.monotonic() < start + 12:
            statuses.append(holders.send("two", PERSON.format("two")).status_code)
            for connection in slow:
                with suppress(OSError):  # it was refused
                    connection.sendall(b"x")
            time.sleep(0.5)
        answers = []
        for connection in slow:
            try:
                answers.append(connection.recv(12).decode()[-3:])
            except OSError:
                answers.append("503")
        seconds = time.monotonic() - start
    finally:
        for connection in slow:
            connection.close()
    refused = sum(status != 202 for status in statuses)
    name = f"{N_SLOW} slow uploads of a holder"
    figures.at_most(f"{name}: of {len(statuses)} jobs of another refused", refused, 0)
    figures.at_most(f"{name}: the last one ends after (15 s are allowed)", seconds, 17, "s")
    assert sorted(answers) == ["408"] * 4 + ["503"] * 4


def test_bodies_of_one_holder_do_not_fill_the_memory_for_another(
    holders: Holders, figures: Figures
) -> None:
    """Many bodies that end before their stated length, each smaller than that of the other."""
    key, pieces = holders.headers["one"]["Authorization"], b"\n" * (23 * MB // 10)
    head = (
        f"POST /v1/forecasts HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
        f"Authorization: {key}\r\nContent-Length: {30 * MB}\r\n\r\n"
    )
    body = PERSON.format("two").encode() + b"\n" * (10 * MB)
    headers = {**holders.headers["two"], "Content-Type": CSV}
    with ExitStack() as stack:
        for _ in range(55):  # 127 MB, of the 128 MiB of all bodies
            stack.enter_context(holders.served.socket()).sendall(head.encode() + pieces)
        answer = holders.client.post("/v1/forecasts?horizons=1", content=body, headers=headers)
    name = "55 bodies of a holder that fill the memory: status of another's of 10 MB"
    figures.at_most(name, answer.status_code, 200)


def name_file(holders: Holders, name: str) -> socket.socket:
    """A connection of holder one on which a job of a file has been asked for."""
    key, body = holders.headers["one"]["Authorization"], json.dumps({"file": name})
    connection = holders.served.socket()
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall((head + body).encode())
    return connection


def make_sparse(path: Path, n_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(n_bytes)


def test_named_files_of_one_holder_do_not_keep_another_out(
    holders: Holders, figures: Figures
) -> None:
    """A file without content takes a moment to make and seconds of the service to copy."""
    folder, uploads = holders.root / "files" / "one", holders.root / "jobs" / "unfinished"
    make_sparse(folder / "huge.csv", 3 * 2**30)
    answer = holders.client.post(
        "/v1/jobs", json={"file": "huge.csv"}, headers=holders.headers["one"]
    )
    assert answer.status_code == 413
    make_sparse(folder / "large.csv", 2**31 - 1)
    attack = [name_file(holders, "large.csv") for _ in range(24)]
    before = holders.served.cpu_seconds()
    body, headers = {"file": "people.csv", "horizons": [1]}, holders.headers["two"]
    beside = holders.client.post("/v1/jobs", json=body, headers=headers)
    spent = holders.served.cpu_seconds() - before
    assert beside.status_code == 202, beside.text
    refused = sum(is_answered(connection, 503) for connection in attack)
    for connection in attack:
        connection.close()
    awaited(lambda: not list(uploads.iterdir()), 60)
    whole = holders.served.cpu_seconds() - before
    figures.at_least("24 named files of 2 GB: refused", refused, 20)
    figures.at_most("24 named files of 2 GB: CPU until a job of another is taken", spent, 1.5, "s")
    figures.at_most("24 named files of 2 GB, clients gone: CPU of all copies", whole, 6, "s")


def is_answered(connection: socket.socket, status: int) -> bool:
    """Whether a connection has an answer of this status by now."""
    connection.settimeout(0.05)
    try:
        return connection.recv(12).endswith(str(status).encode())
    except TimeoutError:
        return False


def test_a_service_that_copies_files_ends_in_time(
    serve: Serve, tmp_path: Path, figures: Figures
) -> None:
    times = {"drain_seconds": "0.1", "stop_seconds": "1", "job_workers": "0"}
    with _holders(serve, tmp_path, **times) as holders:
        make_sparse(tmp_path / "files" / "one" / "large.csv", 2**31 - 1)
        attack = [name_file(holders, "large.csv") for _ in range(24)]
        awaited(lambda: list((tmp_path / "jobs" / "unfinished").iterdir()))
        before, start = holders.served.cpu_seconds(), time.monotonic()
        os.kill(holders.served.pid, signal.SIGTERM)
        last = before
        with suppress(OSError):  # until it has ended
            while Path(f"/proc/{holders.served.pid}/stat").read_text().split()[2] != "Z":
                last = holders.served.cpu_seconds()
                time.sleep(0.05)
        seconds = time.monotonic() - start
        answers = sorted(connection.recv(12)[9:].decode() for connection in attack)
        for connection in attack:
            connection.close()
    assert answers == ["503"] * 24
    name = "SIGTERM while files are copied: {} until the end"
    figures.at_most(name.format("CPU"), last - before, 9, "s")
    # A copy that does not hear that the service stops goes on until the server ends it.
    figures.at_most(name.format("seconds"), seconds, 5, "s")


def parquet(columns: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content, compression="zstd")
    return content.getvalue()


@pytest.mark.parametrize(
    ("flooded", "bound"),
    [
        (("/v1/outcomes", "/v1/forecasts"), 5),
        (("/v1/jobs",), 5),
        (("/metrics", "/openapi.json", "/explorer/d3.min.js"), 3),
    ],
)
def test_calls_of_one_holder_do_not_keep_another_out(
    holders: Holders, figures: Figures, flooded: tuple[str, ...], bound: float
) -> None:
    """One key sends what takes long to check, or asks for long answers, again and again."""
    n = 100_000
    columns = {"person_id": [f"X{i}" for i in range(n)], "year": [2023] * n, "earnings": [1e5] * n}
    long_texts = dict.fromkeys([f"c{i}" for i in range(95)], ["ab"] * (n // 2))
    rule = f"title: long\na: [{'{a: 1},' * 2_800}1]\n"
    rules = {"rule": rule, "reform": f"{rule}# another\n"}
    floods = {
        "/v1/outcomes": parquet(columns),
        "/v1/forecasts": parquet(long_texts | {"person_id": ["X" * 65] * (n // 2)}),
        "/v1/jobs": json.dumps({"file": "people.csv", "product": "pensions"} | rules).encode(),
    }
    person = {"year": [2023], "birth_year": [1980], "earnings": [1e5], "person_id": ["A"]}
    own = {
        "/v1/outcomes": parquet({name: person[name] for name in columns}),
        "/v1/forecasts?horizons=1": parquet(person),
    }
    stop, seconds, statuses = threading.Event(), list[float](), list[int]()

    def flood(path: str) -> None:
        with holders.served.client(headers=holders.headers["one"]) as client:
            while not stop.is_set():
                kind = JSON if path == "/v1/jobs" else PARQUET
                method = "POST" if path in floods else "GET"
                headers = {"Content-Type": kind}
                client.request(method, path, content=floods.get(path), headers=headers)

    n_threads = 48 // len(flooded)
    threads = [threading.Thread(target=flood, args=[path]) for path in flooded * n_threads]
    for thread in threads:
        thread.start()
    try:
        time.sleep(3)
        for path, content in [*own.items()] * 4:
            start = time.monotonic()
            headers = {**holders.headers["two"], "Content-Type": PARQUET}
            answer = holders.client.post(path, content=content, headers=headers)
            statuses.append(answer.status_code)
            seconds.append(time.monotonic() - start)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    answer = holders.client.post(
        "/v1/forecasts?horizons=1",
        content=PERSON.format("A"),
        headers={**holders.headers["two"], "Content-Type": CSV},
    )
    assert answer.status_code == 200, answer.text
    name = f"48 connections with {' and '.join(flooded)} of a holder"
    refused = sum(status != 200 for status in statuses)
    figures.at_most(f"{name}: of 8 calls of another refused", refused, 0)
    figures.at_most(f"{name}: the slowest of them", max(seconds), bound, "s")


@pytest.mark.parametrize("path", ["/v1/model", "/v1/variables"])
def test_small_calls_of_one_holder_do_not_slow_another(
    holders: Holders, figures: Figures, path: str
) -> None:
    """60 connections call as fast as they can; what is answered meanwhile is counted, not timed."""
    n_connections, stop, answers = 60, threading.Event(), list[int]()

    def flood() -> None:
        with holders.served.client(headers=holders.headers["one"]) as client:
            while not stop.is_set():
                answers.append(client.get(path).status_code)

    threads = [threading.Thread(target=flood) for _ in range(n_connections)]
    for thread in threads:
        thread.start()
    meanwhile = []
    try:
        awaited(lambda: len(answers) > 2 * n_connections)
        for _ in range(8):
            before = len(answers)
            answer = holders.client.post(
                "/v1/forecasts?horizons=1",
                content=PERSON.format("A"),
                headers={**holders.headers["two"], "Content-Type": CSV},
            )
            assert answer.status_code == 200, answer.text
            meanwhile.append(len(answers) - before)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    name = f"{n_connections} connections of a holder with {path}: answers during a forecast"
    figures.at_most(f"{name} of another", float(np.median(meanwhile)), 2 * n_connections)


def test_a_result_without_room_is_not_begun(serve: Serve, tmp_path: Path, figures: Figures) -> None:
    """A few kilobytes ask for hundreds of megabytes of paths."""
    n = 3_000
    columns = {"person_id": [f"{i}" for i in range(n)], "year": [2020] * n}
    table = parquet(columns | {"birth_year": [1980] * n, "earnings": [2e5] * n})
    with _holders(serve, tmp_path, holder_bytes=str(100 * MB)) as holders:
        sent = holders.send("one", table, PARQUET, "product=paths&paths=500")
        job = holders.end_of("one", sent)
        folder = holders.folders.folder(job["id"])
        awaited(lambda: not list(folder.path.glob("persons.*")))
        kept = folder.size() / MB
    assert (job["state"], job["problem"]["problems"][0]["rule"]) == ("failed", "disk")
    figures.at_most("a job whose result has no room: MB of the disk that it keeps", kept, 0.1, "MB")


def test_a_failed_job_keeps_no_id_of_a_person(computing: Holders) -> None:
    wrong = PERSON.format("SECRET-7") + "SECRET-7,2020,1980,250001\nSECRET-8,2020,1700,1\n"
    job = computing.end_of("one", computing.send("one", wrong))
    assert (job["state"], job["problem"]["status"]) == ("failed", 422)

    def naming() -> list[Path]:
        return [p for p in computing.root.rglob("*") if p.is_file() and b"SECRET" in p.read_bytes()]

    awaited(lambda: not naming())
    assert "SECRET" not in computing.served.log.read_text()


def test_event_streams_of_one_holder_do_not_keep_another_out(
    holders: Holders, figures: Figures
) -> None:
    """One key follows its waiting job on more connections than the service serves."""
    job = holders.send("one", PERSON.format("x")).json()["id"]
    key = holders.headers["one"]["Authorization"]
    head = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(530):
            connection = stack.enter_context(holders.served.socket())
            connection.sendall(head.encode())
            time.sleep(0.01)  # a connection that has made no call yet gives way to the next
        tries = [
            httpx.get(f"{holders.served.url}/v1/variables", headers=holders.headers["two"])
            for _ in range(10)
        ]
    served = sum(answer.status_code == 200 for answer in tries)
    figures.at_least("calls of a holder beside 530 streams of another, of 10", served, 10)


def test_head_of_an_event_stream_does_not_hold_its_connection(holders: Holders) -> None:
    job = holders.send("one", PERSON.format("x")).json()["id"]
    key = holders.headers["one"]["Authorization"]
    with holders.served.socket() as connection:
        for path in (f"/v1/jobs/{job}/events", "/v1/model"):
            head = f"HEAD {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n"
            connection.sendall(head.encode())
        connection.settimeout(10)
        answers = b""
        while answers.count(b" 200 OK") < 2:
            answers += connection.recv(4_096)
    assert b"text/event-stream" in answers


def test_a_revoked_key_ends_its_open_stream_and_its_download(
    holders: Holders, figures: Figures
) -> None:
    """Both answers have begun; the file is larger than what the system sends ahead."""
    headers = holders.headers["leaving"]
    watched, done = (holders.send("leaving", PERSON.format("x")).json()["id"] for _ in range(2))
    folder, n_bytes = holders.folders.folder(done), 256 * MB
    with folder.result.open("wb") as file:
        file.truncate(n_bytes)
    folder.finish("succeeded", totals={"rows": 1})

    def read(path: str) -> socket.socket:
        connection = holders.served.socket()
        text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{text}\r\n".encode())
        assert b" 200 OK" in connection.recv(4_096)
        return connection

    connections = [read(f"/v1/jobs/{watched}/events"), read(f"/v1/jobs/{done}/result")]
    revoke_key(holders.root / "keys", "leaving", datetime.now(UTC))
    time.sleep(5)
    received = []
    for connection in connections:
        connection.settimeout(5)
        n = 0
        with connection, suppress(ConnectionResetError):
            while chunk := connection.recv(2**16):
                n += len(chunk)
        received.append(n / MB)
    figures.at_most("a revoked key: MB of its download after 5 s, of 256", received[1], 16, "MB")
    assert holders.client.get(f"/v1/jobs/{done}", headers=headers).status_code == 401


@pytest.mark.parametrize("text", [None, "half a li"], ids=["removed", "damaged"])
def test_a_service_without_its_key_file_is_not_ready_and_then_closed(
    holders: Holders, figures: Figures, text: str | None
) -> None:
    path, headers = holders.root / "keys", holders.headers["one"]
    content = path.read_text()

    def seconds_until(address: str, status: int, most: float) -> float:
        start, get = time.monotonic(), holders.client.get
        awaited(lambda: get(address, headers=headers).status_code == status, most)
        return time.monotonic() - start

    try:
        path.unlink() if text is None else path.write_text(text)
        name = f"key file {'removed' if text is None else 'damaged'}"
        figures.at_most(f"{name}: not ready after", seconds_until("/readyz", 503, 30), 3, "s")
        assert holders.client.get("/v1/variables", headers=headers).status_code == 200, "the grace"
        closed = seconds_until("/v1/variables", 503, 90)
        figures.at_most(f"{name}: no key is accepted after (60 s are allowed)", closed, 63, "s")
    finally:
        path.write_text(content)
    seconds_until("/v1/variables", 200, 5)


def test_a_page_of_another_name_sends_no_job_to_a_service_without_keys(
    serve: Serve, tmp_path: Path
) -> None:
    """Its name was made to point to this machine (DNS rebinding), or it knows the address."""
    with serve(jobs=str(tmp_path / "jobs"), job_workers="0") as served, served.client() as client:
        kind, body = {"Content-Type": CSV}, PERSON.format("A")
        for foreign in (
            {"Host": "evil.example:8501", "Origin": "http://evil.example:8501"},
            {"Host": f"evil.example:{served.port}"},
            {"Origin": "http://evil.example"},
        ):
            answer = client.post("/v1/jobs", content=body, headers={**kind, **foreign})
            assert answer.status_code == 403, answer.text
        assert not list((tmp_path / "jobs" / "jobs").iterdir())
        awaited(lambda: client.post("/v1/jobs", content=body, headers=kind).status_code == 202)
