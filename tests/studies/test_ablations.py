"""Ablations: each trains and forecasts, and only columns that it uses change its forecasts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from saga.training.fit import train
from saga.training.harness import RunOptions
from saga.training.train_config import TrainConfig, built_in_configs, load_config

from saga.data.panel import Panel
from saga.errors import UsageError
from saga.features.transforms import CALENDAR
from saga.forecaster import Forecaster
from saga.requests import Draws
from studies import ablations

ABLATIONS = [name for name in built_in_configs() if name.startswith("ablations/")]

ROOT = Path(__file__).resolve().parents[2]
YEARS = 3


@pytest.fixture(scope="module")
def panel(register_panel: Panel) -> Panel:
    return register_panel.only(register_panel.persons()[::7])


@pytest.fixture(scope="module")
def five_persons(panel: Panel) -> Panel:
    """Five persons up to a year in which they are 30 to 45."""
    frame = panel.frame.filter((pl.col("year") - pl.col("birth_year")).is_between(16, 45))
    last = frame.group_by("person_id").agg(
        pl.col("year").max(), pl.len().alias("n"), pl.col("exit_year").first()
    )
    persons = last.filter(pl.col("n") > 12, pl.col("exit_year").is_null())["person_id"].sort()[:5]
    return panel.with_frame(frame.filter(pl.col("person_id").is_in(persons.to_list())))


def short(name: str, **changes: Any) -> TrainConfig:
    brief = {
        "batch_persons": 24,
        "max_steps": 4,
        "warmup_steps": 1,
        "validate_every": 4,
        "validation_persons": 20,
        "precision": "32-true",
    }
    return replace(load_config(name), **{**brief, **changes})


@pytest.mark.thorough
@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_trains_and_forecasts(
    panel: Panel, five_persons: Panel, tmp_path: Path, name: str
) -> None:
    settings = short(name)
    bundle = train(panel, tmp_path / "b", config=settings, seed=1, run=RunOptions())
    forecaster = Forecaster.load(bundle.path, threads=1)
    paths = forecaster.simulate(five_persons, Draws(20, 1), to_horizon=YEARS)
    assert paths.earnings.shape == (5, YEARS, 20)
    assert np.isfinite(paths.earnings).all()
    assert (paths.earnings >= 0).all()
    assert paths.earnings.std() > 0
    assert np.isfinite(bundle.metrics["training"]["validation_nll"])
    assert (
        bundle.config["training"]["without"]
        == list(settings.without)
        == list(forecaster.transforms.without)
    )
    assert forecaster.network.config == settings.model
    assert forecaster.network.parameters_count == bundle.metrics["training"]["parameters"]


def test_the_list_names_every_ablation_of_the_paper() -> None:
    rows = ablations.listed_ablations()
    assert sorted(f"ablations/{row['name']}" for row in rows) == sorted(ABLATIONS)
    published = json.loads((ROOT / "evaluation" / "report" / "published.json").read_text())[
        "crps_log_10"
    ]
    assert {row["name"] for row in rows} - set(published) == {"quantile-head"}
    settings = {row["name"]: load_config(f"ablations/{row['name']}") for row in rows}
    full = settings["full"]
    for name, config in settings.items():
        assert replace(config, name=full.name, model=full.model, without=()) == full, (
            f"{name} has another budget"
        )
        assert (config.model != full.model) != bool(config.without) or name == "full", (
            f"{name} differs in one thing"
        )


@pytest.mark.thorough
def test_hidden_columns_are_hidden_in_forecasts(
    panel: Panel, five_persons: Panel, tmp_path: Path
) -> None:
    """Other values in hidden columns leave paths bitwise equal; in visible columns they do not."""
    hidden = ("occupation", "spouse_earnings")
    altered = five_persons.with_frame(
        five_persons.frame.with_columns(
            pl.lit(panel.frame["occupation"].drop_nulls()[0]).alias("occupation"),
            pl.lit(9e5).alias("spouse_earnings"),
        )
    )
    same = {}
    for without in ((), hidden):
        bundle = train(
            panel,
            tmp_path / f"b{len(without)}",
            config=short("tiny", without=without),
            seed=1,
            run=RunOptions(),
        )
        forecaster = Forecaster.load(bundle.path, threads=1)
        original, changed = (
            forecaster.simulate(persons, Draws(20, 1), to_horizon=YEARS).earnings
            for persons in (five_persons, altered)
        )
        same[without] = np.array_equal(original, changed)
    assert same == {(): False, hidden: True}


@pytest.mark.thorough
def test_macro_only_moves_wages_if_the_calendar_is_hidden(panel: Panel, tmp_path: Path) -> None:
    """Boom and slump after 2015 give the same zeros, and earnings differ by one factor a year."""
    until = panel.frame.filter(pl.col("year") <= 2015)
    observed = pl.col("year").is_in([2005, 2010, 2015]).sum().over("person_id") == 3
    eligible = until.filter(
        observed, pl.col("birth_year").is_between(1965, 1985), pl.col("exit_year").is_null()
    )
    people = panel.with_frame(eligible).only(eligible["person_id"].unique().sort()[:6].to_list())
    values = {"boom": (0.03, 0.10), "slump": (0.25, -0.10)}
    scenarios = {
        name: [
            {"year": y, "unemployment": u, "real_wage_growth": g, "inflation": 0.02}
            for y in (2016, 2017, 2018)
        ]
        for name, (u, g) in values.items()
    }
    same = {}
    for without in ((), (CALENDAR,)):
        bundle = train(
            panel,
            tmp_path / f"b{len(without)}",
            config=short("tiny", without=without),
            seed=1,
            run=RunOptions(),
        )
        forecaster = Forecaster.load(bundle.path, threads=1)
        boom, slump = (
            forecaster.simulate(people, Draws(40, 1, s), to_horizon=YEARS).earnings
            for s in scenarios.values()
        )
        both = (boom > 0) & (slump > 0)
        factor = np.where(
            both, np.log(np.where(both, boom, 1.0) / np.where(both, slump, 1.0)), np.nan
        )
        wages = np.arange(1, YEARS + 1)[:, None] * np.log(1.10 / 0.90)
        # Paths of a person whose amounts tie may change places, so zeros are counted.
        zeros = [(earnings == 0).sum(axis=-1) for earnings in (boom, slump)]
        same[without] = np.array_equal(*zeros) and bool((np.abs(factor - wages)[both] < 1e-3).all())
    assert same == {(): False, (CALENDAR,): True}


def test_the_quantile_head_is_trained_with_the_pinball_loss(panel: Panel, tmp_path: Path) -> None:
    bundle = train(
        panel,
        tmp_path / "b",
        config=short("ablations/quantile-head"),
        seed=1,
        run=RunOptions(),
    )
    header = (tmp_path / "b.run" / "log" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"validation_pinball", "validation_nll"} <= set(header)
    with pytest.raises(UsageError, match="light"):
        Forecaster(bundle, rollout="light")
