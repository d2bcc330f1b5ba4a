"""Tables of a contest: means of scores, comparisons and cost, computed from files of scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.pages import write_pages
from saga.evaluation.scoring.comparison import compare_models
from saga.evaluation.scoring.metrics import metrics_table
from saga.evaluation.scoring.small_cells import hide_small_cells

from saga.files.atomic import new_files
from saga.files.tables import read_provenance, write_table

# The files `NAME.parquet` of a contest.
FILES = (
    "metrics",
    "comparisons",
    "cost",
    "lifetimes",
    "estimates",
    "variants",
)


@dataclass(frozen=True)
class ScoredSample:
    """What contestants scored on a sample.

    Args:
        groups: The persons' groups, origins and families, see `compare_models`.
        scores: Files of un-averaged scores.
        lifetimes: Files of lifetimes by model.
        estimates: Tables of estimates.
    """

    groups: pl.DataFrame
    scores: list[Path] = field(default_factory=list)
    lifetimes: dict[str, Path] = field(default_factory=dict)
    estimates: list[pl.DataFrame] = field(default_factory=list)


def score_tables(
    samples: Sequence[ScoredSample],
    horizons: Sequence[int],
    *,
    calibrated_on: Mapping[int, int] | None = None,
) -> dict[str, pl.DataFrame]:
    """The tables `metrics`, `comparisons` and `cost` of the persons of all samples together."""
    files = [file for sample in samples for file in sample.scores]
    scores, groups = (
        pl.scan_parquet(files, glob=False),
        pl.concat([sample.groups for sample in samples]),
    )
    return {
        "metrics": metrics_table(
            scores, groups.drop("year"), horizons, calibrated_on=calibrated_on
        ),
        "comparisons": compare_models(scores, groups),
        "cost": cost_table(files),
    }


def write_results(
    tables: Mapping[str, pl.DataFrame], out: Path, provenance: Mapping[str, Any]
) -> None:
    """Write tables named in FILES and the pages to `out`; other tables of FILES are removed.

    All appear together. No table has a figure of fewer than ten persons
    (`saga.evaluation.scoring.small_cells`).
    """
    with new_files(out, [f"{name}.parquet" for name in FILES]) as unfinished:
        for name in FILES:
            if (table := tables.get(name)) is not None:
                if {"group", "n"} <= set(table.columns):
                    table = hide_small_cells(table)
                write_table(table, unfinished / f"{name}.parquet", provenance)
        write_pages(Results.read(unfinished), unfinished)


def cost_table(files: Iterable[Path]) -> pl.DataFrame:
    """Seconds of fit and forecast per (model, setting) from the provenance of score files.

    If a model and setting have several files, seconds and persons are their sums.
    """
    keys, sums = ("model", "setting", "horizon", "paths"), ("fit_seconds", "seconds", "persons")
    records = [read_provenance(file) for file in files]
    rows = pl.DataFrame([{name: record[name] for name in (*keys, *sums)} for record in records])
    table = (
        rows.group_by(keys, maintain_order=True)
        .agg(pl.col(sums).sum())
        .select("model", "setting", "fit_seconds", "seconds", "persons", "horizon", "paths")
    )
    return table.with_columns(ms_person=1000 * pl.col("seconds") / pl.col("persons"))
