"""Tables of the differences between the bundle and every other model, with their tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.result_tables import (
    LABEL,
    METRIC_LABELS,
    Table,
    TableCell,
    format_figure,
    heading,
    published,
    published_cell,
)
from saga.evaluation.scoring.comparison import (
    BOTH,
    BUNDLE_NAME,
    FAMILY,
    FAMILY_BOTH,
    PERSON,
    SURE,
    SURE_TEXT,
    YEAR,
    verdict_lines,
)
from saga.evaluation.scoring.gap import CLAIRVOYANT
from saga.evaluation.scoring.metrics import percent_names

from saga.pages.format import in_percent, p_value

TESTS = {
    PERSON: "Errors are clustered by person.",
    BOTH: "Errors are clustered by person and by macro future (Cameron, Gelbach and Miller 2011); "
    "t has as many degrees of freedom as the smaller number of clusters less one, usually the "
    "futures.",
    FAMILY: "Errors are clustered by family.",
    FAMILY_BOTH: "Errors are clustered by family and by macro future.",
    YEAR: "Diebold-Mariano over origin years: Newey-West with h - 1 lags, correction of Harvey, "
    "Leybourne and Newbold; not given with fewer than 2 h years.",
}


def build_differences(results: Results) -> list[Table]:
    """Differences in CRPS of log earnings, one table per setting and test."""
    table = results.comparisons
    if table is None or table.is_empty():
        return []
    figures = published()["diebold_mariano"]
    rows = table.filter(pl.col("metric") == "crps_log", pl.col("group") == "all")
    lines = verdict_lines(table)
    tables = []
    for (setting, test), tested in rows.group_by("setting", "test", maintain_order=True):
        published_t = figures if test == YEAR else {}
        cells = [
            [
                TableCell(heading(row["model"])),
                TableCell(str(row["horizon"])),
                TableCell(format_figure(row, name="difference"), bold=_is_sure(row)),
                TableCell(in_percent(row["relative"])),
                TableCell("" if row["t"] is None else f"{row['t']:.1f}"),
                TableCell(str(row["df"])),
                TableCell(p_value(row["p"])),
                TableCell(p_value(row["p_holm"])),
                published_cell(published_t.get(row["model"], {}).get(str(row["horizon"])), ".1f"),
            ]
            for row in tested.sort("model", "horizon").iter_rows(named=True)
        ]
        note = (
            f"{lines.get((setting, test), '')} CRPS of log earnings of the other model less that "
            f"of {BUNDLE_NAME}: above 0 {BUNDLE_NAME} is better (bold: {SURE_TEXT}, Holm). "
            f"{TESTS[str(test)]}"
        )
        head = [
            *(
                "model",
                "years ahead",
                "difference",
                "cut (%)",
                "t",
                "df",
                "p",
                "p (Holm over years ahead)",
            ),
            f"t ({LABEL})",
        ]
        title = f"Differences from {BUNDLE_NAME}, {setting}, test by {test}"
        tables.append(Table(title, note, head, cells))
    return tables


def build_interval_differences(results: Results) -> list[Table]:
    """Differences in interval score, one table per setting and test with all coverages."""
    table = results.comparisons
    names = percent_names("interval")
    if table is None or table.filter(pl.col("metric").is_in(names)).is_empty():
        return []
    rows = table.filter(pl.col("metric").is_in(names), pl.col("group") == "all")
    verdicts = {name: verdict_lines(table, metric=name) for name in names}
    tables = []
    for (setting, test), tested in rows.group_by("setting", "test", maintain_order=True):
        by_name = {(r["model"], r["horizon"], r["metric"]): r for r in tested.iter_rows(named=True)}
        pairs = tested.select("model", "horizon").unique().sort("model", "horizon").iter_rows()
        cells = [
            [
                TableCell(heading(model)),
                TableCell(str(h)),
                *(_interval_cell(by_name.get((model, h, name))) for name in names),
            ]
            for model, h in pairs
        ]
        sentences = [
            f"{METRIC_LABELS[name].capitalize()}: {lines[setting, test]}"
            for name, lines in verdicts.items()
            if (setting, test) in lines
        ]
        note = (
            f"{' '.join(sentences)} Interval score (Winkler 1972) of the other model less that of "
            f"{BUNDLE_NAME}, in thousands of the currency, with p (Holm over years ahead): above 0 "
            f"{BUNDLE_NAME} is better (bold: {SURE_TEXT}). {TESTS[str(test)]}"
        )
        title = f"Differences in interval score from {BUNDLE_NAME}, {setting}, test by {test}"
        head = ["model", "years ahead", *(METRIC_LABELS[name] for name in names)]
        tables.append(Table(title, note, head, cells))
    return tables


def _interval_cell(row: Mapping[str, Any] | None) -> TableCell:
    if row is None:
        return TableCell("")
    thousands = {name: row[name] / 1_000 for name in ("difference", "se")}
    text = f"{format_figure(thousands, '.1f', name='difference')} ({p_value(row['p_holm'])})"
    return TableCell(text, bold=_is_sure(row))


def _is_sure(row: Mapping[str, Any]) -> bool:
    """Whether the bundle is surely better than a model; never if that is the clairvoyant."""
    p = row["p_holm"]
    return p is not None and p < SURE and row["difference"] > 0 and row["model"] != CLAIRVOYANT
