"""Every kind of row that is written to calibration.parquet has a reader, and old tables load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.diagnosis import diagnose
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold

from saga.bundle import Bundle
from saga.conformal.calibration_table import SCHEMA
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import FAMILIES
from saga.data.groups import Grouping
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import BundleError
from saga.forecaster import Forecaster
from saga.requests import Draws
from tests.calibration.worlds import World, draw_paths

SHIPPED = Path("bundles/small")


@pytest.fixture(scope="module")
def everything(world: World, register_panel: Panel) -> Calibrator:
    """A calibrator that writes every kind of row of the prediction sets."""
    marginals, outcomes = world(3_000, 41)
    sex = np.random.default_rng(0).choice(["female", "male"], 3_000)
    marginals = replace(marginals, groups={"sex": sex})
    paths = draw_paths(marginals.take(~in_map_fold(marginals.person_id, 0)))
    calibrator = fit_calibration(marginals, outcomes, seed=0, paths=paths)
    grouping = Grouping.fit(register_panel.only(persons_of(register_panel, "train")))
    return replace(calibrator, grouping=grouping, drift={(1, 0.9): (0.012, 7)})


def test_each_kind_of_row_changes_what_is_read(everything: Calibrator, world: World) -> None:
    table = everything.to_table()
    kinds = set(table["kind"])
    expected = {"cut", "map", "threshold", "shift", "stretch", "origin_years", "drift", *FAMILIES}
    assert kinds == expected
    for kind in kinds - {"threshold"}:  # without these nothing loads
        without = Calibrator.from_table(table.filter(pl.col("kind") != kind))
        assert without.digest != everything.digest, f"nothing reads {kind}"
    assert Calibrator.from_table(table).digest == everything.digest
    cqr = fit_cqr(*world(300, 42)).to_table()
    assert set(cqr["kind"]) == {"cqr", "origin_years"}
    assert Calibrator.from_table(cqr).to_table().equals(cqr)


def test_a_table_of_another_form_is_refused(everything: Calibrator) -> None:
    table = everything.to_table()
    assert dict(table.schema) == SCHEMA
    with pytest.raises(BundleError, match="columns"):
        Calibrator.from_table(table.drop("n"))
    with pytest.raises(BundleError, match="incomplete"):
        Calibrator.from_table(table.filter(pl.col("kind") != "threshold"))


def test_calibrating_writes_only_kinds_that_a_calibrator_writes(
    tiny_bundle: Path, register_panel: Panel, tmp_path: Path
) -> None:
    target = register_panel.only(persons_of(register_panel, "test"))
    options = CalibrationOptions(n_paths=25, target_by=("sex",))
    bundle = calibrate_bundle(
        tiny_bundle, register_panel, options, out=tmp_path / "bundle", target=target
    )
    assert bundle.calibration is not None
    assert Calibrator.from_table(bundle.calibration).to_table().equals(bundle.calibration)


def test_the_shipped_table_loads_and_rows_of_unknown_kinds_are_skipped() -> None:
    table = Bundle.load(SHIPPED).calibration
    assert table is not None
    calibrator = Calibrator.from_table(table)
    assert calibrator.method == "sets"
    assert calibrator.to_table().sort(pl.all()).equals(table.sort(pl.all()))
    unknown = table.head(1).with_columns(kind=pl.lit("weight"))
    assert Calibrator.from_table(pl.concat([table, unknown])).digest == calibrator.digest


def test_the_report_shows_the_drift_term(tiny_bundle: Path, register_panel: Panel) -> None:
    forecaster = Forecaster.load(tiny_bundle)
    forecaster.calibrator = replace(forecaster.calibrator, drift={(1, 0.9): (0.0123, 7)})
    diagnostics = diagnose(forecaster, register_panel, horizons=(1, 2), draws=Draws(25), persons=60)
    assert diagnostics["guarantees"]["drift_term"].to_list() == [0.0123, None]
