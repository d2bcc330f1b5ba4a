"""One person's explanation as a file: a page (.html) or its figures (.json)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
from saga.evaluation.explain.attribution import FIGURES, Explanation
from saga.evaluation.explain.changed_records import ChangedForecast

from saga.files.atomic import commit_json
from saga.pages.format import about, chance
from saga.pages.layout import MARK, render_page, write_page
from saga.pages.person import SIMULATED, ForecastPicture, describe_year
from saga.pages.theme import draw_svg
from saga.schema import MAX_AGE

SUFFIXES = (".html", ".json")
_UP, _DOWN = "#0b5cad", "#c98b2b"  # colours of positive and negative attributions


@dataclass(frozen=True)
class PersonExplanation:
    """What is known about the forecast of one person and year.

    Args:
        attributions: What each entry of the record adds to the model's figure, before calibration.
        picture: Record and published forecast.
        changes: Published forecasts of the same year from records with one entry hidden or changed.
        provenance: Bundle, panel and options that gave these figures.
    """

    attributions: Explanation
    picture: ForecastPicture
    changes: tuple[ChangedForecast, ...]
    provenance: Mapping[str, Any]

    @property
    def sentences(self) -> list[str]:
        """The forecast, what moved it most, and what would have changed it most."""
        year, unit = self.attributions.year, self.picture.unit
        rows = self.picture.ahead.filter(pl.col("year") == year)
        if rows.is_empty():
            return [f"No forecast is published for {year}: the person is above {MAX_AGE} then."]
        sentences = [describe_year(rows.row(0, named=True), unit)]
        hidden, changed = self.hidden_and_changed
        if hidden:
            sentences.append(
                f"It rests most on {hidden[0].change}: without that entry, mean earnings would be "
                f"{_describe_effect(hidden[0])}."
            )
        sentences += [
            f"With {each.change}, mean earnings would be {_describe_effect(each)}."
            for each in changed[:2]
        ]
        return sentences

    @property
    def hidden_and_changed(self) -> tuple[list[ChangedForecast], list[ChangedForecast]]:
        """The changes that hide an entry, and those that replace one."""
        return [c for c in self.changes if c.hidden], [c for c in self.changes if not c.hidden]


def write_explanation(explanation: PersonExplanation, out: Path) -> None:
    """Write the explanation to `out`, completely or not at all."""
    if out.suffix.lower() == ".json":
        names = ("person_id", "origin", "year", "figure", "value", "baseline", "residual")
        figures = {name: getattr(explanation.attributions, name) for name in names}
        tables = {
            "sentences": explanation.sentences,
            "changes": [asdict(change) for change in explanation.changes],
            "attributions": explanation.attributions.table.to_dicts(),
        }
        provenance = {**explanation.provenance, "file": MARK}
        commit_json(out, {**figures, **tables, "provenance": provenance})
    else:
        write_page(out, _page(explanation))


def _describe_effect(change: ChangedForecast) -> str:
    side = "higher" if change.mean_effect > 0 else "lower"
    return (
        f"{about(abs(change.mean_effect))} {side} and the chance of no earnings "
        f"{chance(change.p_zero)}"
    )


def _page(explanation: PersonExplanation) -> str:
    attributions, picture = explanation.attributions, explanation.picture
    by_year = attributions.table.pivot("year", index="feature", values="attribution")
    rows = [(feature, [*cells, sum(cells)]) for feature, *cells in by_year.rows() if any(cells)]
    hidden, changed = explanation.hidden_and_changed
    values = {
        "e": attributions,
        "figure": FIGURES[attributions.figure],
        "picture": picture,
        "simulated": SIMULATED,
        "sentences": explanation.sentences,
        "hidden": hidden,
        "changed": changed,
        "chart": draw_svg(
            _chart(attributions.table),
            "Attributions by feature and by year of the record; the table below has the figures.",
        ),
        "years": attributions.table["year"].unique().sort().to_list(),
        "rows": rows,
        "provenance": {
            "years ahead" if name == "gap" else name: value
            for name, value in explanation.provenance.items()
        },
    }
    return render_page("explain.html", values, "saga.evaluation.explain")


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
