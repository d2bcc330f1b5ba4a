"""What outcomes in the ledger say: figures by year."""

from __future__ import annotations

import numpy as np
import polars as pl

from saga.conformal.calibration_table import ALL
from saga.small_groups import MIN_PERSONS

HORIZONS = (1, 2, 5, 10, 20)
COVERAGE = 0.9


def diagnose_years(settled: pl.DataFrame) -> pl.DataFrame:
    """A row per outcome year, horizon and group; the group "all" has all persons.

    `settled` are the outcomes of `Ledger.settled`. Figures of fewer than 10 persons are null.
    Columns:

    - `year`, `horizon`, `group`, and `persons`, their number
    - `covered`, `below`, `above`: shares inside, below and above the published central interval of
      90 %
    - `bundle_covered`: share inside the interval of the bundle, before outcomes moved it
    - `rank`: mean rank of the outcomes in the bundle's forecast, 0.5 if it is right
    - `zeros`: share without earnings, and `p_zero`, its published probability
    """
    tail = (1 - COVERAGE) / 2
    rows = settled.select(
        "year",
        "horizon",
        "group",
        rank="bundle_rank",
        below=pl.col("rank") <= tail,
        above=pl.col("rank") > 1 - tail,
        bundle_covered=(pl.col("bundle_rank") > tail) & (pl.col("bundle_rank") <= 1 - tail),
        zeros="zero",
        p_zero="p_zero",
    )
    everybody = rows.with_columns(pl.lit(ALL).alias("group"))
    figures = ("covered", "below", "above", "bundle_covered", "rank", "zeros", "p_zero")
    by_cell = (
        pl.concat([everybody, rows.filter(pl.col("group") != ALL)])
        .group_by("year", "horizon", "group")
        .agg(
            pl.len().alias("persons"),
            pl.col("^(?:below|above|bundle_covered|rank|zeros|p_zero)$").mean(),
        )
        .with_columns(covered=1 - pl.col("below") - pl.col("above"))
        .sort("year", "horizon", "group")
    )
    shown = pl.col("persons") >= MIN_PERSONS
    return by_cell.select(
        "year",
        "horizon",
        "group",
        "persons",
        *(pl.when(shown).then(pl.col(name)).alias(name) for name in figures),
    )


def outside_share(by_cell: pl.DataFrame, year: int, horizon: int) -> dict[str, tuple[float, int]]:
    """Group -> share outside the bundle's 90 % interval, and persons, in one year and horizon."""
    rows = by_cell.filter(
        (pl.col("year") == year)
        & (pl.col("horizon") == horizon)
        & pl.col("bundle_covered").is_not_null()
    )
    return {
        group: (1 - float(np.float64(inside)), persons)
        for group, inside, persons in rows.select("group", "bundle_covered", "persons").iter_rows()
    }
