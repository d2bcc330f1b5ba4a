"""Backbones and heads of other distributions, such as those of the ablation study.

A distribution names them as entry points of the group `saga.variants`; `saga-forecast-evidence`
has `lstm`, `feedforward`, `mixture` and `quantiles`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from saga.errors import UsageError


def load_variant(name: str) -> Any:
    """The class of the backbone or head `name`; raises UsageError if it is not installed."""
    for entry in entry_points(group="saga.variants", name=name):
        return entry.load()
    raise UsageError(
        f"A network with '{name}' needs the evidence, which is not installed. Run: "
        "pip install 'saga-forecast[evidence]'"
    )
