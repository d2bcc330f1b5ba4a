"""Tables and picture of coverage over yearly deliveries, from the rows of `delivery_breaks`."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
from saga.calibration.adaptive.adaptive_state import SPAN_KINDS

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.pages.format import markdown_table
from saga.pages.theme import draw_svg
from studies.delivery_forecasts import BREAK_YEAR, BREAKS, FIRST_ORIGIN, N_HORIZONS
from studies.delivery_methods import JUDGED, METHODS, PRODUCTS, SPAN_METHODS

_SVG = "http://www.w3.org/2000/svg"


def recovery_table(rows: pl.DataFrame) -> str:
    """Mean deviation by break and product: in the first year, after 3 and after 6 deliveries.

    "Within" is the number of futures within 2 points after 6, and the worst group that after 6.
    """
    table = []
    for planted in BREAKS:
        for product in PRODUCTS:
            # Forecasts issued after k deliveries with outcomes have theirs h years later.
            ahead = 1 if product == "h = 1" else N_HORIZONS
            first = BREAK_YEAR if ahead == 1 else FIRST_ORIGIN + N_HORIZONS
            years = (first, first + 2 + ahead, first + 5 + ahead)
            at = {
                method: [_of_all(rows, planted, product, method, year) for year in years]
                for method in METHODS
            }
            cells = []
            for method in ("static", "moved"):
                after_six = at[method][2]
                cells += [
                    ", ".join(f"{values.mean():+.1f}" for values in at[method]),
                    f"{int((np.abs(after_six) <= 2).sum())}/{len(after_six)}",
                    _worst_group(rows, planted, product, method, years[2]),
                ]
            cells.append(f"{at['last year'][2].mean():+.1f}")
            table.append((planted, product, *cells))
    names = [
        f"{method}: {what}"
        for method in ("static", "moved")
        for what in ("first, 3, 6", "within 2", "worst group")
    ]
    return markdown_table(("break", "forecast", *names, "last year"), table)


def _of_all(rows: pl.DataFrame, planted: str, product: str, method: str, year: int) -> Floats:
    """Deviations of everybody in one year, by future."""
    chosen = _select(rows, planted, product, method)
    chosen = chosen.filter((pl.col("group") == ALL) & (pl.col("year") == year))
    return chosen.sort("draw")["deviation"].to_numpy()


def _worst_group(rows: pl.DataFrame, planted: str, product: str, method: str, year: int) -> str:
    groups = _select(rows, planted, product, method).filter(
        (pl.col("group") != ALL) & (pl.col("year") == year)
    )
    means = groups.group_by("group").agg(pl.col("deviation").mean(), pl.len())
    means = means.filter(pl.col("len") >= rows["draw"].n_unique() / 2)
    if means.is_empty():
        return "-"
    worst = means.sort(pl.col("deviation").abs(), descending=True).row(0, named=True)
    return f"{worst['deviation']:+.1f} ({worst['group']})"


def _select(rows: pl.DataFrame, planted: str, product: str, method: str) -> pl.DataFrame:
    return rows.filter(
        (pl.col("break") == planted) & (pl.col("product") == product) & (pl.col("method") == method)
    )


def product_table(rows: pl.DataFrame) -> str:
    """Growth of widths and deviation of spans, means over futures and all later years."""
    table = []
    for planted in BREAKS:
        later = rows.filter((pl.col("break") == planted) & (pl.col("group") == ALL))
        width = [
            later.filter(
                (pl.col("product") == f"width h = {h}") & (pl.col("year") > BREAK_YEAR + h)
            )
            for h in JUDGED
        ]
        spans = [
            later.filter((pl.col("product") == kind) & (pl.col("method") == method))
            for kind in SPAN_KINDS
            for method in ("static", "marginals", "moved")
        ]
        means = [float(np.mean(part["deviation"].to_numpy())) for part in (*width, *spans)]
        table.append((planted, *(f"{mean:+.1f}" for mean in means)))
    widths = ("width h = 1, %", f"width h = {N_HORIZONS}, %")
    names = [
        f"{kind}: {method}" for kind in SPAN_KINDS for method in ("static", "marginals", "moved")
    ]
    return markdown_table(("break", *widths, *names), table)


def draw_deviations(rows: pl.DataFrame, out: Path) -> None:
    """Draw the mean deviation from 90 % by outcome year, for each break and product."""
    shown = (
        rows.filter((pl.col("group") == ALL) & pl.col("product").is_in(PRODUCTS))
        .group_by("break", "product", "method", "year")
        .agg(pl.col("deviation").mean())
        .sort("break", "product", "method", "year")
    )
    colours = ["#b3541e", "#8c8c8c", "#e0a030", "#0b5cad"]
    base = alt.Chart(shown).encode(
        alt.X(
            "year:Q",
            title="Outcome year",
            axis=alt.Axis(format="d", tickMinStep=2),
            scale={"zero": False},
        )
    )
    lines = base.mark_line().encode(
        alt.Y("deviation:Q", title="Points from 90 %"),
        alt.Color(
            "method:N", title="Method", scale=alt.Scale(domain=list(SPAN_METHODS), range=colours)
        ),
    )
    rule = base.mark_rule(color="#777", strokeDash=[3, 3]).encode(y=alt.datum(0))
    chart = alt.layer(rule, lines).properties(width=150, height=110)
    facets = chart.facet(
        column=alt.Column("break:N", title=None, sort=list(BREAKS)),
        row=alt.Row("product:N", title=None, sort=list(PRODUCTS)),
    )
    svg = draw_svg(facets, "Deviation of coverage from 90 % by outcome year")
    # A file of its own needs the name of the format, which pictures in a page do not.
    out.write_text(svg.replace("<svg", f'<svg xmlns="{_SVG}"', 1) + "\n")
