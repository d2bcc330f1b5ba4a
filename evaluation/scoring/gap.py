"""The share of the gap in CRPS between a reference and the clairvoyant that a model closes."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

CLAIRVOYANT = "clairvoyant"
GAP = "gap_closed"
REFERENCES = ("gkos", "groupq", "carry")  # the first one in a contest is the reference


def select_reference(models: Collection[str]) -> str | None:
    """The reference among `models`; None if there is none."""
    return next((name for name in REFERENCES if name in models), None)


def measure_gap_closed(rows: pl.LazyFrame, unit: str) -> pl.DataFrame:
    """1 - (CRPS - bound) / (CRPS of the reference - bound), by horizon and group.

    The bound is the clairvoyant's CRPS; all CRPS are of log earnings. The standard error is that of
    a ratio of means over paired units, linearised (Cochran 1977, ch. 6).

    Args:
        rows: Model, setting, horizon, group, crps_log and the column `unit`.
        unit: The column of independent units: in-time the person, forward the macro future.

    Returns:
        Per model the value, its standard error, the number n of units and, forward, sd_futures.
        Empty if there is no reference or no clairvoyant, or if the clairvoyant is not better.
    """
    keys = ["setting", "horizon", "group", unit]
    means = (
        rows.group_by("model", *keys, maintain_order=True)
        .agg(pl.col("crps_log").cast(pl.Float64).mean(), pl.len().alias("n"))
        .collect()
    )
    # Without a reference, or without the clairvoyant, the joins leave no row.
    ends = {"reference": select_reference(set(means["model"])) or "", "bound": CLAIRVOYANT}
    paired = means.filter(~pl.col("model").is_in(list(ends.values())))
    for column, name in ends.items():
        end = means.filter(model=name).select(*keys, pl.col("crps_log").alias(column))
        paired = paired.join(end, on=keys, maintain_order="left")
    reduction = pl.col("reference") - pl.col("crps_log")
    gap, units = pl.col("reference") - pl.col("bound"), pl.len().cast(pl.Float64)
    value = reduction.sum() / gap.sum()
    spread = ((reduction - value * gap) ** 2).sum()
    se = pl.when(units > 1).then((spread * units / (units - 1)).sqrt() / gap.sum())
    forward = unit == "draw"
    table = paired.group_by("model", *keys[:-1], maintain_order=True).agg(
        value=value,
        se=se,
        n=(pl.col("n").mean().round() if forward else pl.len()).cast(pl.Int64),
        sd_futures=se * units.sqrt() if forward else pl.lit(None, dtype=pl.Float64),
        gap=gap.sum(),
    )
    return table.filter(pl.col("gap") > 0).select(
        "model",
        "setting",
        "horizon",
        "group",
        pl.lit(GAP).alias("metric"),
        "value",
        "se",
        "n",
        "sd_futures",
    )
