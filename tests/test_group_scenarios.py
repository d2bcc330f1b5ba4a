"""Ratios of groups in a scenario: the same forecasts at every door; errors name the fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from saga.api.settings import Settings
from saga.training.group_fit import with_groups

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest, LifetimeRequest
from tests.command_line import done
from tests.conftest import Running

CLOSES = [{"year": 2035, "female/male": 1.0}]
ASKED = ForecastRequest((5, 10), unrounded=True)


@pytest.fixture(scope="module")
def bundle(
    tiny_bundle: Path, register_panel: Panel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tiny bundle with the economy of groups of its register, not calibrated."""
    copy: Path = shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("groups") / "bundle")
    changed = with_groups(Bundle.load(copy), register_panel)
    assert changed.calibration is None
    return copy


def people(register_panel: Panel, sex: str) -> Panel:
    last = register_panel.frame.filter(
        pl.col("year") == 2022, pl.col("sex") == sex, pl.col("birth_year").is_between(1985, 1995)
    )
    return register_panel.only(last["person_id"].unique().sort()[:4].to_list())


def test_a_gap_that_closes_raises_women_beside_men(bundle: Path, register_panel: Panel) -> None:
    forecaster = Forecaster.load(bundle, threads=1)
    now = forecaster.model.groups.trends.ratios()["male/female"]  # type: ignore[union-attr]
    assert f"male/female {now:.3f}" in str(forecaster.summary())
    stays = [{"year": year, "male/female": now} for year in (2023, 2040)]
    growth = {}
    for sex in ("female", "male"):
        means = [
            forecaster.forecast(people(register_panel, sex), ASKED, Draws(scenario=scenario))
            .table.filter(pl.col("horizon") == 10)["mean"]
            .to_numpy()
            for scenario in (CLOSES, stays)
        ]
        growth[sex] = means[0] / means[1]
    assert (growth["female"] > 1).all()
    assert (growth["male"] < 1).all()


@pytest.mark.thorough
def test_every_door_gives_the_same_forecast(
    bundle: Path,
    register_panel: Panel,
    start: Callable[[Settings], AbstractContextManager[Running]],
    tmp_path: Path,
) -> None:
    persons = people(register_panel, "female")
    scenario, table, out = (tmp_path / name for name in ("s.csv", "people.csv", "out.parquet"))
    scenario.write_text("year,female/male\n2035,1\n")
    columns = ["person_id", "year", "birth_year", "earnings", "sex"]
    persons.frame.select(columns).write_csv(table)
    panel, request = read_panel(table), LifetimeRequest(unrounded=True)
    draws = Draws(20, 3, CLOSES)
    expected = Forecaster.load(bundle, threads=1).lifetime(panel, request, draws).table
    free = Forecaster.load(bundle, threads=1).lifetime(panel, request, Draws(20, 3)).table
    assert (expected["mean"] > free["mean"]).all()
    options = f"--bundle {bundle} --paths 20 --seed 3 --unrounded --scenario {scenario}"
    done("lifetime", table, options, "--out", out)
    assert pl.read_parquet(out)["mean"].to_list() == expected["mean"].to_list()
    rows = persons.frame.select(columns)  # of the prices in the table, as the service expects
    body: dict[str, Any] = {
        "persons": [
            {
                "person_id": name,
                "birth_year": own["birth_year"][0],
                "sex": own["sex"][0],
                "history": own.select("year", "earnings").to_dicts(),
            }
            for (name,), own in rows.group_by("person_id", maintain_order=True)
        ],
        "paths": 20,
        "seed": 3,
        "unrounded": True,
        "scenario": CLOSES,
    }
    with start(Settings(bundle=bundle, threads=1)) as running:
        answer = running.client.post("/v1/lifetimes", json=body)
        assert answer.status_code == 200, answer.text
        means = [each["present_value"]["mean"] for each in answer.json()["lifetimes"]]
        assert means == expected["mean"].to_list()
        wrong = {**body, "scenario": [{"year": 2035, "female/man": 1.0}]}
        refused = running.client.post("/v1/lifetimes", json=wrong)
        assert refused.status_code == 422
        assert "female/man" in json.dumps(refused.json())


def test_without_groups_a_ratio_is_refused(tiny_bundle: Path) -> None:
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    with pytest.raises(UsageError, match=r"'female/male'.*no economy of groups"):
        forecaster.scenario(CLOSES)
