"""Deliveries: what `saga deliver` and `saga calibrate --append` share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saga.cli import console, options

if TYPE_CHECKING:
    from saga.calibration.adaptive.delivery import DeliveryReport
    from saga.calibration.adaptive.ledger import Ledger
    from saga.data.panel import Panel


def open_bundle_ledger(
    bundle: Path, database: str | None, database_key: Path | None, holder: str
) -> Ledger:
    """The ledger at `database`, by default a file beside the bundle."""
    from saga.calibration.adaptive.ledger import open_ledger
    from saga.calibration.adaptive.tenancy import Actor

    url = database or f"sqlite:///{bundle.resolve()}.ledger.sqlite"
    return open_ledger(url, database_key, Actor(holder))


def enter_delivery(
    bundle: Path,
    panel: Panel,
    ledger: Ledger,
    since: int | None,
    persons: int,
    spans: str,
    threads: int | None,
    *,
    as_json: bool,
) -> DeliveryReport:
    """Settle the outcomes of a delivery and enter its new intervals, with a progress bar."""
    from saga.calibration.adaptive.delivery import apply_delivery

    with console.progress("Forecasting", quiet=as_json) as progress:
        return apply_delivery(
            bundle,
            panel,
            ledger,
            since=since,
            n_persons=persons,
            spans=options.parse_spans(spans),
            threads=threads,
            progress=progress,
        )


def report_delivery(
    delivery: DeliveryReport, text: str, values: Mapping[str, object], *, as_json: bool
) -> None:
    """Print the result of a delivery; exit with 1 if outcomes contradict known ones."""
    settled = delivery.settled
    console.result(
        text,
        {
            **values,
            "origins": list(delivery.origins),
            "recorded": delivery.recorded.new,
            "recorded_spans": delivery.spans.new,
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
