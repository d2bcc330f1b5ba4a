"""saga train, calibrate, bundle: make a bundle, fit its intervals or follow what comes true, look at it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console
from saga.cli.arguments import (
    BundleArgument,
    DatabaseKey,
    Json,
    MappingOption,
    OnErrorOption,
    PanelOption,
    PathsOption,
    Prices,
    Rejected,
    RolloutOption,
    Seed,
    Split,
    Threads,
)
from saga.cli.inputs import command_line, read_people
from saga.errors import UsageError
from saga.requests import CalibrationMethod, Draws, check_seed

if TYPE_CHECKING:
    from saga.data.panel import Panel

_TARGET_BY = "age,sex,education_level"
_OF_APPEND = (
    "database",
    "database_key",
    "since",
    "persons",
)  # options of `calibrate --append` alone
_OF_FIT = (
    "out",
    "method",
    "map_persons",
    "rollout",
    "profiles",
    "until",
    "target",
    "target_by",
)  # and of `calibrate` without it


def train(
    ctx: typer.Context,
    panel: PanelOption,
    out: Annotated[Path, typer.Option(help="Bundle to write.")],
    config: Annotated[str, typer.Option(help="tiny, small, base or a YAML file.")] = "small",
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
    devices: Annotated[int, typer.Option(min=1, help="GPUs, or CPU processes.")] = 1,
    until: Annotated[
        int | None,
        typer.Option(help="Fit on the years up to this one, to be judged on later ones."),
    ] = None,
    seed: Seed = 0,
    split: Split = "person",
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Train a model on a panel's training persons and write it as a bundle."""
    from training.fit import train as fit
    from training.harness import RunOptions

    people = read_people(panel, mapping, prices, on_error, rejected)
    bundle = fit(
        people,
        out,
        config=config,
        seed=check_seed(seed),
        until=until,
        run=RunOptions(
            resume=resume, devices=devices, command=command_line(ctx), progress=_watched(as_json)
        ),
    )
    report = {
        "out": out,
        "bundle": bundle.digest,
        "parameters": bundle.parameters,
        "split": split,
        **bundle.metrics["training"],
    }
    console.result(
        f"Wrote {out}: {bundle.parameters:,} parameters, digest {bundle.digest[:12]}.",
        report,
        as_json=as_json,
    )


def circumstances(
    ctx: typer.Context,
    bundle: BundleArgument,
    panel: PanelOption,
    out: Annotated[
        Path | None, typer.Option(help="Bundle to write.", show_default="BUNDLE itself")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of training, of 256 persons each.")
    ] = 4_000,
    seed: Seed = 0,
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Learn what else happens along paths of earnings (work, place, family, exits); stopped, the same command goes on."""
    from training.states.state_fit import fit_state_network
    from training.states.state_module import StateFitOptions

    people = read_people(panel, mapping, prices, on_error, rejected)
    made = fit_state_network(
        bundle,
        people,
        out=out,
        options=StateFitOptions(steps=steps),
        seed=check_seed(seed),
        command=command_line(ctx),
        progress=_watched(as_json),
    )
    report = {"out": made.path, "bundle": made.digest, **made.metrics["circumstances"]}
    console.result(
        f"Wrote {made.path}: circumstances learnt, digest {made.digest[:12]}.",
        report,
        as_json=as_json,
    )


def calibrate(
    ctx: typer.Context,
    bundle: BundleArgument,
    panel: PanelOption,
    out: Annotated[
        Path | None, typer.Option(help="Bundle to write.", show_default="BUNDLE itself")
    ] = None,
    method: Annotated[
        CalibrationMethod,
        typer.Option(
            help="sets: nested sets from recalibrated forecasts. cqr: the paper's method, "
            "conformalised quantile regression with one threshold per horizon.",
        ),
    ] = "sets",
    paths: PathsOption = 200,
    seed: Seed = 0,
    map_persons: Annotated[
        int,
        typer.Option(
            min=10,
            help="Persons (half A, a horizon) that a recalibration map needs; with fewer the raw forecast stands.",
        ),
    ] = 100,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Leave the bundle; a new delivery settles last year's promises in the ledger.",
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
    database_key: DatabaseKey = None,
    since: Annotated[
        int | None,
        typer.Option(help="--append: first origin year to promise from.", show_default="the next"),
    ] = None,
    persons: Annotated[
        int,
        typer.Option(min=1, help="--append: calibration persons to promise something each year."),
    ] = 2_000,
    rollout: RolloutOption = None,
    profiles: Annotated[
        bool,
        typer.Option(
            "--profiles",
            help="Also calibrate for poorer records (survey-like; earnings alone): three times the work.",
        ),
    ] = False,
    until: Annotated[
        int | None,
        typer.Option(help="Use the years up to this one, for a bundle to be judged on later ones."),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            help="Persons of another population, for whose groups thresholds are weighted.",
            show_default="none",
        ),
    ] = None,
    target_by: Annotated[
        str,
        typer.Option(help="Groups that tell --target from the panel, the most important first."),
    ] = _TARGET_BY,
    threads: Threads = None,
    split: Split = "person",
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Fit the intervals of a bundle on a panel's calibration persons; with --append follow what comes true instead."""
    from calibration.fit.bundle_calibration import CalibrationOptions, calibrate_bundle
    from saga.forecaster import Forecaster

    _refuse_foreign(ctx, append)
    people = read_people(panel, mapping, prices, on_error, rejected)
    draws = Draws(paths, seed)
    if append:
        _append(
            bundle,
            people,
            database,
            database_key,
            since,
            persons,
            draws,
            threads,
            as_json=as_json,
        )
        return
    others = None if target is None else read_people(target, mapping, prices, on_error, None)
    with console.progress("Calibrating", quiet=as_json) as progress:
        made = calibrate_bundle(
            bundle,
            people,
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
            target=others,
            workers=threads or os.cpu_count() or 1,
            command=command_line(ctx),
            progress=progress,
        )
    reach = Forecaster(made).calibrator.furthest_horizons
    report = {
        "out": made.path,
        "bundle": made.digest,
        "reach": {f"{level:g}": years for level, years in reach.items()},
        "calibration": made.calibration_digest,
        "method": method,
        "parents": made.manifest["parents"],
        "split": split,
    }
    told = ", ".join(
        f"{level:.0%} {f'to {years} years ahead' if years else 'none (too few persons)'}"
        for level, years in reach.items()
    )
    console.result(
        f"Calibrated {made.path}: digest {made.digest[:12]}. Intervals: {told}.",
        report,
        as_json=as_json,
    )


def inspect(directory: BundleArgument, as_json: Json = False) -> None:
    """Show what a bundle is and where it comes from."""
    from saga.bundle import Bundle
    from saga.conformal.calibrator import calibration_method

    opened = Bundle.load(directory)
    facts = {
        "path": opened.path,
        "digest": opened.digest,
        "model": opened.model_digest,
        "calibration": opened.calibration_digest,
        "method": calibration_method(opened.calibration),
        "parameters": opened.parameters,
        "weights": {name: list(tensor.shape) for name, tensor in opened.weights.items()},
        **{
            key: opened.manifest[key]
            for key in ("code_version", "seed", "command", "parents", "files")
        },
        "config": opened.config,
        "split": opened.split,
        "metrics": opened.metrics,
    }
    lines = [opened.card.strip(), ""]
    lines += [
        f"{key:<12} {facts[key]}"
        for key in (
            "digest",
            "model",
            "calibration",
            "method",
            "parameters",
            "code_version",
            "seed",
            "command",
        )
    ]
    lines += [
        f"{'parents':<12} {', '.join(opened.manifest['parents']) or 'none'}",
        f"{'files':<12} {', '.join(sorted(opened.manifest['files']))}",
    ]
    console.result("\n".join(lines), facts, as_json=as_json)


def verify(directory: BundleArgument, as_json: Json = False) -> None:
    """Check every byte of a bundle; exit code 2 names the file that is missing, unknown or changed."""
    from saga.bundle import Bundle

    opened = Bundle.load(directory)
    facts = {
        "path": opened.path,
        "intact": True,
        "digest": opened.digest,
        "files": len(opened.manifest["files"]),
    }
    console.result(
        f"{directory} is intact: {facts['files']} files, digest {opened.digest}.",
        facts,
        as_json=as_json,
    )


def _refuse_foreign(ctx: typer.Context, append: bool) -> None:
    """Raise UsageError for an option of the other mode, which would do nothing; what the environment sets is for all commands."""
    for name in _OF_FIT if append else _OF_APPEND:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"With --append there is no {option}. Leave it out."
                if append
                else f"{option} is of --append alone. Leave it out, or give both."
            )


def _append(
    bundle: Path,
    panel: Panel,
    database: str | None,
    key: Path | None,
    since: int | None,
    persons: int,
    draws: Draws,
    threads: int | None,
    *,
    as_json: bool,
) -> None:
    from calibration.adaptive.delivery import apply_delivery
    from calibration.adaptive.ledger import open_ledger

    store = open_ledger(database or f"sqlite:///{bundle.resolve()}.ledger.sqlite", key)
    workers = threads or os.cpu_count() or 1
    with console.progress("Forecasting", quiet=as_json) as progress:
        done = apply_delivery(
            bundle,
            panel,
            store,
            since=since,
            n_persons=persons,
            draws=draws,
            workers=workers,
            progress=progress,
        )
    told, made = done.settled, done.recorded
    report = {
        "origins": list(done.origins),
        "promised": made.new,
        **told.counts(),
        "problems": [problem.as_dict() for problem in told.problems],
        "version": done.state.version,
        "through": done.state.through,
    }
    text = f"{told.new:,} outcomes settled {told.settled_intervals:,} promises; {made.new:,} new promises. State {done.state.version}"
    through = f"outcomes up to {done.state.through}" if done.state.through else "no outcome yet"
    console.result(f"{text}, {through}.", report, as_json=as_json)
    if told.problems:
        console.note(
            f"{told.conflicting:,} outcomes contradict known ones and changed nothing, first: {told.problems[0]}"
        )
        raise typer.Exit(1)


def _watched(as_json: bool) -> bool:
    with console.progress("", quiet=as_json) as progress:
        return progress is not None
