"""saga train: train a model on a panel and write it as a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import command_line, read_persons
from saga.requests import check_seed


def train(
    ctx: typer.Context,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Bundle to write.")],
    config: Annotated[str, typer.Option(help="tiny, small, base or a YAML file.")] = "small",
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint.")] = False,
    devices: Annotated[int, typer.Option(min=1, help="GPUs, or CPU processes.")] = 1,
    until: Annotated[
        int | None, typer.Option(help="Fit on the years up to this one, to evaluate on later ones.")
    ] = None,
    seed: options.Seed = 0,
    split: options.Split = "person",
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on a panel's training persons and write it as a bundle."""
    from training.fit import train as run_training
    from training.harness import RunOptions

    persons = read_persons(panel, mapping, prices, on_error, rejected)
    bundle = run_training(
        persons,
        out,
        config=config,
        seed=check_seed(seed),
        until=until,
        run=RunOptions(
            resume=resume,
            devices=devices,
            command=command_line(ctx),
            progress=console.is_watched(quiet=as_json),
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
