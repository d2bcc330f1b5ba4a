"""A training of few steps of a network of few units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import polars as pl
import pytest
import torch
from saga.training.data import Batch
from saga.training.harness import RunOptions
from saga.training.module import ForecastModule
from saga.training.train_config import TrainConfig

from saga.data.panel import Panel, PanelMeta
from saga.model import ModelConfig
from saga.schema import extra_column
from tests.panels import rows_of

TOY = TrainConfig(
    name="toy",
    model=ModelConfig(width=8, layers=1, heads=1, bins=8, head_width=8),
    batch_persons=16,
    max_steps=12,
    warmup_steps=2,
    validate_every=6,
    precision="32-true",
)

QUIET = RunOptions()
RACE, UNION, WEALTH = (
    extra_column("race", "category", static=True),
    extra_column("union", "category"),
    extra_column("wealth", "number", lasting=True),
)


@contextmanager
def ctrl_c_before(step: int) -> Iterator[None]:
    """Ctrl-C at the beginning of a step of the training in this block, which ends by it."""
    unpatched = ForecastModule.training_step

    def stopped(self: ForecastModule, batch: Batch, index: int) -> torch.Tensor:
        if self.global_step == step:
            raise KeyboardInterrupt
        return unpatched(self, batch, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForecastModule, "training_step", stopped)
        with pytest.raises(KeyboardInterrupt):
            yield


def make_panel(extra: Sequence[str] = (), *, factor: float = 1.0, zeros: bool = True) -> Panel:
    """240 persons in 2005-2016 with own columns `extra` and the schema's columns in it."""
    rng, rows = np.random.default_rng(0), []
    for i in range(240):
        level = rng.normal(12.4, 0.4)
        for year in range(2005, 2017):
            zero, noise = zeros and rng.random() < 0.1, rng.normal(0, 0.2)
            earnings = 0.0 if zero else factor * float(np.exp(level + noise))
            rows.append((f"p{i:03d}", year, 1960 + i % 25, earnings))
    frame = rows_of(rows)
    number = pl.int_range(pl.len())
    values = {
        "sex": pl.when(number // 12 % 2 == 0).then(pl.lit("female")).otherwise(pl.lit("male")),
        "spouse_earnings": (number * 7 % 1_000).cast(pl.Float64),
        RACE.name: (number // 12 % 3).cast(pl.String),
        UNION.name: pl.when(number % 5 > 0).then((number % 2).cast(pl.String)),
        WEALTH.name: pl.when(number % 3 > 0).then((number % 100).cast(pl.Float64)),
    }
    columns = tuple(column for column in (RACE, UNION, WEALTH) if column.name in extra)
    frame = frame.with_columns(values[name].alias(name) for name in extra)
    return Panel.of(frame, PanelMeta("toy", extra=columns))
