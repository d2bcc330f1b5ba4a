"""The picture of one person's forecast: shown in a notebook, or written as page, SVG or PNG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError
from saga.files.atomic import commit
from saga.files.html import check_page, render_page
from saga.files.plot_theme import draw_svg, write_picture
from saga.forecast_warnings import ForecastWarning
from saga.pictures.person_chart import PHONE, coverage_labels, draw_person
from saga.pictures.person_sentences import about, describe_year, set_text, share

SUFFIXES = (".html", ".svg", ".png")
SIMULATED = "Simulated people, not real: the bundle was trained on simulated people."
_SENTENCE_HORIZON = 5  # the year that the sentence is about
_WIDTH = 108  # characters of a line above the chart


@dataclass(frozen=True, eq=False)
class ForecastPicture:
    """One person's record and published forecast, as a chart, sentences and warnings.

    A notebook shows it; `save` writes it. The numbers are those of the forecast table.

    Args:
        person_id: The person.
        rows: One row per year: `earnings` of the record, or the columns of the forecast table with
            `median` instead of q50.
        provenance: What made the forecast, as `Forecaster.provenance`.
        warnings: Warnings about the person and about the whole result.
    """

    person_id: str
    rows: pl.DataFrame
    provenance: Mapping[str, object]
    warnings: tuple[ForecastWarning, ...]

    @classmethod
    def of(
        cls,
        person_id: str | None,
        panel: Panel,
        table: pl.DataFrame,
        provenance: Mapping[str, object],
        warnings: tuple[ForecastWarning, ...],
    ) -> ForecastPicture:
        """The picture of a person of a panel and its forecast table.

        Raises:
            UsageError: If no person is named and there are several, or the table has no median.
            InputError: If the person is not in the table.
        """
        person_id = choose_person(table["person_id"], person_id)
        forecast = table.filter(pl.col("person_id") == person_id)
        if "q50" not in table.columns:
            raise UsageError("A picture needs the median. Add 0.5 to the quantiles.")
        record = panel.frame.filter(pl.col("person_id") == person_id).select("year", "earnings")
        ahead = forecast.rename({"q50": "median"}).drop("person_id")
        rows = pl.concat([record, ahead], how="diagonal").sort("year")
        about_person = tuple(w for w in warnings if w.person_id in (None, person_id))
        return cls(person_id, rows, provenance, about_person)

    @property
    def ahead(self) -> pl.DataFrame:
        """The rows of the forecast."""
        return self.rows.filter(pl.col("horizon").is_not_null())

    @property
    def unit(self) -> str:
        """Currency and prices of the amounts."""
        return f"{self.provenance['currency']} of {self.provenance['price_year']}"

    @property
    def simulated(self) -> bool:
        """Whether the bundle was trained on simulated people."""
        return any(warning.code == "simulated-people" for warning in self.warnings)

    @property
    def sentence(self) -> str:
        """The forecast of the fifth year, or of the last one before it, in plain words."""
        ahead = self.ahead
        near = ahead.filter(pl.col("horizon") <= _SENTENCE_HORIZON)
        row = near.row(-1, named=True) if near.height else ahead.row(0, named=True)
        return describe_year(row, self.unit)

    @property
    def cautions(self) -> list[str]:
        """The warnings as text, without the one about simulated people."""
        return [w.message for w in self.warnings if w.code != "simulated-people"]

    @cached_property
    def chart(self) -> Any:
        """The Altair chart, without title."""
        return draw_person(self.rows, f"Earnings a year, {self.unit}")

    @cached_property
    def page_svgs(self) -> tuple[str, str]:
        """The chart for a page: for wide screens and print, and for phones."""
        narrow = draw_person(self.rows, f"Earnings a year, {self.unit}", PHONE)
        return draw_svg(self.chart, self.alt_text), draw_svg(narrow, self.alt_text)

    @property
    def alt_text(self) -> str:
        """What a screen reader says instead of the picture."""
        return f"Record, median, prediction sets and chance of no earnings by year. {self.sentence}"

    def save(self, out: str | Path) -> Path:
        """Write the picture to a file: a page (.html), .svg or .png.

        Raises:
            UsageError: If the name has another suffix, or the folder is not writable.
        """
        out = check_page(Path(out), "picture", SUFFIXES)
        if out.suffix.lower() == ".html":
            page = self._page()
            commit(out, lambda part: part.write_text(page, encoding="utf-8"))
        else:
            write_picture(self._titled_chart(), out)
        return out

    def _repr_html_(self) -> str:
        simulated = f"<p><strong>{SIMULATED}</strong></p>" if self.simulated else ""
        return f"{simulated}{draw_svg(self.chart, self.alt_text)}<p>{self.sentence}</p>"

    def _titled_chart(self) -> Any:
        lines = [SIMULATED] if self.simulated else []
        lines += [line for text in self.cautions for line in textwrap.wrap(text, _WIDTH)]
        title = {"text": textwrap.wrap(self.sentence, _WIDTH), "subtitle": lines}
        return self.chart.properties(
            title={**title, "fontSize": 12, "fontWeight": "normal", "anchor": "start"}
        )

    def _page(self) -> str:
        values = {
            "picture": self,
            "rows": self.ahead.to_dicts(),
            "labels": coverage_labels(self.rows),
            "simulated": SIMULATED,
            "provenance": self.provenance,
        }
        return render_page(
            "saga.pictures",
            "forecast.html",
            values,
            {"about": about, "share": share, "set_text": set_text},
        )


def choose_person(person_ids: pl.Series, person_id: str | None) -> str:
    """The person to draw: the one that is named, or the only one.

    Raises:
        UsageError: If no person is named and there are several.
        InputError: If the person is not among them.
    """
    persons = person_ids.unique()
    if person_id is None:
        if len(persons) != 1:
            raise UsageError(
                f"There are {len(persons):,} persons. Name the one to draw, by its person_id."
            )
        return str(persons[0])
    if person_id not in persons:
        fix = "Name a person of the input."
        problem = Problem("no-person", "there is no such person", fix, person_id=person_id)
        raise InputError("A person cannot be drawn", [problem])
    return person_id
