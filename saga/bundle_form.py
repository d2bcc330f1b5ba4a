"""What JSON parts and tables of a bundle must and can have, beside what their readers check.

A bundle of unknown origin may lack anything, or have values of other types. Further keys, such as
those of a report, do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from saga.diagnostics_tables import STORED
from saga.files.stored_values import Number, length
from saga.requests import RolloutName
from saga.training_records import TrainingRecords

_Share = Annotated[float, Field(ge=0, le=1)]
_Weights = dict[str, _Share]  # of trees, by horizon


@dataclass(frozen=True)
class _Named:
    """Another bundle."""

    name: str
    digest: str


@dataclass(frozen=True)
class _Promise:
    epsilon: Number
    delta: Number
    covers: str


@dataclass(frozen=True)
class _Config:
    model: dict[str, Any]
    records: TrainingRecords
    training: dict[str, Any]
    members: Annotated[int, Field(ge=1, le=1000)] = 1
    tree_weights: _Weights | list[_Weights | None] | None = None
    privacy: _Promise | None = None
    source: _Named | None = None


@dataclass(frozen=True)
class _Split:
    panel_id: str
    scheme: str
    shares: Annotated[tuple[Number, ...], length(4)]
    folds: Annotated[int, Field(ge=2, le=1000)] = 2
    salt: str = ""
    ids: list[str] = field(default_factory=list)
    judged: _Named | None = None


@dataclass(frozen=True)
class _Calibration:
    records: TrainingRecords
    method: str
    rollout: RolloutName = "exact"


@dataclass(frozen=True)
class _Fit:
    """Of `saga.fit`."""

    left_out: list[str] = field(default_factory=list)
    leaderboard: list[dict[str, Any]] | None = None
    columns: dict[str, str] | None = None


@dataclass(frozen=True)
class _Metrics:
    training: dict[str, Any]
    calibration: _Calibration | None = None
    fit: _Fit | None = None


@dataclass(frozen=True)
class _Macro:
    series: list[str] | None = None
    source: str = ""
    groups: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Verdict:
    word: str


@dataclass(frozen=True)
class _Audit:
    verdict: _Verdict


# The kind of each JSON part; transforms.json is read by `saga.features.transforms`.
FORMS = {"config": _Config, "split": _Split, "metrics": _Metrics, "macro": _Macro, "audit": _Audit}

# Columns of the errors of groups (`saga.evaluation.group_errors`), and of those of vintages.
GROUP_ERRORS: dict[str, type[pl.DataType]] = {
    "horizon": pl.Int32,
    **dict.fromkeys(("grouping", "group", "statistic"), pl.String),
    "persons": pl.Int64,
    **dict.fromkeys(
        (
            *("outcome", "forecast", "lower_90", "upper_90"),
            *("error", "se", "sd_economy", "rule"),
        ),
        pl.Float64,
    ),
}
# Columns that a table must have to be opened; what else is in it, its readers check.
COLUMNS: dict[str, Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "calibration": {"kind": pl.String},
    "diagnostics": STORED,
    "vintages": {"cutoff": pl.Int32, **GROUP_ERRORS},
}
