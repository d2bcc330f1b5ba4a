"""saga plot: the picture of one person's forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import open_forecaster, read_persons, show_warnings
from saga.requests import Draws, ForecastRequest


def plot(
    source: options.Input,
    out: Annotated[Path, typer.Option(help="Page (.html) or picture (.svg, .png) to write.")],
    person: Annotated[
        str | None,
        typer.Option(help="Id of the person.", show_default="the only person of the input"),
    ] = None,
    bundle: options.Bundle = None,
    horizons: options.Horizons = options.HORIZONS_TEXT,
    coverage: options.Coverage = ".5,.8,.9",
    scenario: options.Scenario = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    on_error: options.OnError = "fail",
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Draw one person's record and forecast: published sets, median, chance of no earnings."""
    from saga.data.files import require_output_outside_input
    from saga.pages.layout import check_page
    from saga.pages.person import SUFFIXES, choose_person

    request = ForecastRequest(
        horizons=options.parse_horizons(horizons),
        coverage=options.parse_coverage(coverage),
        quantiles=(0.5,),
    )
    require_output_outside_input(source, out, "--out")
    check_page(out, "picture", SUFFIXES)
    forecaster = open_forecaster(bundle, threads, None)
    panel = read_persons(source, mapping, prices, on_error, None)
    panel = panel.only([choose_person(panel.frame["person_id"], person)])
    picture = forecaster.forecast(panel, request, Draws(scenario=scenario)).plot()
    picture.save(out)
    warnings = show_warnings(picture.warnings)
    console.result(
        f"{picture.sentence}\nWrote the picture to {out}.",
        {
            "out": out,
            "sentence": picture.sentence,
            "warnings": warnings,
            "provenance": picture.provenance,
        },
        as_json=as_json,
    )
