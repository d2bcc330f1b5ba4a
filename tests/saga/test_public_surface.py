"""The public names: few, sorted, imported on first use, and light before that."""

from __future__ import annotations

import subprocess
import sys

import pytest

import saga

HEAVY = ("torch", "polars", "pandas", "scipy", "fastapi", "saga.training", "saga.calibration")


def test_the_public_names_are_these() -> None:
    assert saga.__all__ == [
        "Bundle",
        "Draws",
        "ForecastRequest",
        "Forecaster",
        "InputError",
        "LifetimeRequest",
        "Panel",
        "Paths",
        "PathsRequest",
        "PensionRequest",
        "PopulationRequest",
        "Recipe",
        "SagaError",
        "Scenario",
        "UsageError",
        "fit",
        "forecast_groups",
        "read_panel",
        "score",
    ]
    assert dir(saga) == saga.__all__
    for name in saga.__all__:
        assert getattr(saga, name).__name__ == name


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Forecast'"):
        saga.Forecast  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import saga",
        "import saga.client",
        "from saga import Draws, ForecastRequest, LifetimeRequest, PathsRequest, UsageError",
        "import saga.cli; saga.cli.app(['--version'], standalone_mode=False)",
        "import saga.cli; saga.cli.app(['forecast', '--help'], standalone_mode=False)",
    ],
)
def test_the_package_the_version_and_the_help_load_no_heavy_library(code: str) -> None:
    script = f"import sys\n{code}\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
