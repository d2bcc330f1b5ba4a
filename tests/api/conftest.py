"""A service on a free port, asked over real HTTP."""

from __future__ import annotations

import io
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
from api.server import _listen
from api.settings import Settings


@dataclass(frozen=True)
class Running:
    """A service that answers: a client for it, its OpenAPI-bearing address, its settings and what it has logged."""

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
    with _listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(create_app(settings, log=log), log_level="critical", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=60) as client:
            try:
                yield Running(url, client, settings, log)
            finally:
                server.should_exit = True
                thread.join()


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


@pytest.fixture
def person() -> Callable[..., dict[str, Any]]:
    """Makes a valid person; keyword arguments replace entries."""

    def make(person_id: str = "A1", **changes: Any) -> dict[str, Any]:
        history = [{"year": year, "earnings": 250_000.0 + 9_000 * (year - 2015)} for year in (2015, 2016, 2018, 2019, 2022)]
        return {"person_id": person_id, "birth_year": 1984, "sex": "female", "history": history, **changes}

    return make
