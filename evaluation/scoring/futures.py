"""The register's true futures: outcomes of the same persons in each drawn macro future."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins
from saga.errors import InputError, Problem


def macro_of_futures(directory: Path) -> dict[int, pl.DataFrame]:
    """Macro series of each drawn future (`directory/future/macro.parquet`): draw -> years."""
    years = pl.read_parquet(directory / "future" / "macro.parquet", glob=False).sort("draw", "year")
    return {int(draw): part for (draw,), part in years.group_by(["draw"], maintain_order=True)}


def true_futures(
    directory: Path, origins: Origins, horizons: Sequence[int], *, price_year: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(draw, outcomes (n, H) in real money) for each `directory/future/draw=k`, in the order of k.

    A future has one row per person and year to age 64: earnings 0 after a death, null abroad.
    Outcomes are NaN without a row or a value. Only the persons of `origins` are read. Raises
    InputError if there is no future, or if it is in prices of another year than `price_year`.
    """
    draws = sorted(
        (int(path.name.removeprefix("draw=")), path) for path in directory.glob("future/draw=*")
    )
    if not draws:
        fix = (
            "Generate the register with --future-to and --future-draws, "
            "or leave the forward setting out."
        )
        raise InputError(
            "The register has no futures",
            [Problem("no-futures", f"no future/draw=k in {directory.name}", fix)],
        )
    record = directory / "register.json"
    text = record.read_text(encoding="utf-8") if record.exists() else "{}"
    prices = json.loads(text).get("future_prices")
    if prices is not None and prices != price_year:
        problem = Problem(
            "future-prices",
            f"the futures are in prices of {prices}, the panel in those of {price_year}",
            "Use one year's prices.",
        )
        raise InputError("Futures and panel cannot be compared", [problem])
    ahead = np.asarray(list(horizons))
    person_years = pl.DataFrame(
        {
            "row": np.repeat(np.arange(len(origins)), len(ahead)),
            "year": (origins.year[:, None] + ahead).ravel(),
        },
        schema={"row": pl.UInt32, "year": pl.Int32},
    ).join(origins.frame().with_row_index("row"), on="row", maintain_order="left")
    persons = origins.frame().lazy().select("person_id")
    for draw, path in draws:
        files = sorted(path.rglob("*.parquet"))
        earned = pl.scan_parquet(files, glob=False, hive_partitioning=False).select(
            "person_id", "year", "earnings"
        )
        rows = earned.join(persons, on="person_id", how="semi").collect()
        outcomes = person_years.join(
            rows, on=["person_id", "year"], how="left", maintain_order="left"
        )
        earnings = outcomes["earnings"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        yield draw, earnings.reshape(len(origins), len(ahead))
