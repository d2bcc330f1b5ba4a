"""saga forecast, lifetime, score: tables of what people will earn, for some or for everybody in files of any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saga.cli import console
from saga.cli.arguments import (
    BundleOption,
    Coverage,
    Database,
    DatabaseKey,
    FromAge,
    Horizons,
    Input,
    Json,
    MappingOption,
    OnErrorOption,
    PathsOption,
    PrecisionOption,
    Prices,
    Quantiles,
    Rate,
    Record,
    Rejected,
    RolloutOption,
    ScenarioOption,
    Seed,
    TaxOption,
    Threads,
    ToAge,
)
from saga.cli.inputs import counted, note_precision, open_forecaster, read_people
from saga.cli.options import parse_coverage, parse_horizons, parse_prices, parse_quantiles
from saga.errors import InputError, Problem, UsageError
from saga.requests import (
    COVERAGE,
    HORIZONS,
    LIFETIME_COVERAGE,
    MAX_HORIZON,
    PATHS,
    QUANTILES,
    RATE,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    Product,
    Request,
    TaxName,
)
from saga.schema import MAX_AGE

if TYPE_CHECKING:
    import polars as pl

    from saga.data.panel import Panel
    from saga.forecaster import Forecaster

Table = Annotated[Path, typer.Option(help="Table to write: .parquet or .csv.")]
_REQUESTS: tuple[type[Request], ...] = (ForecastRequest, LifetimeRequest, PathsRequest)
_PREVIEW = ("person_id", "horizon", "year", "mean", "p_zero", "q50", "lower_90", "upper_90")


def forecast(
    source: Input,
    out: Table,
    bundle: BundleOption = None,
    horizons: Horizons = "1-30",
    coverage: Coverage = ".5,.8,.9,.95",
    quantiles: Quantiles = ".01,.05,.1,.25,.5,.75,.9,.95,.99",
    paths: PathsOption = PATHS,
    seed: Seed = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    precision: PrecisionOption = None,
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    limits: Annotated[
        bool,
        typer.Option(
            "--limits", help="Also one-sided limits, and intervals given positive earnings."
        ),
    ] = False,
    bands: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_HORIZON, help="Also bands for the next K years together."),
    ] = None,
    database: Database = None,
    database_key: DatabaseKey = None,
    record: Record = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Forecast each person's earnings 1 to 30 years ahead, with intervals."""
    import polars as pl

    from saga.conformal.calibrator import reason
    from saga.data.files import keep_apart
    from saga.files.tables import check_out, write_table

    request = ForecastRequest(
        horizons=parse_horizons(horizons),
        coverage=parse_coverage(coverage),
        quantiles=parse_quantiles(quantiles),
        limits=limits,
        bands=bands,
    )
    draws = Draws(paths, seed, scenario)
    keep_apart(source, out, "--out")
    check_out(out)
    _check_record(record, database)
    forecaster = open_forecaster(bundle, threads, rollout, precision)
    people, left_out = _forecastable(
        forecaster, read_people(source, mapping, prices, on_error, rejected), on_error
    )
    people, late = _reached(forecaster, people, request.horizons[0])
    forecaster.check_scenario(scenario, people, request.horizons[-1])
    state, recorded = dict[str, Any](), dict[str, Any]()
    with console.progress("Forecasting", quiet=as_json) as progress:
        if database is None:
            table = forecaster.forecast(people, request, draws, progress=progress)
        else:
            table, state, recorded = _issued(
                forecaster,
                people,
                database,
                database_key,
                request,
                draws,
                record=record,
                progress=progress,
            )
    bare = table.filter(pl.any_horizontal(pl.col(r"^guarantee_[0-9.]+$") == "none")).height
    if bare:
        console.note(
            f"{bare:,} of {table.height:,} rows lack an interval at some coverage. {reason('none')}"
        )
    provenance = {
        **forecaster.provenance(draws),
        "product": "forecasts",
        "panel": people.meta.panel_id,
        **state,
    }
    write_table(table, out, provenance)
    if not as_json:
        console.table(
            table.select([name for name in _PREVIEW if name in table.columns]).head(5), "First rows"
        )
    account = _account(people, [*left_out, *late]) | recorded
    _wrote(out, table.height, table["person_id"].n_unique(), provenance, account, as_json=as_json)


def lifetime(
    source: Input,
    out: Table,
    bundle: BundleOption = None,
    rate: Rate = RATE,
    to_age: ToAge = 64,
    from_age: FromAge = None,
    tax: TaxOption = "none",
    coverage: Coverage = ".9",
    quantiles: Quantiles = ".01,.05,.1,.25,.5,.75,.9,.95,.99",
    paths: PathsOption = PATHS,
    seed: Seed = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    precision: PrecisionOption = None,
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Present value of each person's remaining (or whole) working life, and its spread over these persons."""
    from saga.data.files import keep_apart
    from saga.files.tables import check_out, write_table

    request = LifetimeRequest(
        rate=rate,
        to_age=to_age,
        from_age=from_age,
        tax=tax,
        coverage=parse_coverage(coverage),
        quantiles=parse_quantiles(quantiles),
    )
    draws = Draws(paths, seed, scenario)
    keep_apart(source, out, "--out")
    check_out(out)
    forecaster = open_forecaster(bundle, threads, rollout, precision)
    people, left_out = _forecastable(
        forecaster, read_people(source, mapping, prices, on_error, rejected), on_error, to_age
    )
    forecaster.check_scenario(scenario, people)
    with console.progress("Simulating lives", quiet=as_json) as progress:
        lives = forecaster.lifetime(people, request, draws, progress=progress)
    provenance = {
        **forecaster.provenance(draws),
        "product": "lifetimes",
        "panel": people.meta.panel_id,
        "rate": rate,
        "to_age": to_age,
        "from_age": from_age,
        "tax": tax,
    }
    write_table(lives.table, out, provenance)
    if not as_json:
        console.table(
            lives.population, f"Present values of {lives.table.height:,} persons together"
        )
    account = {**_account(people, left_out), "population": lives.population.to_dicts()}
    _wrote(out, lives.table.height, lives.table.height, provenance, account, as_json=as_json)


def score(
    source: Input,
    out_dir: Annotated[
        Path,
        typer.Argument(
            metavar="OUT_DIR", help="Directory for the parts; an unfinished run there goes on."
        ),
    ],
    product: Annotated[Product, typer.Option(help="What to compute.")] = "forecasts",
    bundle: BundleOption = None,
    horizons: Annotated[
        str | None, typer.Option(help="Forecasts: years ahead.", show_default="1-30")
    ] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Forecasts and lifetimes: coverage of the intervals.")
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option(help="Forecasts and lifetimes: quantiles.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Lifetimes: real discount rate a year.", show_default="0.02"),
    ] = None,
    to_age: Annotated[
        int | None, typer.Option(help="Lifetimes and paths: last age.", show_default="64")
    ] = None,
    from_age: Annotated[
        int | None, typer.Option(help="Lifetimes: add the observed past from this age.")
    ] = None,
    tax: Annotated[TaxName | None, typer.Option(help="Lifetimes: se-2022, paper or none.")] = None,
    circumstances: Annotated[
        bool,
        typer.Option(
            "--circumstances",
            help="Paths: also state, industry, occupation, county and family of each year.",
        ),
    ] = False,
    paths: PathsOption = PATHS,
    seed: Seed = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    precision: PrecisionOption = None,
    engine: Annotated[Literal["local"], typer.Option(help="Where the work is done.")] = "local",
    workers: Annotated[
        int, typer.Option(min=1, help="Processes; the rows do not depend on it.")
    ] = 1,
    persons_per_partition: Annotated[int, typer.Option(min=1, help="Persons of one part.")] = 500,
    database: Database = None,
    database_key: DatabaseKey = None,
    record: Record = False,
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    as_json: Json = False,
) -> None:
    """Compute a product for everybody in a file or folder of any size, part by part; killed, the same command goes on."""
    from saga.batch.products import Recipe
    from saga.batch.products import score as run
    from saga.bundle import default_bundle

    _refuse_foreign_options(
        product,
        horizons=horizons,
        coverage=coverage,
        quantiles=quantiles,
        rate=rate,
        to_age=to_age,
        from_age=from_age,
        tax=tax,
        states=circumstances or None,
    )
    request: Request
    if product == "forecasts":
        request = ForecastRequest(
            horizons=HORIZONS if horizons is None else parse_horizons(horizons),
            coverage=COVERAGE if coverage is None else parse_coverage(coverage),
            quantiles=QUANTILES if quantiles is None else parse_quantiles(quantiles),
        )
    elif product == "lifetimes":
        request = LifetimeRequest(
            rate=RATE if rate is None else rate,
            to_age=MAX_AGE if to_age is None else to_age,
            from_age=from_age,
            tax=tax or "none",
            coverage=LIFETIME_COVERAGE if coverage is None else parse_coverage(coverage),
            quantiles=QUANTILES if quantiles is None else parse_quantiles(quantiles),
        )
    else:
        request = PathsRequest(MAX_AGE if to_age is None else to_age, states=circumstances)
    if record and product != "forecasts":
        raise UsageError(f"The product {product} has no option --record. Leave it out.")
    _check_record(record, database)

    def follow(recipe: Recipe) -> Any:
        from calibration.adaptive.issuance import AdaptiveRecipe

        return AdaptiveRecipe.of(
            recipe, out_dir, url=str(database), key=database_key, record=record
        )

    note_precision(precision)
    with console.progress("Scoring", quiet=as_json) as progress:
        report = run(
            source,
            out_dir,
            request,
            Draws(paths, seed, scenario),
            bundle=bundle or default_bundle(),
            rollout=rollout,
            precision=precision or "float32",
            mapping=mapping,
            prices=parse_prices(prices),
            on_error=on_error,
            workers=workers,
            persons_per_partition=persons_per_partition,
            progress=progress,
            under=follow if database is not None and product == "forecasts" else None,
        )
    text = f"{report.rows:,} rows for {report.persons_out:,} of {report.persons_in:,} persons are in {report.out_dir}."
    if report.rejected:
        text += f" Without a result: {counted(report.rejected)}; see _rejected.csv there."
    console.result(
        text,
        {"out": report.out_dir, "engine": engine, "resumed": report.resumed, **report.totals},
        as_json=as_json,
    )


def _refuse_foreign_options(product: Product, **options: object) -> None:
    """Raise UsageError for an option (named as the field of a request) of another product."""
    (request,) = (one for one in _REQUESTS if one.product == product)
    fields_of_product = {field.name for field in fields(request)}
    for name, value in sorted(options.items()):
        if value is not None and name not in fields_of_product:
            option = "circumstances" if name == "states" else name.replace("_", "-")
            raise UsageError(f"The product {product} has no option --{option}. Leave it out.")


def _check_record(record: bool, database: str | None) -> None:
    if record and database is None:
        raise UsageError(
            "--record enters promises in a ledger. Name it with --database or SAGA_DATABASE, or leave --record out."
        )


def _issued(
    forecaster: Forecaster,
    people: Panel,
    database: str,
    key: Path | None,
    request: ForecastRequest,
    draws: Draws,
    *,
    record: bool,
    progress: Any,
) -> tuple[pl.DataFrame, dict[str, Any], dict[str, Any]]:
    """The forecast table under the thresholds of the ledger; which state that was, for the provenance; what was recorded."""
    from calibration.adaptive.issuance import AdaptedForecaster, forecast_and_record
    from calibration.adaptive.ledger import open_ledger

    store = open_ledger(database, key)
    adapted = AdaptedForecaster.of(forecaster, store.state(forecaster.bundle.digest))
    state = {"adaptive": adapted.identity()}
    if not record:
        return adapted.forecaster.forecast(people, request, draws, progress=progress), state, {}
    table, made = forecast_and_record(adapted, people, store, request, draws, progress=progress)
    console.note(
        f"Ledger: {made.new:,} new promises, {made.repeated:,} known, {made.late:,} about years whose outcome is known."
    )
    return table, state, {"recorded": asdict(made)}


def _reached(forecaster: Forecaster, panel: Panel, ahead: int) -> tuple[Panel, list[Problem]]:
    """The persons who are at most 64 in the first year asked for; the others have no row, which is no error of theirs, and are named."""
    late = forecaster.obstacles(panel, ahead=ahead)
    persons = [person for person in panel.persons() if person not in late]
    if not persons:
        raise InputError(
            "Nobody in the input has a year that is asked for.", list(late.values())[:20]
        )
    if late:
        console.note(
            f"{len(late):,} persons are above {MAX_AGE} in every year that is asked for, and have no row."
        )
    return panel.only(persons), list(late.values())


def _forecastable(
    forecaster: Forecaster, panel: Panel, on_error: str, to_age: int = MAX_AGE
) -> tuple[Panel, list[Problem]]:
    """The persons who can be forecast, and with `drop` the others with their reason; with `fail` there may be no others."""
    obstacles = forecaster.obstacles(panel, to_age)
    reasons = [*([panel.meta.lost] if panel.meta.lost else []), *obstacles.values()]
    if not reasons:
        return panel, []
    count = sum(problem.count for problem in reasons)
    if on_error == "fail":
        raise InputError(
            f"{count:,} person(s) cannot be forecast; `--on-error drop` leaves them out and says so.",
            reasons[:20],
        )
    persons = [person for person in panel.persons() if person not in obstacles]
    if not persons:
        raise InputError("Nobody in the input can be forecast.", reasons[:20])
    rules: Counter[str] = Counter()
    for problem in reasons:
        rules[problem.rule] += problem.count
    console.note(f"{count:,} persons cannot be forecast and are left out: {counted(rules)}")
    return panel.only(persons), reasons


def _account(panel: Panel, left_out: Sequence[Problem]) -> dict[str, Any]:
    meta = panel.meta
    return {
        "excluded": meta.excluded,
        "dropped": meta.dropped,
        "ignored": meta.ignored,
        "left_out": [p.as_dict() for p in left_out],
    }


def _wrote(
    out: Path,
    rows: int,
    persons: int,
    provenance: Mapping[str, Any],
    account: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    source = f"{provenance['currency']} {provenance['price_year']}, bundle {provenance['bundle'][:12]}, seed {provenance['seed']}"
    text = f"Wrote {rows:,} rows for {persons:,} persons to {out} ({source})."
    console.result(
        text,
        {"out": out, "rows": rows, "persons": persons, "provenance": provenance, **account},
        as_json=as_json,
    )
