"""Do all engines write the same files for a large register, even if killed, and at what cost?

    python benchmarks/engines.py [--persons 200000] [--workers 2] [--horizons 1-30]
        [--engines ray,shards,s3] [--more "--rollout light"] [--folder FOLDER]

Forecasts of the persons of a generated register by `saga score`: local, by Ray on a cluster of a
head and one node a worker (all separate processes), by seven shards and a merge, and by Ray again
with a node and then the driver killed. If SAGA_S3RVER names an S3 server (`npm install s3rver`,
`node_modules/.bin/s3rver`), also from and to it, with the server killed and started again. All
files of each run must be those of the local run. The cost is in seconds of the processors, which
say more on a busy machine than seconds of the clock. The cost of Ray includes its own processes;
the start of the cluster has a line of its own. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import obstore
from obstore.store import ObjectStore, from_url

from saga.files.atomic import LOCK, digest_file
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register

SHARDS = 7
SAGA, RAY = (str(Path(sys.executable).with_name(name)) for name in ("saga", "ray"))
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


class Processors:
    """The processor time of all processes that this one has started, and of those they started.

    They are looked at five times a second, so the last moments of each are missing. Orphans such
    as the processes of `ray start` become children of this process.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        self._seconds: dict[tuple[int, str], float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        while True:
            table = processes()
            for pid in descendants(os.getpid(), table):
                fields = table[pid]
                self._seconds[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / tick
            time.sleep(0.2)

    def used(self) -> float:
        """Seconds until now."""
        time.sleep(0.5)
        return sum(self._seconds.copy().values())


def processes() -> dict[int, list[str]]:
    """Each process of the machine and the fields of its `stat`, from the state on."""
    table = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            table[int(entry.parent.name)] = entry.read_text().rpartition(")")[2].split()
    return table


def descendants(pid: int, table: dict[int, list[str]]) -> set[int]:
    """The processes that a process started, and those that they started."""
    tree: set[int] = set()
    while more := {p for p, fields in table.items() if int(fields[1]) in (pid, *tree)} - tree:
        tree |= more
    return tree


def kill(pids: set[int]) -> None:
    """End processes, as on a machine that loses power."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class RayCluster:
    """A head without processors for work, and nodes of one processor, as separate processes."""

    def __init__(self, nodes: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        place = "--node-ip-address=127.0.0.1", f"--port={port}"
        self.head = self._start("--head", "--num-cpus=0", "--include-dashboard=false", *place)
        self.nodes = [
            self._start(f"--address={self.address}", "--num-cpus=1") for _ in range(nodes)
        ]

    def _start(self, *options: str) -> set[int]:
        common = "--disable-usage-stats", "--object-store-memory=100000000"
        before = descendants(os.getpid(), processes())
        subprocess.run([RAY, "start", *options, *common], check=True, capture_output=True)
        time.sleep(5)
        return descendants(os.getpid(), processes()) - before

    def kill_node(self) -> None:
        """End one node with the workers on it."""
        node = self.nodes.pop()
        kill(node | {pid for parent in node for pid in descendants(parent, processes())})

    def end(self) -> None:
        """End all of it."""
        for pids in (*self.nodes, self.head):
            kill(pids | {pid for parent in pids for pid in descendants(parent, processes())})


class Scoring:
    """The command of one run, and what it writes."""

    def __init__(self, source: Path, workers: int, options: list[str]) -> None:
        self.source, self.workers, self.options = source, workers, [*options, "--json"]

    def start(
        self, out: str | Path, *more: str, source: str | None = None
    ) -> subprocess.Popen[bytes]:
        """A process of `saga score`."""
        line = [SAGA, "score", source or str(self.source), str(out), *self.options, *more]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def finish(self, out: str | Path, *more: str) -> None:
        """A run that must succeed."""
        _require_success(self.start(out, *more))

    @property
    def workers_option(self) -> list[str]:
        """The option of the number of workers."""
        return ["--workers", str(self.workers)]


def _require_success(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise SystemExit(f"{process.args!r} ended with exit code {process.returncode}")


def digests(out: Path) -> dict[str, str]:
    """Each file of a finished run and its sha256."""
    files = [path for path in out.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(out)): digest_file(path) for path in files}


def run_shards(scoring: Scoring, out: Path) -> None:
    """Seven processes in turns of `workers`, then the merge."""
    waiting = [f"{shard}/{SHARDS}" for shard in reversed(range(SHARDS))]
    while waiting:
        names, waiting = waiting[: scoring.workers], waiting[scoring.workers :]
        for process in [scoring.start(out, "--shard", name) for name in names]:
            _require_success(process)
    subprocess.run([SAGA, "score", "--merge", str(out)], check=True, stdout=subprocess.DEVNULL)


def run_ray(scoring: Scoring, out: Path, cluster: RayCluster) -> None:
    """Ray, with a node killed after some parts and then the driver, and the same command."""
    options = ["--engine", "ray", "--address", cluster.address, *scoring.workers_option]

    def parts() -> int:
        return len(list(out.glob("_receipts/*.json")))

    driver = scoring.start(out, *options)
    _await_parts(driver, parts, 2)
    cluster.kill_node()
    _await_parts(driver, parts, parts() + 2)
    driver.kill()
    driver.wait()
    scoring.finish(out, *options)


def _await_parts(process: subprocess.Popen[bytes], count: Callable[[], int], parts: int) -> None:
    while count() < parts:
        if process.poll() is not None:
            raise SystemExit("the run ended before it could be killed: give more --persons")
        time.sleep(0.2)


_S3_RANGES = Path(__file__).with_name("s3_ranges.cjs").resolve()


@contextmanager
def s3_server(program: str, folder: Path) -> Iterator[Callable[[], None]]:
    """An S3 server with the bucket `register`; the value kills it and starts it again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        AWS_ACCESS_KEY_ID="S3RVER",
        AWS_SECRET_ACCESS_KEY="S3RVER",
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
    )
    place = "-d", str(folder), "-a", "127.0.0.1", "-p", str(port), "--silent"
    servers: list[subprocess.Popen[bytes]] = []

    def restart() -> None:
        for server in servers:
            server.kill()
            server.wait()
        line = [program, *place, "--configure-bucket", "register"]
        environment = {**os.environ, "NODE_OPTIONS": f"--require {_S3_RANGES}"}
        servers[:] = [subprocess.Popen(line, stdout=subprocess.DEVNULL, env=environment)]
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.1)
        raise SystemExit("the S3 server does not start")

    folder.mkdir()
    restart()
    try:
        yield restart
    finally:
        servers[0].kill()
        servers[0].wait()


def run_on_store(scoring: Scoring, restart: Callable[[], None], copy: Path) -> None:
    """From and to the S3 server, killed after some parts; the objects are copied to `copy`."""
    for path in scoring.source.rglob("*"):
        if path.is_file():
            obstore.put(_store("in"), str(path.relative_to(scoring.source)), path)
    url, out = "s3://register/in", _store("out")
    process = scoring.start("s3://register/out", *scoring.workers_option, source=url)
    _await_parts(process, lambda: len(obstore.list(out, "_receipts").collect()), 2)
    restart()
    _require_success(process)
    for entry in obstore.list(out).collect():
        target = copy / entry["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(obstore.get(out, entry["path"]).bytes()))


def _store(folder: str) -> ObjectStore:
    return from_url(f"s3://register/{folder}", client_options={"allow_http": True})


class Comparison:
    """Runs of several engines, whose files must be those of the first run."""

    def __init__(self, out: Path) -> None:
        self.out, self.processors = out, Processors()
        self.expected: dict[str, str] = {}
        self.same = True

    def measure(self, engine: str, run: Callable[[Path], None]) -> float:
        """Processor seconds of a run, whose line is printed."""
        shutil.rmtree(self.out, ignore_errors=True)
        before, start = self.processors.used(), time.perf_counter()
        run(self.out)
        wall, used = time.perf_counter() - start, self.processors.used() - before
        written = digests(self.out)
        self.expected = self.expected or written
        same = written == self.expected
        self.same &= same
        print(
            f"{engine}: {'the same' if same else 'OTHER'} {len(written)} files, "
            f"{used:.0f} s of processors, {wall:.0f} s of the clock, "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        return used


def compare_ray(comparison: Comparison, scoring: Scoring, local: float) -> None:
    """Runs by Ray without and with kills; `local` are the processor seconds of the local run."""
    before = comparison.processors.used()
    cluster = RayCluster(scoring.workers)
    start = comparison.processors.used() - before
    print(f"start of the Ray cluster: {start:.0f} s of processors")
    try:
        by_ray = "--engine", "ray", "--address", cluster.address, *scoring.workers_option
        ray = comparison.measure("Ray", lambda out: scoring.finish(out, *by_ray))
        print(f"Ray without kills: {ray / local - 1:+.1%} of the processors' time", flush=True)
        comparison.measure(
            "Ray, a node and then the driver killed",
            lambda out: run_ray(scoring, out, cluster),
        )
    finally:
        cluster.end()


def read_options() -> tuple[argparse.Namespace, set[str]]:
    """The options, and the engines to compare with the local one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--horizons", default="1-30")
    parser.add_argument("--engines", default="ray,shards,s3", help="those besides local")
    parser.add_argument("--more", default="", help="further options of `saga score`")
    parser.add_argument("--folder", type=Path, help="where the outputs are written and removed")
    args = parser.parse_args()
    engines = set(args.engines.split(","))
    if unknown := engines - {"ray", "shards", "s3"}:
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}")
    return args, engines


def main() -> None:
    """Print a line for each engine; exit code 1 if the bytes of one differ."""
    args, engines = read_options()
    options = ["--product", "forecasts", "--horizons", args.horizons, *shlex.split(args.more)]
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        comparison = Comparison(folder / "out")
        generate_register(folder / "in", RegisterSettings(persons=args.persons, seed=7))
        scoring = Scoring(folder / "in", args.workers, options)
        local = comparison.measure(
            "local", lambda out: scoring.finish(out, *scoring.workers_option)
        )
        if "ray" in engines:
            compare_ray(comparison, scoring, local)
        if "shards" in engines:
            comparison.measure(f"{SHARDS} shards and a merge", lambda out: run_shards(scoring, out))
        program = os.environ.get("SAGA_S3RVER")
        if "s3" in engines and program:
            with s3_server(program, folder / "objects") as restart:
                comparison.measure(
                    "S3, the server killed and started again",
                    lambda out: run_on_store(scoring, restart, out),
                )
        elif "s3" in engines:
            print("S3: not tried, SAGA_S3RVER does not name a server")
    sys.exit(0 if comparison.same else 1)


if __name__ == "__main__":
    main()
