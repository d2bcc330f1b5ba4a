"""saga report: the calibration report of a bundle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import (
    command_line,
    facts_of_option,
    format_counts,
    open_forecaster,
    read_persons,
)
from saga.errors import UsageError
from saga.requests import Draws, check_horizons


def report(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Page to write: .html.")],
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
    horizons: options.Horizons = "1,5,10,20,30",
    paths: options.Paths = 200,
    persons: options.TestPersons = None,
    rollout: options.Rollout = None,
    min_cell: Annotated[
        int, typer.Option(min=1, help="Figures of fewer persons are not shown.")
    ] = 10,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="SAGA_DATABASE", help="Ledger whose state the page shows.", show_default="none"
        ),
    ] = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    seed: options.Seed = 0,
    threads: options.Threads = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Write the calibration report: whether forecasts can be trusted, for whom, how far ahead."""
    from saga.bundle import Bundle, default_bundle, replace_parts
    from saga.calibration.diagnostics.diagnosis import diagnose
    from saga.calibration.yearly.year_diagnosis import with_state
    from saga.diagnostics_tables import Diagnostics
    from saga.pages.layout import check_page
    from saga.pages.report import SUFFIXES, write_report

    path = bundle or default_bundle()
    check_page(out, "report", SUFFIXES)
    if panel is None:
        if store:
            raise UsageError(
                "--store writes the results of --panel to the bundle. Give --panel, or leave "
                "--store out."
            )
        opened = Bundle.load(path)
        diagnostics, digest = Diagnostics.of_bundle(opened), opened.digest
    else:
        years_ahead, draws = check_horizons(options.parse_horizons(horizons)), Draws(paths, seed)
        test_panel = read_persons(
            panel, mapping, prices, on_error, rejected, facts=facts_of_option(facts)
        )
        forecaster = open_forecaster(path, threads, rollout, facts=facts)
        with console.progress("Evaluating", quiet=as_json) as progress:
            diagnostics = diagnose(
                forecaster,
                test_panel,
                horizons=years_ahead,
                draws=draws,
                persons=persons,
                min_persons=min_cell,
                progress=progress,
            )
        opened, digest = forecaster.bundle, forecaster.bundle.digest
        if store:
            opened = replace_parts(
                opened, path, command=command_line(ctx), diagnostics=diagnostics.to_table()
            )
    if database is not None:
        from saga.calibration.adaptive.ledger import open_ledger
        from saga.calibration.adaptive.tenancy import Actor

        ledger = open_ledger(database, database_key, Actor(holder))
        diagnostics = with_state(diagnostics, ledger.state(digest), ledger.counts(digest))
    write_report(diagnostics, out, bundle=opened.digest)
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
