"""The register's true futures: what became of the same people in each drawn macro future."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.origins import Origins
from saga.errors import InputError, Problem


def true_economies(directory: Path) -> dict[int, pl.DataFrame]:
    """The economy of each drawn future in `directory/future/macro.parquet`, by draw, a row a year in order."""
    years = pl.read_parquet(directory / "future" / "macro.parquet").sort("draw", "year")
    return {int(draw): part for (draw,), part in years.group_by(["draw"], maintain_order=True)}


def true_futures(
    directory: Path, origins: Origins, horizons: Sequence[int], *, price_year: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(draw, outcomes (n, H), real money) for each `directory/future/draw=k` of a generated register, in the order of k.

    A future has one row a person and year to age 64: earnings 0 after a death, null abroad. Outcomes are NaN where there is no row or
    no value. Only the persons of `origins` are held. Raises InputError when there is no future, or when it is in the prices of
    another year than `price_year`.
    """
    draws = sorted(
        (int(path.name.removeprefix("draw=")), path) for path in directory.glob("future/draw=*")
    )
    if not draws:
        fix = "Generate the register with --future-to and --future-draws, or leave the forward setting out."
        raise InputError(
            "The register has no futures",
            [Problem("no-futures", f"no future/draw=k in {directory.name}", fix)],
        )
    about = directory / "register.json"
    prices = (
        json.loads(about.read_text(encoding="utf-8")).get("future_prices")
        if about.exists()
        else None
    )
    if prices is not None and prices != price_year:
        problem = Problem(
            "future-prices",
            f"the futures are in prices of {prices}, the panel in those of {price_year}",
            "Use one year's prices.",
        )
        raise InputError("Futures and panel cannot be compared", [problem])
    ahead = np.asarray(list(horizons))
    wanted = pl.DataFrame(
        {
            "row": np.repeat(np.arange(len(origins)), len(ahead)),
            "year": (origins.year[:, None] + ahead).ravel(),
        },
        schema={"row": pl.UInt32, "year": pl.Int32},
    ).join(origins.frame().with_row_index("row"), on="row", maintain_order="left")
    persons = origins.frame().lazy().select("person_id")
    for draw, path in draws:
        files = pl.scan_parquet(path / "**" / "*.parquet", hive_partitioning=False).select(
            "person_id", "year", "earnings"
        )
        rows = files.join(persons, on="person_id", how="semi").collect()
        found = wanted.join(rows, on=["person_id", "year"], how="left", maintain_order="left")
        yield (
            draw,
            found["earnings"]
            .cast(pl.Float64)
            .fill_null(np.nan)
            .to_numpy()
            .reshape(len(origins), len(ahead)),
        )
