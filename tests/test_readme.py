"""The commands of the README work, and its number of columns is right."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from saga import schema

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS = 120


def _commands() -> list[str]:
    """The make commands of the README's code blocks, in their order."""
    blocks = re.findall(
        r"^```\w*\n(.*?)^```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("make ")]


def test_the_readme_starts_with_make_run_and_make_test() -> None:
    assert _commands()[:2] == ["make run", "make test"]


def test_the_readme_states_the_number_of_columns() -> None:
    columns = {*schema.CONTINUOUS, *schema.CATEGORICAL} - set(schema.REQUIRED)
    assert {*columns, *schema.REQUIRED, *schema.EXIT} == set(schema.NAMES)
    assert f"[{len(columns)} more columns](docs/columns.md)" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


@pytest.fixture(scope="module")
def curl(free_port: Callable[[], int]) -> Iterator[str]:
    """The curl command that `make run` prints; the service runs until the tests are done."""
    if shutil.which("curl") is None or shutil.which("make") is None:
        pytest.skip("make and curl are needed for the commands of the README")
    if subprocess.run(["make", "--question", "setup"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip(
            "the environment is not up to date (make setup), and a test should not install one"
        )
    line = [*shlex.split(_commands()[0]), f"PORT={free_port()}"]
    # A session of its own, so that the signal reaches make and its children.
    with subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as service:
        assert service.stdout is not None
        alarm = threading.Timer(READY_SECONDS, os.killpg, (service.pid, signal.SIGKILL))
        alarm.start()
        try:
            printed = next(
                (text.strip() for text in service.stdout if text.startswith("curl ")), ""
            )
            yield printed
        finally:
            alarm.cancel()
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGTERM)
            service.stdout.read()


def test_make_run_serves_and_the_printed_curl_returns_a_forecast(curl: str) -> None:
    assert curl, f"make run printed no curl in {READY_SECONDS} seconds"
    url = re.search(r"http://[\d.:]+", curl)
    assert url is not None
    with urllib.request.urlopen(f"{url.group()}/readyz", timeout=10) as ready:
        assert ready.status == 200
    done = subprocess.run(shlex.split(curl), capture_output=True, text=True, timeout=60, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (
        answer["provenance"]["bundle"]
        == json.loads((ROOT / "bundles/small/manifest.json").read_text())["digest"]
    )
    (forecast,) = answer["forecasts"]
    assert [horizon["h"] for horizon in forecast["horizons"]] == [1, 5, 10]
    for horizon in forecast["horizons"]:
        values = list(horizon["quantiles"].values())
        assert values == sorted(values), "quantiles must be in order"
        sets = [
            i
            for i in sorted(horizon["intervals"], key=lambda i: i["coverage"])
            if i["lower"] is not None
        ]
        for narrow, wide in pairwise(sets):
            assert wide["lower"] <= narrow["lower"] <= narrow["upper"] <= wide["upper"], (
                "intervals must be nested"
            )
