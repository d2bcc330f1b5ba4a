"""saga calibrate, saga deliver: fit the intervals of a bundle, and follow new outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import Delivery, Model, SplitReading, command_line, refuse_options
from saga.requests import CalibrationMethod, Draws
from saga.summaries import count

if TYPE_CHECKING:
    from saga.calibration.adaptive.delivery import DeliveryReport
    from saga.calibration.adaptive.ledger import Ledger
    from saga.data.panel import Panel

# Without --append there are no options of a delivery, and with it only these and its own.
_BOTH = {"bundle", "panel", "append", "threads", "as_json", *(f.name for f in fields(SplitReading))}
_DELIVERY = {field.name for field in fields(Delivery)}


def calibrate(
    ctx: typer.Context,
    bundle: options.Bundle,
    panel: options.Panel,
    reading: SplitReading,
    model: Annotated[Model, "rollout", "threads"],
    delivery: Delivery,
    out: options.OutBundle = None,
    method: Annotated[
        CalibrationMethod | None,
        typer.Option(
            help="sets: prediction sets from recalibrated forecasts. cqr: the paper's method. "
            "cv+: cross-fitted sets, for bundles of `saga train --folds`.",
            show_default="cv+ if the bundle has members, else sets",
        ),
    ] = None,
    draws: Annotated[Draws, "n_paths", "seed"] = Draws(200),
    map_persons: Annotated[
        int,
        typer.Option(
            min=10,
            help="Persons of the map fold, per horizon, that a recalibration map needs; with fewer "
            "that of a shorter horizon is used.",
        ),
    ] = 100,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Compare the ledger's intervals with a new yearly delivery; the bundle stays.",
        ),
    ] = False,
    until: Annotated[
        int | None, typer.Option(help="Use the years up to this one, to evaluate on later ones.")
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            help="Persons of another population; thresholds are weighted to its groups.",
            show_default="none",
        ),
    ] = None,
    target_by: Annotated[
        str,
        typer.Option(
            help="Groups in which --target differs from the panel, the most important first."
        ),
    ] = "age,sex,education_level",
    shares: options.Shares = None,
    as_json: options.Json = False,
) -> None:
    """Fit the intervals of a bundle on calibration persons; with --append update its ledger.

    Examples:
        saga calibrate bundles/ours --panel register/  # fit the intervals of a bundle
    """
    from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from saga.data.split import parse_shares
    from saga.forecaster import Forecaster

    if append:
        of_fitting = ctx.params.keys() - _BOTH - _DELIVERY
        refuse_options(ctx, of_fitting, "With --append there is no {}. Leave it out.")
    else:
        refuse_options(ctx, _DELIVERY, "{} is only for --append. Leave it out, or give both.")
    calibration_panel = reading.read(panel)
    if append:
        ledger = delivery.open_beside(bundle)
        appended = _enter(
            bundle, calibration_panel, ledger, delivery, model.threads, as_json=as_json
        )
        settled, state = appended.settled, appended.state
        through = f"outcomes up to {state.through}" if state.through else "no outcome yet"
        _report_delivery(
            appended,
            f"{settled.new:,} outcomes settled {settled.settled_intervals:,} intervals; "
            f"{appended.recorded.new:,} new intervals. State {state.version}, {through}.",
            {**settled.counts(), "version": state.version, "through": state.through},
            as_json=as_json,
        )
        return
    target_panel = None if target is None else replace(reading, rejected=None).read(target)
    with console.progress("One of several passes of the calibration", quiet=as_json) as progress:
        calibrated = calibrate_bundle(
            bundle,
            calibration_panel,
            CalibrationOptions(
                method=method,
                n_paths=draws.n_paths,
                seed=draws.seed,
                map_persons=map_persons,
                rollout=model.rollout,
                until=until,
                target_by=tuple(name.strip() for name in target_by.split(",")),
                shares=None if shares is None else parse_shares(shares),
            ),
            out=out,
            target=target_panel,
            workers=model.workers,
            command=command_line(ctx),
            progress=progress,
        )
    reach = Forecaster(calibrated).calibrator.tested_horizons
    report = {
        "out": calibrated.path,
        "bundle": calibrated.digest,
        "reach": {f"{coverage:g}": horizons for coverage, horizons in reach.items()},
        "calibration": calibrated.calibration_digest,
        "method": calibrated.metrics["calibration"]["method"],
        "parents": calibrated.manifest["parents"],
    }
    intervals = "; ".join(
        f"{coverage:.0%} {_describe_reach(horizons)}" for coverage, horizons in reach.items()
    )
    console.result(
        f"Calibrated {calibrated.path}: digest {calibrated.digest[:12]}. Intervals: {intervals}.",
        report,
        as_json=as_json,
    )


def _describe_reach(horizons: Sequence[int]) -> str:
    """The years ahead that have intervals; a panel with gaps may lack some."""
    from saga.pages.format import listed

    if not horizons:
        return "none (too few persons)"
    if len(horizons) == horizons[-1]:
        return f"to {count(horizons[-1], 'year')} ahead"
    return f"{listed(map(str, horizons))} years ahead"


def deliver(
    bundle: options.Bundle,
    panel: options.Panel,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the table and the report of the delivery.")
    ],
    reading: SplitReading,
    model: Annotated[Model, "threads"],
    delivery: Delivery,
    as_json: options.Json = False,
) -> None:
    """Settle a delivery's outcomes, move the forecasts, test for drift and say what to do.

    Examples:
        saga deliver bundles/ours --panel delivery-2023/ --out deliveries  # a new year of outcomes
    """
    from saga.bundle import Bundle
    from saga.calibration.yearly.yearly_delivery import PAGE, check_folder, write_delivery

    check_folder(out)
    new_years, ledger = reading.read(panel), delivery.open_beside(bundle)
    delivered = _enter(bundle, new_years, ledger, delivery, model.threads, as_json=as_json)
    content = write_delivery(ledger, Bundle.load(bundle), out)
    ledger.close()
    settled = delivered.settled
    _report_delivery(
        delivered,
        f"{content['recommendation']}: {content['rule']}\n"
        f"{settled.new:,} outcomes settled {settled.settled_intervals:,} forecasts; "
        f"{delivered.recorded.new:,} new forecasts entered. Wrote {out / PAGE}.",
        {**content, "out": out, "outcomes": settled.counts()},
        as_json=as_json,
    )


def _enter(
    bundle: Path,
    panel: Panel,
    ledger: Ledger,
    delivery: Delivery,
    threads: int | None,
    *,
    as_json: bool,
) -> DeliveryReport:
    """Settle the outcomes of a delivery and enter its new intervals, with a progress bar."""
    from saga.calibration.adaptive.delivery import apply_delivery

    with console.progress("Forecasting one of the years", quiet=as_json) as progress:
        return apply_delivery(
            bundle,
            panel,
            ledger,
            since=delivery.since,
            n_persons=delivery.persons,
            spans=delivery.spans,
            threads=threads,
            progress=progress,
        )


def _report_delivery(
    delivery: DeliveryReport, text: str, values: Mapping[str, object], *, as_json: bool
) -> None:
    """Print the result of a delivery; exit with 1 if outcomes contradict known ones."""
    settled = delivery.settled
    report = {
        **values,
        "origins": list(delivery.origins),
        "recorded": delivery.recorded.new,
        "recorded_spans": delivery.spans.new,
        "problems": [problem.as_dict() for problem in settled.problems],
    }
    console.result(text, report, as_json=as_json)
    if settled.problems:
        console.note(
            f"{settled.conflicting:,} outcomes contradict known ones and changed nothing, first: "
            f"{settled.problems[0]}"
        )
        raise typer.Exit(1)
