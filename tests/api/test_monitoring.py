"""The dashboard and the alert rules name metrics that `GET /metrics` has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from saga.api.settings import Settings

from saga.client import Client
from tests.conftest import Running
from tests.waiting import awaited

FOLDER = Path(__file__).parents[2] / "docker" / "monitoring"
METRIC = re.compile(r"\b(?:saga|process)_[a-z_]+")


def _expressions() -> list[str]:
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return panels + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


@pytest.mark.thorough
def test_every_metric_of_the_dashboard_and_the_alerts_exists(
    start: Callable[[Settings], AbstractContextManager[Running]], tiny_bundle: Path, tmp_path: Path
) -> None:
    settings = Settings(
        bundle=tiny_bundle,
        threads=1,
        jobs=tmp_path / "jobs",
        job_workers=0,
        database=SecretStr(f"sqlite:///{tmp_path / 'ledger.sqlite'}"),
    )
    with start(settings) as service, Client(service.url) as client:
        persons = [
            {"person_id": "A", "birth_year": 1980, "history": [{"year": 2022, "earnings": 2e5}]}
        ]
        assert service.forecast({"persons": persons}).status_code == 200
        assert service.client.post("/v1/jobs", json={"persons": persons}).status_code == 202
        awaited(lambda: 'saga_jobs{state="queued"} 1.0' in client.call("GET", "/metrics").text)
        text = client.call("GET", "/metrics").text
    families = list(text_string_to_metric_families(text))
    samples = {sample.name for family in families for sample in family.samples}
    names = {name for expression in _expressions() for name in METRIC.findall(expression)}
    assert len(names) > 12
    assert names <= samples
    unused = {
        family.name
        for family in families
        if family.name.startswith("saga") and not family.name.endswith("_created")
    } - {name.removesuffix("_total").removesuffix("_bucket") for name in names}
    assert not unused, "nobody looks at them"
    stages = {
        sample.labels["stage"]
        for family in families
        for sample in family.samples
        if sample.name == "saga_stage_seconds_count"
    }
    assert stages == {"queue", "parse", "compute", "compress"}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert values["saga_job_queue_up",] == 1
    assert values["saga_job_workers",] == 0
    assert values["saga_jobs_oldest_queued_seconds",] >= 0


def test_the_rules_and_the_configuration_are_valid() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool")
    for command in (
        ["check", "rules", "alerts.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ):
        done = subprocess.run([promtool, *command], cwd=FOLDER, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
