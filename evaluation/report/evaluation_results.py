"""The results of one evaluation: its tables, read from the files of a directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from saga.files.tables import read_provenance


@dataclass(frozen=True, eq=False)
class Results:
    """The tables of one evaluation; None if a table was not made."""

    metrics: pl.DataFrame
    provenance: Mapping[str, Any]
    comparisons: pl.DataFrame | None = None
    lifetimes: pl.DataFrame | None = None
    variants: pl.DataFrame | None = None
    estimates: pl.DataFrame | None = None
    cost: pl.DataFrame | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The Parquet files of `folder`."""
        names = ("comparisons", "lifetimes", "variants", "estimates", "cost")
        tables = {
            name: pl.read_parquet(file, glob=False)
            for name in names
            if (file := folder / f"{name}.parquet").is_file()
        }
        metrics = folder / "metrics.parquet"
        return cls(pl.read_parquet(metrics, glob=False), read_provenance(metrics), **tables)
