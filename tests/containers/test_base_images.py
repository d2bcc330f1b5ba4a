"""Base images are pinned by digest, in the Dockerfiles and in compose alike."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
import yaml

from tests.containers.conftest import ROOT

PIN = re.compile(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}")
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DEFAULTS = dict(re.findall(r"\$\{(SAGA_\w+_IMAGE):-([^}]+)\}", COMPOSE))


def test_every_base_image_is_a_digest() -> None:
    assert DEFAULTS.keys() == {f"SAGA_{name}_IMAGE" for name in ("PYTHON", "CADDY", "POSTGRES")}
    for image in DEFAULTS.values():
        assert PIN.fullmatch(image), image


def test_every_stage_starts_from_a_base_that_is_pinned() -> None:
    for dockerfile in ("docker/Dockerfile", "docker/proxy/Dockerfile"):
        text = (ROOT / dockerfile).read_text()
        stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?", text, re.M)
        bases = {f"${{{name}}}" for name in re.findall(r"^ARG (\w+_IMAGE)=", text, re.M)}
        named = {name for _, name in stages}
        assert stages
        assert {base for base, _ in stages} <= bases | named


def test_compose_builds_every_image_of_ours_from_the_pins_of_its_dockerfile() -> None:
    services = yaml.safe_load(COMPOSE)["services"].values()
    builds = [service["build"] for service in services if "build" in service]
    assert builds
    for build in builds:
        text = (ROOT / build.get("dockerfile", f"{build['context']}/Dockerfile")).read_text()
        defaults = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)", text, re.M))
        assert build["args"] == {
            name: f"${{SAGA_{name}:-{default}}}" for name, default in defaults.items()
        }


@pytest.mark.containers
@pytest.mark.usefixtures("has_compose")
def test_compose_resolves_every_base_to_its_digest() -> None:
    line = (
        "docker compose --profile production --profile batch --profile ray --profile train config"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_IMAGE")}
    environment |= {"SAGA_POSTGRES_PASSWORD": "x"}
    done = subprocess.run(line.split(), capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"].values()
    used = {base for s in services for base in s.get("build", {}).get("args", {}).values()}
    assert used | {s["image"] for s in services if "postgres" in s["image"]} == {*DEFAULTS.values()}
