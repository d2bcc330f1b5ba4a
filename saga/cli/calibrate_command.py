"""saga calibrate: fit the intervals of a bundle, or add a yearly delivery to its ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.deliveries import enter_delivery, open_bundle_ledger, report_delivery
from saga.cli.inputs import (
    command_line,
    facts_of_option,
    n_workers,
    options_on_command_line,
    read_persons,
)
from saga.errors import UsageError
from saga.requests import CalibrationMethod

if TYPE_CHECKING:
    from saga.calibration.adaptive.delivery import DeliveryReport

# Options with --append only, and options without --append only.
_APPENDING = ("database", "database_key", "holder", "since", "persons", "spans")
_FITTING = (
    *("out", "method", "paths", "seed", "map_persons"),
    *("rollout", "profiles", "until", "target", "target_by", "shares"),
)


def calibrate(
    ctx: typer.Context,
    bundle: options.BundleArgument,
    panel: options.Panel,
    out: options.OutBundle = None,
    method: Annotated[
        CalibrationMethod | None,
        typer.Option(
            help="sets: prediction sets from recalibrated forecasts. cqr: the paper's method, "
            "conformalised quantile regression with one threshold per horizon. cv+: cross-fitted "
            "sets, for bundles of `saga train --folds`.",
            show_default="cv+ if the bundle has members, else sets",
        ),
    ] = None,
    paths: options.Paths = 200,
    seed: options.Seed = 0,
    map_persons: Annotated[
        int,
        typer.Option(
            min=10,
            help="Persons of the map fold, per horizon, that a recalibration map needs; with fewer "
            "the raw forecast is used.",
        ),
    ] = 100,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Leave the bundle unchanged; compare the ledger's intervals with a new yearly "
            "delivery.",
        ),
    ] = False,
    database: options.LedgerDatabase = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    since: options.SinceOrigin = None,
    persons: options.DeliveryPersons = 2_000,
    spans: options.Spans = "2,5",
    rollout: options.Rollout = None,
    profiles: Annotated[
        bool,
        typer.Option(
            "--profiles",
            help="Also calibrate for poorer records (survey-like; earnings alone): three times the "
            "work.",
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
    shares: Annotated[
        str | None,
        typer.Option(
            help="For a panel that the bundle was not trained on: per cent of its persons for "
            "training (they define groups only), validation, calibration and test.",
            show_default="those of the bundle, 70,10,10,10",
        ),
    ] = None,
    threads: options.Threads = None,
    split: options.Split = "person",
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Fit the intervals of a bundle on calibration persons; with --append update its ledger."""
    from saga.calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from saga.forecaster import Forecaster

    _refuse_options_of_other_mode(ctx, append)
    office_facts = facts_of_option(facts)
    calibration_panel = read_persons(panel, mapping, prices, on_error, rejected, facts=office_facts)
    if append:
        ledger = open_bundle_ledger(bundle, database, database_key, holder)
        delivery = enter_delivery(
            bundle, calibration_panel, ledger, since, persons, spans, threads, as_json=as_json
        )
        _report_appended(delivery, as_json=as_json)
        return
    target_panel = (
        None
        if target is None
        else read_persons(target, mapping, prices, on_error, None, facts=office_facts)
    )
    with console.progress("Calibrating", quiet=as_json) as progress:
        calibrated = calibrate_bundle(
            bundle,
            calibration_panel,
            CalibrationOptions(
                method=method,
                n_paths=paths,
                seed=seed,
                map_persons=map_persons,
                rollout=rollout,
                profiles=profiles,
                until=until,
                target_by=tuple(name.strip() for name in target_by.split(",")),
                shares=None if shares is None else options.parse_split_shares(shares),
            ),
            out=out,
            target=target_panel,
            workers=n_workers(threads),
            command=command_line(ctx),
            progress=progress,
        )
    reach = Forecaster(calibrated).calibrator.furthest_horizons
    report = {
        "out": calibrated.path,
        "bundle": calibrated.digest,
        "reach": {f"{coverage:g}": years for coverage, years in reach.items()},
        "calibration": calibrated.calibration_digest,
        "method": calibrated.metrics["calibration"]["method"],
        "parents": calibrated.manifest["parents"],
        "split": split,
    }
    intervals = ", ".join(
        f"{coverage:.0%} {f'to {years} years ahead' if years else 'none (too few persons)'}"
        for coverage, years in reach.items()
    )
    console.result(
        f"Calibrated {calibrated.path}: digest {calibrated.digest[:12]}. Intervals: {intervals}.",
        report,
        as_json=as_json,
    )


def _refuse_options_of_other_mode(ctx: typer.Context, append: bool) -> None:
    """Raise UsageError for an option of the other mode on the command line."""
    on_command_line = options_on_command_line(ctx)
    for name in _FITTING if append else _APPENDING:
        if name in on_command_line:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"With --append there is no {option}. Leave it out."
                if append
                else f"{option} is only for --append. Leave it out, or give both."
            )


def _report_appended(delivery: DeliveryReport, *, as_json: bool) -> None:
    settled, state = delivery.settled, delivery.state
    through = f"outcomes up to {state.through}" if state.through else "no outcome yet"
    report_delivery(
        delivery,
        f"{settled.new:,} outcomes settled {settled.settled_intervals:,} intervals; "
        f"{delivery.recorded.new:,} new intervals. State {state.version}, {through}.",
        {**settled.counts(), "version": state.version, "through": state.through},
        as_json=as_json,
    )
