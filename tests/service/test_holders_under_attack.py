"""What holders, strangers and authors of bundles can do to a running service, tried: nothing."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import lightgbm
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from saga.api.codecs import ARROW_STREAM, CSV, PARQUET
from saga.api.jobs.job_folders import JobFolders
from saga.api.key_file import add_key, new_key, revoke_key

from saga.requests import QUANTILES
from tests.service.test_jobs_under_kill import resident_mb
from tests.service.watch import watch

if TYPE_CHECKING:
    from saga.api.key_file import BearerKey

    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service

Serve = Callable[..., AbstractContextManager["Served"]]
PERSON = "person_id,year,birth_year,earnings\n{},2020,1980,250000\n"
MB = 2**20
N_TRIES, N_ROUNDS, N_SLOW = 1_000, 60, 8


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
        for _ in range(600):
            answer = self.client.post(f"/v1/jobs?{query}", content=content, headers=headers)
            if "job-queue" not in answer.text:
                return answer
            time.sleep(0.1)
        raise AssertionError(answer.text)

    def end_of(self, holder: str, answer: httpx.Response) -> dict[str, Any]:
        """The job when it has ended."""
        assert answer.status_code == 202, answer.text
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            address, headers = answer.headers["location"], self.headers[holder]
            view: dict[str, Any] = self.client.get(address, headers=headers).json()
            if view["state"] not in ("queued", "running"):
                return view
            time.sleep(0.2)
        raise AssertionError(view)


@pytest.fixture(scope="module")
def holders_with(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[Holders]]:
    """Starts a service of the holders one, two and leaving; options are settings."""
    return lambda **settings: _holders(serve, tmp_path_factory.mktemp("holders"), **settings)


@contextmanager
def _holders(serve: Serve, root: Path, **settings: str) -> Iterator[Holders]:
    headers = {}
    for name in ("one", "two", "leaving"):
        secret, key = new_key(name)
        headers[name] = {"Authorization": f"Bearer {secret}"}
        add_key(root / "keys", key)
        (root / "files" / name).mkdir(parents=True)
        (root / "files" / name / "people.csv").write_text(PERSON.format(name))
    folders = {name: str(root / name) for name in ("keys", "jobs")}
    with (
        serve(**folders, job_files=str(root / "files"), quota="1000000", **settings) as served,
        served.client() as client,
    ):
        yield Holders(served, client, headers, root)


@pytest.fixture(scope="module")
def holders(
    holders_with: Callable[..., AbstractContextManager[Holders]],
) -> Iterator[Holders]:
    """A service whose jobs wait for ever, so that one sees what was stored."""
    with holders_with(job_workers="0", body_seconds="15") as running:
        yield running


@pytest.fixture(scope="module")
def computing(
    holders_with: Callable[..., AbstractContextManager[Holders]],
) -> Iterator[Holders]:
    """A service that computes jobs, of which a holder has little space."""
    with holders_with(holder_bytes=str(250 * MB)) as running:
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
    pid, memory, stop = computing.served.pid, 0.0, threading.Event()

    def measure() -> None:
        nonlocal memory
        while not stop.wait(0.05):
            memory = max(memory, resident_mb(pid))

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        with watch(computing.served) as seen:
            jobs = [(name, computing.send("one", body, kind)) for name, kind, body in table_bombs()]
            beside = computing.send("two", PERSON.format("two"))
            rules = {}
            for name, job in jobs:
                view = computing.end_of("one", job)
                rules[name] = (view["problem"] or {"problems": [{}]})["problems"][0].get("rule")
            assert computing.end_of("two", beside)["state"] == "succeeded"
    finally:
        stop.set()
        thread.join()
    expected = ["person-rows", "person-rows", "string_too_long"]
    wrong = [rule for rule, due in zip(rules.values(), expected, strict=True) if rule != due]
    figures.at_most("3 job bombs: not refused by the bound that they break", len(wrong), 0)
    # An honest job of any size may take as much (test_jobs_under_kill.py).
    figures.at_most("job bombs: resident memory of the service and its jobs", memory, 3_000, "MB")
    figures.at_most("job bombs: slowest /livez", seen.slowest_ms, 250, "ms")


def test_a_result_without_room_is_refused_before_it_is_computed(
    computing: Holders, figures: Figures
) -> None:
    """3,000 persons with 500 paths each would be 300 MB for three days."""
    persons = pl.DataFrame({"person_id": [f"{i:05d}" for i in range(3_000)]})
    buffer = io.BytesIO()
    persons.with_columns(year=2020, birth_year=1980, earnings=2e5).write_parquet(buffer)
    answer = computing.send("one", buffer.getvalue(), PARQUET, "product=paths&paths=500")
    view = computing.end_of("one", answer)
    assert view["state"] == "failed", view
    assert view["problem"]["problems"][0]["rule"] == "disk"
    left = computing.folders.folder(view["id"]).size() / MB
    figures.at_most("a result of 300 MB beyond the quota: left on disk", left, 1, "MB")
    outcome = (computing.folders.folder(view["id"]).path / "outcome.json").read_text()
    assert "00000" not in outcome


def test_a_failed_job_keeps_no_person(computing: Holders, figures: Figures) -> None:
    """Its table is deleted; what is wrong is told with the year and the column alone."""
    wrong = PERSON.format("SENTINEL").replace("1980", "2021")
    address = computing.send("one", wrong, query="horizons=1&on_error=fail")
    view = computing.end_of("one", address)
    deadline, folder = time.monotonic() + 30, computing.folders.folder(view["id"]).path
    while list(folder.glob("persons.*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    kept = sum(b"SENTINEL" in p.read_bytes() for p in folder.rglob("*") if p.is_file())
    assert view["state"] == "failed", view
    figures.at_most("a failed job: files that name a person", kept, 0)


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


def change_keys(path: Path, changes: list[str | BearerKey], both_ready: Barrier) -> None:
    """Revoke keys by name, or add some, each at the same moment as the other process does."""
    for change in changes:
        both_ready.wait()
        if isinstance(change, str):
            revoke_key(path, change, datetime.now(UTC))
        else:
            add_key(path, change)


def test_no_change_of_the_keys_is_lost_by_two_commands_at_once(
    holders: Holders, figures: Figures
) -> None:
    """The service itself is asked: old keys end, new ones open."""
    path = holders.root / "keys"
    old, new = ([new_key(f"{kind}{i}") for i in range(N_ROUNDS)] for kind in ("old", "new"))
    for _, key in old:
        add_key(path, key)
    context = multiprocessing.get_context("spawn")
    both_ready = context.Barrier(2)
    processes = [
        context.Process(target=change_keys, args=(path, changes, both_ready))
        for changes in ([key.name for _, key in old], [key for _, key in new])
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    time.sleep(2)  # the service reads the file again

    def status(secret: str) -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        return holders.client.get("/v1/variables", headers=headers).status_code

    alive = sum(status(secret) != 401 for secret, _ in old)
    absent = sum(status(secret) != 200 for secret, _ in new)
    name = f"{N_ROUNDS} keys revoked while as many are made"
    figures.at_most(f"{name}: revocations lost", alive, 0)
    figures.at_most(f"{name}: new keys lost", absent, 0)


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
        start = time.monotonic()
        while holders.client.get(address, headers=headers).status_code != status:
            assert time.monotonic() < start + most, f"{address} is not {status}"
            time.sleep(0.1)
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


FOREIGN = [
    {"Host": "evil.example:8501"},
    {"Host": "evil.example:8501", "Origin": "http://evil.example:8501"},
    {"Host": "localhost.evil.example"},
    {"Host": "localhost", "Origin": "http://evil.example"},
    {"Host": "localhost", "Origin": "null"},
    {"Host": "192.168.1.5"},
]


def test_without_keys_calls_of_foreign_pages_do_nothing(
    serve: Serve, figures: Figures, tmp_path: Path
) -> None:
    """A page of the web whose name was made to point to this machine (DNS rebinding)."""
    with serve(jobs=str(tmp_path / "jobs")) as served, served.client() as client:
        answers = [
            client.post(address, content=PERSON, headers={"Content-Type": CSV} | headers)
            for address in ("/v1/jobs", "/v1/forecasts")
            for headers in FOREIGN
        ]
    passed = sum(answer.status_code != 403 for answer in answers)
    figures.at_most(f"{len(answers)} calls of foreign pages: not refused", passed, 0)


LOAD = """
import json, sys
import numpy as np
from saga.errors import BundleError
from saga.trees.horizon_trees import HorizonTrees
texts, names = json.load(sys.stdin)
try:
    trees = HorizonTrees.from_texts(texts, names)
except BundleError:
    sys.exit(3)
trees.predict(np.zeros((4, len(names)), np.float32))
"""


@pytest.mark.parametrize(
    ("line", "value", "code"),
    [
        ("max_feature_idx", "18", 0),
        ("split_feature", "100000000", 3),
        ("left_child", "0", 3),
        ("right_child", "77", 3),
    ],
    ids=["unchanged", "beyond memory", "cycle", "no such child"],
)
def test_trees_of_a_foreign_bundle_neither_crash_nor_hang(
    figures: Figures, line: str, value: str, code: int
) -> None:
    levels, zeros = (f"level_{lag}" for lag in range(10)), (f"zero_{lag}" for lag in range(5))
    names = ["age", *levels, *zeros, "window_mean", "mean_level"]
    x = np.random.default_rng(1).normal(size=(500, len(names) + 1))
    data = lightgbm.Dataset(x, x.sum(axis=1), feature_name=[*names, "linear"])
    settings = {"objective": "quantile", "num_leaves": 6, "verbosity": -1}
    text = lightgbm.train(settings, data, num_boost_round=2).model_to_string()
    text = re.sub(r"feature_infos=.*", f"feature_infos={' '.join(['none'] * x.shape[1])}", text)
    bad = re.sub(rf"^{line}=\S+", f"{line}={value}", text, flags=re.MULTILINE)
    trees = bad.split("\n\n", 1)[1].split("end of trees")[0]
    sizes = [len(tree) for tree in re.findall(r"Tree=\d+\n.*?\n\n\n", trees, re.DOTALL)]
    bad = re.sub("tree_sizes=.*", f"tree_sizes={' '.join(map(str, sizes))}", bad)
    simple = json.dumps({"share": 0.1, "linear": [0.0] * 21})
    texts = {"simple": simple} | {f"{q:g}": bad for q in QUANTILES}
    program = [sys.executable, "-c", LOAD]
    try:
        done = subprocess.run(
            program, input=json.dumps([texts, names]), text=True, timeout=120
        ).returncode
    except subprocess.TimeoutExpired:
        done = -1
    figures.at_most(f"foreign trees, {line}={value}: wrong exit code ({done})", done != code, 0)
