"""saga train, saga circumstances: train a model, and the network of states of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import SplitReading, command_line, refuse_options, show_warnings
from saga.errors import UsageError
from saga.requests import Draws

if TYPE_CHECKING:
    from saga.bundle import Bundle

# What the judged bundle of --final decides.
_OF_RECIPE = ("config", "seed", "also", "until", "folds", "shares", "privacy")


def train(
    ctx: typer.Context,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Bundle to write.")],
    reading: SplitReading,
    draws: Annotated[Draws, "seed"],
    config: Annotated[
        str | None,
        typer.Option(
            help="auto (by size of the panel), tiny, small, base or a YAML file.",
            show_default="small for a generated register, else auto",
        ),
    ] = None,
    source: options.TrainingStart = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(
            help="A further panel, of another economy, all of whose persons train. Repeatable."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint.")
    ] = False,
    devices: Annotated[int, typer.Option(min=1, help="GPUs, or CPU processes.")] = 1,
    until: Annotated[
        int | None, typer.Option(help="Fit on the years up to this one, to evaluate on later ones.")
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="For few persons: train this many members, each without one fold of the persons."
        ),
    ] = None,
    final: Annotated[
        Path | None,
        typer.Option(
            help="Train with the recipe of this judged bundle on every person of its panel, so "
            "that nobody is left to judge it."
        ),
    ] = None,
    shares: options.Shares = None,
    privacy: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Train with noise, so that the weights alone are differentially private by "
            "person: 8 protects a little, 1 much.",
            show_default="no promise",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on a panel's training persons and write it as a bundle.

    Examples:
        saga train --panel register/ --out bundles/ours  # a bundle of your own
        saga train --panel panel.csv --folds 5 --out bundles/ours  # from few persons
        saga train --final bundles/ours --panel panel.csv --out final  # from every person
    """
    from saga.amount_warnings import about_growth
    from saga.data.origins import cut, require_trainable
    from saga.data.split import SPLIT_SHARES, parse_shares, persons_of, salted_beside
    from saga.macro.history import histories_of

    if final is not None:
        refuse_options(
            ctx, _OF_RECIPE, "{} is part of the recipe of the bundle of --final. Leave it out."
        )
    if folds is not None and shares is not None:
        raise UsageError("With --folds, nobody is kept for calibration. Leave --shares out.")
    divided = SPLIT_SHARES if shares is None else parse_shares(shares)
    persons = reading.read(panel)
    # Refused before the libraries of training are loaded: that takes seconds.
    require_trainable(persons if until is None else cut(persons, until))
    histories_of(persons)
    warnings = show_warnings(list(about_growth(persons)))
    persons = salted_beside(persons, out)

    from saga.bundle import PROMISE, Bundle
    from saga.training.ensembles import train_final, train_folds, train_members
    from saga.training.harness import RunOptions
    from saga.training.train_config import choose_start

    judged = None
    if final is not None:
        judged = Bundle.load(final)
        config = "recipe"  # and only a source that the user names
        source = source or _start_of(judged)
    config, start = choose_start(
        config,
        source,
        simulated=persons.meta.simulated,
        n_persons=len(persons.persons()),
        private=privacy is not None,
    )
    if start is not None:
        console.note(f"Training starts from the weights of {start}.")
    run = RunOptions(
        resume=resume,
        devices=devices,
        command=command_line(ctx),
        source=start,
        report=None if as_json else console.note,
        also=[reading.read(further) for further in also or ()],
        privacy=privacy,
    )
    if judged is not None:
        bundle = train_final(
            persons, out, judged, run=run, progress=None if as_json else _note_member
        )
    elif folds is not None:
        bundle = train_folds(
            persons,
            out,
            folds,
            config=config,
            seed=draws.seed,
            until=until,
            run=run,
            progress=None if as_json else _note_member,
        )
    else:
        _note_few(len(persons_of(persons, "calibration", divided)))
        bundle = train_members(
            persons,
            out,
            config=config,
            seed=draws.seed,
            until=until,
            shares=divided,
            run=run,
            progress=None if as_json else _note_member,
        )
    report = {
        "out": out,
        "bundle": bundle.digest,
        "parameters": bundle.parameters,
        **bundle.metrics["training"],
        "warnings": warnings,
        **({} if privacy is None else {PROMISE: bundle.config[PROMISE]}),
    }
    console.result(
        f"Wrote {out}: {bundle.parameters:,} parameters, digest {bundle.digest[:12]}.",
        report,
        as_json=as_json,
    )


def circumstances(
    ctx: typer.Context,
    bundle: options.Bundle,
    panel: options.Panel,
    reading: SplitReading,
    draws: Annotated[Draws, "seed"],
    out: options.OutBundle = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of training, of 256 persons each.")
    ] = 4_000,
    as_json: options.Json = False,
) -> None:
    """Train the states of a year (work, place, family, exits); continues after a stop.

    Examples:
        saga circumstances bundles/ours --panel register/  # states for paths
    """
    from saga.training.states.state_fit import StateFitOptions, fit_state_network

    persons = reading.read(panel)
    with console.progress("Training states", quiet=as_json) as progress:
        fitted = fit_state_network(
            bundle,
            persons,
            out=out,
            options=StateFitOptions(steps=steps),
            seed=draws.seed,
            command=command_line(ctx),
            progress=progress,
        )
    report = {"out": fitted.path, "bundle": fitted.digest, **fitted.metrics["circumstances"]}
    console.result(
        f"Wrote {fitted.path}: states trained, digest {fitted.digest[:12]}.",
        report,
        as_json=as_json,
    )


def _start_of(judged: Bundle) -> str | None:
    """The bundle that the training of `judged` started from, if it is a shipped one."""
    from saga.bundle import shipped_bundle

    start = judged.config.get("source")
    return None if start is None else str(shipped_bundle(start["name"]))


def _note_few(n_calibration: int) -> None:
    """Say so if there may be too few calibration persons."""
    from saga.training.ensembles import MIN_CALIBRATION_PERSONS

    if n_calibration < MIN_CALIBRATION_PERSONS:
        console.note(
            f"With {n_calibration} calibration persons 90 % intervals may be missing: about "
            f"{MIN_CALIBRATION_PERSONS} are needed. --folds 5 calibrates on all persons."
        )


def _note_member(k: int, n_members: int, member: Bundle) -> None:
    report = member.metrics["training"]
    console.note(
        f"Member {k + 1} of {n_members}: {report['steps']:,} steps in {report['seconds']:,.0f} s, "
        f"validation log score {report['validation_nll']:.4f}."
    )
