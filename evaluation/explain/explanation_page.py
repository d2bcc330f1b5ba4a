"""One person's explanation as a file: a page to read (.html) or its figures (.json). Draws tables, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from evaluation.explain.attribution import FIGURES, Explanation
from saga.files.atomic import commit, commit_json
from saga.files.html import render_page
from saga.files.plot_theme import draw_svg

SUFFIXES = (".html", ".json")
LAGS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
_UP, _DOWN = "#0b5cad", "#c98b2b"


def write_explanation(
    found: Explanation, attention: pl.DataFrame, out: Path, provenance: Mapping[str, Any]
) -> None:
    """Writes the explanation, with the attention table of `saga.attention.attention_by_lag` for the same person, whole or not at all."""
    if out.suffix.lower() == ".json":
        names = ("person_id", "origin", "year", "figure", "value", "baseline", "residual")
        figures = {name: getattr(found, name) for name in names}
        tables = {"attributions": found.table.to_dicts(), "attention": attention.to_dicts()}
        commit_json(out, {**figures, **tables, "provenance": dict(provenance)})
    else:
        commit(
            out,
            partial(Path.write_text, data=_page(found, attention, provenance), encoding="utf-8"),
        )


def _page(found: Explanation, attention: pl.DataFrame, provenance: Mapping[str, Any]) -> str:
    wide = found.table.pivot("year", index="feature", values="attribution")
    rows = [(feature, [*cells, sum(cells)]) for feature, *cells in wide.rows() if any(cells)]
    values = {
        "e": found,
        "figure": FIGURES[found.figure],
        "picture": draw_svg(
            _chart(found.table),
            "Attributions by feature, and by year of the record; the table below says the same.",
        ),
        "lags": LAGS,
        "attention": _by_lag(attention),
        "years": found.table["year"].unique().sort().to_list(),
        "rows": rows,
        "provenance": provenance,
    }
    return render_page("evaluation.explain", "explain.html", values)


def _by_lag(attention: pl.DataFrame) -> list[dict[str, Any]]:
    """A row a horizon: the mean over layers and heads at each of LAGS, at earlier years together, and at drawn years together."""
    mean = attention.group_by("horizon", "lag").agg(pl.col("weight").mean()).sort("horizon", "lag")
    rows = []
    for (horizon,), part in mean.group_by(["horizon"], maintain_order=True):
        weight = dict(part.select("lag", "weight").iter_rows())
        earlier, drawn = (
            sum(w for lag, w in weight.items() if beyond(lag))
            for beyond in (LAGS[-1].__lt__, (0).__gt__)
        )
        rows.append(
            {
                "horizon": horizon,
                "at": {lag: weight.get(lag, 0.0) for lag in LAGS},
                "earlier": earlier,
                "drawn": drawn,
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
    left = (
        alt.Chart(features)
        .mark_bar()
        .encode(
            x=x, y=alt.Y("feature:N", sort=features["feature"].to_list(), title=None), color=colour
        )
        .properties(width=210, height=alt.Step(15))
    )
    order = years["year"].sort(descending=True).to_list()
    right = (
        alt.Chart(years)
        .mark_bar()
        .encode(x=x, y=alt.Y("year:O", sort=order, title=None), color=colour)
        .properties(width=210, height=alt.Step(15))
    )
    return alt.hconcat(left, right, spacing=30)
