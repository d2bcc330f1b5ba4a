"""The cross-section study as one HTML page: verdicts, one picture per statistic, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import altair as alt
import polars as pl

from saga.files.atomic import commit
from saga.pages.layout import render_page
from saga.pages.theme import draw_svg
from studies.cross_section import BY_NAME

_MODEL, _TRUTH, _COLUMNS = "#0b5cad", "#1c2430", 3


def write_page(
    judged: pl.DataFrame, table: pl.DataFrame, out: Path, provenance: Mapping[str, Any]
) -> None:
    """Write the results of `cross_section.judge` and `compare` as a page without external files."""
    text = (
        "Model (line, band) and truth (dots, bars) by years ahead, one panel per statistic; "
        "the tables below hold the same numbers."
    )
    values = {
        "judged": judged.to_dicts(),
        "picture": draw_svg(_chart(table), text),
        "rows": table.to_dicts(),
        "meaning": BY_NAME,
    }
    page = render_page("cross_section.html", {**values, "provenance": provenance}, "studies")
    commit(out, partial(Path.write_text, data=page, encoding="utf-8"))


def _chart(table: pl.DataFrame) -> Any:
    """Small multiples; bands and bars hold 90 % of futures."""
    panels = []
    for (name,), part in table.group_by(["statistic"], maintain_order=True):
        number_format = "~s" if part["mean_true"][0] > 1_000 else ".2~f"
        base = alt.Chart(part).encode(
            x=alt.X("year:Q", title="Years ahead", axis=alt.Axis(tickMinStep=1, tickCount=5))
        )

        def height(field: str, number_format: str = number_format) -> Any:
            return alt.Y(
                f"{field}:Q",
                title=None,
                axis=alt.Axis(tickCount=4, format=number_format),
                scale=alt.Scale(zero=False),
            )

        band = base.mark_area(color=_MODEL, opacity=0.2).encode(y=height("low"), y2="high:Q")
        line = base.mark_line(color=_MODEL, strokeWidth=2).encode(y=height("mean"))
        bars = base.mark_rule(color=_TRUTH, strokeWidth=1).encode(
            y=height("low_true"), y2="high_true:Q"
        )
        dots = base.mark_point(color=_TRUTH, filled=True, size=22, opacity=1).encode(
            y=height("mean_true")
        )
        title = BY_NAME[str(name)].meaning
        panels.append(
            alt.layer(band, line, bars, dots).properties(
                title=wrap(title, 44), width=220, height=130
            )
        )
    return alt.concat(*panels, columns=_COLUMNS, spacing=24).configure_title(
        fontSize=11, anchor="start", fontWeight="normal"
    )
