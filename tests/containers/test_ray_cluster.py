"""The profile `ray`: a cluster of containers writes the bytes of one process, whatever is killed.

The containers are in the compose file's own network, which is internal: no port is open to others.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import yaml

from tests.containers.conftest import HARDENED, ROOT, Engine, run_compose
from tests.waiting import awaited

pytestmark = pytest.mark.containers
_PATIENCE = 600.0  # seconds; on a busy machine Ray needs minutes to start
_OPTIONS = "--product lifetimes --paths 50 --persons-per-partition 4"
_PARTS = 40


@dataclass(frozen=True)
class Cluster:
    """A running head with two workers, and where its runs write."""

    line: list[str]
    environment: dict[str, str]
    out: Path

    def compose(self, arguments: str) -> str:
        return run_compose(self.line, arguments, self.environment)

    def start_run(self) -> subprocess.Popen[str]:
        """A process of the service ray-score."""
        run = f"run --rm -T ray-score /input /output {_OPTIONS} --workers 2"
        return subprocess.Popen(
            [*self.line, *run.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )

    def await_parts(self, run: subprocess.Popen[str], parts: int) -> None:
        def are_there() -> bool:
            assert run.poll() is None, run.stdout and run.stdout.read()
            return len(list(self.out.glob("_receipts/*.json"))) >= parts

        awaited(are_there, _PATIENCE)

    def containers(self, service: str) -> list[str]:
        """The running containers of a service, those of `run` included."""
        label = f"label=com.docker.compose.service={service}"
        project = f"label=com.docker.compose.project={self.line[3]}"
        line = ["docker", "ps", "-q", "--filter", label, "--filter", project]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return done.stdout.split()


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray") / "panel"
    folder.mkdir()
    fixed = {"birth_year": 1970, "sex": "female"}
    pl.DataFrame(
        [
            {"person_id": f"{i:03d}", **fixed, "year": year, "earnings": 2e5 + 1e3 * i}
            for i in range(4 * _PARTS)
            for year in (2018, 2019, 2022)
        ]
    ).write_csv(folder / "panel.csv")
    return folder


@pytest.fixture
def cluster(
    build: Callable[[str], str], has_compose: None, panel: Path, tmp_path: Path
) -> Iterator[Cluster]:
    build("ray")
    token, keys, out = tmp_path / "token", tmp_path / "keys", tmp_path / "out"
    token.write_text(secrets.token_hex(32))
    keys.touch()
    out.mkdir()
    line = ["docker", "compose", "-p", f"saga-ray-{os.getpid()}", "--profile", "ray"]
    settings = {
        "SAGA_INPUT": str(panel),
        "SAGA_OUTPUT": str(out),
        "SAGA_USER": f"{os.getuid()}:{os.getgid()}",
        "SAGA_RAY_TOKEN_FILE": str(token),
        "SAGA_KEYS_FILE": str(keys),
    }
    started = Cluster(line, os.environ | settings, out)
    try:
        started.compose("up -d --no-build --pull never ray-worker")
        yield started
    finally:
        started.compose("down -v --remove-orphans")


def _kill(engine: Engine, container: str) -> None:
    """End the container's first process, as if its machine lost power."""
    os.kill(int(json.loads(engine(f"inspect {container}"))[0]["State"]["Pid"]), signal.SIGKILL)


def _bytes(out: Path) -> dict[str, bytes]:
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "_lock"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_a_killed_worker_and_a_killed_run_leave_the_bytes_of_one_process(
    engine: Engine, cluster: Cluster, panel: Path, tmp_path: Path
) -> None:
    with cluster.start_run() as run:
        cluster.await_parts(run, 4)
        _kill(engine, cluster.containers("ray-worker")[0])
        cluster.await_parts(run, 12)
        (container,) = cluster.containers("ray-score")
        _kill(engine, container)
        run.wait(_PATIENCE)  # its exit code is lost between compose and podman
    assert not (cluster.out / "_MANIFEST.json").exists()
    with cluster.start_run() as run:
        said = run.communicate(timeout=_PATIENCE)[0]
    assert (cluster.out / "_MANIFEST.json").exists(), said
    manifest = json.loads((cluster.out / "_MANIFEST.json").read_text())
    assert manifest["totals"]["partitions"] == _PARTS
    alone = tmp_path / "alone"
    alone.mkdir()
    mounts = f"-v {panel}:/input:ro -v {alone}:/output --user {os.getuid()}:{os.getgid()}"
    engine(f"run --rm {HARDENED} {mounts} saga-ray saga score /input /output {_OPTIONS}")
    assert _bytes(cluster.out) == _bytes(alone)


def test_no_port_of_the_cluster_is_open_to_other_networks() -> None:
    """Who reaches a port of Ray can run code on it."""
    settings = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = {
        name: service
        for name, service in settings["services"].items()
        if service.get("profiles") == ["ray"]
    }
    assert set(services) == {"ray-head", "ray-worker", "ray-score"}
    for service in services.values():
        assert service["networks"] == ["ray"]
        assert "ports" not in service
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
    assert settings["networks"]["ray"]["internal"]
