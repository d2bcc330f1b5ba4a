"""Draws the pictures of README by the shipped bundle: a person, and the six of gallery/.

The persons are those of examples/people.csv and the 257 of the explorer's example. Each title
states what the picture shows, from the numbers in it.

Usage: python docs/pictures/gallery.py [FOLDER]  (default: docs/pictures)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from saga import Draws, Forecaster, ForecastRequest, LifetimeRequest, PopulationRequest
from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.diagnostics_tables import Diagnostics
from saga.pages.charts import coverage_chart
from saga.pages.format import about
from saga.pages.picture import Picture, draw_groups
from saga.pages.theme import GREY, LINE
from saga.population.group_forecast import forecast_groups

ROOT = Path(__file__).resolve().parents[2]
SIZE = {"width": 330, "height": 190}
UNTIL, DRAWS = 2040, Draws(200, 1)


def main() -> None:
    """Forecast and draw."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/pictures"
    forecaster = Forecaster.load(ROOT / "bundles/small")
    people = read_panel(ROOT / "examples/people.csv")
    many = read_panel(ROOT / "api/web/example_panel.csv")
    request = ForecastRequest(coverage=(0.5, 0.8, 0.9))
    person = forecaster.forecast(people.only(["0001"]), request).plot()
    person.save(out / "fan.svg")
    gallery = out / "gallery"
    person.save(gallery / "person.svg")
    baseline = groups_of(forecaster, many, "baseline")
    recession = groups_of(forecaster, many, "recession-1990s")
    for name, picture in (
        ("total", total(baseline)),
        ("gap", gap(baseline)),
        ("recession", compared(baseline, recession)),
        ("lifetime", lifetime(forecaster, people)),
        ("report", report(Bundle.load(ROOT / "bundles/small"))),
    ):
        picture.save(gallery / f"{name}.svg")


def groups_of(forecaster: Forecaster, panel: Panel, scenario: str) -> pl.DataFrame:
    """Statistics of women and men by year in an economy."""
    request = PopulationRequest(by=("sex",), compare=("male/female",), until=UNTIL)
    draws = Draws(DRAWS.n_paths, DRAWS.seed, scenario=scenario)
    return forecast_groups(forecaster, panel, request, draws).table


def total(table: pl.DataFrame) -> Picture:
    """Earnings of everybody together."""
    everybody = table.filter(statistic="total", sex="total")
    first, last = everybody.row(0, named=True), everybody.row(-1, named=True)
    text = (
        f"Together they earn {about(first['value'])} SEK in {first['year']}; in {last['year']} "
        f"between {about(last['lower_90'])} and {about(last['upper_90'])}, in 9 of 10 futures"
    )
    return titled(draw_groups(everybody, "total", [], "SEK", simulated=True), text)


def gap(table: pl.DataFrame) -> Picture:
    """Mean earnings of men beside those of women."""
    ratios = table.filter(pl.col("sex") == "male/female")
    last = ratios.filter(statistic="mean_ratio").row(-1, named=True)
    text = (
        f"In {last['year']} men earn {last['value']:.2f} times as much as women on average; "
        f"{last['lower_90']:.2f} to {last['upper_90']:.2f} times in 9 of 10 futures"
    )
    return titled(draw_groups(ratios, "mean_ratio", [], "SEK", simulated=True), text)


def compared(baseline: pl.DataFrame, recession: pl.DataFrame) -> Picture:
    """The total with and without a recession."""
    both = pl.concat(
        table.filter(statistic="total", sex="total").with_columns(economy=pl.lit(name))
        for name, table in (("as expected", baseline), ("recession of the 1990s", recession))
    )
    sums = [
        float(table.filter(statistic="total", sex="total")["value"].to_numpy().sum())
        for table in (baseline, recession)
    ]
    text = f"A recession as in the 1990s costs them {about(sums[0] - sums[1])} SEK until {UNTIL}"
    return titled(draw_groups(both, "total", ["economy"], "SEK", simulated=True), text)


def lifetime(forecaster: Forecaster, people: Panel) -> Picture:
    """The distribution of what a person still earns, discounted by 2 % a year."""
    result = forecaster.lifetime(people.only(["0001"]), LifetimeRequest(rate=0.02), Draws(2_000))
    row = result.table.row(0, named=True)
    text = (
        f"Until {row['to_age']} this person earns {about(row['mean'])} SEK on average; "
        f"from {about(row['lower_90'])} to {about(row['upper_90'])} in 9 of 10 cases"
    )
    values = alt.Chart(pl.DataFrame({"value": result.values[0]}))
    bars = values.mark_bar(color=LINE, opacity=0.6).encode(
        x=alt.X("value:Q", bin=alt.Bin(maxbins=40), title="Present value, SEK of 2022"),
        y=alt.Y("count():Q", axis=None),
    )
    mean = values.mark_rule(color=GREY).encode(x="mean(value):Q")
    return titled(Picture(bars + mean, text), text)


def report(bundle: Bundle) -> Picture:
    """Whether as many outcomes as stated were inside the 90 % sets."""
    table = Diagnostics.of_bundle(bundle)["coverage"]
    rows = table.filter(grouping="all", coverage=0.9).drop_nulls("inside")
    shares = rows["inside"].to_numpy()
    text = (
        f"Of 100 persons, {100 * shares.min():.0f} to {100 * shares.max():.0f} were inside the "
        "90 % sets (dashed: as stated; grey: where chance would put it)"
    )
    return Picture(titled_chart(coverage_chart(rows), text), text)


def titled(picture: Picture, text: str) -> Picture:
    """The picture with a title that states what it shows."""
    return Picture(titled_chart(picture.chart.properties(**SIZE), text), text)


def titled_chart(chart: Any, text: str) -> Any:
    """The chart with the text, in lines, above it."""
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 58:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    title = {"text": lines, "subtitle": ["Simulated persons, not real"], "anchor": "start"}
    return chart.properties(title={**title, "fontSize": 12})


if __name__ == "__main__":
    main()
