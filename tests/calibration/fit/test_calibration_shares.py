"""`saga calibrate --shares`: a panel of other persons gives more of them to the calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle

from saga.data.panel import Panel
from saga.data.split import parse_shares, percents_of, persons_of
from saga.errors import UsageError

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
