"""Ray writes the bytes of a local run, whatever process of the cluster or of the run is killed.

A real cluster on this machine: a head and two nodes are started as separate processes. `-m ray`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from carry import Carry

from saga.batch.engine import BatchInterruptedError, score
from saga.batch.ray_engine import RayEngine
from saga.batch.run_folder import MANIFEST
from saga.errors import BundleError, InputError, UsageError
from tests.saga.batch.run_files import (
    await_persons,
    end_of,
    files_of,
    start_score,
    worker_path,
    write_years,
)

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]

RAY = Path(sys.executable).parent / "ray"
PERSONS, SIZE = 60, 3
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": worker_path(),
    "RAY_USAGE_STATS_ENABLED": "0",
    # A key of their own: Ray uses one in the home folder on some of its processes only.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0" * 64,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    return write_years(folder, (2003, 2004), n_persons=PERSONS, seed=6)


@pytest.fixture(scope="module")
def local_files(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "out"
    score(source, out, Carry(), persons_per_partition=SIZE)
    return files_of(out)


@pytest.fixture(scope="module")
def cluster(free_port: Callable[[], int]) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a head without CPUs for work, and the processes of two nodes."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    place = "--node-ip-address=127.0.0.1", f"--port={port}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        _start_node(processes, "--head", "--num-cpus=0", "--include-dashboard=false", *place)
        for _ in range(2):
            _start_node(processes, f"--address={address}", "--num-cpus=1")
        yield address, processes[1:]
    finally:
        for process in reversed(processes):
            _kill_node(process)


def _start_node(processes: list[subprocess.Popen[bytes]], *options: str) -> None:
    """Start a node and wait until it stays; on a busy machine Ray gives up some of its starts."""
    common = "--block", "--disable-usage-stats", "--object-store-memory=100000000"
    for _ in range(5):
        node = subprocess.Popen(
            [str(RAY), "start", *options, *common],
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        processes.append(node)
        lasted = 0
        while node.poll() is None and lasted < 25:
            time.sleep(1)
            lasted += any(b"RuntimeEnvAgent" in _command(pid) for pid in _descendants(node.pid))
        if node.poll() is None:
            return
        processes.pop()
    pytest.fail("Ray does not start here")


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _kill_node(process: subprocess.Popen[bytes]) -> None:
    """End a node with all that it started, as a machine that loses power."""
    for pid in [process.pid, *_descendants(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    children = [child for child, parent in parents.items() if parent == pid]
    return [*children, *(pid for child in children for pid in _descendants(child))]


def _kill_worker(node: subprocess.Popen[bytes]) -> None:
    """End the process of a node that writes partitions."""
    for pid in _descendants(node.pid):
        if b"_RayWorker" in _command(pid):
            os.kill(pid, signal.SIGKILL)
            return
    pytest.fail("the node has no worker")


def test_a_killed_node_a_killed_worker_and_a_killed_driver_leave_the_bytes_of_a_local_run(
    source: Path,
    local_files: dict[str, bytes],
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
    tmp_path: Path,
) -> None:
    address, nodes = cluster
    out = tmp_path / "out"
    start = partial(start_score, source, out, size=SIZE, seconds=0.4, workers=2)
    start = partial(start, address=address, environment=ENVIRONMENT)
    with start() as driver:
        await_persons(driver, 9)
        _kill_node(nodes[0])
        await_persons(driver, 18)
        driver.kill()
    assert not (out / MANIFEST).exists()
    with start() as driver:
        await_persons(driver, 30)
        _kill_worker(nodes[1])
        assert end_of(driver) == 0
    assert files_of(out) == local_files


def test_a_cluster_on_this_machine_writes_the_same_bytes_and_passes_on_errors(
    source: Path, local_files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    engine = RayEngine()
    score(source, tmp_path / "out", Carry(), persons_per_partition=SIZE, workers=2, engine=engine)
    assert files_of(tmp_path / "out") == local_files
    with pytest.raises(BundleError, match="no bundle"):
        score(source, tmp_path / "fault", Carry(fault="open"), workers=2, engine=engine)
    broken = tmp_path / "broken.csv"
    broken.write_text("person_id,year,birth_year,earnings\n1,2004,1970,-1\n")
    with pytest.raises(InputError) as error:
        score(broken, tmp_path / "bad", Carry(), engine=engine)
    assert error.value.problems[0].person_id == "1"


def test_a_partition_that_kills_every_worker_stops_the_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    with pytest.raises(BatchInterruptedError, match="lost 3 times at partition 0"):
        score(source, tmp_path / "out", Carry(fault="die"), engine=RayEngine())


def test_an_address_without_a_cluster_is_an_error(
    source: Path, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    with pytest.raises(UsageError, match="no Ray cluster"):
        score(source, tmp_path, Carry(), engine=RayEngine(f"127.0.0.1:{free_port()}"))
