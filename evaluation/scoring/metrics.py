"""The metrics table: means of scores by horizon and group, with clustered standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import polars as pl
from saga.calibration.diagnostics.verdicts import coverage_band
from saga.evaluation.scoring.gap import GAP, measure_gap_closed

from saga.requests import COVERAGE


def percent_names(name: str) -> tuple[str, ...]:
    """A metric's names, one per coverage: "interval" -> "interval_50", ..."""
    return tuple(f"{name}_{round(100 * coverage)}" for coverage in COVERAGE)


SCORES = (
    "crps_log",
    "crps_sek",
    "mae_log",
    "rmse_log",
    "pinball_log",
    "brier_zero",
    "logscore",
    *percent_names("interval"),
    *percent_names("width"),
)
METRICS = (*SCORES, *percent_names("coverage"))
# Edges of the bins of p_zero in which coverage is shown.
ZERO_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
ZERO = "p_zero"  # name of this grouping
COLUMNS = {
    "model": pl.String(),
    "setting": pl.String(),
    "metric": pl.String(),
    "horizon": pl.Int32(),
    "group": pl.String(),
    "value": pl.Float64(),
    "se": pl.Float64(),
    "n": pl.Int64(),
    "sd_futures": pl.Float64(),
    "band_lower": pl.Float64(),
    "band_upper": pl.Float64(),
}
BY = ("model", "setting", "horizon")
CLUSTER = "cluster"  # column of groups with the family of each person


def metrics_table(
    scores: pl.LazyFrame,
    groups: pl.DataFrame,
    horizons: Sequence[int],
    *,
    calibrated_on: Mapping[int, int] | None = None,
) -> pl.DataFrame:
    """The metrics table, one row per (model, setting, metric, horizon, group).

    `n` is the number of persons with a score (forward: mean over futures). In-time, `se` is
    clustered by person, or by family if `groups` has the column CLUSTER. Forward, it is the
    standard error of the mean over drawn macro futures, and `sd_futures` is the standard deviation
    between them. Coverage in-time has a band: the observed share lies in it with probability 95 %
    if the sets have their stated coverage. For `saga` over all persons the band accounts for the
    numbers of calibration and test persons, otherwise only for that of test persons. `gap_closed`
    is defined in `scoring.gap`. A horizon without an outcome has rows with n = 0 and no
    value, for the group `all` only. `saga` also has groups by its own probability of zero, such as
    "p_zero=05-10" (per cent).

    Args:
        scores: Model, setting, draw (null in-time, else the macro future's number), person_id,
            horizon, p_zero and one column per metric (null: no score; `rmse_log` is of squared
            errors).
        groups: Setting, person_id and one text column per grouping; with CLUSTER if the panel has
            families.
        horizons: The horizons of the contest.
        calibrated_on: Horizon -> number of calibration persons.

    Returns:
        Columns of COLUMNS.
    """
    names = [name for name in groups.columns if name not in ("setting", "person_id", CLUSTER)]
    # The last digit of a sum depends on the order of its terms: rows keep their order, so that the
    # same scores give the same bytes.
    joined = scores.join(
        groups.lazy(), on=["setting", "person_id"], how="left", maintain_order="left"
    )
    family = [CLUSTER] if CLUSTER in groups.columns else []
    joined = joined.with_columns(pl.coalesce(*family, "person_id").alias(CLUSTER))
    groupings = {name: pl.format("{}={}", pl.lit(name), pl.col(name)) for name in names}
    bundle_zero_bin = pl.when(pl.col("model") == "saga").then(_zero_bin())
    tables = []
    for label in (pl.lit("all"), *groupings.values(), bundle_zero_bin):
        labelled = joined.with_columns(label.alias("group")).filter(pl.col("group").is_not_null())
        in_time = labelled.filter(pl.col("draw").is_null())
        forward = labelled.filter(pl.col("draw").is_not_null())
        tables += [
            _in_time(in_time),
            _forward(forward),
            measure_gap_closed(in_time, "person_id"),
            measure_gap_closed(forward, "draw"),
        ]
    table = _root(pl.concat(tables))
    table = _with_bands(pl.concat([table, _absent(scores, table, horizons)]), calibrated_on or {})
    order = {metric: i for i, metric in enumerate((*METRICS, GAP))}
    rank = pl.col("metric").replace_strict(order, return_dtype=pl.Int32)
    return table.select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items()).sort(
        "setting", pl.col("group") != "all", "group", rank, "horizon", "model"
    )


def _zero_bin() -> pl.Expr:
    """The group of a row by its probability of zero."""
    ends = [round(100 * edge) for edge in ZERO_EDGES]
    labels = {k: f"{ZERO}={low:02d}-{high:02d}" for k, (low, high) in enumerate(pairwise(ends))}
    edges = pl.lit(pl.Series(ZERO_EDGES[1:-1], dtype=pl.Float32))
    return edges.search_sorted(pl.col(ZERO).cast(pl.Float32), side="right").replace_strict(
        labels, default=None, return_dtype=pl.String
    )


def _in_time(rows: pl.LazyFrame) -> pl.DataFrame:
    """Mean, standard error by cluster (sandwich, C / (C - 1) correction) and number of persons."""
    person = rows.group_by(*BY, "group", CLUSTER, "person_id", maintain_order=True).agg(
        pl.col(METRICS).sum().name.suffix(":s"), pl.col(METRICS).count().name.suffix(":n")
    )
    cluster = person.group_by(*BY, "group", CLUSTER, maintain_order=True).agg(
        *(pl.col(f"{metric}:{part}").sum() for metric in METRICS for part in "sn"),
        *((pl.col(f"{metric}:n") > 0).sum().alias(f"{metric}:persons") for metric in METRICS),
    )

    def expressions(metric: str) -> list[pl.Expr]:
        s, n = pl.col(f"{metric}:s").cast(pl.Float64), pl.col(f"{metric}:n").cast(pl.Float64)
        clusters = (n > 0).sum().cast(pl.Float64)
        mean = s.sum() / n.sum()
        variance = ((s - mean * n) ** 2).sum() / n.sum() ** 2 * clusters / (clusters - 1)
        se = pl.when(clusters > 1).then(variance.sqrt())
        return [
            mean.alias(f"{metric}:value"),
            se.alias(f"{metric}:se"),
            pl.col(f"{metric}:persons").sum().alias(f"{metric}:count"),
        ]

    return _long(
        cluster.group_by(*BY, "group", maintain_order=True)
        .agg([e for metric in METRICS for e in expressions(metric)])
        .collect()
    )


def _forward(rows: pl.LazyFrame) -> pl.DataFrame:
    """Mean over futures of the mean over persons, its error, the spread, and mean n."""
    keys = (*BY, "group")
    by_draw = rows.group_by(*keys, "draw", maintain_order=True).agg(
        pl.col(METRICS).mean(), pl.col(METRICS).count().name.suffix(":n")
    )

    def expressions(metric: str) -> list[pl.Expr]:
        draws, spread = pl.col(metric).count(), pl.col(metric).std()
        return [
            pl.col(metric).mean().alias(f"{metric}:value"),
            (spread / draws.cast(pl.Float64).sqrt()).alias(f"{metric}:se"),
            pl.col(f"{metric}:n").mean().round().alias(f"{metric}:count"),
            spread.alias(f"{metric}:sd"),
        ]

    return _long(
        by_draw.group_by(*keys, maintain_order=True)
        .agg([e for metric in METRICS for e in expressions(metric)])
        .collect()
    )


def _long(wide: pl.DataFrame) -> pl.DataFrame:
    parts = []
    for metric in METRICS:
        has_spread = f"{metric}:sd" in wide.columns
        spread = pl.col(f"{metric}:sd") if has_spread else pl.lit(None, dtype=pl.Float64)
        parts.append(
            wide.select(
                *BY,
                "group",
                metric=pl.lit(metric),
                value=pl.col(f"{metric}:value").cast(pl.Float64),
                se=pl.col(f"{metric}:se").cast(pl.Float64),
                n=pl.col(f"{metric}:count").cast(pl.Int64),
                sd_futures=spread.cast(pl.Float64),
            )
        )
    return pl.concat(parts).filter(pl.col("n") > 0)


def _root(table: pl.DataFrame) -> pl.DataFrame:
    """Root of the mean squared error; standard error and spread by the delta method."""
    squared = pl.col("metric") == "rmse_log"
    root = pl.col("value").sqrt()
    scale = pl.when(squared & (pl.col("value") > 0)).then(1 / (2 * root)).otherwise(1.0)
    return table.with_columns(
        pl.when(squared).then(root).otherwise("value").alias("value"),
        pl.col("se", "sd_futures") * scale,
    )


def _absent(scores: pl.LazyFrame, table: pl.DataFrame, horizons: Sequence[int]) -> pl.DataFrame:
    """Rows with n = 0 for horizons without any outcome."""
    expected = (
        scores.select("model", "setting")
        .unique()
        .collect()
        .join(pl.DataFrame({"horizon": list(horizons)}, schema={"horizon": pl.Int32}), how="cross")
        .join(pl.DataFrame({"metric": list(METRICS)}), how="cross")
        .with_columns(pl.lit("all").alias("group"))
    )
    missing = expected.join(
        table, on=["model", "setting", "horizon", "metric", "group"], how="anti"
    )
    empty = {"value": pl.Float64, "se": pl.Float64, "n": pl.Int64, "sd_futures": pl.Float64}
    return missing.with_columns(
        pl.lit(0 if name == "n" else None, dtype=dtype).alias(name) for name, dtype in empty.items()
    ).select(table.columns)


def _with_bands(table: pl.DataFrame, calibrated_on: Mapping[int, int]) -> pl.DataFrame:
    lower: list[float | None] = []
    upper: list[float | None] = []
    for model, setting, horizon, metric, group, n in table.select(
        "model", "setting", "horizon", "metric", "group", "n"
    ).iter_rows():
        band = None
        if metric.startswith("coverage_") and setting == "in-time" and n:
            persons = calibrated_on.get(horizon) if model == "saga" and group == "all" else None
            band = coverage_band(int(metric.removeprefix("coverage_")) / 100, n, persons)
        lower.append(band[0] if band else None)
        upper.append(band[1] if band else None)
    return table.with_columns(
        pl.Series("band_lower", lower, dtype=pl.Float64),
        pl.Series("band_upper", upper, dtype=pl.Float64),
    )
