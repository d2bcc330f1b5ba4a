"""saga vintages: models trained up to earlier years, and how groups then fared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from saga.cli import console, options
from saga.cli.inputs import Reading, command_line
from saga.cli.options import Only
from saga.requests import Draws, ForecastRequest, Option


def vintages(
    ctx: typer.Context,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Folder of the vintages; complete ones are kept.")],
    reading: Reading,
    draws: Annotated[Draws, Only("n_paths", "seed")] = Draws(200),
    request: Annotated[ForecastRequest, Only("horizons")] = ForecastRequest((1, 2, 5, 10, 20)),
    config: Annotated[
        str | None,
        typer.Option(
            help="auto, tiny, small, base or a YAML file, as in `saga train`.",
            show_default="as in `saga train`",
        ),
    ] = None,
    source: options.TrainingStart = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Train this many members a vintage, and judge all persons by the one that has not "
            "seen them.",
            show_default="none: the test persons are judged",
        ),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Years between two vintages.")] = 2,
    cutoffs: Annotated[
        Sequence[int] | None,
        Option("Last years of training; if left out, every `--every` years of the panel."),
    ] = None,
    by: Annotated[
        str, typer.Option(help="Groups: columns of the panel, age, cohort, birth_year.")
    ] = "sex,education_level,age",
    persons: options.TestPersons = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", help="Bundle of the same panel whose group tables get the model's own error."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train models up to earlier years; keep the errors of their forecasts of groups.

    Examples:
        saga vintages --panel panel.csv --out vintages  # every two years, as the panel allows
        saga vintages --panel p.csv --out v --store bundles/ours  # and store the model's error
    """
    from saga.cli.options import read_texts
    from saga.evaluation.report.vintage_table import describe_vintages
    from saga.evaluation.vintages import (
        VintageOptions,
        choose_cutoffs,
        make_vintages,
        store_vintages,
    )
    from saga.training.harness import RunOptions
    from saga.training.train_config import choose_start

    people = reading.read(panel)
    chosen, start = choose_start(
        config, source, simulated=people.meta.simulated, n_persons=len(people.persons())
    )
    report = None if as_json or console.is_watched(quiet=as_json) else console.note
    settings = VintageOptions(
        config=chosen,
        folds=folds,
        horizons=request.horizons,
        by=read_texts(by),
        draws=draws,
        persons=persons,
        run=RunOptions(command=command_line(ctx), progress=False, source=start, report=report),
    )
    years = cutoffs or choose_cutoffs(people, every, min(request.horizons))
    with console.progress("Vintages", quiet=as_json) as progress:
        errors = make_vintages(people, out, sorted(years), settings, progress=progress)
    text = describe_vintages(errors)
    (out / "vintages.md").write_text(text, encoding="utf-8")
    stored = (
        None
        if store is None
        else store_vintages(errors, store, people.meta.panel_id, command_line(ctx))
    )
    console.result(
        f"{text}\nWrote vintages.parquet ({errors.height:,} rows) and vintages.md to {out}.",
        {
            "out": out,
            "cutoffs": errors["cutoff"].unique().sort().to_list(),
            "rows": errors.height,
            "stored": None if stored is None else stored.digest,
        },
        as_json=as_json,
    )
