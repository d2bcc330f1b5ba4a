"""The images are built and run read-only and without privileges.

`make test-containers` runs these tests with podman or docker. CONTAINER_BUILD_ARGS adds arguments
to each build, for instance `--build-arg TORCH_INDEX=` if pip can install torch by itself, and
`--build-arg PYTHON_IMAGE=python:3.11-slim-bookworm` for a local base where no registry is reached.
"""

from __future__ import annotations

import json
import os
import shlex
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal
from saga.api.example import example_persons

from saga.requests import Draws
from tests.containers.conftest import HARDENED, ROOT, Engine, run_compose
from tests.waiting import awaited

# The mean at horizon 1 of the example person by the library, without the service.
DIRECT = """
import polars as pl
from saga.api.example import example_persons
from saga.forecaster import Forecaster
from saga.data.reading import read_panel
from saga.requests import Draws, ForecastRequest
person = example_persons()[0]
fixed = {"person_id": "A1", "birth_year": 1985, "sex": "female"}
panel = read_panel(pl.DataFrame([{**fixed, **row} for row in person["history"]]))
forecaster = Forecaster.load(threads=1)
print(forecaster.forecast(panel, ForecastRequest(horizons=(1, 5)), Draws(50, 1)).table["mean"][0])
"""

pytestmark = pytest.mark.containers


def _post(url: str, body: Any, key: str | None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def _await_health(engine: Engine, container: str, seconds: float = 120.0) -> None:
    def is_healthy() -> bool:
        state = json.loads(engine(f"inspect {container}"))[0]["State"]
        assert state["Running"], engine(f"logs {container}", with_errors=True)
        health = state.get("Health") or state.get("Healthcheck") or {}
        return bool(health.get("Status") == "healthy")

    awaited(is_healthy, seconds)


@pytest.fixture
def service(
    engine: Engine,
    build: Callable[[str], str],
    key_file: tuple[Path, str],
    free_port: Callable[[], int],
) -> Iterator[tuple[str, str, str]]:
    """A running api container: its name, its URL and a key."""
    port, container, (keys, key) = free_port(), f"saga-api-test-{os.getpid()}", key_file
    keys.chmod(0o644)
    # On the host's network the service listens on the port of SAGA_PORT.
    network = f"--network host -e SAGA_PORT={port} -e SAGA_HOST=127.0.0.1"
    mount = f"-v {keys}:/run/secrets/saga_keys:ro"
    engine(f"run -d --name {container} {HARDENED} {network} {mount} {build('api')}")
    try:
        _await_health(engine, container)
        yield container, f"http://127.0.0.1:{port}", key
    finally:
        engine(f"rm -f {container}")


def test_the_service_is_healthy_read_only_and_without_privileges(
    engine: Engine, service: tuple[str, str, str]
) -> None:
    container, url, key = service
    body = {"persons": example_persons(), "horizons": [1, 5], "paths": 50, "seed": 1}
    status, answer = _post(f"{url}/v1/forecasts", body, key)
    assert status == 200, answer
    assert [row["h"] for row in answer["forecasts"][0]["horizons"]] == [1, 5]
    assert (
        answer["provenance"]["bundle"]
        == json.loads((ROOT / "bundles/small/manifest.json").read_text())["digest"]
    )
    assert _post(f"{url}/v1/forecasts", body, None)[0] == 401
    assert engine(f"exec {container} id -u").strip() == "10001"
    assert "Read-only" in engine(f"exec {container} touch /app/x", code=1, with_errors=True)


def test_the_service_refuses_to_listen_beyond_loopback_without_keys(
    engine: Engine, build: Callable[[str], str]
) -> None:
    assert "key" in engine(f"run --rm {HARDENED} {build('api')}", code=2, with_errors=True)


def test_the_batch_image_scores_a_folder_and_equals_the_library(
    engine: Engine, build: Callable[[str], str], tmp_path: Path
) -> None:
    from saga.batch.engine import score
    from saga.batch.products import Recipe

    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    history = [
        {"person_id": f"{i:02d}", "birth_year": 1980, **row}
        for i in range(20)
        for row in example_persons()[0]["history"]
    ]
    pl.DataFrame(history).write_csv(source / "panel.csv")
    options = "--paths 20 --persons-per-partition 8 --workers 2"
    mounts = f"-v {source}:/input:ro -v {out}:/output"
    user = f"--user {os.getuid()}:{os.getgid()}"
    engine(f"run --rm {HARDENED} {user} {mounts} {build('batch')} score /input /output {options}")
    score(
        source,
        tmp_path / "library",
        Recipe(ROOT / "bundles/small", draws=Draws(20)),
        persons_per_partition=8,
    )
    inside, outside = (
        pl.read_parquet(folder / "part-*.parquet") for folder in (out, tmp_path / "library")
    )
    assert_frame_equal(
        inside, outside, rel_tol=1e-3
    )  # another build of torch may round differently
    assert not list(out.glob("_staged*"))


def test_the_training_image_can_train(engine: Engine, build: Callable[[str], str]) -> None:
    assert "--config" in engine(f"run --rm {HARDENED} {build('train')} train --help")
    code = "import saga.training.fit, saga.calibration.fit.split_conformal, saga.evaluation.contest"
    engine(f"run --rm {HARDENED} --entrypoint python {build('train')} -c '{code}'")


def test_the_compose_file_starts_the_service_alone_and_hardens_all() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert [service for service, settings in services.items() if "profiles" not in settings] == [
        "api"
    ]
    for settings in services.values():
        assert settings["read_only"]
        assert settings["mem_limit"]
        assert "/tmp" in settings["tmpfs"]
        assert settings["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in settings["security_opt"]
    for name, settings in services.items():
        for port in settings.get("ports", []):
            assert port.startswith(("127.0.0.1:", "${SAGA_TLS_ADDRESS:-127.0.0.1:")), name


def test_compose_serves_the_same_forecast(
    engine: Engine,
    has_compose: None,
    key_file: tuple[Path, str],
    tmp_path: Path,
    free_port: Callable[[], int],
) -> None:
    port, override, (keys, key) = free_port(), tmp_path / "loopback.yml", key_file
    # On the host's loopback, so that the test opens no port to the network.
    environment = f'{{SAGA_HOST: 127.0.0.1, SAGA_PORT: "{port}"}}'
    override.write_text(
        "services: {api: {network_mode: host, ports: !reset [], restart: !reset null, "
        f"environment: {environment}}}}}\n"
    )
    compose = f"docker compose -p saga-test-{os.getpid()} -f docker-compose.yml -f {override}"
    settings = {"SAGA_KEYS_FILE": str(keys)}

    def call(arguments: str) -> str:
        return run_compose(compose.split(), arguments, settings)

    try:
        call("up -d --no-build --pull never --wait --wait-timeout 120")
        body = {"persons": example_persons(), "horizons": [1, 5], "paths": 50, "seed": 1}
        status, answer = _post(f"http://127.0.0.1:{port}/v1/forecasts", body, key)
        assert status == 200, answer
        container = call("ps -q api").strip()
        direct = json.loads(engine(f"exec {container} python -c {shlex.quote(DIRECT)}"))
        assert answer["forecasts"][0]["horizons"][0]["mean"] == pytest.approx(direct, rel=1e-6)
    finally:
        call("down -v")
