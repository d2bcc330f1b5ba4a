"""saga facts: show the dated facts in force, or check an office's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import Reading
from saga.cli.options import Only

if TYPE_CHECKING:
    from saga.data.facts import Facts


def show(
    reading: Annotated[Reading, Only("facts")],
    series: Annotated[
        str | None, typer.Option("--series", help="Show each year of this series, with its source.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show the series of dated facts: years, last value and marks, or one series in full."""
    import polars as pl

    from saga.data.facts import FACT_SERIES
    from saga.errors import UsageError

    in_force = reading.open_facts()
    if series is not None and series not in in_force.series:
        raise UsageError(
            f"There is no series {series!r}. Use one of {', '.join(sorted(in_force.series))}."
        )
    rows = [
        {
            "series": name,
            "year": year,
            "value": value,
            "unit": yearly.unit,
            "mark": yearly.marks[year],
            "source": yearly.sources[year],
        }
        for name, yearly in in_force.series.items()
        if series in (None, name)
        for year, value in yearly.values.items()
    ]
    if as_json:
        console.result("", {**in_force.provenance(), "values": rows}, as_json=True)
        return
    title = f"Facts {in_force.digest[:12]} ({in_force.source})"
    if series is not None:
        heading = f"{FACT_SERIES[series].title}, {rows[0]['unit']}. {title}"
        all_digits = pl.Series("value", [f"{row['value']:.10g}" for row in rows])
        console.table(pl.DataFrame(rows).drop("series", "unit").with_columns(all_digits), heading)
        return
    summary = [
        {
            "series": name,
            "years": f"{min(yearly.values)}-{max(yearly.values)}",
            "last value": f"{yearly.values[max(yearly.values)]:.10g}",
            "unit": yearly.unit,
            "marks": "".join(sorted(set(yearly.marks.values()))),
        }
        for name, yearly in in_force.series.items()
    ]
    console.table(pl.DataFrame(summary), title)


def check_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of .csv files, or one file.")
    ],
    as_json: options.Json = False,
) -> None:
    """Check an office's own facts, and name the values that differ from the shipped ones."""
    from saga.data.facts import read_facts, shipped_facts

    facts, shipped = read_facts(directory), shipped_facts()
    changed = [change for name in facts.series for change in _changes(name, facts, shipped)]
    lines = ["  " + change for change in changed] or ["  no value differs from the shipped ones"]
    console.result(
        "\n".join([f"The facts of {facts.source} can be used ({facts.digest[:12]}).", *lines]),
        {**facts.provenance(), "changed": changed},
        as_json=as_json,
    )


def _changes(name: str, facts: Facts, shipped: Facts) -> list[str]:
    """The years of a series whose values differ from the shipped ones, as text."""
    before, after = shipped.series[name].values, facts.series[name].values
    return [
        f"{name} {year}: {value:g} "
        + (f"instead of {before[year]:g}" if year in before else "is new")
        for year, value in after.items()
        if before.get(year) != value
    ]
