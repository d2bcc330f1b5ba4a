"""The share of the gap between a reference and the clairvoyant that a model closes, in CRPS of log earnings."""

from __future__ import annotations

import polars as pl

BOUND = "clairvoyant"
GAP = "gap_closed"
REFERENCES = ("gkos", "groupq", "carry")  # the first of them that takes part is the reference


def reference(models: set[str]) -> str | None:
    """The model that the gap is measured from, or None where there is no gap to measure."""
    return next((name for name in REFERENCES if name in models), None) if BOUND in models else None


def gap_closed(rows: pl.LazyFrame, unit: str) -> pl.DataFrame:
    """1 - (CRPS of the model - CRPS of the clairvoyant) / (CRPS of the reference - CRPS of the clairvoyant), by horizon and group.

    `rows`: model, setting, horizon, group, crps_log and `unit`, the column that names independent units (in-time the person, forward
    the macro future). A model's row: value, its standard error (ratio of means over paired units, linearised; Cochran 1977, ch. 6), n
    units and, forward, sd_futures. No rows without a reference and the clairvoyant, or where the clairvoyant is no better.
    """
    keys = ["setting", "horizon", "group", unit]
    means = (
        rows.group_by("model", *keys, maintain_order=True)
        .agg(pl.col("crps_log").cast(pl.Float64).mean(), pl.len().alias("n"))
        .collect()
    )
    begin = reference(set(means["model"])) or BOUND

    def of(model: str, column: str) -> pl.DataFrame:
        return means.filter(pl.col("model") == model).select(
            *keys, pl.col("crps_log").alias(column)
        )

    judged = means.filter(~pl.col("model").is_in([BOUND, begin]))
    paired = judged.join(of(begin, "begin"), on=keys, maintain_order="left").join(
        of(BOUND, "end"), on=keys, maintain_order="left"
    )
    won, gap, units = (
        pl.col("begin") - pl.col("crps_log"),
        pl.col("begin") - pl.col("end"),
        pl.len().cast(pl.Float64),
    )
    value = won.sum() / gap.sum()
    spread = ((won - value * gap) ** 2).sum()
    se = pl.when(units > 1).then((spread * units / (units - 1)).sqrt() / gap.sum())
    forward = unit == "draw"
    table = paired.group_by("model", *keys[:-1], maintain_order=True).agg(
        value=value,
        se=se,
        n=(pl.col("n").mean().round() if forward else pl.len()).cast(pl.Int64),
        sd_futures=se * units.sqrt() if forward else pl.lit(None, dtype=pl.Float64),
        gap=gap.sum(),
    )
    named = table.filter(pl.col("gap") > 0).with_columns(pl.lit(GAP).alias("metric"))
    return named.select(
        "model", "setting", "horizon", "group", "metric", "value", "se", "n", "sd_futures"
    )
