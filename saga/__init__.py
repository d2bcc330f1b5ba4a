"""SAGA: forecasts of life-cycle earnings as full distributions with calibrated intervals.

The names below are the public surface. They are imported on first use, so that `import saga` stays
fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga.batch.engine import score
    from saga.batch.products import Recipe
    from saga.bundle import Bundle
    from saga.data.panel import Panel
    from saga.data.reading import read_panel
    from saga.errors import InputError, SagaError, UsageError
    from saga.forecaster import Forecaster
    from saga.macro.scenarios import Scenario
    from saga.paths import Paths
    from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest

__all__ = [
    "Bundle",
    "Draws",
    "ForecastRequest",
    "Forecaster",
    "InputError",
    "LifetimeRequest",
    "Panel",
    "Paths",
    "PathsRequest",
    "Recipe",
    "SagaError",
    "Scenario",
    "UsageError",
    "read_panel",
    "score",
]

_HOMES = {
    "Bundle": "saga.bundle",
    "Draws": "saga.requests",
    "ForecastRequest": "saga.requests",
    "Forecaster": "saga.forecaster",
    "InputError": "saga.errors",
    "LifetimeRequest": "saga.requests",
    "Panel": "saga.data.panel",
    "Paths": "saga.paths",
    "PathsRequest": "saga.requests",
    "Recipe": "saga.batch.products",
    "SagaError": "saga.errors",
    "Scenario": "saga.macro.scenarios",
    "UsageError": "saga.errors",
    "read_panel": "saga.data.reading",
    "score": "saga.batch.engine",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'saga' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
