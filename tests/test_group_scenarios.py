"""Ratios of groups in a scenario; `tests/test_doors.py` asks for one at every door."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from saga.training.group_fit import with_groups

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.forecaster import Forecaster
from saga.requests import Draws, ForecastRequest

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


def test_without_groups_a_ratio_is_refused(tiny_bundle: Path) -> None:
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    with pytest.raises(UsageError, match=r"'female/male'.*no economy of groups"):
        forecaster.scenario(CLOSES)
