"""Panels from a few rows."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from saga import schema
from saga.register.validation.register_arrays import TAXABLE_TRANSFERS

Simulate = Callable[..., pl.DataFrame]  # the fixture `simulate`

Row = dict[str, object]


def panel_of(rows: list[Row]) -> pl.DataFrame:
    """The rows as a panel, sorted: of the columns not named, benefits are 0, the others null."""
    frame = pl.DataFrame(rows, infer_schema_length=None)
    defaults = [
        pl.lit(0.0 if column.name in TAXABLE_TRANSFERS else None, column.dtype).alias(column.name)
        for column in schema.COLUMNS
        if column.name not in frame.columns
    ]
    return (
        frame.with_columns(*defaults)
        .cast(pl.Schema(schema.polars_schema()))
        .select(schema.NAMES)
        .sort("person_id", "year")
    )
