"""Fixtures of a session: a small register, a bundle trained and calibrated on it, a service."""

from __future__ import annotations

import io
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from api.app import create_app
from api.server import open_socket, server_config
from api.settings import Settings
from saga.data.panel import Panel
from saga.data.reading import read_panel

# A process in the background of a shell ignores Ctrl-C, and so would the commands that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def register_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated register of 2,000 persons with two true futures."""
    from saga.register.simulation.cohort_simulation import RegisterSettings
    from saga.register.simulation.generation import generate_register

    out = tmp_path_factory.mktemp("register") / "register"
    generate_register(out, RegisterSettings(persons=2_000, seed=7, future_to=2042, future_draws=2))
    return out


@pytest.fixture(scope="session")
def register_panel(register_dir: Path) -> Panel:
    """The register's panel as `read_panel` returns it."""
    return read_panel(register_dir)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory, register_panel: Panel) -> Path:
    """A bundle of configuration `tiny`, trained and calibrated on the small register."""
    from calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from training.fit import train
    from training.harness import RunOptions

    out = tmp_path_factory.mktemp("bundle") / "tiny"
    train(
        register_panel,
        out,
        config="tiny",
        seed=7,
        run=RunOptions(command="saga train --config tiny", progress=False),
    )
    calibrate_bundle(out, register_panel, CalibrationOptions(seed=7, n_paths=50))
    return out


@pytest.fixture(scope="session")
def living_bundle(
    tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path, register_panel: Panel
) -> Path:
    """The tiny bundle with a state network, trained on the small register."""
    from training.states.state_fit import fit_state_network
    from training.states.state_module import StateFitOptions

    out = tmp_path_factory.mktemp("living") / "tiny"
    fit_state_network(
        tiny_bundle,
        register_panel,
        out=out,
        options=StateFitOptions(width=32, steps=150),
        seed=7,
        progress=False,
    )
    return out


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


@contextmanager
def _running(settings: Settings) -> Iterator[Running]:
    log = io.StringIO()
    with open_socket("127.0.0.1", 0) as listener:
        server = uvicorn.Server(server_config(lambda: create_app(settings, log=log), settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=60) as client:
            try:
                yield Running(url, client, settings, log)
            finally:
                server.should_exit = True
                thread.join()


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Finds a port of the loopback on which nothing listens."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])

    return find


@pytest.fixture(scope="session")
def start() -> Callable[[Settings], AbstractContextManager[Running]]:
    """Starts a service with given settings; it may not be ready yet."""
    return _running


@pytest.fixture(scope="session")
def service(tiny_bundle: Path) -> Iterator[Running]:
    """A ready service on the tiny bundle, without keys."""
    with _running(Settings(bundle=tiny_bundle, threads=1)) as started:
        started.wait_until_ready()
        yield started
