"""Pictures of several persons and of groups: shown in a notebook, or written as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from saga.errors import UsageError
from saga.group_statistics import OF_YEARS
from saga.pages.format import NOT_TESTED, short
from saga.pages.layout import check_page
from saga.pages.person import SIMULATED, SMALL, ForecastPicture, draw_person, has_zeros
from saga.pages.theme import GREY, LINE, draw_svg, places_apart, write_picture

MAX_PERSONS = 24  # of one picture
_COLUMNS = 3
_TOGETHER = 3  # groups that can be told apart in one panel
_YEAR = alt.X("year:Q", title=None, axis=alt.Axis(format="d"), scale=alt.Scale(zero=False))
_APART = 0.07  # least distance of the names of lines, as a share of the axis


@dataclass(frozen=True, eq=False)
class Picture:
    """A chart of Altair with its title, which a notebook shows and `save` writes.

    `alt_text` is what a screen reader says instead.
    """

    chart: Any
    alt_text: str

    def save(self, out: str | Path) -> Path:
        """Write the picture to a file, .svg or .png.

        Raises:
            UsageError: If the name has another suffix, or the folder is not writable.
        """
        out = check_page(Path(out), "picture", (".svg", ".png"))
        write_picture(self.chart, out)
        return out

    def _repr_html_(self) -> str:
        return draw_svg(self.chart, self.alt_text)


def draw_persons(pictures: Sequence[ForecastPicture]) -> Picture:
    """The charts of up to 24 persons beside each other, each with its own amounts.

    Raises:
        UsageError: If there are none, or more.
    """
    if not 0 < len(pictures) <= MAX_PERSONS:
        raise UsageError(f"A picture has 1 to {MAX_PERSONS} persons, not {len(pictures)}.")
    charts = [
        draw_person(picture.rows, picture.unit, SMALL).properties(title=picture.person_id)
        for picture in pictures
    ]
    first = pictures[0]
    text = f"Record and quantiles of the forecast (dashed: {NOT_TESTED}), {first.unit}"
    if any(has_zeros(picture.rows) for picture in pictures):
        text += "; below, the chance of no earnings"
    chart = alt.concat(*charts, columns=_COLUMNS)
    return Picture(_titled(chart, text, simulated=first.simulated), text)


def draw_groups(
    table: pl.DataFrame, statistic: str, groups: Sequence[str], money: str, *, simulated: bool
) -> Picture:
    """A statistic of groups by year, as lines with their 90 % bands.

    Up to three groups are in one panel, with their names at the lines; of more, each has a panel of
    its own, with the lines of the others in grey. Titles say the first and the last value of each
    group. `table` has year, the columns `groups`, statistic, value, lower_90 and upper_90; values
    that are suppressed are not drawn. `money` is the unit of amounts, such as SEK of 2022.

    Raises:
        UsageError: If the table has no value of the statistic.
    """
    known = table.filter(pl.col("statistic").is_in(OF_YEARS)).drop_nulls(["year", "value"])
    shown = known.filter(statistic=statistic)
    if shown.is_empty():
        names = ", ".join(known["statistic"].unique(maintain_order=True))
        names = names or "none, because the groups are too small to be shown"
        raise UsageError(f"The table has no values of {statistic} to draw. It has: {names}.")
    label = pl.concat_str(groups, separator=", ") if groups else pl.lit("all")
    shown = shown.with_columns(group=label)
    of_groups = shown.partition_by("group", maintain_order=True)
    of_statistic = OF_YEARS[statistic]
    unit = money if of_statistic.is_money else of_statistic.unit
    in_money = f" in {money}" if of_statistic.is_money else ""
    what = f"{of_statistic.meaning}{in_money}, by year with 90 % bands"
    findings = [f"{rows['group'][0]}: {_finding(rows)}" for rows in of_groups]
    if len(of_groups) > _TOGETHER:
        what += "; grey: the other groups"
        chart = _titled(_draw_apart(shown, of_groups, unit), what, simulated=simulated)
    else:
        layers = _draw_lines(_with_places_of_names(shown), unit, named=bool(groups))
        chart = _titled(alt.layer(*layers), findings, what, simulated=simulated)
    return Picture(chart, ". ".join([what, *findings]))


def _draw_lines(shown: pl.DataFrame, unit: str, *, named: bool = False) -> list[Any]:
    """The lines of groups with their bands; `named`: with their names, each in its own colour."""
    base = alt.Chart(shown).encode(
        x=_YEAR, color=alt.Color("group:N", legend=None) if named else alt.value(LINE)
    )
    band = base.mark_area(opacity=0.2).encode(y="lower_90:Q", y2="upper_90")
    line = base.mark_line(point=True).encode(y=_value_axis(unit))
    names = base.mark_text(align="left", dx=7, fontSize=11).encode(y="place:Q", text="group:N")
    return [band, line, names] if named else [band, line]


def _draw_apart(shown: pl.DataFrame, of_groups: Sequence[pl.DataFrame], unit: str) -> Any:
    """A panel for each group, with its finding as the title and the same amounts as the others."""
    others = alt.Chart(shown).mark_line(color=GREY, opacity=0.4, strokeWidth=1)
    others = others.encode(x=_YEAR, y=_value_axis(unit), detail="group:N")
    panels = [
        alt.layer(others, *_draw_lines(rows, unit)).properties(
            title={"text": [rows["group"][0], _finding(rows)], "fontSize": 11, "anchor": "start"},
            width=SMALL.width,
            height=SMALL.height,
        )
        for rows in of_groups
    ]
    return alt.concat(*panels, columns=2).resolve_scale(y="shared")


def _value_axis(unit: str) -> alt.Y:
    return alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False))


def _with_places_of_names(shown: pl.DataFrame) -> pl.DataFrame:
    """The rows, with the height `place` of the name of each group in its last row."""
    lowest, highest = (shown[name].to_numpy() for name in ("lower_90", "upper_90"))
    last = shown.filter(pl.col("year") == pl.col("year").max().over("group")).sort("value")
    least = _APART * float(highest.max() - lowest.min())
    last = last.select("year", "group", place=places_apart(pl.col("value"), least))
    return shown.join(last, on=["year", "group"], how="left", maintain_order="left")


def _finding(rows: pl.DataFrame) -> str:
    """The first and the last value of a group, with the range of the last."""
    first, last = rows.row(0, named=True), rows.row(-1, named=True)
    value, *ends = (short(last[name]) for name in ("value", "lower_90", "upper_90"))
    start = f"{short(first['value'])} in {first['year']}, " if len(rows) > 1 else ""
    return f"{start}{value} ({' to '.join(ends)}) in {last['year']}"


def _titled(chart: Any, text: str | list[str], *about: str, simulated: bool) -> Any:
    """The chart with a title and what is below it."""
    below = [*(line for line in about if line != text), *([SIMULATED] if simulated else [])]
    title = {"text": text, "subtitle": below, "anchor": "start"}
    return chart.properties(title={**title, "fontSize": 12, "fontWeight": "normal"})
