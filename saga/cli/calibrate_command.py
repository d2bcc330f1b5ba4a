"""saga calibrate: fit the intervals of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import command_line, n_workers, read_persons
from saga.requests import CalibrationMethod


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
    threads: options.Threads = None,
    split: options.Split = "person",
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Fit the intervals of a bundle on calibration persons."""
    from calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from saga.forecaster import Forecaster

    calibration_panel = read_persons(panel, mapping, prices, on_error, rejected)
    target_panel = None if target is None else read_persons(target, mapping, prices, on_error, None)
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
