"""The scoreboard of a round: an entry beside SAGA and simple methods, by person, group and total.

Entries are contestants of the contest in its setting `forward`, so they are scored and compared
as every forecaster of `saga evaluate` is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from saga.evaluation.benchmark.entries import read_entry, read_paths
from saga.evaluation.benchmark.rounds import ENTRIES, Round
from saga.evaluation.benchmark.totals import score_totals
from saga.evaluation.contest_tables import score_tables

from saga.data.panel import FLOOR
from saga.errors import UsageError
from saga.files.tables import write_table
from saga.pages.format import markdown_table
from saga.pages.layout import check_page, write_page

# Metrics of persons that do not depend on how an entry's quantiles are connected, or hardly.
METRICS = (
    *("crps_log", "pinball_log", "brier_zero", "mae_log"),
    *("coverage_50", "coverage_80", "coverage_90", "interval_90"),
)
COLUMNS = ("model", "metric", "horizon", "group", "value", "se", "n")


def score_entry(
    file: Path, folder: Path, *, truth: Path | None = None, paths: Path | None = None
) -> dict[str, pl.DataFrame]:
    """The tables `persons`, `metrics` and `comparisons` of an entry and the rows of its round.

    `persons` has the mean of each score over the futures, by model, person and horizon. `metrics`
    are means over persons, and scores of totals (`score_totals`); `se` is over the futures.
    `comparisons` are differences from SAGA on the same persons and futures (`compare_models`).

    Args:
        file: The entry; its name without the ending is its row.
        folder: The round.
        truth: Truth of a judged round.
        paths: Joint paths of the entry, for the distribution of totals.

    Raises:
        InputError: If the entry, its paths or the truth are not valid.
        UsageError: If there is no round or no truth, or the entry has the name of another row.
    """
    opened = Round.open(folder, truth)
    contest, setting, horizons = opened.contest, opened.setting, opened.contest.horizons
    files = {row.stem: row for row in sorted((folder / ENTRIES).glob("*.parquet"))}
    if file.stem in files and file.resolve() != files[file.stem].resolve():
        raise UsageError(f"The round has a row {file.stem}. Give your entry another name.")
    files[file.stem] = file
    entries = [read_entry(path, name, setting, horizons, FLOOR) for name, path in files.items()]
    joint = None if paths is None else read_paths(paths, setting, horizons, opened.rows)
    with tempfile.TemporaryDirectory(prefix="saga-") as scores:
        scored = contest.score(entries, Path(scores), [setting])
        tables = score_tables([scored], horizons)
        persons = (
            pl.scan_parquet(scored.scores, glob=False)
            .group_by("model", "person_id", "horizon", maintain_order=True)
            .agg(pl.col(METRICS).mean())
            .collect()
        )
    totals = [
        score_totals(
            entry.name,
            entry.means,
            joint if entry.name == file.stem else None,
            setting,
            horizons,
            scored.groups,
        )
        for entry in entries
    ]
    metrics = tables["metrics"].filter(pl.col("metric").is_in(METRICS)).select(COLUMNS)
    return {
        "persons": persons,
        "metrics": pl.concat([metrics, *(table.select(COLUMNS) for table in totals)]),
        "comparisons": tables["comparisons"].filter(pl.col("metric").is_in(METRICS)),
    }


def summarise(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per model and horizon: the main scores of all persons, and the test against SAGA."""
    shown = {
        "crps_log": "CRPS",
        "brier_zero": "zero",
        "coverage_90": "in 90 %",
        "total_error": "total",
    }
    everybody = pl.col("group") == "all"
    wide = (
        tables["metrics"]
        .filter(everybody, pl.col("metric").is_in(list(shown)))
        .pivot("metric", index=["horizon", "model"], values="value")
        .select("horizon", "model", *(pl.col(name).alias(shown[name]) for name in shown))
    )
    tests = tables["comparisons"].filter(everybody, pl.col("metric") == "crps_log")
    tests = tests.select("horizon", "model", pl.col("difference").alias("- saga"), "se")
    table = wide.join(tests, on=["horizon", "model"], how="left").sort("horizon", "CRPS")
    return table.with_columns(pl.col(pl.Float64).round(4))


def write_scores(tables: Mapping[str, pl.DataFrame], out: Path, entry: str) -> None:
    """Write the tables to a folder, as Parquet, and their summary as `results.md`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_table(table, out / f"{name}.parquet", {"entry": entry})
    summary = summarise(tables)
    rows = (["" if cell is None else str(cell) for cell in row] for row in summary.rows())
    page = markdown_table(summary.columns, rows) + "\n"
    write_page(check_page(out / "results.md", "page", (".md",)), page)
