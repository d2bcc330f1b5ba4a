"""The register's true futures: what became of the same people in each drawn macro future."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.errors import InputError, Problem
from saga.ingest import read_panel
from saga.outcomes import Origins, realised
from saga.panel import Panel

LABELS = ("exit_year", "exit_reason")


def true_futures(directory: Path, past: Panel, origins: Origins, horizons: Sequence[int]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(draw, outcomes (n, H) in real money) for each `directory/future/draw=k`, in the order of k.

    `directory` is a register made with futures; its `register.json` says in which year's prices amounts are (otherwise those of `past`).
    Only the persons of `origins` are read. 0 after a death, NaN abroad, unobserved, beyond the future's last year or beyond age 64.
    Raises InputError when there is no future.
    """
    draws = sorted((int(path.name.removeprefix("draw=")), path) for path in directory.glob("future/draw=*"))
    if not draws:
        fix = "Generate the register with --future-to and --future-draws, or leave the forward setting out."
        raise InputError("The register has no futures", [Problem("no-futures", f"no future/draw=k in {directory.name}", fix)])
    about = directory / "register.json"
    stated = json.loads(about.read_text()).get("prices") if about.exists() else None
    prices = stated if isinstance(stated, int) else past.meta.price_year
    persons = pl.Series(origins.person_id.tolist(), dtype=pl.String)
    for draw, path in draws:
        files = pl.scan_parquet(path / "**" / "*.parquet", hive_partitioning=False)
        rows = files.filter(pl.col("person_id").cast(pl.String).is_in(persons.implode()))
        last = int(files.select(pl.col("year").max()).collect().item())
        future = read_panel(rows.collect(), prices=prices, panel_id=past.meta.panel_id)
        yield draw, realised(_joined(past, future), origins, list(horizons), end=last)


def _joined(past: Panel, future: Panel) -> Panel:
    """Past and future rows as one panel; exits are those of this future."""
    rows = pl.concat([past.frame.with_columns(pl.lit(None, dtype=past.frame.schema[name]).alias(name) for name in LABELS), future.frame])
    exits = future.frame.group_by("person_id").agg(pl.col(name).drop_nulls().first() for name in LABELS)
    joined = rows.drop(LABELS).join(exits, on="person_id", how="left").select(past.frame.columns)
    return past.with_frame(joined.unique(["person_id", "year"], keep="last", maintain_order=True).sort("person_id", "year"))
