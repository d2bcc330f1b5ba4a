"""saga deliver: a new yearly delivery of the register, as one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import options
from saga.cli.deliveries import enter_delivery, open_bundle_ledger, report_delivery
from saga.cli.inputs import facts_of_option, read_persons


def deliver(
    bundle: options.BundleArgument,
    panel: options.Panel,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the table and the report of the delivery.")
    ],
    database: options.LedgerDatabase = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    since: options.SinceOrigin = None,
    persons: options.DeliveryPersons = 2_000,
    spans: options.Spans = "2,5",
    threads: options.Threads = None,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Settle a delivery's outcomes, move the forecasts, test for drift and say what to do."""
    from saga.bundle import Bundle
    from saga.calibration.yearly.yearly_delivery import (
        PAGE,
        check_folder,
        report_years,
        write_delivery,
    )

    check_folder(out)
    new_years = read_persons(
        panel, mapping, prices, on_error, rejected, facts=facts_of_option(facts)
    )
    ledger = open_bundle_ledger(bundle, database, database_key, holder)
    delivery = enter_delivery(
        bundle, new_years, ledger, since, persons, spans, threads, as_json=as_json
    )
    opened = Bundle.load(bundle)
    report = report_years(ledger, opened)
    content = write_delivery(report, opened, out)
    ledger.close()
    settled = delivery.settled
    report_delivery(
        delivery,
        f"{report.recommendation.action}: {report.recommendation.rule}\n"
        f"{settled.new:,} outcomes settled {settled.settled_intervals:,} forecasts; "
        f"{delivery.recorded.new:,} new forecasts entered. Wrote {out / PAGE}.",
        {**content, "out": out, "outcomes": settled.counts()},
        as_json=as_json,
    )
