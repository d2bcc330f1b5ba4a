"""A network that is trained on a panel's own columns and on another country's macro series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from saga.training.fit import train

from saga.bundle import Bundle
from saga.data.groups import Grouping, last_record_origins
from saga.data.origins import Origins
from saga.data.panel import Panel, PanelMeta
from saga.errors import InputError, UsageError
from saga.features.calendar import Calendar
from saga.features.transforms import OTHER, Transforms
from saga.forecaster import Forecaster
from saga.model import ModelConfig, Saga
from saga.requests import Draws, ForecastRequest
from saga.schema import CATEGORICAL, FAMILY, extra_column
from saga.trees.recent_years import Window
from tests.panels import panel_of
from tests.toy_training import QUIET, TOY

EXTRA = (
    extra_column("race", "category", static=True),
    extra_column("wealth", "number", lasting=True),
    extra_column("enrolled", "category"),
    extra_column("hours", "number"),
    FAMILY,
)
DRAWS = np.random.default_rng(3).normal(0, 0.01, (26, 3))
MACRO = {1990 + i: (0.06 + u, 0.01 + w, 0.02 + p) for i, (u, w, p) in enumerate(DRAWS.tolist())}
META = PanelMeta(
    "own", currency="USD", price_year=2010, floor=None, macro="us", macro_rows=MACRO, extra=EXTRA
)
CONFIG = replace(
    TOY,
    model=ModelConfig(width=16, layers=1, heads=1, bins=16, head_width=16, light=8),
    batch_persons=32,
    max_steps=100,
    learning_rate=1e-2,
    validate_every=50,
)
RACE, WEALTH = len(CATEGORICAL), len(OTHER)


def people(n: int, meta: PanelMeta = META) -> Panel:
    """Log earnings are 11 for race 1 and 13 for race 2, plus noise; five persons have race 3."""
    rng, rows = np.random.default_rng(0), []
    for i in range(n):
        race = 3 if i < 5 else 1 + i % 2
        for year in range(2000, 2010):
            earnings = float(np.exp(11 + 2 * (i % 2) + 0.3 * rng.normal()))
            wealth = float(np.exp(2 * rng.normal())) if year < 2005 else None
            enrolled = "yes" if rng.random() < 0.2 else "no"
            rows.append(
                (f"p{i:04d}", year, 1970, earnings, str(race), wealth, enrolled, 40.0, f"f{i // 2}")
            )
    return panel_of(rows, *(column.name for column in EXTRA), meta=meta)


@pytest.fixture(scope="module")
def panel() -> Panel:
    return people(500)


@pytest.fixture(scope="module")
def bundle(panel: Panel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("own") / "bundle"
    return train(panel, out, config=CONFIG, seed=1, run=QUIET)


@pytest.fixture(scope="module")
def forecaster(bundle: Bundle) -> Forecaster:
    return Forecaster(bundle, threads=1)


def newcomer(race: str | None, **changes: float | None) -> Panel:
    """One year of a person whose earnings lie between those of the two groups."""
    row = {"person_id": "n", "year": 2009, "birth_year": 1970, "earnings": float(np.exp(12))}
    return Panel.of(pl.DataFrame([{**row, "extra_race": race, **changes}]), META)


def mean(forecaster: Forecaster, panel: Panel) -> float:
    return float(
        forecaster.forecast(panel, ForecastRequest((1,), beyond_span=True)).table["mean"][0]
    )


def test_the_bundle_remembers_own_columns(bundle: Bundle) -> None:
    described = {column["name"]: column for column in bundle.schema["extra"]}
    assert list(described) == ["extra_race", "extra_wealth", "extra_enrolled", "extra_hours"]
    assert described["extra_race"]["codes"] == ["1", "2"], "race 3 has too few persons"
    assert described["extra_race"]["static"]
    assert "f0" not in str(bundle.transforms), "families are no feature"
    again = Transforms.from_dict(bundle.transforms)
    assert again.as_dict() == bundle.transforms
    extreme = people(1).frame.head(1).with_columns(extra_wealth=pl.lit(1e300))
    assert np.isfinite(again.continuous(extreme)[0, WEALTH])
    plain = people(60, replace(META, extra=(), macro_rows=None, macro=None))
    without = Transforms.fit(plain, Calendar(None), 16)
    assert "extra" not in without.as_dict()
    assert not [name for name in Saga(CONFIG.model, without).state_dict() if "own_" in name]


def test_forecasts_depend_on_an_own_column(forecaster: Forecaster) -> None:
    low, high = (mean(forecaster, newcomer(race)) for race in ("1", "2"))
    assert high > 1.5 * low
    for light in ("exact", "light"):
        rollout = Forecaster(forecaster.bundle, threads=1, rollout=light)
        paths = [
            np.log(rollout.simulate(newcomer(race), Draws(50, 1), to_horizon=4).earnings)
            for race in ("1", "2")
        ]
        assert (paths[1].mean((0, 2)) > paths[0].mean((0, 2)) + 0.3).all()


def test_unknown_codes_and_columns_count_as_missing_and_are_warned_of(
    forecaster: Forecaster,
) -> None:
    known = mean(forecaster, newcomer(None))
    bare = newcomer(None).frame.select("person_id", "year", "birth_year", "earnings")
    more = replace(META, extra=(*EXTRA, extra_column("shoe size", "number")))
    shoes = newcomer("1").frame.with_columns(extra_shoe_size=pl.lit(40.0))

    def warned(panel: Panel) -> list[str | None]:
        warnings = forecaster.warnings(panel, ForecastRequest((1,), beyond_span=True))
        return [w.column for w in warnings if w.code == "own-column"]

    for panel in (
        newcomer("9"),
        newcomer("3"),
        newcomer(None),
        Panel.of(bare, replace(META, extra=())),
    ):
        assert mean(forecaster, panel) == pytest.approx(known, rel=1e-6)
        assert warned(panel).count("extra_race") == 1
    assert "extra_race" not in warned(newcomer("1"))
    assert "extra_shoe_size" in warned(Panel.of(shoes, more))


def test_a_column_of_another_kind_and_one_without_values_are_refused(
    forecaster: Forecaster, panel: Panel, tmp_path: Path
) -> None:
    meta = replace(META, extra=(extra_column("race", "number"),))
    number = Panel.of(newcomer("1").frame.with_columns(extra_race=pl.lit(1.0)), meta)
    with pytest.raises(UsageError, match="extra_race as a number"):
        forecaster.forecast(number, ForecastRequest((1,), beyond_span=True))
    empty = panel.with_frame(panel.frame.with_columns(extra_race=pl.lit(None, dtype=pl.String)))
    with pytest.raises(InputError, match="extra_race"):
        train(empty, tmp_path / "b", config=CONFIG, seed=1, run=QUIET)
    few = {year: row for year, row in MACRO.items() if year >= 2005}
    with pytest.raises(UsageError, match=r"training needs 10.*name the currency, if it is not SEK"):
        train(people(300, replace(META, macro_rows=few)), tmp_path / "b", config=CONFIG, run=QUIET)


def test_groups_and_trees_receive_own_columns(panel: Panel) -> None:
    origins = last_record_origins(panel)
    labels = Grouping.fit(panel).labels(panel, origins)
    assert set(labels["extra_race"]) == {"1", "2", "3"}
    assert "family_id" not in labels
    window = Window(panel)
    assert {"extra_race", "extra_enrolled"} <= set(window.categorical)
    assert {"year", "extra_wealth", "extra_wealth_recent"} <= set(window.names)
    assert not [name for name in window.names if "family" in name]
    chosen = Origins(np.array(["p0011"]), np.array([2004]))
    values = dict(zip(window.names, window.features(panel, chosen)[0].tolist(), strict=True))
    assert values["year"] == 2004
    row = panel.frame.filter(pl.col("person_id") == "p0011", pl.col("year") == 2004)
    assert values["extra_wealth"] == pytest.approx(row["extra_wealth"][0])
    simulated = panel.with_frame(panel.frame)
    simulated = replace(simulated, meta=replace(META, simulated=True))
    assert "year" not in Window(simulated).names


def test_the_macro_series_of_a_file_are_in_the_bundle(
    bundle: Bundle, forecaster: Forecaster
) -> None:
    assert bundle.macro["source"] == "us"
    process = forecaster.process
    assert process is not None
    assert (process.history.first_year, process.history.last_year) == (1990, 2009)
    np.testing.assert_allclose(process.history.values[10], MACRO[2000])
    last = np.log1p([MACRO[year][1] for year in (2008, 2009)]).sum()
    assert forecaster.calendar.wage_index(np.array([2007]))[0] == pytest.approx(-last)
    scenario = [
        {"year": year, "unemployment": 0.3, "real_wage_growth": -0.2, "inflation": 0.0}
        for year in (2010, 2011)
    ]
    panel = newcomer("1")
    under_scenario = forecaster.forecast(
        panel, ForecastRequest((1,), beyond_span=True), Draws(scenario=scenario)
    )
    assert under_scenario.table["mean"][0] != mean(forecaster, panel)
    assert forecaster.scenario("high-growth").rows.keys() == set(range(2010, 2020))  # type: ignore[union-attr]
