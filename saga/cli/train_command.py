"""saga train: train a model on a panel and write it as a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import command_line, facts_of_option, read_persons
from saga.errors import UsageError
from saga.requests import check_seed

if TYPE_CHECKING:
    from saga.bundle import Bundle

_MIN_CALIBRATION_PERSONS = (
    200  # half are the threshold fold; ten of these must lie beyond a 90 % interval
)


def train(
    ctx: typer.Context,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Bundle to write.")],
    config: Annotated[
        str | None,
        typer.Option(
            help="auto (by size of the panel), tiny, small, base or a YAML file.",
            show_default="small for a generated register, else auto",
        ),
    ] = None,
    source: options.Source = None,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint.")] = False,
    devices: Annotated[int, typer.Option(min=1, help="GPUs, or CPU processes.")] = 1,
    until: Annotated[
        int | None, typer.Option(help="Fit on the years up to this one, to evaluate on later ones.")
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Train this many members, each without one fold of the persons. For panels with "
            "too few persons to keep some for calibration."
        ),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(
            help="Per cent of training, validation, calibration and test persons.",
            show_default="70,10,10,10",
        ),
    ] = None,
    seed: options.Seed = 0,
    split: options.Split = "person",
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on a panel's training persons and write it as a bundle."""
    from saga.data.split import SPLIT_SHARES, persons_of
    from saga.training.auto_config import choose_start
    from saga.training.folds import train_folds
    from saga.training.harness import RunOptions
    from saga.training.seeds import train_members

    if folds is not None and shares is not None:
        raise UsageError("With --folds, nobody is kept for calibration. Leave --shares out.")
    divided = SPLIT_SHARES if shares is None else options.parse_split_shares(shares)
    persons = read_persons(panel, mapping, prices, on_error, rejected, facts=facts_of_option(facts))
    config, start = choose_start(
        config, source, simulated=persons.meta.simulated, n_persons=len(persons.persons())
    )
    if start is not None:
        console.note(f"Training starts from the weights of {start}.")
    run = RunOptions(
        resume=resume,
        devices=devices,
        command=command_line(ctx),
        progress=False,
        source=start,
        report=None if as_json else console.note,
    )
    check_seed(seed)
    if folds is not None:
        bundle = train_folds(
            persons,
            out,
            folds,
            config=config,
            seed=seed,
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
            seed=seed,
            until=until,
            shares=divided,
            run=run,
            progress=None if as_json else _note_member,
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


def _note_few(n_calibration: int) -> None:
    """Say so if there are too few calibration persons."""
    if n_calibration < _MIN_CALIBRATION_PERSONS:
        console.note(
            f"{n_calibration} calibration persons are too few for 90 % intervals: about "
            f"{_MIN_CALIBRATION_PERSONS} are needed. --folds 5 calibrates on all persons."
        )


def _note_member(k: int, n_members: int, member: Bundle) -> None:
    report = member.metrics["training"]
    console.note(
        f"Member {k + 1} of {n_members}: {report['steps']:,} steps in {report['seconds']:,.0f} s, "
        f"validation log score {report['validation_nll']:.4f}."
    )
