"""The base images are pinned by digest, and compose and the Dockerfiles take the pins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import yaml

from tests.containers.conftest import ROOT

PIN = re.compile(r"(?P<name>[a-z]+):(?P<tag>[\w.-]+)@sha256:[0-9a-f]{64}")
LINES = (ROOT / "docker" / "base-images.env").read_text().splitlines()
PINS = dict(line.split("=", 1) for line in LINES if line and not line.startswith("#"))
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DEFAULTS = dict(re.findall(r"\$\{(SAGA_\w+_IMAGE):-([^}]+)\}", COMPOSE))


@pytest.mark.parametrize("variable", sorted(DEFAULTS))
def test_a_pin_is_a_build_of_the_tag_that_is_the_default(variable: str) -> None:
    pin = PIN.fullmatch(PINS[variable])
    assert pin, PINS[variable]
    name, tag = DEFAULTS[variable].split(":")
    version, *rest = tag.split("-")
    assert pin["name"] == name
    pinned_version, *pinned_rest = pin["tag"].split("-")
    assert f"{pinned_version}.".startswith(f"{version}.")
    assert not rest or rest == pinned_rest


def test_no_pin_is_without_effect() -> None:
    assert set(PINS) == set(DEFAULTS)


def test_every_stage_starts_from_a_base_that_is_pinned() -> None:
    for dockerfile in ("docker/Dockerfile", "docker/proxy/Dockerfile"):
        text = (ROOT / dockerfile).read_text()
        stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?", text, re.M)
        bases = {f"${{{name}}}" for name in re.findall(r"^ARG (\w+_IMAGE)=", text, re.M)}
        named = {name for _, name in stages}
        assert stages
        assert {base for base, _ in stages} <= bases | named


def test_compose_builds_every_image_of_ours_from_the_pins() -> None:
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
def test_compose_resolves_every_base_to_its_digest() -> None:
    if not shutil.which("docker"):
        pytest.skip("there is no `docker compose`")
    line = (
        "docker compose --env-file docker/base-images.env --profile production --profile batch "
        "--profile ray --profile train config"
    )
    environment = os.environ | {"SAGA_POSTGRES_PASSWORD": "x"}
    done = subprocess.run(line.split(), capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"].values()
    used = {base for s in services for base in s.get("build", {}).get("args", {}).values()}
    assert used | {s["image"] for s in services if "postgres" in s["image"]} == set(PINS.values())
