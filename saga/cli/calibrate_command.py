"""saga calibrate: fit the intervals of a bundle, or add a yearly delivery to its ledger."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console
from saga.cli.inputs import command_line, read_persons
from saga.cli.options import (
    BundleArgument,
    DatabaseKeyOption,
    JsonOption,
    MappingOption,
    OnErrorOption,
    OutBundleOption,
    PanelOption,
    PathsOption,
    PricesOption,
    RejectedOption,
    RolloutOption,
    SeedOption,
    SplitOption,
    ThreadsOption,
)
from saga.errors import UsageError
from saga.requests import CalibrationMethod, Draws

if TYPE_CHECKING:
    from calibration.adaptive.ledger import Ledger
    from saga.data.panel import Panel

_TARGET_BY = "age,sex,education_level"
_OF_APPEND = ("database", "database_key", "since", "persons")  # options with --append only
_OF_FIT = (
    "out",
    "method",
    "map_persons",
    "rollout",
    "profiles",
    "until",
    "target",
    "target_by",
)  # options without --append only


def calibrate(
    ctx: typer.Context,
    bundle: BundleArgument,
    panel: PanelOption,
    out: OutBundleOption = None,
    method: Annotated[
        CalibrationMethod,
        typer.Option(
            help="sets: nested sets from recalibrated forecasts. cqr: the paper's method, "
            "conformalised quantile regression with one threshold per horizon.",
        ),
    ] = "sets",
    paths: PathsOption = 200,
    seed: SeedOption = 0,
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
            help="Leave the bundle; settle the intervals in the ledger with a new yearly delivery.",
        ),
    ] = False,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="SAGA_DATABASE",
            help="Ledger: sqlite:///FILE or postgresql://...",
            show_default="BUNDLE.ledger.sqlite",
        ),
    ] = None,
    database_key: DatabaseKeyOption = None,
    since: Annotated[
        int | None,
        typer.Option(help="--append: first origin year to forecast from.", show_default="the next"),
    ] = None,
    persons: Annotated[
        int,
        typer.Option(min=1, help="--append: calibration persons to forecast each year."),
    ] = 2_000,
    rollout: RolloutOption = None,
    profiles: Annotated[
        bool,
        typer.Option(
            "--profiles",
            help="Also calibrate for poorer records (survey-like; earnings alone): three times the "
            "work.",
        ),
    ] = False,
    until: Annotated[
        int | None,
        typer.Option(help="Use the years up to this one, to evaluate on later ones."),
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
    ] = _TARGET_BY,
    threads: ThreadsOption = None,
    split: SplitOption = "person",
    mapping: MappingOption = None,
    prices: PricesOption = None,
    on_error: OnErrorOption = "fail",
    rejected: RejectedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the intervals of a bundle on calibration persons; with --append update its ledger."""
    from calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from saga.forecaster import Forecaster

    _refuse_foreign(ctx, append)
    calibration_panel = read_persons(panel, mapping, prices, on_error, rejected)
    draws = Draws(paths, seed)
    workers = threads or os.cpu_count() or 1
    if append:
        from calibration.adaptive.ledger import open_ledger

        url = database or f"sqlite:///{bundle.resolve()}.ledger.sqlite"
        _apply_delivery(
            open_ledger(url, database_key),
            bundle,
            calibration_panel,
            since,
            persons,
            draws,
            workers,
            as_json=as_json,
        )
        return
    target_panel = None if target is None else read_persons(target, mapping, prices, on_error, None)
    with console.progress("Calibrating", quiet=as_json) as progress:
        calibrated = calibrate_bundle(
            bundle,
            calibration_panel,
            CalibrationOptions(
                method=method,
                n_paths=draws.n_paths,
                seed=draws.seed,
                map_persons=map_persons,
                rollout=rollout,
                profiles=profiles,
                until=until,
                target_by=tuple(name.strip() for name in target_by.split(",")),
            ),
            out=out,
            target=target_panel,
            workers=workers,
            command=command_line(ctx),
            progress=progress,
        )
    reach = Forecaster(calibrated).calibrator.furthest_horizons
    report = {
        "out": calibrated.path,
        "bundle": calibrated.digest,
        "reach": {f"{coverage:g}": years for coverage, years in reach.items()},
        "calibration": calibrated.calibration_digest,
        "method": method,
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


def _refuse_foreign(ctx: typer.Context, append: bool) -> None:
    """Raise UsageError for an option of the other mode on the command line.

    Options that the environment sets are for all commands, and are not refused.
    """
    for name in _OF_FIT if append else _OF_APPEND:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"With --append there is no {option}. Leave it out."
                if append
                else f"{option} is only for --append. Leave it out, or give both."
            )


def _apply_delivery(
    ledger: Ledger,
    bundle: Path,
    panel: Panel,
    since: int | None,
    persons: int,
    draws: Draws,
    workers: int,
    *,
    as_json: bool,
) -> None:
    from calibration.adaptive.delivery import apply_delivery

    with console.progress("Forecasting", quiet=as_json) as progress:
        delivery = apply_delivery(
            bundle,
            panel,
            ledger,
            since=since,
            n_persons=persons,
            draws=draws,
            workers=workers,
            progress=progress,
        )
    settled, state = delivery.settled, delivery.state
    report = {
        "origins": list(delivery.origins),
        "promised": delivery.recorded.new,
        **settled.counts(),
        "problems": [problem.as_dict() for problem in settled.problems],
        "version": state.version,
        "through": state.through,
    }
    through = f"outcomes up to {state.through}" if state.through else "no outcome yet"
    console.result(
        f"{settled.new:,} outcomes settled {settled.settled_intervals:,} intervals; "
        f"{delivery.recorded.new:,} new intervals. State {state.version}, {through}.",
        report,
        as_json=as_json,
    )
    if settled.problems:
        console.note(
            f"{settled.conflicting:,} outcomes contradict known ones and changed nothing, first: "
            f"{settled.problems[0]}"
        )
        raise typer.Exit(1)
