"""Shared fixtures: one small register and one tiny bundle, trained and calibrated for real, a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from saga.ingest import read_panel
from saga.panel import Panel


@pytest.fixture(scope="session")
def register_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated register of 2,000 persons with two true futures."""
    from saga.register.simulate import generate_register

    out = tmp_path_factory.mktemp("register") / "register"
    generate_register(out, persons=2_000, seed=7, future_to=2042, future_draws=2)
    return out


@pytest.fixture(scope="session")
def register_panel(register_dir: Path) -> Panel:
    """The register's panel as `read_panel` gives it."""
    return read_panel(register_dir)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory, register_panel: Panel) -> Path:
    """A bundle of configuration `tiny`, trained and calibrated on the small register."""
    from calibration.calibrate import calibrate
    from training.fit import train

    out = tmp_path_factory.mktemp("bundle") / "tiny"
    train(register_panel, out, config="tiny", seed=7, progress=False, command="saga train --config tiny")
    calibrate(out, register_panel, seed=7, paths=50)
    return out
