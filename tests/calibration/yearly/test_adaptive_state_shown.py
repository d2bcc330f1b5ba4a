"""The adaptive state in the report: its figures, and none of few persons."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr
from saga.api.settings import Settings
from saga.calibration.adaptive.adaptive_state import AdaptiveState, ExcessCounts, compute_states
from saga.calibration.adaptive.ledger import open_ledger
from saga.calibration.yearly.year_diagnosis import with_state
from typer.testing import CliRunner

from saga.bundle import Bundle, default_bundle
from saga.cli import app
from saga.diagnostics_tables import Diagnostics
from saga.pages.report import render_report


@pytest.fixture
def shipped() -> Diagnostics:
    return Diagnostics.of_bundle(Bundle.load(default_bundle()))


def state_after_misses(persons: int) -> AdaptiveState:
    """Outcomes of so many persons, nearly all above every limit."""
    levels = np.tile([0.5, 0.9], (persons, 1))
    counts = ExcessCounts.of(np.full((persons, 2), 0.99), levels, levels)
    cells = compute_states((0.5, 0.9), {(1, 2023): counts})
    return AdaptiveState(3, 2023, {("all", *key): cell for key, cell in cells.items()})


@pytest.mark.usefixtures("without_pictures")
def test_the_table_has_the_cells_of_the_state_and_no_figure_of_few_persons(
    shipped: Diagnostics,
) -> None:
    counts = {"settled": 400, "waiting": 7}
    shown = with_state(shipped, state_after_misses(400), counts)
    row = shown["adaptive"].filter(horizon=1, coverage=0.9).row(0, named=True)
    assert (row["n"], row["inside"], row["last_year"]) == (400, 0.0, 2023)
    assert row["size"] > 0
    facts = shown.provenance
    assert (facts["adaptive_version"], facts["adaptive_settled"]) == ("3", "400")
    assert with_state(shown, state_after_misses(400), counts).provenance == facts, "not twice"
    few = with_state(shipped, state_after_misses(4), counts)["adaptive"]
    assert few.filter(horizon=1, coverage=0.9)["n"].to_list() == [None]
    assert few["inside"].null_count() == few.height
    empty = with_state(shipped, None, {"settled": 0, "waiting": 0})
    assert empty["adaptive"].is_empty()
    assert len({render_report(each) for each in (shipped, shown, empty)}) == 3


@pytest.mark.thorough
def test_command_and_service_show_the_ledgers_state(
    tmp_path: Path, start: Callable[[Settings], AbstractContextManager[Any]]
) -> None:
    bundle, page = tmp_path / "bundle", tmp_path / "r.html"
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    shutil.copytree(default_bundle(), bundle)
    open_ledger(url).close()
    command = ["report", str(bundle), "--out", str(page), "--database", url, "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["provenance"]["adaptive_settled"] == "0"
    with start(Settings(bundle=bundle, threads=1, database=SecretStr(url))) as service:
        service.wait_until_ready()
        history = [{"year": year, "earnings": 2e5} for year in (2019, 2020, 2021)]
        ids = [f"P{i}" for i in range(12)]
        persons = [{"person_id": i, "birth_year": 1985, "history": history} for i in ids]
        service.forecast({"persons": persons, "horizons": [1], "paths": 25, "record": True})
        before = service.client.get("/v1/calibration/report").text
        outcomes = [{"person_id": i, "year": 2022, "earnings": 9e7} for i in ids]
        service.client.post("/v1/outcomes", json={"outcomes": outcomes})
        after = service.client.get("/v1/calibration/report").text
    assert "12 issued intervals were compared with their outcome" in after
    assert "12 issued intervals" not in before
    done = CliRunner().invoke(app, command)
    assert json.loads(done.stdout)["provenance"]["adaptive_settled"] == "12"
    assert "12 issued intervals" in page.read_text()
