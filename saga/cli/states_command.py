"""saga circumstances: train the network of states (work, place, family, exits) of a bundle."""

from __future__ import annotations

from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import command_line, read_persons
from saga.requests import check_seed


def circumstances(
    ctx: typer.Context,
    bundle: options.BundleArgument,
    panel: options.Panel,
    out: options.OutBundle = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of training, of 256 persons each.")
    ] = 4_000,
    seed: options.Seed = 0,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Train the states of a year (work, place, family, exits); continues after a stop."""
    from saga.training.states.state_fit import fit_state_network
    from saga.training.states.state_module import StateFitOptions

    persons = read_persons(panel, mapping, prices, on_error, rejected)
    fitted = fit_state_network(
        bundle,
        persons,
        out=out,
        options=StateFitOptions(steps=steps),
        seed=check_seed(seed),
        command=command_line(ctx),
        progress=console.is_watched(quiet=as_json),
    )
    report = {"out": fitted.path, "bundle": fitted.digest, **fitted.metrics["circumstances"]}
    console.result(
        f"Wrote {fitted.path}: states trained, digest {fitted.digest[:12]}.",
        report,
        as_json=as_json,
    )
