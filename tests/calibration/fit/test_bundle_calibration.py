"""`saga calibrate`: its table, its persons, and what maps and thresholds are fitted on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold

from saga.bundle import Bundle
from saga.cli.calibrate_commands import _describe_reach
from saga.conformal.calibration_table import SCHEMA
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import FAMILIES
from saga.data.groups import Grouping
from saga.data.panel import Panel
from saga.data.split import parse_shares, percents_of, persons_of
from saga.errors import BundleError, UsageError
from saga.forecaster import Forecaster
from tests.calibration.worlds import draw_paths, draw_world
from tests.conftest import quick_calibration

SHIPPED = Path("bundles/small")


@pytest.fixture(scope="module")
def everything(register_panel: Panel) -> Calibrator:
    """A calibrator that writes every kind of row of the prediction sets."""
    marginals, outcomes = draw_world(3_000, 41)
    sex = np.random.default_rng(0).choice(["female", "male"], 3_000)
    marginals = replace(marginals, groups={"sex": sex})
    paths = draw_paths(marginals.take(~in_map_fold(marginals.person_id, 0)))
    calibrator = fit_calibration(marginals, outcomes, seed=0, paths=paths)
    grouping = Grouping.fit(register_panel.only(persons_of(register_panel, "train")))
    return replace(calibrator, grouping=grouping, drift={(1, 0.9): (0.012, 7)})


def test_each_kind_of_row_changes_what_is_read(everything: Calibrator) -> None:
    table = everything.to_table()
    kinds = set(table["kind"])
    expected = {"cut", "map", "threshold", "shift", "stretch", "origin_years", "drift", *FAMILIES}
    assert kinds == expected
    for kind in kinds - {"threshold"}:  # without these nothing loads
        without = Calibrator.from_table(table.filter(pl.col("kind") != kind))
        assert without.digest != everything.digest, f"nothing reads {kind}"
    assert Calibrator.from_table(table).digest == everything.digest
    cqr = fit_cqr(*draw_world(300, 42)).to_table()
    assert set(cqr["kind"]) == {"cqr", "origin_years"}
    assert Calibrator.from_table(cqr).to_table().equals(cqr)


@pytest.mark.parametrize(
    ("horizons", "told"),
    [
        ([], "none (too few persons)"),
        ([1], "to 1 year ahead"),
        ([1, 2, 3], "to 3 years ahead"),
        ([2, 4, 6], "2, 4 and 6 years ahead"),  # a panel of every second year
        ([1, 2, 5], "1, 2 and 5 years ahead"),
    ],
)
def test_the_years_ahead_with_intervals_are_told_as_they_are(
    horizons: list[int], told: str
) -> None:
    assert _describe_reach(horizons) == told


def test_a_table_of_another_form_is_refused(everything: Calibrator) -> None:
    table = everything.to_table()
    assert dict(table.schema) == SCHEMA
    with pytest.raises(BundleError, match="columns"):
        Calibrator.from_table(table.drop("n"))
    with pytest.raises(BundleError, match="lacks thresholds"):
        Calibrator.from_table(table.filter(pl.col("kind") != "threshold"))


def test_the_shipped_table_loads_and_rows_of_unknown_kinds_are_skipped() -> None:
    table = Bundle.load(SHIPPED).calibration
    assert table is not None
    calibrator = Calibrator.from_table(table)
    assert calibrator.method == "sets"
    assert calibrator.to_table().sort(pl.all()).equals(table.sort(pl.all()))
    unknown = table.head(1).with_columns(kind=pl.lit("weight"))
    assert Calibrator.from_table(pl.concat([table, unknown])).digest == calibrator.digest


SHARES = parse_shares([20, 10, 50, 20])


@pytest.fixture(scope="module")
def other_panel(register_panel: Panel) -> Panel:
    """Every third person of the register under another name: nobody trained the bundle."""
    few = register_panel.only(register_panel.persons()[::3])
    return replace(few, meta=replace(few.meta, panel_id="other"))


@pytest.mark.thorough
@pytest.mark.usefixtures("two_origins")
def test_calibration_persons_are_those_of_the_shares(
    tiny_bundle: Path, other_panel: Panel, tmp_path: Path
) -> None:
    few, many = (
        calibrate_bundle(
            tiny_bundle,
            other_panel,
            CalibrationOptions(n_paths=25, shares=shares),
            out=tmp_path / name,
        )
        for name, shares in {"few": None, "many": SHARES}.items()
    )
    chosen = persons_of(other_panel, "calibration", SHARES)
    judged = persons_of(other_panel, "test")  # by the standard split, as `saga evaluate` does
    assert not set(chosen) & set(judged)
    assert few.metrics["calibration"]["persons"] < many.metrics["calibration"]["persons"]
    assert many.metrics["calibration"]["persons"] <= len(chosen)
    assert many.metrics["calibration"]["shares"] == percents_of(SHARES) == [20, 10, 50, 20]
    assert "shares" not in few.metrics["calibration"]


def test_shares_are_refused_where_training_persons_would_calibrate(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="trained on: the panel is"):
        calibrate_bundle(
            tiny_bundle, register_panel, CalibrationOptions(shares=SHARES), out=tmp_path / "bundle"
        )
    assert not (tmp_path / "bundle").exists()


@pytest.mark.thorough
def test_maps_follow_the_realised_economy(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the maps know the economy: the persons behind thresholds are the same without it."""
    monkeypatch.setattr("saga.calibration.fit.maps._MAP_WEIGHTS", np.ones(1))  # maps of few persons
    known = register_panel.only(register_panel.persons()[::2])
    unknown = replace(known, meta=replace(known.meta, macro=None))
    tables = []
    for name, panel in (("known", known), ("unknown", unknown)):
        options = CalibrationOptions(n_paths=25, map_persons=30)
        with quick_calibration():
            bundle = calibrate_bundle(tiny_bundle, panel, options, out=tmp_path / name)
        assert bundle.calibration is not None
        tables.append(bundle.calibration)
    maps, thresholds = (
        [table.filter(kind=kind, horizon=1, group="all") for table in tables]
        for kind in ("map", "threshold")
    )
    assert not maps[0].equals(maps[1])
    assert thresholds[0]["n"].equals(thresholds[1]["n"])


def test_there_is_no_realised_macro_without_series_in_bundle_panel_and_years(
    tiny_bundle: Path, register_panel: Panel
) -> None:
    forecaster = Forecaster.load(tiny_bundle)
    scenario = forecaster.realised_macro(register_panel, 2015)
    assert scenario is not None
    assert max(scenario.rows) == 2015
    assert forecaster.realised_macro(register_panel, 1980) is None
    without = replace(register_panel, meta=replace(register_panel.meta, macro=None))
    assert forecaster.realised_macro(without, 2015) is None
    other = forecaster.with_model(replace(forecaster.model, process=None))
    assert other.realised_macro(register_panel, 2015) is None
