"""saga explain: what influenced one person's forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import Model, Reading
from saga.cli.options import Only
from saga.requests import ForecastRequest


def explain(
    source: options.Input,
    person: Annotated[str, typer.Option(help="Id of the person.")],
    out: Annotated[Path, typer.Option(help="Page (.html) or figures (.json) to write.")],
    reading: Reading,
    model: Annotated[Model, Only("bundle")],
    figure: Annotated[
        Literal["mean", "p_zero"],
        typer.Option(help="The mean of log earnings, or the probability of zero."),
    ] = "mean",
    gap: Annotated[
        int,
        typer.Option(
            "--years-ahead", min=1, max=5, help="Years from the last record to the forecast."
        ),
    ] = 1,
    as_json: options.Json = False,
) -> None:
    """Explain one person's forecast: what moved it, in money, and what would have changed it.

    Examples:
        saga explain people.csv --person 0001 --out explanation.html  # one person
    """
    from saga.data.files import require_output_outside_input
    from saga.evaluation.explain.attribution import attribute_forecast
    from saga.evaluation.explain.changed_records import forecast_changes
    from saga.evaluation.explain.explanation_page import (
        SUFFIXES,
        PersonExplanation,
        write_explanation,
    )
    from saga.pages.layout import check_page

    require_output_outside_input(source, out, "--out")
    check_page(out, "explanation", SUFFIXES)
    forecaster = model.open(reading.open_facts())
    record = reading.read(source).only([person])
    attributions = attribute_forecast(forecaster, record, person, gap=gap, figure=figure)
    picture = forecaster.forecast(record, ForecastRequest(coverage=(0.5, 0.8, 0.9))).plot()
    provenance = {
        "bundle": forecaster.bundle.digest,
        "panel": record.meta.panel_id,
        "figure": figure,
        "gap": gap,
    }
    if forecaster.model.trees is not None:
        provenance["attributions"] = "of the network; forecasts average it with boosted trees"
    changes = forecast_changes(forecaster, record, gap)
    write_explanation(PersonExplanation(attributions, picture, changes, provenance), out)
    console.result(
        f"Wrote the explanation of one forecast to {out}.",
        {"out": out, "provenance": provenance},
        as_json=as_json,
    )
