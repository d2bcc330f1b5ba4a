"""saga score: a product for all persons in files of any size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import (
    STANDARD,
    Model,
    ReadingUntil,
    Recording,
    refuse_options,
)
from saga.errors import UsageError
from saga.requests import Draws, Product, Request
from saga.summaries import format_counts

if TYPE_CHECKING:
    from saga.batch.run_folder import ScoreReport


def score(
    context: typer.Context,
    model: Annotated[Model, "bundle", "rollout"],
    request: Request,
    draws: Draws,
    reading: Annotated[ReadingUntil, "mapping", "prices", "origin", "facts", "on_error"],
    ledger: Recording,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="Person-years: a file or folder of .parquet .csv .arrow .dta .sas7bdat .sav, or "
            "the URL of one in an object store.",
        ),
    ] = None,
    out_dir: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT_DIR",
            help="Directory or URL for the parts; an unfinished run in it is continued.",
        ),
    ] = None,
    product: Annotated[Product, typer.Option(help="What to compute.")] = "forecasts",
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="local: processes of this machine; ray: a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Ray: the cluster, HOST:PORT or auto.", show_default="one on this machine"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes; the result does not depend on it.",
            show_default="threads of one process, one per core",
        ),
    ] = None,
    persons_per_partition: Annotated[
        int | None,
        typer.Option(min=1, help="Persons of one part.", show_default="by input and product"),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(help="Compute only share i of n, such as 0/7 to 6/7, then --merge."),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(help="Finish the run of this directory, all shards of which are complete."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compute a product for all persons of a source; after a stop the same command continues.

    Examples:
        saga score register/ out --workers 8  # forecasts; the same command continues
        saga score people.csv paths --product paths --circumstances  # for microsimulation
        saga score register/ out --shard 0/7  # on several machines; at the end --merge out
    """
    if merge is not None:
        refuse_options(
            context,
            context.params.keys() - {"merge", "as_json"},
            "--merge takes the arguments of the run from its directory. Leave {} out.",
        )
        from saga.batch.shards import merge_shards

        _show(merge_shards(merge), {"engine": "merge"}, as_json=as_json)
        return
    if source is None or out_dir is None:
        raise UsageError("Name the INPUT and the OUT_DIR, or --merge and the directory.")
    # The parts share the cores, so a query has one; polars asks when it begins the first.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from saga.batch.engine import compute_locally
    from saga.batch.engine import score as run_score
    from saga.batch.products import Recipe
    from saga.batch.ray_engine import RayEngine
    from saga.batch.shards import ALL_PARTITIONS, Shard
    from saga.data.reading import Source

    if source == str(STANDARD):
        raise UsageError("`saga score` reads files, which it opens again after a stop. Name one.")
    if ledger.record and product == "paths":
        raise UsageError(f"The product {product} has no option --record. Leave it out.")
    if address is not None and engine != "ray":
        raise UsageError("The engine local has no --address. Leave it out, or use --engine ray.")
    facts = reading.open_facts()
    recipe = Recipe(
        model.directory,
        request,
        draws,
        model.rollout,
        facts,
    )
    if ledger.database is not None:
        from saga.calibration.adaptive.issuance import AdaptiveRecipe

        recipe = AdaptiveRecipe.of(
            recipe,
            out_dir,
            url=ledger.database,
            key=ledger.database_key,
            holder=ledger.holder,
            record=ledger.record,
        )
    part = ALL_PARTITIONS if shard is None else Shard.parse(shard)
    rows = Source(source, reading.mapping, reading.prices, reading.on_error, facts, reading.origin)
    with console.progress("Scoring", quiet=as_json) as progress:
        report = run_score(
            rows,
            out_dir,
            recipe,
            workers=workers,
            persons_per_partition=persons_per_partition,
            progress=progress,
            shard=part,
            engine=RayEngine(address) if engine == "ray" else compute_locally,
        )
    for heading, names in (("columns not used", rows.ignored), ("files not read", rows.unread)):
        if names:
            console.note(f"{heading}: {format_counts(names)}")
    _show(report, {"engine": engine, "shard": shard}, as_json=as_json)
    if not part.is_whole:
        console.note(f"Shard {part} is complete. When all are: saga score --merge {out_dir}")


def _show(report: ScoreReport, how: dict[str, str | None], *, as_json: bool) -> None:
    """Print the counts of a run; `how` says how it was computed."""
    from saga.forecast_warnings import ForecastWarning

    for warning in report.warnings:
        console.note(f"Warning: {ForecastWarning(**warning)}")
    for heading, n_rows in (("set aside", report.rows_excluded), ("dropped", report.rows_dropped)):
        if n_rows:
            console.note(f"{heading}: {format_counts(n_rows)}")
    text = (
        f"{report.rows:,} rows for {report.persons_out:,} of {report.persons_in:,} persons are in "
        f"{report.out_dir}."
    )
    if report.rejected:
        text += f" Without a result: {format_counts(report.rejected)}; see _rejected.csv there."
    value = {"out": report.out_dir, **how, "resumed": report.resumed, **report.totals}
    console.result(text, value, as_json=as_json)
