"""The published schema is complete, and a client can be generated from it without a warning."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from pydantic import SecretStr
from saga.api.app import create_app
from saga.api.request_models import ForecastBody, JobBody, LifetimeBody, PopulationBody
from saga.api.settings import Settings

from saga.forecast_warnings import WarningCode
from saga.requests import JobProduct
from tests.api.test_jobs import await_end
from tests.conftest import Running

CONFIG = Path(__file__).parents[2] / "examples" / "openapi-python-client.yaml"


@pytest.fixture(scope="module")
def schema(tiny_bundle: Path) -> dict[str, Any]:
    return create_app(Settings(bundle=tiny_bundle)).openapi()


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value)


def _operations(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in schema["paths"].values() for operation in path.values()]


def test_every_reference_leads_to_a_component(schema: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    references = {node["$ref"] for node in _objects(schema) if isinstance(node.get("$ref"), str)}
    assert references
    assert references <= known


def test_bounds_are_those_of_json_schema(schema: dict[str, Any]) -> None:
    wrong = {"ge", "le", "gt", "lt", "min_length", "max_length"}
    assert not [node for node in _objects(schema) if wrong & node.keys() and "type" in node]
    components = schema["components"]["schemas"]
    paths = components["ForecastRequest"]["properties"]["paths"]
    assert (paths["minimum"], paths["maximum"]) == (2, 10_000)


def test_every_operation_has_a_name_texts_and_its_errors(schema: dict[str, Any]) -> None:
    operations = _operations(schema)
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        name = operation["operationId"]
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (name, parameter["name"])
            # A generated client sends defaults, and a call with JSON has no query parameters.
            assert "default" not in parameter["schema"], (name, parameter["name"])
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert "application/problem+json" in answer["content"], (name, status)
                assert "X-Request-ID" in answer["headers"], (name, status)
            if status in ("429", "503"):
                assert "Retry-After" in answer["headers"], (name, status)
    for name, component in schema["components"]["schemas"].items():
        if name.endswith("Request"):
            assert "example" in component, name


BODIES: list[tuple[Any, dict[str, str]]] = [
    *((body, {}) for body in (ForecastBody, LifetimeBody, PopulationBody)),
    *((JobBody, {"product": product}) for product in get_args(JobProduct)),
]


@pytest.mark.parametrize(("body", "chosen"), BODIES)
def test_a_body_with_every_default_of_the_schema_is_a_request(
    body: Any, chosen: dict[str, str], schema: dict[str, Any]
) -> None:
    """Generated clients send them."""
    component = schema["components"]["schemas"][body.__name__]
    defaults = {
        name: entry["default"]
        for name, entry in component["properties"].items()
        if "default" in entry
    }
    sent = {**defaults, **component["example"], **chosen}
    assert body.model_validate_json(json.dumps(sent)).request


def test_the_documentation_names_every_endpoint_setting_and_warning(schema: dict[str, Any]) -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = "".join((docs / name).read_text() for name in ("service.md", "operation.md"))
    for path in schema["paths"]:
        assert f"`{path}`" in text or f" {path}`" in text, path
    for name in Settings.model_fields:
        assert f"`SAGA_{name.upper()}`" in text, name
    for code in get_args(WarningCode):
        assert f"`{code}`" in text, code


@pytest.mark.thorough
def test_every_operation_answers_its_example(
    start: Callable[[Settings], AbstractContextManager[Running]],
    schema: dict[str, Any],
    tiny_bundle: Path,
    tmp_path: Path,
) -> None:
    """Each body that the schema shows is accepted as it stands; what needs none is asked."""
    components = schema["components"]["schemas"]
    settings = Settings(
        bundle=tiny_bundle,
        threads=1,
        jobs=tmp_path / "jobs",
        job_files=tmp_path / "files",
        database=SecretStr(f"sqlite:///{tmp_path / 'ledger.sqlite'}"),
    )
    persons = schema["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["text/csv"]["example"]
    file = tmp_path / "files" / components["JobFileRequest"]["example"]["file"]
    file.parent.mkdir(parents=True)
    pl.read_csv(io.StringIO(persons)).write_parquet(file)
    place: dict[str, str] = {}
    asked = 0
    with start(settings) as service:
        operations = [
            (method, path, operation)
            for path, methods in schema["paths"].items()
            for method, operation in methods.items()
        ]
        order = {"post": 0, "get": 1, "delete": 2}
        for method, path, operation in sorted(operations, key=lambda one: order[one[0]]):
            for kind, body in _examples(operation, components):
                answer = service.client.request(
                    method, path.format(**place), content=body, headers={"Content-Type": kind}
                )
                is_missing = path == "/v1/calibration/report"  # the tiny bundle has no diagnostics
                assert answer.is_success or is_missing, (path, kind, answer.text)
                asked += 1
                if path == "/v1/jobs":
                    job = answer.json()["id"]
                    files = await_end(service, job)["links"]["files"]
                    place = {"job_id": job, "file": files[0].rsplit("/", 1)[1]}
    assert asked > len(operations)


def _examples(operation: dict[str, Any], components: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Media type and text of each example of a body; one empty body where there is none."""
    if "requestBody" not in operation:
        yield "", ""
        return
    for kind, content in operation["requestBody"]["content"].items():
        if kind == "application/json":
            for shape in content["schema"].get("oneOf", [content["schema"]]):
                example = components[shape["$ref"].rsplit("/", 1)[1]]["example"]
                yield kind, json.dumps(example)
        elif "example" in content:
            yield kind, content["example"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_client_can_be_generated_without_a_warning(
    schema: dict[str, Any], tmp_path: Path
) -> None:
    generator = shutil.which("openapi-python-client")
    if generator is None:
        pytest.skip("there is no openapi-python-client")
    (tmp_path / "openapi.json").write_text(json.dumps(schema))
    command = [generator, "generate", "--path", "openapi.json", "--config", str(CONFIG)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not re.search("warning|skipping", done.stdout + done.stderr, re.IGNORECASE), done.stdout
