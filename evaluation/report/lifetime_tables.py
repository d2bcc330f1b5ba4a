"""Tables of lifetime earnings and of the tax on them, each with the paper's published figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from saga.evaluation.lifetime_scores import RULES, TRUTH
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.result_tables import (
    LABEL,
    Table,
    TableCell,
    heading,
    order_models,
    published,
)

from saga.requests import RATE

STATISTICS = {
    "mean": "mean (million)",
    "p50": "median (million)",
    "p10": "P10 (million)",
    "p90": "P90 (million)",
    "p99": "P99 (million)",
    "gini": "Gini",
    "top_1_share": "top 1 % share (%)",
    "crps": "CRPS of single lifetimes (million)",
    "coverage_90": "coverage of 90 % sets (%)",
    "bias": "mean against true (%)",
}
TAXES = {
    "mean": "mean lifetime tax (million)",
    "rate": "mean effective rate (%)",
    "rate_p99": "P99 rate (%)",
    "gini": "Gini of tax",
}


def build_lifetime_tables(results: Results) -> list[Table]:
    """The table of lifetime earnings and one table of taxes for each tax rule."""
    if results.lifetimes is None:
        return []
    table = results.lifetimes.filter(pl.col("rate") == RATE, pl.col("group") == "all")
    note = (
        "Published: discounted to age 20 and with the observed past, so not comparable. "
        "true: the lifetimes that the register drew."
    )
    tables = [_lifetimes(table, "Lifetime earnings", STATISTICS, "", published()["lifetime"], note)]
    for rule in RULES:
        title, note = f"Tax on lifetimes, rule {rule}", "Tax of every year at 2 %."
        figures = published()["tax"] if rule == "paper" else {}
        tables.append(_lifetimes(table, title, TAXES, f"tax:{rule}:", figures, note))
    return tables


def _lifetimes(
    table: pl.DataFrame,
    title: str,
    statistics: Mapping[str, str],
    prefix: str,
    figures: Mapping[str, Any],
    note: str,
) -> Table:
    """One statistic per row; `prefix` and its name give the statistic in `table`."""
    models = [TRUTH, *order_models([m for m in table["model"].unique().to_list() if m != TRUTH])]
    by_model = {(row["model"], row["statistic"]): row for row in table.iter_rows(named=True)}
    rows = []
    for name, words in statistics.items():
        values = [by_model.get((model, prefix + name)) for model in models]
        if any(values):
            cells = [
                _amount(name, row["value"], row["se"] or row["sd_futures"]) if row else ""
                for row in values
            ]
            published_texts = [_amount(name, figure.get(name)) for figure in figures.values()]
            rows.append(
                [
                    *map(TableCell, [words, *cells]),
                    *(TableCell(text, published=True) for text in published_texts),
                ]
            )
    head = ["", *map(heading, models), *(f"{model} ({LABEL})" for model in figures)]
    reach, n = table["years"][0], table["n"][0]
    meaning = (
        f"Present values at {100 * RATE:g} % of the years after the origin, {reach}; {n:,} persons "
        "of the forward setting. ± is the spread between macro futures (paths for models); of "
        "CRPS, coverage and bias the error clustered by person and future. "
    )
    return Table(title, meaning + note, head, rows)


def _amount(statistic: str, value: float | None, spread: float | None = None) -> str:
    """A lifetime statistic as text: in millions, in per cent, or a Gini coefficient."""
    if value is None:
        return ""
    scale, digits = (100.0, 1)
    if statistic in ("mean", "p10", "p50", "p90", "p99", "crps"):
        scale, digits = (1e-6, 3)
    elif statistic == "gini":
        scale, digits = (1.0, 3)
    error = "" if spread is None else f" ± {scale * spread:.{digits}f}"
    return f"{scale * value:.{digits}f}{error}"
