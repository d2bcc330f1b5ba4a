"""saga report: the calibration report of a bundle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import LedgerOptions, Model, Reading, command_line
from saga.cli.options import Only
from saga.errors import UsageError
from saga.requests import Draws, ForecastRequest
from saga.summaries import format_counts


def report(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Page to write: .html.")],
    reading: Reading,
    ledger: LedgerOptions,
    model: Annotated[Model, Only("rollout", "threads")],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE", help="Directory of a bundle.", show_default="bundles/small"
        ),
    ] = None,
    panel: Annotated[
        Path | None,
        typer.Option(
            "--panel",
            help="Evaluate the bundle again on this panel.",
            show_default="the results in the bundle",
        ),
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Store the results of --panel in the bundle.")
    ] = False,
    request: Annotated[ForecastRequest, Only("horizons")] = ForecastRequest((1, 5, 10, 20, 30)),
    draws: Annotated[Draws, Only("n_paths", "seed")] = Draws(200),
    persons: options.TestPersons = None,
    min_cell: Annotated[
        int, typer.Option(min=1, help="Figures of fewer persons are not shown.")
    ] = 10,
    as_json: options.Json = False,
) -> None:
    """Write the calibration report: whether forecasts can be trusted, for whom, how far ahead.

    Examples:
        saga report --out report.html  # the results in the shipped bundle
        saga report bundles/ours --panel register/ --out report.html  # judge it on a panel
    """
    from saga.bundle import Bundle, default_bundle, replace_parts
    from saga.calibration.diagnostics.diagnosis import diagnose
    from saga.calibration.yearly.year_diagnosis import with_state
    from saga.diagnostics_tables import Diagnostics
    from saga.pages.layout import check_page
    from saga.pages.report import SUFFIXES, write_report

    check_page(out, "report", SUFFIXES)
    path = bundle or default_bundle()
    if panel is None:
        if store:
            raise UsageError(
                "--store writes the results of --panel to the bundle. Give --panel, or leave "
                "--store out."
            )
        judged = opened = Bundle.load(path)
        diagnostics = Diagnostics.of_bundle(opened)
    else:
        test_panel = reading.read(panel)
        forecaster = replace(model, bundle=path).open(reading.open_facts())
        with console.progress("Evaluating", quiet=as_json) as progress:
            diagnostics = diagnose(
                forecaster,
                test_panel,
                horizons=request.horizons,
                draws=draws,
                persons=persons,
                min_persons=min_cell,
                progress=progress,
            )
        judged = opened = forecaster.bundle
        if store:
            opened = replace_parts(
                judged, path, command=command_line(ctx), diagnostics=diagnostics.to_table()
            )
    state = ledger.open()
    if state is not None:
        digest = judged.digest
        diagnostics = with_state(diagnostics, state.state(digest), state.counts(digest))
    write_report(diagnostics, out, bundle=opened.digest, vintages=opened.vintages)
    verdicts = Counter(diagnostics["verdicts"]["status"].to_list())
    report_facts = {
        "out": out,
        "bundle": opened.digest,
        "stored": store,
        "verdicts": dict(verdicts),
        "provenance": diagnostics.provenance,
    }
    console.result(
        f"Wrote {out}: of {verdicts.total()} verdicts, {format_counts(verdicts)}.",
        report_facts,
        as_json=as_json,
    )
