"""saga deliver: a new yearly delivery of the register, as one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import read_persons


def deliver(
    bundle: options.BundleArgument,
    panel: options.Panel,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the table and the report of the delivery.")
    ],
    database: Annotated[
        str | None,
        typer.Option(
            envvar="SAGA_DATABASE",
            help="Ledger: sqlite:///FILE or postgresql://...",
            show_default="BUNDLE.ledger.sqlite",
        ),
    ] = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    since: Annotated[
        int | None,
        typer.Option(help="First origin year to forecast from.", show_default="the next"),
    ] = None,
    persons: Annotated[
        int, typer.Option(min=1, help="Calibration persons to forecast each year.")
    ] = 2_000,
    threads: options.Threads = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Settle a delivery's outcomes, move the forecasts, test for drift and say what to do."""
    from calibration.adaptive.delivery import apply_delivery
    from calibration.adaptive.ledger import open_ledger
    from calibration.adaptive.tenancy import Actor
    from calibration.yearly.yearly_delivery import (
        PAGE,
        check_folder,
        report_years,
        write_delivery,
    )
    from saga.bundle import Bundle

    check_folder(out)
    new_years = read_persons(panel, mapping, prices, on_error, rejected)
    url = database or f"sqlite:///{bundle.resolve()}.ledger.sqlite"
    ledger = open_ledger(url, database_key, Actor(holder))
    with console.progress("Forecasting", quiet=as_json) as progress:
        delivery = apply_delivery(
            bundle,
            new_years,
            ledger,
            since=since,
            n_persons=persons,
            threads=threads,
            progress=progress,
        )
    opened = Bundle.load(bundle)
    report = report_years(ledger, opened)
    facts = write_delivery(report, opened, out)
    ledger.close()
    settled = delivery.settled
    console.result(
        f"{report.recommendation.action}: {report.recommendation.rule}\n"
        f"{settled.new:,} outcomes settled {settled.settled_intervals:,} forecasts; "
        f"{delivery.recorded.new:,} new forecasts entered. Wrote {out / PAGE}.",
        {
            **facts,
            "out": out,
            "origins": list(delivery.origins),
            "promised": delivery.recorded.new,
            "outcomes": settled.counts(),
            "problems": [problem.as_dict() for problem in settled.problems],
        },
        as_json=as_json,
    )
    if settled.problems:
        console.note(
            f"{settled.conflicting:,} outcomes contradict known ones and changed nothing, first: "
            f"{settled.problems[0]}"
        )
        raise typer.Exit(1)
