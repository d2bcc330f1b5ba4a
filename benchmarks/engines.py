"""Do all engines write the same bytes of a large register, killed on the way, and how fast?

    python benchmarks/engines.py [--persons 200000] [--workers 2] [--repeats 1] [--horizons 1-30]
        [--folder FOLDER]

Forecasts of the persons of a generated register by `saga score`: local, by seven shards and a
merge, and by Ray with a worker and then the driver killed. If SAGA_S3RVER names an S3 server
(`npm install s3rver`, `node_modules/.bin/s3rver`), also from and to it, with the server killed and
started again. All files of each run must be those of the local run. Ray is also run without kills,
in turns with the local engine; its overhead is the ratio of the fastest wall times of --repeats.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
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
SCORE = [str(Path(sys.executable).with_name("saga")), "score"]


class Scoring:
    """The command of one run, and what it writes."""

    def __init__(self, source: Path, folder: Path, workers: int, horizons: str) -> None:
        self.source, self.folder, self.workers = source, folder, workers
        self.options = ["--product", "forecasts", "--horizons", horizons, "--json"]

    def start(
        self, out: str | Path, *more: str, source: str | None = None
    ) -> subprocess.Popen[bytes]:
        """A process of `saga score`, with its workers in a group of their own."""
        line = [*SCORE, source or str(self.source), str(out), *self.options, *more]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True)

    def finish(self, out: str | Path, *more: str, source: str | None = None) -> float:
        """Seconds of a run that must succeed."""
        start = time.perf_counter()
        _require_success(self.start(out, *more, source=source))
        return time.perf_counter() - start

    @property
    def by_workers(self) -> list[str]:
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
    subprocess.run([*SCORE, "--merge", str(out)], check=True, stdout=subprocess.DEVNULL)


def run_ray(scoring: Scoring, out: Path) -> None:
    """Ray, with a worker killed after some parts and then the driver, and the same command."""
    options = ["--engine", "ray", *scoring.by_workers]
    driver = scoring.start(out, *options)
    _await_parts(driver, lambda: len(list(out.glob("_receipts/*.json"))), 2)
    worker = _ray_worker(driver)
    os.kill(worker, signal.SIGKILL)
    reached = len(list(out.glob("_receipts/*.json"))) + 2
    _await_parts(driver, lambda: len(list(out.glob("_receipts/*.json"))), reached)
    driver.kill()
    driver.wait()
    with suppress(ProcessLookupError):  # the cluster of the driver, as on a machine that stops
        os.killpg(driver.pid, signal.SIGKILL)
    scoring.finish(out, *options)


def _await_parts(process: subprocess.Popen[bytes], count: Callable[[], int], parts: int) -> None:
    while count() < parts:
        if process.poll() is not None:
            raise SystemExit("the run ended before it could be killed: give more --persons")
        time.sleep(0.2)


def _ray_worker(driver: subprocess.Popen[bytes]) -> int:
    """A process of the driver's session that writes partitions."""
    for _ in range(600):
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if b"_RayWorker" in (entry / "cmdline").read_bytes() and os.getsid(
                    int(entry.name)
                ) in (driver.pid, *_sessions_below(driver.pid)):
                    return int(entry.name)
        time.sleep(0.1)
    raise SystemExit("Ray has no worker")


def _sessions_below(pid: int) -> set[int]:
    """The sessions of all processes that a process started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    sessions = set()
    for process in below:
        with suppress(OSError):
            sessions.add(os.getsid(process))
    return sessions


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
        servers[:] = [subprocess.Popen([program, *place, "--configure-bucket", "register"])]
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
    process = scoring.start("s3://register/out", *scoring.by_workers, source=url)
    _await_parts(process, lambda: len(obstore.list(out, "_receipts").collect()), 2)
    restart()
    _require_success(process)
    for entry in obstore.list(out).collect():
        target = copy / entry["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(obstore.get(out, entry["path"]).bytes()))


def _store(folder: str) -> ObjectStore:
    return from_url(f"s3://register/{folder}", client_options={"allow_http": True})


def main() -> None:
    """Print a line for each engine; exit code 1 if the bytes of one differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--horizons", default="1-30")
    parser.add_argument("--folder", type=Path, help="where the outputs are written and removed")
    args = parser.parse_args()
    same = True
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        generate_register(folder / "in", RegisterSettings(persons=args.persons, seed=7))
        scoring = Scoring(folder / "in", folder, args.workers, args.horizons)
        fastest = {"local": float("inf"), "ray": float("inf")}
        for _ in range(args.repeats):
            for engine in fastest:
                out = folder / engine
                shutil.rmtree(out, ignore_errors=True)
                seconds = scoring.finish(out, "--engine", engine, *scoring.by_workers)
                fastest[engine] = min(fastest[engine], seconds)
        expected = digests(folder / "local")
        print(f"local: {fastest['local']:.0f} s, {len(expected)} files", flush=True)

        def compare(engine: str, out: Path) -> None:
            nonlocal same
            equal = digests(out) == expected
            same &= equal
            print(f"{engine}: {'the same' if equal else 'OTHER'} bytes", flush=True)

        compare("Ray", folder / "ray")
        print(f"Ray without kills: {fastest['ray'] / fastest['local'] - 1:+.1%} wall time")
        run_shards(scoring, folder / "shards")
        compare(f"{SHARDS} shards and a merge", folder / "shards")
        run_ray(scoring, folder / "killed")
        compare("Ray, a worker and then the driver killed", folder / "killed")
        if program := os.environ.get("SAGA_S3RVER"):
            with s3_server(program, folder / "objects") as restart:
                run_on_store(scoring, restart, folder / "store")
            compare("S3, the server killed and started again", folder / "store")
        else:
            print("S3: not tried, SAGA_S3RVER does not name a server")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
