"""The profile `production`: TLS proxy, service, job worker and PostgreSQL survive `kill -9`.

The images caddy:2 and postgres:15 are pulled. Where no registry can be reached, a stand-in for
caddy:2 is made from Debian's package (caddy.Containerfile), and a local image postgres:15 is used
if there is one. All containers are on the host's loopback, so that the test opens no port to the
network; the compose file's own network and published ports are therefore not tested.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from saga.client import Client, Retries
from saga.requests import ForecastRequest
from tests.containers.conftest import ROOT, Engine, run_compose
from tests.waiting import awaited

pytestmark = pytest.mark.containers
_PATIENCE = 600.0  # seconds; two busy cores load the bundle in some minutes
_PASSWORD = "3f1c0d5e7a9b"
_SERVICES = ("proxy", "db", "jobs", "api")
PERSONS = pl.DataFrame(
    [
        {"person_id": f"{i:02d}", "year": year, "birth_year": 1970 + i, "earnings": 2e5 + 1e4 * i}
        for i in range(20)
        for year in (2018, 2019, 2022)
    ]
)
_LOOPBACK = """
services:
  api:
    network_mode: host
    ports: !reset []
    healthcheck: # podman divides an argument at its spaces, so it has none
      test: [CMD, python, -c, "__import__('urllib.request').request.urlopen('http://127.0.0.1:{api}/readyz')"]
      start_period: 600s
      retries: 600
    environment: &service
      SAGA_HOST: 127.0.0.1
      SAGA_PORT: "{api}"
      SAGA_DATABASE: postgresql://saga:{password}@127.0.0.1:{db}/saga
      SAGA_JOBS_DATABASE: postgresql://saga:{password}@127.0.0.1:{db}/saga
  jobs:
    network_mode: host
    environment: *service
  ledger-key:
    network_mode: host
  db:
    network_mode: host
    tmpfs: !override [/tmp]
    command: [postgres, -c, unix_socket_directories=/tmp]
    environment: {{PGPORT: "{db}", PG_LISTEN: 127.0.0.1}}
  proxy:
    network_mode: host
    ports: !reset []
    environment:
      SAGA_TLS_LISTEN: "{proxy}"
      SAGA_TLS_BIND: 127.0.0.1
      SAGA_UPSTREAM: 127.0.0.1:{api}
"""


@dataclass(frozen=True)
class Production:
    """The running profile: commands of compose, the address, the key and the authority."""

    compose: Callable[[str], str]
    url: str
    key: str
    tls: ssl.SSLContext

    def client(self) -> Client:
        retries = Retries(seconds=_PATIENCE)
        return Client(self.url, self.key, retries=retries, tls=self.tls)


def _pull(name: str, image: str) -> bool:
    """Whether the image is here, after trying to pull it."""
    here = [name, "image", "inspect", image]
    if subprocess.run(here, capture_output=True).returncode == 0:
        return True
    pull = [name, "pull", "-q", image]
    return subprocess.run(pull, capture_output=True, timeout=600).returncode == 0


@pytest.fixture(scope="module")
def images(engine: Engine, name: str, build: Callable[[str], str]) -> None:
    """The images of the profile."""
    if not _pull(name, "postgres:15"):
        pytest.skip("there is no image postgres:15")
    build("api")
    form = "--format docker" if name == "podman" else ""
    base = "caddy:2"
    if not _pull(name, base):
        base = "localhost/saga-test-caddy"
        stand_in = ROOT / "tests" / "containers" / "caddy.Containerfile"
        engine(f"build {form} -t {base} -f {stand_in} {stand_in.parent}")
    engine(f"build {form} --build-arg CADDY_IMAGE={base} -t saga-proxy docker/proxy")


@pytest.fixture
def production(
    engine: Engine,
    images: None,
    has_compose: None,
    key_file: tuple[Path, str],
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Iterator[Production]:
    """The profile, healthy."""
    keys, key = key_file
    keys.chmod(0o644)
    ports = {service: free_port() for service in ("api", "db", "proxy")}
    override = tmp_path / "loopback.yml"
    override.write_text(_LOOPBACK.format(password=_PASSWORD, **ports))
    project = f"saga-production-{os.getpid()}"
    line = (
        f"docker compose -p {project} -f docker-compose.yml -f {override} --profile production"
    ).split()
    settings = {
        "SAGA_KEYS_FILE": str(keys),
        "SAGA_POSTGRES_PASSWORD": _PASSWORD,
        "SAGA_POSTGRES_IMAGE": "postgres:15",
    }

    def compose(arguments: str) -> str:
        return run_compose(line, arguments, settings)

    try:
        compose(f"up -d --no-build --pull never --wait --wait-timeout {_PATIENCE:.0f}")
        root = tmp_path / "root.crt"
        container = compose("ps -q proxy").strip()
        authority = "/var/lib/proxy/caddy/pki/authorities/local/root.crt"
        engine(f"cp {container}:{authority} {root}")
        tls = ssl.create_default_context(cafile=str(root))
        yield Production(compose, f"https://localhost:{ports['proxy']}", key, tls)
    finally:
        compose("down -v")


def _process(engine: Engine, container: str) -> int:
    return int(json.loads(engine(f"inspect {container}"))[0]["State"]["Pid"])


def _await_ledger(production: Production) -> None:
    with httpx.Client(base_url=production.url, verify=production.tls, timeout=30) as http:
        awaited(lambda: http.get("/readyz").json().get("ledger") == "up", _PATIENCE)


def test_production_answers_through_tls_and_survives_kill_9_of_each_container(
    engine: Engine, production: Production
) -> None:
    """After each kill the answers are the same, and jobs sent before and after give one result."""
    request = ForecastRequest(horizons=(1, 5))
    with production.client() as client:
        forecast = client.forecast(PERSONS, request).frame
        expected = client.score(PERSONS, request).frame
        assert_frame_equal(forecast, expected)
        for service in _SERVICES:
            container = production.compose(f"ps -q {service}").strip()
            process = _process(engine, container)
            job = client.submit(PERSONS, request)
            os.kill(process, signal.SIGKILL)
            assert_frame_equal(client.forecast(PERSONS, request).frame, expected)
            job.wait()
            assert_frame_equal(job.result().frame, expected)
            _await_ledger(production)
            state = json.loads(engine(f"inspect {container}"))[0]["State"]
            assert state["Running"], service
            assert state["Pid"] != process, service
    with (
        httpx.Client(base_url=production.url, verify=production.tls) as http,
        pytest.raises(httpx.HTTPStatusError),
    ):
        http.get("/v1/model").raise_for_status()


def test_no_container_of_production_has_rights(engine: Engine, production: Production) -> None:
    for service in _SERVICES:
        container = production.compose(f"ps -q {service}").strip()
        assert engine(f"exec {container} id -u").strip() not in ("", "0"), service
        status = engine(f"exec {container} cat /proc/self/status")
        capabilities = [line for line in status.splitlines() if line.startswith("CapEff")]
        assert int(capabilities[0].split()[1], 16) == 0, service
        engine(f"exec {container} touch /usr/x", code=1)
