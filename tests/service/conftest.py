"""A service in a process of its own, and the table of figures that the suite prints."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.waiting import awaited

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """One acceptance figure: what is measured, its bound and the measured value."""

    name: str
    bound: str
    measured: str
    holds: bool


@dataclass
class Figures:
    """The figures of a run, in the order in which they were measured."""

    rows: list[Figure] = field(default_factory=list)

    def at_most(self, name: str, measured: float, bound: float, unit: str = "") -> None:
        """Note a figure that must not exceed its bound."""
        self._note(name, f"<= {bound:g} {unit}", f"{measured:.4g} {unit}", measured <= bound)

    def at_least(self, name: str, measured: float, bound: float, unit: str = "") -> None:
        """Note a figure that must reach its bound."""
        self._note(name, f">= {bound:g} {unit}", f"{measured:.4g} {unit}", measured >= bound)

    def context(self, name: str, measured: float, unit: str = "") -> None:
        """Note a figure that has no bound, to compare others with."""
        self._note(name, "", f"{measured:.4g} {unit}", True)

    def _note(self, name: str, bound: str, measured: str, holds: bool) -> None:
        self.rows.append(Figure(name, bound.strip(), measured.strip(), holds))


_FIGURES = Figures()


@pytest.fixture
def figures() -> Iterator[Figures]:
    """The table that the run prints at its end; the test fails if one of its figures does."""
    start = len(_FIGURES.rows)
    yield _FIGURES
    failures = [row for row in _FIGURES.rows[start:] if not row.holds]
    assert not failures, "\n".join(f"{f.name}: {f.measured}, needed {f.bound}" for f in failures)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _FIGURES.rows:
        return
    write = terminalreporter.write_line
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    write(f"\nAcceptance of the service, {os.cpu_count()} cores, load {load}, {platform.machine()}")
    for row in _FIGURES.rows:
        verdict = ("holds" if row.holds else "FAILS") if row.bound else "-"
        write(f"{verdict:5}  {row.name:70} {row.bound:>14}  {row.measured}")


def slowness() -> float:
    """How many times as long a loop of Python takes as on a core of a recent server, at least 1.

    Bounds in milliseconds are those of such a core, where two million rounds take .06 seconds.
    """

    def seconds() -> float:
        start, total = time.process_time(), 0
        for number in range(2_000_000):
            total += number & 7
        return time.process_time() - start

    return max(1.0, min(seconds() for _ in range(5)) / 0.06)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    pids: list[int] = []
    with suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                pids += [child, *descendants(child)]
    return pids


def resident_mb(pid: int) -> float:
    """Resident memory of a process and all that it has started."""
    total = 0
    for number in (pid, *descendants(pid)):
        try:
            text = Path(f"/proc/{number}/status").read_text()
        except OSError:
            continue
        total += sum(int(row.split()[1]) for row in text.splitlines() if row.startswith("VmRSS"))
    return total / 1024


@dataclass(frozen=True)
class Served:
    """A service in its own process: its address, process number and log."""

    url: str
    pid: int
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, **options)

    def cpu_seconds(self) -> float:
        """CPU seconds of the process of the service."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mb(self) -> float:
        """Resident memory of the service and all that it has started, in MB."""
        return resident_mb(self.pid)

    def log_lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def log_events(self) -> list[dict[str, Any]]:
        """The lines of the log, each of which is JSON but for the command's own word."""
        return [json.loads(line) for line in self.log_lines() if line not in ("", "Stopped.")]

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


@contextmanager
def _serve(log: Path, *options: str, **settings: str) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    bundle = os.environ.get("SAGA_BUNDLE", str(ROOT / "bundles" / "small"))
    variables = {f"SAGA_{name.upper()}": value for name, value in settings.items()}
    program = [sys.executable, "-c", "from saga.cli import main; main()"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*program, "serve", "--bundle", bundle, "--port", str(port), *options],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            env={**os.environ, "OMP_NUM_THREADS": "1", "RUST_BACKTRACE": "1", **variables},
        )
    served = Served(f"http://127.0.0.1:{port}", process.pid, log)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()[-2_000:]
        with suppress(httpx.TransportError):
            return httpx.get(f"{served.url}/readyz", timeout=5).status_code == 200
        return False

    try:
        awaited(is_ready, 600)
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def serve(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., AbstractContextManager[Served]]:
    """Starts a service; keyword arguments are settings without their prefix."""
    folder = tmp_path_factory.mktemp("served")

    def start(*options: str, **settings: str) -> AbstractContextManager[Served]:
        return _serve(folder / f"log{len(list(folder.iterdir()))}.jsonl", *options, **settings)

    return start


@pytest.fixture(scope="module")
def served(serve: Callable[..., AbstractContextManager[Served]]) -> Iterator[Served]:
    """A ready service without keys and with the default settings."""
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def ledger_served(
    serve: Callable[..., AbstractContextManager[Served]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A ready service with a ledger, without keys."""
    ledger = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    with serve(database=f"sqlite:///{ledger}") as running:
        yield running


def make_person(person_id: str = "A1", years: int = 8) -> dict[str, Any]:
    """A valid person with a record of some years."""
    history = [{"year": 2022 - back, "earnings": 250_000.0 + 9_000 * back} for back in range(years)]
    return {"person_id": person_id, "birth_year": 1984, "sex": "female", "history": history[::-1]}
