"""The look of every picture: colours, fonts, and an Altair chart as inline SVG or as a file."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from saga.pages.layout import write_page

INK, GREY, BAND, LINE = "#1c2430", "#57606a", "#c9d1da", "#0b5cad"
MEDIAN, ZERO = "#08306b", "#8a5a12"  # the explorer has the same colours
FONT = "Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_PNG_SCALE = 2  # pixels of the file per pixel of the chart


def draw_svg(chart: Any, alt_text: str) -> str:
    """The chart as inline SVG text that scales with the page and contains no URL.

    `alt_text` is what a screen reader says instead of the picture.
    """
    width, height, content = sized_svg(chart)
    content = re.sub(r' (role|aria-[a-z]+)="[^"]*"', "", content)  # the whole picture has one label
    head = (
        f'<svg role="img" aria-label="{escape(alt_text, quote=True)}" '
        f'viewBox="0 0 {width} {height}" style="max-width:{width}px">'
    )
    return head + content


def sized_svg(chart: Any) -> tuple[str, str, str]:
    """Width and height of the chart's SVG, and what follows its first tag."""
    head, _, content = chart_svg(chart).partition(">")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    if size is None:
        raise ValueError("the SVG of a chart has no viewBox")
    return size[1], size[2], content


def chart_png(chart: Any) -> bytes:
    """The chart as the content of a PNG file."""
    content: bytes = vl_convert.vegalite_to_png(_with_theme(chart), scale=_PNG_SCALE)
    return content


def chart_svg(chart: Any) -> str:
    """The chart as the content of an SVG file."""
    svg: str = vl_convert.vegalite_to_svg(_with_theme(chart))
    return svg


def svg_pdf(svg: str) -> bytes:
    """A picture as the content of a PDF file, whose texts can be searched."""
    content: bytes = vl_convert.svg_to_pdf(svg)
    return content


def write_picture(chart: Any, out: Path) -> None:
    """Write the chart as a file of its own, .svg or .png, completely or not at all."""
    write_page(out, chart_png(chart) if out.suffix.lower() == ".png" else chart_svg(chart))


def places_apart(values: pl.Expr, least: float | pl.Expr) -> pl.Expr:
    """The ascending values, moved up until each is at least `least` above the one before."""
    steps = least * pl.int_range(pl.len())
    return (values - steps).cum_max() + steps


def _with_theme(chart: Any) -> dict[str, Any]:
    """The specification of a chart with the colours and fonts of all pictures."""
    axis = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11}
    lines = {"gridColor": "#e8ecf0", "domainColor": GREY, "tickColor": GREY}
    themed = chart.configure(  # once, because each call copies the chart and its data
        font=FONT,
        aria=False,
        background="white",
        axis=axis | lines,
        axisY={"titlePadding": 14},  # labels may come out wider than they were measured
        header={"labelColor": INK, "labelFontSize": 12, "labelFontWeight": "bold"},
        view={"stroke": "#d8dde5"},
        legend={"labelColor": INK, "labelFontSize": 11, "titleFontSize": 11},
        title={"color": INK, "subtitleColor": GREY},
    )
    specification: dict[str, Any] = themed.to_dict()
    return specification
