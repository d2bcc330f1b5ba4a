"""SAGA: forecasts of life-cycle earnings as full distributions with calibrated intervals.

The names below are the public surface. They are imported on first use, so that `import saga` stays
fast.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Threads of PyTorch and LightGBM that wait would keep a core busy, so that programs side by side
# take ten times as long. OpenMP reads this when PyTorch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from saga.batch.engine import score
    from saga.batch.products import Recipe
    from saga.bundle import Bundle
    from saga.data.panel import Panel
    from saga.data.reading import read_panel
    from saga.errors import InputError, SagaError, UsageError
    from saga.forecaster import Forecaster
    from saga.forecaster_fit import fit
    from saga.macro.scenarios import Scenario
    from saga.paths import Paths
    from saga.population.group_forecast import forecast_groups
    from saga.requests import (
        Draws,
        ForecastRequest,
        LifetimeRequest,
        PathsRequest,
        PensionRequest,
        PopulationRequest,
    )

__all__ = [
    "Bundle", "Draws", "ForecastRequest", "Forecaster", "InputError", "LifetimeRequest", "Panel",
    "Paths", "PathsRequest", "PensionRequest", "PopulationRequest", "Recipe", "SagaError",
    "Scenario", "UsageError", "fit", "forecast_groups", "read_panel", "score",
]  # fmt: skip

_NAMES_BY_MODULE = {
    "saga.batch.engine": ("score",),
    "saga.batch.products": ("Recipe",),
    "saga.bundle": ("Bundle",),
    "saga.data.panel": ("Panel",),
    "saga.data.reading": ("read_panel",),
    "saga.errors": ("InputError", "SagaError", "UsageError"),
    "saga.forecaster": ("Forecaster",),
    "saga.forecaster_fit": ("fit",),
    "saga.macro.scenarios": ("Scenario",),
    "saga.paths": ("Paths",),
    "saga.population.group_forecast": ("forecast_groups",),
    "saga.requests": (
        "Draws",
        "ForecastRequest",
        "LifetimeRequest",
        "PathsRequest",
        "PensionRequest",
        "PopulationRequest",
    ),
}


def __getattr__(name: str) -> object:
    for module, names in _NAMES_BY_MODULE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'saga' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
