"""saga score: a product for all persons in files of any size."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import (
    STANDARD,
    check_record,
    format_counts,
    note_precision,
    options_on_command_line,
)
from saga.errors import UsageError
from saga.requests import (
    COVERAGE,
    HORIZONS,
    LIFETIME_COVERAGE,
    PATHS,
    QUANTILES,
    RATE,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    Product,
    Request,
)
from saga.schema import MAX_AGE

if TYPE_CHECKING:
    from saga.batch.engine import BatchRecipe
    from saga.batch.run_folder import ScoreReport

_REQUESTS: tuple[type[Request], ...] = (ForecastRequest, LifetimeRequest, PathsRequest)


@dataclass(frozen=True)
class _RequestOptions:
    """The options of all products; None if an option was not given. Names are those of requests."""

    horizons: str | None
    coverage: str | None
    quantiles: str | None
    rate: float | None
    to_age: int | None
    from_age: int | None
    tax: str | None
    states: bool | None

    def parse(self, product: Product, *, unrounded: bool) -> Request:
        """The request of a product. Raises UsageError for an option of another product."""
        self._refuse_options_of_others(product)
        to_age = MAX_AGE if self.to_age is None else self.to_age
        if product == "paths":
            return PathsRequest(to_age, states=bool(self.states), unrounded=unrounded)
        quantiles = QUANTILES if self.quantiles is None else options.parse_quantiles(self.quantiles)
        coverage: tuple[float, ...] = LIFETIME_COVERAGE if product == "lifetimes" else COVERAGE
        if self.coverage is not None:
            coverage = options.parse_coverage(self.coverage)
        if product == "forecasts":
            return ForecastRequest(
                horizons=HORIZONS
                if self.horizons is None
                else options.parse_horizons(self.horizons),
                coverage=coverage,
                quantiles=quantiles,
                unrounded=unrounded,
            )
        from saga.tax.tax_reform import tax_source

        return LifetimeRequest(
            rate=RATE if self.rate is None else self.rate,
            to_age=to_age,
            from_age=self.from_age,
            tax=tax_source(self.tax or "none"),
            coverage=coverage,
            quantiles=quantiles,
            unrounded=unrounded,
        )

    def _refuse_options_of_others(self, product: Product) -> None:
        (request_type,) = (request for request in _REQUESTS if request.product == product)
        of_product = {field.name for field in fields(request_type)}
        on_command_line = {
            field.name for field in fields(self) if getattr(self, field.name) is not None
        }
        for name in sorted(on_command_line - of_product):
            option = "circumstances" if name == "states" else name.replace("_", "-")
            raise UsageError(f"The product {product} has no option --{option}. Leave it out.")


def score(
    context: typer.Context,
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
    bundle: options.Bundle = None,
    horizons: Annotated[
        str | None, typer.Option(help="Forecasts: years ahead.", show_default=options.HORIZONS_TEXT)
    ] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Forecasts and lifetimes: coverage of the intervals.")
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option(help="Forecasts and lifetimes: quantiles.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Lifetimes: real discount rate a year.", show_default=str(RATE)),
    ] = None,
    to_age: Annotated[
        int | None, typer.Option(help="Lifetimes and paths: last age.", show_default=str(MAX_AGE))
    ] = None,
    from_age: Annotated[
        int | None, typer.Option(help="Lifetimes: add the observed past from this age.")
    ] = None,
    tax: Annotated[
        str | None,
        typer.Option(
            help="Lifetimes: none, paper, the tax of a year (se-2026), or a reform file (.yaml).",
            show_default="none",
        ),
    ] = None,
    circumstances: Annotated[
        bool,
        typer.Option(
            "--circumstances",
            help="Paths: also state, industry, occupation, county and family of each year.",
        ),
    ] = False,
    paths: options.Paths = PATHS,
    seed: options.Seed = 0,
    scenario: options.Scenario = None,
    rollout: options.Rollout = None,
    precision: options.Precision = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Who computes: processes of this machine, or a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Ray: the cluster, HOST:PORT or auto.", show_default="one on this machine"
        ),
    ] = None,
    workers: options.Workers = 1,
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
    database: options.Database = None,
    database_key: options.DatabaseKey = None,
    holder: options.Holder = "common",
    record: options.Record = False,
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    origin: options.Origin = None,
    facts: options.Facts = None,
    on_error: options.OnError = "fail",
    unrounded: options.Unrounded = False,
    as_json: options.Json = False,
) -> None:
    """Compute a product for all persons of a source; after a stop the same command continues."""
    if merge is not None:
        _refuse_options_beside_merge(context)
        from saga.batch.shards import merge_shards

        _show(merge_shards(merge), {"engine": "merge"}, as_json=as_json)
        return
    if source is None or out_dir is None:
        raise UsageError("Name the INPUT and the OUT_DIR, or --merge and the directory.")
    from saga.batch.engine import compute_locally
    from saga.batch.engine import score as run_score
    from saga.batch.products import Recipe
    from saga.batch.ray_engine import RayEngine
    from saga.batch.shards import ALL_PARTITIONS, Shard
    from saga.bundle import default_bundle
    from saga.data.reading import Source

    if source == str(STANDARD):
        raise UsageError("`saga score` reads files, which it opens again after a stop. Name one.")
    request = _RequestOptions(
        horizons, coverage, quantiles, rate, to_age, from_age, tax, circumstances or None
    ).parse(product, unrounded=unrounded)
    if record and product == "paths":
        raise UsageError(f"The product {product} has no option --record. Leave it out.")
    check_record(record, database)
    draws = Draws(paths, seed, scenario)
    recipe = Recipe(
        bundle or default_bundle(), request, draws, rollout, precision or "float32", facts
    )
    batch_recipe: BatchRecipe = recipe
    if database is not None:
        from saga.calibration.adaptive.issuance import AdaptiveRecipe

        batch_recipe = AdaptiveRecipe.of(
            recipe, out_dir, url=database, key=database_key, holder=holder, record=record
        )
    note_precision(precision)
    if address is not None and engine != "ray":
        raise UsageError("The engine local has no --address. Leave it out, or use --engine ray.")
    part = ALL_PARTITIONS if shard is None else Shard.parse(shard)
    with console.progress("Scoring", quiet=as_json) as progress:
        report = run_score(
            Source(source, mapping, options.parse_prices(prices), on_error, facts, origin),
            out_dir,
            batch_recipe,
            workers=workers,
            persons_per_partition=persons_per_partition,
            progress=progress,
            shard=part,
            engine=RayEngine(address) if engine == "ray" else compute_locally,
        )
    _show(report, {"engine": engine, "shard": shard}, as_json=as_json)
    if not part.is_whole:
        console.note(f"Shard {part} is complete. When all are: saga score --merge {out_dir}")


def _show(report: ScoreReport, how: dict[str, str | None], *, as_json: bool) -> None:
    """Print the counts of a run; `how` says how it was computed."""
    from saga.forecast_warnings import ForecastWarning

    for warning in report.warnings:
        console.note(f"Warning: {ForecastWarning(**warning)}")
    text = (
        f"{report.rows:,} rows for {report.persons_out:,} of {report.persons_in:,} persons are in "
        f"{report.out_dir}."
    )
    if report.rejected:
        text += f" Without a result: {format_counts(report.rejected)}; see _rejected.csv there."
    value = {"out": report.out_dir, **how, "resumed": report.resumed, **report.totals}
    console.result(text, value, as_json=as_json)


def _refuse_options_beside_merge(context: typer.Context) -> None:
    """Raise UsageError if anything but --merge and --json was given."""
    others = sorted(options_on_command_line(context) - {"merge", "as_json"})
    if others:
        raise UsageError(
            f"--merge takes the arguments of the run from its directory. Leave {others[0]} out."
        )
