"""One person's explanation as a file: a page (.html) or its figures (.json)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from evaluation.explain.attribution import FIGURES, Explanation
from saga.files.atomic import commit, commit_json
from saga.files.html import render_page
from saga.files.plot_theme import draw_svg

SUFFIXES = (".html", ".json")
LAGS = tuple(range(10))  # years before the origin that have a column each
_UP, _DOWN = "#0b5cad", "#c98b2b"  # colours of positive and negative attributions


def write_explanation(
    explanation: Explanation, attention: pl.DataFrame, out: Path, provenance: Mapping[str, Any]
) -> None:
    """Writes the explanation and the attention table of the same person to `out`.

    `attention` is that of `saga.attention.attention_by_lag`. The file is written completely or not
    at all.
    """
    if out.suffix.lower() == ".json":
        names = ("person_id", "origin", "year", "figure", "value", "baseline", "residual")
        figures = {name: getattr(explanation, name) for name in names}
        tables = {"attributions": explanation.table.to_dicts(), "attention": attention.to_dicts()}
        commit_json(out, {**figures, **tables, "provenance": dict(provenance)})
    else:
        page = _page(explanation, attention, provenance)
        commit(out, lambda part: part.write_text(page, encoding="utf-8"))


def _page(explanation: Explanation, attention: pl.DataFrame, provenance: Mapping[str, Any]) -> str:
    wide = explanation.table.pivot("year", index="feature", values="attribution")
    rows = [(feature, [*cells, sum(cells)]) for feature, *cells in wide.rows() if any(cells)]
    values = {
        "e": explanation,
        "figure": FIGURES[explanation.figure],
        "picture": draw_svg(
            _chart(explanation.table),
            "Attributions by feature and by year of the record; the table below has the figures.",
        ),
        "lags": LAGS,
        "attention": _by_lag(attention),
        "years": explanation.table["year"].unique().sort().to_list(),
        "rows": rows,
        "provenance": provenance,
    }
    return render_page("evaluation.explain", "explain.html", values)


def _by_lag(attention: pl.DataFrame) -> list[dict[str, Any]]:
    """A row per horizon: mean weight at each of LAGS, in earlier years and in simulated years."""
    mean = attention.group_by("horizon", "lag").agg(pl.col("weight").mean()).sort("horizon", "lag")
    rows = []
    for (horizon,), part in mean.group_by(["horizon"], maintain_order=True):
        weight = dict(part.select("lag", "weight").iter_rows())
        rows.append(
            {
                "horizon": horizon,
                "at": {lag: weight.get(lag, 0.0) for lag in LAGS},
                "earlier": sum(w for lag, w in weight.items() if lag > LAGS[-1]),
                "simulated": sum(w for lag, w in weight.items() if lag < 0),
            }
        )
    return rows


def _chart(table: pl.DataFrame) -> Any:
    """Two bar charts: sums by feature, largest first, and by year."""
    features = (
        table.group_by("feature")
        .agg(pl.col("attribution").sum())
        .filter(pl.col("attribution") != 0)
    )
    features = features.sort(pl.col("attribution").abs(), descending=True)
    years = table.group_by("year").agg(pl.col("attribution").sum()).sort("year")
    colour = alt.condition("datum.attribution > 0", alt.value(_UP), alt.value(_DOWN))
    x = alt.X("attribution:Q", title="Attribution", axis=alt.Axis(tickCount=5))
    by_feature = (
        alt.Chart(features)
        .mark_bar()
        .encode(
            x=x, y=alt.Y("feature:N", sort=features["feature"].to_list(), title=None), color=colour
        )
        .properties(width=210, height=alt.Step(15))
    )
    order = years["year"].sort(descending=True).to_list()
    by_year = (
        alt.Chart(years)
        .mark_bar()
        .encode(x=x, y=alt.Y("year:O", sort=order, title=None), color=colour)
        .properties(width=210, height=alt.Step(15))
    )
    return alt.hconcat(by_feature, by_year, spacing=30)
