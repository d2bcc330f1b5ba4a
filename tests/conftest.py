"""Fixtures of a session: a small register, a bundle trained and calibrated on it, a service."""

from __future__ import annotations

import asyncio
import faulthandler
import io
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from filelock import FileLock

# The process that only hands out tests loads this file too, and needs no library of the product.
if TYPE_CHECKING:
    from fastapi import FastAPI
    from saga.api.settings import Settings

    from saga.data.panel import Panel
    from saga.forecaster import Forecaster

MAX_ORIGINS = "saga.calibration.fit.bundle_calibration.MAX_ORIGINS"
_END_SECONDS = 120
_STOP_SECONDS = 300  # of a service, on a machine that has much else to do
SharedFolder = Callable[[str, Callable[[Path], object]], Path]

# A process in the background of a shell ignores Ctrl-C, and so would the commands that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """A process that does not end prints where it hangs (a test: `faulthandler_timeout`)."""
    faulthandler.dump_traceback_later(_END_SECONDS, exit=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process ends long after the others.

    One of them makes the bundle that many files share; meanwhile the others need none.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    sharing = {item.path for item in items if "tiny_bundle" in getattr(item, "fixturenames", ())}
    first = next((item.path for item in items if item.path in slow & sharing), None)

    def place(item: pytest.Item) -> int:
        if item.path == first:
            return 0
        if item.path in slow:
            return 2 if item.path in sharing else 1
        return 3 if item.path in sharing else 4

    items.sort(key=place)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> SharedFolder:
    """Makes a folder once for all processes of a run; no test may change it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def shared(name: str, make: Callable[[Path], object]) -> Path:
        folder = root / f"shared-{name}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                unfinished = tmp_path_factory.mktemp(name)
                make(unfinished / name)
                unfinished.rename(folder)
        return folder / name

    return shared


@contextmanager
def quick_calibration() -> Iterator[None]:
    """Calibration with two origins a person and an eighth of the macro futures.

    Forecasts have all futures again afterwards.
    """
    from saga.simulation import marginals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MAX_ORIGINS, 2)
        patch.setattr(marginals, "_N_DRAWS", 512)
        marginals._nodes.cache_clear()
        try:
            yield
        finally:
            marginals._nodes.cache_clear()


@pytest.fixture(scope="session")
def register_dir(shared_folder: SharedFolder) -> Path:
    """A generated register of 2,000 persons with two true futures."""
    from saga.register.simulation.cohort_simulation import RegisterSettings
    from saga.register.simulation.generation import generate_register

    settings = RegisterSettings(persons=2_000, seed=7, future_to=2042, future_draws=2)
    return shared_folder("register", lambda out: generate_register(out, settings))


@pytest.fixture(scope="session")
def register_panel(register_dir: Path) -> Panel:
    """The register's panel as `read_panel` returns it."""
    from saga.data.reading import read_panel

    return read_panel(register_dir)


@pytest.fixture(scope="session")
def tiny_bundle(shared_folder: SharedFolder, register_panel: Panel) -> Path:
    """A bundle like configuration `tiny`, trained and calibrated briefly on the small register."""
    from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from saga.training.fit import train
    from saga.training.harness import RunOptions
    from saga.training.train_config import load_config

    def make(out: Path) -> None:
        run = RunOptions(command="saga train --config tiny")
        config = replace(load_config("tiny"), max_steps=100, warmup_steps=10, validate_every=50)
        train(register_panel, out, config=config, seed=7, run=run)
        with quick_calibration():
            calibrate_bundle(out, register_panel, CalibrationOptions(seed=7, n_paths=50))

    return shared_folder("tiny", make)


@pytest.fixture(scope="session")
def forecaster(tiny_bundle: Path) -> Forecaster:
    """The tiny bundle, ready to forecast."""
    from saga.forecaster import Forecaster

    return Forecaster.load(tiny_bundle, threads=1)


@pytest.fixture
def two_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration with two origins a person, which takes a fifth of the time of ten."""
    monkeypatch.setattr(MAX_ORIGINS, 2)


@pytest.fixture(scope="session")
def living_bundle(shared_folder: SharedFolder, tiny_bundle: Path, register_panel: Panel) -> Path:
    """The tiny bundle with a state network, trained on the small register."""
    from saga.training.states.state_fit import StateFitOptions, fit_state_network

    def make(out: Path) -> None:
        options = StateFitOptions(width=16, steps=60)
        fit_state_network(tiny_bundle, register_panel, out=out, options=options, seed=7)

    return shared_folder("living", make)


@dataclass(frozen=True)
class Running:
    """A running service: its address, a client for it, its settings and its log."""

    url: str
    client: httpx.Client
    settings: Settings
    log: io.StringIO

    def wait_until_ready(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while (answer := self.client.get("/readyz")).status_code != 200:
            assert answer.json()["type"] == "urn:saga:problem:loading", answer.text
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)

    def forecast(self, body: dict[str, Any]) -> httpx.Response:
        return self.client.post("/v1/forecasts", json=body)


Start = Callable[..., AbstractContextManager[Running]]


def _stacks(loops: list[asyncio.AbstractEventLoop]) -> str:
    """Where all threads of this process are, and all tasks of these loops."""
    text, names = io.StringIO(), {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        print(f"\nThread {names.get(ident)}", file=text)
        traceback.print_stack(frame, file=text)
    for task in (task for loop in loops for task in asyncio.all_tasks(loop)):
        print(f"\n{task}", file=text)
        waiting: Any = task.get_coro()
        while suspended := getattr(waiting, "cr_frame", None):
            traceback.print_stack(suspended, limit=1, file=text)
            waiting = waiting.cr_await
    return text.getvalue()


@contextmanager
def _running(
    settings: Settings, change: Callable[[FastAPI], None] = lambda _: None, *, ready: bool = True
) -> Iterator[Running]:
    import uvicorn
    from saga.api.app import create_app
    from saga.api.server import open_socket, server_config

    log = io.StringIO()
    loops: list[asyncio.AbstractEventLoop] = []

    def make_app() -> FastAPI:
        loops.append(asyncio.get_running_loop())
        app = create_app(settings, log=log)
        change(app)
        return app

    with open_socket("127.0.0.1", 0) as listener:
        server = uvicorn.Server(server_config(make_app, settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=60) as client:
            started = Running(url, client, settings, log)
            try:
                if ready:
                    started.wait_until_ready()
                yield started
            finally:
                server.should_exit = True
                thread.join(_STOP_SECONDS)
                assert not thread.is_alive(), f"the service does not end{_stacks(loops)}"


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Finds a port of the loopback on which nothing listens."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])

    return find


@pytest.fixture(scope="session")
def start() -> Callable[..., AbstractContextManager[Running]]:
    """Starts a service with given settings, and a change of its app; waits until it is ready."""
    return _running


@pytest.fixture(scope="session")
def service(tiny_bundle: Path) -> Iterator[Running]:
    """A ready service on the tiny bundle, without keys."""
    from saga.api.settings import Settings

    with _running(Settings(bundle=tiny_bundle, threads=1)) as started:
        yield started
