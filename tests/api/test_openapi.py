"""The published schema is complete, and a client can be generated from it without a warning."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saga.api.app import create_app
from saga.api.settings import Settings

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
        if name.endswith("Request") and name != "CorrectionsRequest":
            assert "example" in component, name


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
