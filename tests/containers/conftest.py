"""A container engine, the images of this checkout, and a key file."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HARDENED = "--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges"
Engine = Callable[..., str]


def _is_available(engine: str) -> bool:
    return (
        bool(shutil.which(engine))
        and subprocess.run([engine, "info"], capture_output=True, timeout=60).returncode == 0
    )


@pytest.fixture(scope="session")
def name() -> str:
    """The name of the engine; podman first, because `docker` may be a wrapper of it."""
    available = next((engine for engine in ("podman", "docker") if _is_available(engine)), None)
    if available is None:
        pytest.skip(
            "neither `podman info` nor `docker info` answers: there is no container engine here"
        )
    return available


@pytest.fixture(scope="session")
def engine(name: str) -> Engine:
    """Runs a command line of the engine, checks the exit code and returns the output."""

    def call(arguments: str, *, code: int = 0, with_errors: bool = False) -> str:
        line = [name, *shlex.split(arguments)]
        done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=1800)
        assert done.returncode == code, (
            f"{shlex.join(line)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
        return done.stdout + done.stderr if with_errors else done.stdout

    return call


def run_compose(line: list[str], arguments: str, settings: Mapping[str, str]) -> str:
    """Runs a command of `docker compose`, checks the exit code and returns what it prints."""
    done = subprocess.run(
        [*line, *arguments.split()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | settings,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def has_compose() -> None:
    """Skips a test where there is no `docker compose`."""
    version = ["docker", "compose", "version"]
    if not shutil.which("docker") or subprocess.run(version, capture_output=True).returncode:
        pytest.skip("there is no `docker compose`")


@pytest.fixture(scope="session")
def build(engine: Engine, name: str) -> Callable[[str], str]:
    """Builds a target once per session and returns the name of the image."""
    built: dict[str, str] = {}

    def image(target: str) -> str:
        if target not in built:
            # Podman's own image format has no health check.
            form = "--format docker" if name == "podman" else ""
            extra = os.environ.get("CONTAINER_BUILD_ARGS", "")
            tag = f"--target {target} -t saga-{target}"
            engine(f"build {form} {extra} {tag} -f docker/Dockerfile .")
            built[target] = f"saga-{target}"
        return built[target]

    return image


@pytest.fixture
def key_file(engine: Engine, build: Callable[[str], str], tmp_path: Path) -> tuple[Path, str]:
    """A key file, and the key whose hash it has."""
    key_facts = json.loads(engine(f"run --rm {HARDENED} {build('api')} keys create tester --json"))
    keys = tmp_path / "keys.txt"
    keys.write_text(key_facts["line"] + "\n")
    return keys, key_facts["key"]
