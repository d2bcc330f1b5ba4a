"""The command line, and the one place where all parts meet.

Every command imports what it needs when it runs: `saga forecast` loads no training code, and `saga --help` answers at once.
Exit codes: 0 done, 1 a check said no, 2 wrong use or bad input, 3 interrupted (the same command goes on), 70 internal error.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import polars as pl
import typer
from typer.core import TyperGroup

from saga import console, options
from saga.errors import InputError, Problem, UsageError
from saga.schema import MAX_AGE

if TYPE_CHECKING:
    from saga.forecaster import Forecaster
    from saga.panel import Panel

_OPTIONS_OF = {
    "forecasts": {"horizons", "coverage", "quantiles"},
    "lifetimes": {"coverage", "quantiles", "rate", "to_age", "from_age", "tax"},
    "paths": {"to_age"},
}
_TARGET_BY = "age,sex,education_level"
_PREVIEW = ("person_id", "horizon", "year", "mean", "p_zero", "q50", "lower_90", "upper_90")


class _Guarded(TyperGroup):
    """Turns whatever a command raises into one readable message and the exit code that belongs to it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, SystemExit, GeneratorExit, BrokenPipeError):
            raise
        except BaseException as error:
            as_json, debug = "--json" in ctx.obj, bool(ctx.params.get("debug"))
            if hasattr(error, "format_message") and not as_json:
                raise  # wrong use: the parser shows it together with the usage of the command
            raise typer.Exit(console.report(error, as_json=as_json, debug=debug)) from None


app = typer.Typer(
    cls=_Guarded,
    name="saga",
    help="Forecasts of what people will earn over their working lives, as full distributions with calibrated intervals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
register_app = typer.Typer(help="The synthetic register that models are trained on.", no_args_is_help=True)
bundle_app = typer.Typer(help="Look at a bundle, or check it byte by byte.", no_args_is_help=True)
keys_app = typer.Typer(help="Bearer keys of the service.", no_args_is_help=True)
app.add_typer(register_app, name="register")
app.add_typer(bundle_app, name="bundle")
app.add_typer(keys_app, name="keys")

Input = Annotated[Path, typer.Argument(metavar="INPUT", help="Person-years: a file or folder of .parquet .csv .arrow .dta .sas7bdat .sav.")]
PanelOption = Annotated[Path, typer.Option("--panel", help="Person-years: a file, a folder or a generated register.")]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.")]
BundleOption = Annotated[Path | None, typer.Option("--bundle", help="Directory of a bundle.", show_default="bundles/small")]
Mapping_ = Annotated[
    str | None, typer.Option("--mapping", help="How the source names things: a YAML file or a shipped name (lisa, nlsy79).")
]
Prices = Annotated[str | None, typer.Option(help="'nominal', or the year in whose prices all amounts are.", show_default="nominal")]
OnError = Annotated[Literal["fail", "drop"], typer.Option(help="Stop at rows that break a rule, or drop and count them.")]
Rejected = Annotated[Path | None, typer.Option(help="Where the rows that break a rule go (.parquet or .csv).")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
PathsOption = Annotated[int, typer.Option("--paths", help="Simulated futures a person.")]
ScenarioOption = Annotated[
    str | None, typer.Option("--scenario", help="Macro futures: baseline, recession-1990s, high-growth or a CSV file.")
]
RolloutOption = Annotated[
    Literal["exact", "light"] | None,
    typer.Option("--rollout", help="How paths are carried: by the decoder, or lightly, faster.", show_default="as calibrated"),
]
Coverage = Annotated[str, typer.Option(help="Coverage of the intervals, each strictly between 0 and 1.")]
Quantiles = Annotated[str, typer.Option(help="Quantiles: shares (.05,.5) or a range of per cents (1-99).")]
Horizons = Annotated[str, typer.Option(help="Years ahead: a range (1-30) or a list (1,5,10).")]
Rate = Annotated[float, typer.Option(help="Real discount rate a year, as a share.")]
ToAge = Annotated[int, typer.Option(help="Last age that counts.")]
FromAge = Annotated[int | None, typer.Option(help="Add the observed past from this age, and discount to it.")]
TaxOption = Annotated[str, typer.Option("--tax", help="Tax rule: se-2022, paper or none.")]
Database = Annotated[
    str | None,
    typer.Option(envvar="SAGA_DATABASE", help="Ledger whose thresholds serve: sqlite:///FILE or postgresql://...", show_default="none"),
]
DatabaseKey = Annotated[
    Path | None, typer.Option(envvar="SAGA_DATABASE_KEY", help="File of the ledger's secret.", show_default="FILE.key, made if missing")
]
Record = Annotated[bool, typer.Option("--record", help="Enter what is promised in the ledger, to be judged when outcomes come in.")]
Split = Annotated[Literal["person"], typer.Option(help="How persons are divided into training, validation, calibration and test.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Persons simulated at a time (large jobs: processes).", show_default="all cores")]
Workers = Annotated[int, typer.Option(min=1, help="Processes; the bytes do not depend on it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


def main() -> None:
    """Entry point of the console script `saga`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a container that is stopped is interrupted, not broken
    app()


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="SAGA_DEBUG", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of all commands; `debug` is read where errors are reported."""
    if version:
        from saga.bundle import current_version

        typer.echo(current_version())
        raise typer.Exit


@register_app.command("generate")
def register_generate(
    persons: Annotated[int, typer.Option(min=1, help="Persons in the register.")],
    out: Annotated[Path, typer.Option(help="Directory to write.")],
    seed: Seed = 0,
    years: Annotated[str, typer.Option(help="First and last year of the panel.")] = "1990-2022",
    future_to: Annotated[int | None, typer.Option(min=2023, help="Also simulate the same people's future up to this year.")] = None,
    future_draws: Annotated[int | None, typer.Option(min=1, help="Macro futures to draw.", show_default="1 with --future-to")] = None,
    latent_years: Annotated[
        str, typer.Option(help="Years at whose end the hidden state is saved, beside the last: 2002,2012.", show_default="the last year")
    ] = "",
    process: Annotated[
        Literal["full", "gaussian", "gkos", "gkos-few-zeros"],
        typer.Option(help="The full simulation, or a textbook process whose best forecast is known."),
    ] = "full",
    without: Annotated[
        list[str] | None, typer.Option(metavar="MECHANISM", help="Switch a mechanism off (a wrong name lists them all). Repeatable.")
    ] = None,
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Simulate a register of working lives: the same seed gives the same bytes."""
    from saga.register.simulate import generate_register
    from saga.register.textbook import PROCESSES

    first, last = options.parse_years(years)
    with console.progress("Simulating", quiet=as_json) as progress:
        made = generate_register(
            out,
            persons=persons,
            seed=options.check_seed(seed),
            first_year=first,
            last_year=last,
            future_to=future_to,
            future_draws=future_draws if future_draws is not None else int(future_to is not None),
            workers=workers,
            progress=progress,
            latent_years=options.parse_latent_years(latent_years),
            process=PROCESSES.get(process),
            without=without or (),
        )
    console.result(
        f"Wrote a register of {persons:,} persons to {out} (seed {seed}).",
        {"out": out, **{key: value for key, value in made.items() if key != "parameters"}},
        as_json=as_json,
    )


@register_app.command("check")
def register_check(
    register: Annotated[Path, typer.Argument(metavar="DIR", help="A register that `saga register generate` wrote.")],
    only: Annotated[list[str] | None, typer.Option(help="Only these targets, by key or beginning of it: level.women. Repeatable.")] = None,
    sample: Annotated[Literal["all", "paper"], typer.Option(help="paper: also the figures of the paper's selected sample.")] = "all",
    report: Annotated[Path | None, typer.Option(help="Write plots, verdicts and provenance as one HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    as_json: Json = False,
) -> None:
    """Hold a register against published figures for Sweden: exit 1 if an enforced target lies outside its band."""
    from saga.register.check import as_markdown, as_text, check_register, passed, provenance

    table = check_register(register, only=only or (), paper=sample == "paper", described=as_json or report is not None)
    if markdown is not None:
        markdown.write_text(as_markdown(table), encoding="utf-8")
    if report is not None:
        from saga.register.report import write_report

        write_report(table, report, provenance(register))
    good = passed(table)
    console.result(as_text(table), {"register": register, "passed": good, "targets": table.to_dicts()}, as_json=as_json)
    if not good:
        raise typer.Exit(1)


@register_app.command("release")
def register_release(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to write.")],
    persons: Annotated[int, typer.Option(min=1, help="Persons in the register.")],
    seed: Seed = 0,
    years: Annotated[str, typer.Option(help="First and last year of the panel.")] = "1990-2022",
    future_to: Annotated[int | None, typer.Option(min=2023, help="Also the same people's future up to this year.")] = None,
    future_draws: Annotated[int | None, typer.Option(min=1, help="Macro futures to draw.", show_default="1 with --future-to")] = None,
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Write a register to hand over: panel, person split, computed moments, data sheet, checksums."""
    from saga.register.release import release_register

    first, last = options.parse_years(years)
    with console.progress("Simulating", quiet=as_json) as progress:
        made = release_register(
            out,
            persons=persons,
            seed=options.check_seed(seed),
            first_year=first,
            last_year=last,
            future_to=future_to,
            future_draws=future_draws if future_draws is not None else int(future_to is not None),
            workers=workers,
            progress=progress,
        )
    text = f"Wrote {made['register_id']} to {out}: {made['rows']:,} rows, {made['files']:,} files. {made['verdict']}"
    console.result(text, {"out": out, **made}, as_json=as_json)


@app.command()
def train(
    ctx: typer.Context,
    panel: PanelOption,
    out: Annotated[Path, typer.Option(help="Bundle to write.")],
    config: Annotated[str, typer.Option(help="tiny, small, base or a YAML file.")] = "small",
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
    devices: Annotated[int, typer.Option(min=1, help="GPUs, or CPU processes.")] = 1,
    until: Annotated[int | None, typer.Option(help="Fit on the years up to this one, to be judged on later ones.")] = None,
    seed: Seed = 0,
    split: Split = "person",
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Train a model on a panel's training persons and write it as a bundle."""
    from training.fit import train as fit

    people = _read(panel, mapping, prices, on_error, rejected)
    bundle = fit(
        people,
        out,
        config=config,
        seed=options.check_seed(seed),
        resume=resume,
        devices=devices,
        until=until,
        command=_command(ctx),
        progress=_watched(as_json),
    )
    report = {"out": out, "bundle": bundle.digest, "parameters": bundle.parameters, "split": split, **bundle.metrics["training"]}
    console.result(f"Wrote {out}: {bundle.parameters:,} parameters, digest {bundle.digest[:12]}.", report, as_json=as_json)


@app.command()
def calibrate(
    ctx: typer.Context,
    bundle: BundleArgument,
    panel: PanelOption,
    out: Annotated[Path | None, typer.Option(help="Bundle to write.", show_default="BUNDLE itself")] = None,
    paths: PathsOption = 200,
    seed: Seed = 0,
    map_persons: Annotated[
        int, typer.Option(min=10, help="Persons (half A, a horizon) that a recalibration map needs; with fewer the raw forecast stands.")
    ] = 100,
    append: Annotated[
        bool, typer.Option("--append", help="Leave the bundle; a new delivery settles last year's promises in the ledger.")
    ] = False,
    database: Annotated[
        str | None,
        typer.Option(envvar="SAGA_DATABASE", help="Ledger: sqlite:///FILE or postgresql://...", show_default="BUNDLE.ledger.sqlite"),
    ] = None,
    database_key: DatabaseKey = None,
    since: Annotated[int | None, typer.Option(help="--append: first origin year to promise from.", show_default="the next")] = None,
    persons: Annotated[int, typer.Option(min=1, help="--append: calibration persons to promise something each year.")] = 2_000,
    rollout: RolloutOption = None,
    profiles: Annotated[
        bool, typer.Option("--profiles", help="Also calibrate for poorer records (survey-like; earnings alone): three times the work.")
    ] = False,
    until: Annotated[int | None, typer.Option(help="Use the years up to this one, for a bundle to be judged on later ones.")] = None,
    target: Annotated[
        Path | None,
        typer.Option(help="Persons of another population, for whose groups thresholds are weighted.", show_default="none"),
    ] = None,
    target_by: Annotated[str, typer.Option(help="Groups that tell --target from the panel, the most important first.")] = _TARGET_BY,
    threads: Threads = None,
    split: Split = "person",
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Fit the intervals of a bundle on a panel's calibration persons; with --append follow what comes true instead."""
    from calibration.calibrate import calibrate as fit

    people = _read(panel, mapping, prices, on_error, rejected)
    others = None if target is None else _read(target, mapping, prices, on_error, None)
    if append:
        _append(bundle, people, out, database, database_key, since, persons, options.check_paths(paths), seed, threads, as_json=as_json)
        return
    with console.progress("Calibrating", quiet=as_json) as progress:
        made = fit(
            bundle,
            people,
            out=out,
            paths=options.check_paths(paths),
            seed=options.check_seed(seed),
            workers=threads or os.cpu_count() or 1,
            map_persons=map_persons,
            until=until,
            profiles=profiles,
            rollout=rollout,
            target=others,
            target_by=tuple(name.strip() for name in target_by.split(",")),
            command=_command(ctx),
            progress=progress,
        )
    report = {
        "out": made.path,
        "bundle": made.digest,
        "calibration": made.calibration_digest,
        "parents": made.manifest["parents"],
        "split": split,
    }
    console.result(f"Calibrated {made.path}: digest {made.digest[:12]}.", report, as_json=as_json)


@app.command()
def evaluate(
    bundle: BundleArgument,
    panel: PanelOption,
    out: Annotated[Path, typer.Option(help="Directory for metrics.parquet and the tables.")],
    baselines: Annotated[
        str, typer.Option(help="'all', or names such as carry,groupq,gkos; on a generated register also clairvoyant.")
    ] = "all",
    tables: Annotated[
        str, typer.Option(help="'accuracy', further lifetimes, placebos, calibration-size (each costs simulations of its own), or 'all'.")
    ] = "accuracy",
    variants: Annotated[
        Path | None, typer.Option(help="YAML: further bundles as rows (ablations); name, table, label, note, bundle.")
    ] = None,
    sample: Annotated[Literal["all", "paper"], typer.Option(help="paper: ten observed years, five positive, end age 26-54.")] = "all",
    cache: Annotated[
        Path | None, typer.Option(help="Where un-averaged scores are kept, a row a person.", show_default="OUT/scores")
    ] = None,
    horizons: Horizons = "1,5,10,20",
    rollout: RolloutOption = None,
    paths: PathsOption = 200,
    persons: Annotated[int | None, typer.Option(min=1, help="Judge at most so many test persons.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    split: Annotated[
        Literal["person", "cohort"], typer.Option(help="cohort: the paper's birth years, on their side of the person split.")
    ] = "person",
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Score a bundle and the baselines on the persons that neither training nor calibration has seen."""
    from evaluation.comparison import verdicts
    from evaluation.contest import evaluate as contest

    chosen = tuple(name.strip() for name in baselines.split(","))
    ahead = options.parse_horizons(horizons)
    people = _read(panel, mapping, prices, on_error, rejected)
    with console.progress("Scoring", quiet=as_json) as progress:
        metrics = contest(
            bundle,
            people,
            out,
            baselines=chosen,
            horizons=ahead,
            paths=options.check_paths(paths),
            seed=options.check_seed(seed),
            persons=persons,
            workers=threads or os.cpu_count() or 1,
            progress=None if progress is None else lambda step, done, total: progress(done, total, step),
            futures=panel if (panel / "future").is_dir() else None,
            register=panel if (panel / "register.json").is_file() else None,
            notice=console.note,
            tables=[name.strip() for name in tables.split(",")],
            variants=variants,
            sample=sample,
            split=split,
            cache=cache,
            rollout=rollout,
        )
    lines = verdicts(pl.read_parquet(out / "comparisons.parquet"))
    if not as_json:
        _show_metrics(metrics)
    console.result(
        "\n".join([*lines, f"Wrote metrics.parquet ({metrics.height:,} rows), tables.md and tables.html to {out}."]),
        {"out": out, "split": split, "rows": metrics.height, "verdicts": lines},
        as_json=as_json,
    )


@app.command()
def forecast(
    source: Input,
    out: Annotated[Path, typer.Option(help="Table to write: .parquet or .csv.")],
    bundle: BundleOption = None,
    horizons: Horizons = "1-30",
    coverage: Coverage = ".5,.8,.9,.95",
    quantiles: Quantiles = ".01,.05,.1,.25,.5,.75,.9,.95,.99",
    paths: PathsOption = options.PATHS,
    seed: Seed = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    rejected: Rejected = None,
    limits: Annotated[bool, typer.Option("--limits", help="Also one-sided limits, and intervals given positive earnings.")] = False,
    bands: Annotated[int | None, typer.Option(min=1, max=options.MAX_HORIZON, help="Also bands for the next K years together.")] = None,
    database: Database = None,
    database_key: DatabaseKey = None,
    record: Record = False,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Forecast each person's earnings 1 to 30 years ahead, with intervals."""
    from saga.calibrators import reason
    from saga.output import check_out, write_table
    from saga.sources import keep_apart

    wanted: dict[str, Any] = {
        "horizons": options.parse_horizons(horizons),
        "coverage": options.parse_coverage(coverage),
        "quantiles": options.parse_quantiles(quantiles),
        "limits": limits,
        "bands": bands,
    }
    draw: dict[str, Any] = {"paths": options.check_paths(paths), "seed": options.check_seed(seed), "scenario": scenario}
    keep_apart(source, out, "--out")
    check_out(out)
    _check_record(record, database)
    forecaster = _forecaster(bundle, threads, rollout)
    people, left_out = _forecastable(forecaster, _read(source, mapping, prices, on_error, rejected), on_error)
    state, recorded = dict[str, Any](), dict[str, Any]()
    with console.progress("Forecasting", quiet=as_json) as progress:
        if database is None:
            table = forecaster.forecast(people, **wanted, **draw, progress=progress)
        else:
            table, state, recorded = _issued(forecaster, people, database, database_key, wanted, draw, record=record, progress=progress)
    bare = table.filter(pl.any_horizontal(pl.col(r"^guarantee_[0-9.]+$") == "none")).height
    if bare:
        console.note(f"{bare:,} of {table.height:,} rows lack an interval at some coverage. {reason('none')}")
    provenance = {**forecaster.provenance(**draw), "product": "forecasts", "panel": people.meta.panel_id, **state}
    write_table(table, out, provenance)
    if not as_json:
        console.table(table.select([name for name in _PREVIEW if name in table.columns]).head(5), "First rows")
    account = _account(people, left_out) | recorded
    _wrote(out, table.height, table["person_id"].n_unique(), provenance, account, as_json=as_json)


@app.command()
def lifetime(
    source: Input,
    out: Annotated[Path, typer.Option(help="Table to write: .parquet or .csv.")],
    bundle: BundleOption = None,
    rate: Rate = options.RATE,
    to_age: ToAge = 64,
    from_age: FromAge = None,
    tax: TaxOption = "none",
    coverage: Coverage = ".9",
    quantiles: Quantiles = ".01,.05,.1,.25,.5,.75,.9,.95,.99",
    paths: PathsOption = options.PATHS,
    seed: Seed = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    rejected: Rejected = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Present value of each person's remaining (or whole) working life, and its spread over these persons."""
    from saga.output import check_out, write_table
    from saga.sources import keep_apart

    last, first = options.check_ages(to_age, from_age)
    wanted: dict[str, Any] = {"rate": options.check_rate(rate), "to_age": last, "from_age": first, "tax": options.check_tax(tax)}
    levels: dict[str, Any] = {"coverage": options.parse_coverage(coverage), "quantiles": options.parse_quantiles(quantiles)}
    draw: dict[str, Any] = {"paths": options.check_paths(paths), "seed": options.check_seed(seed), "scenario": scenario}
    keep_apart(source, out, "--out")
    check_out(out)
    forecaster = _forecaster(bundle, threads, rollout)
    people, left_out = _forecastable(forecaster, _read(source, mapping, prices, on_error, rejected), on_error, last)
    with console.progress("Simulating lives", quiet=as_json) as progress:
        lives = forecaster.lifetime(people, **wanted, **levels, **draw, progress=progress)
    provenance = {**forecaster.provenance(**draw), "product": "lifetimes", "panel": people.meta.panel_id, **wanted}
    write_table(lives.table, out, provenance)
    if not as_json:
        console.table(lives.population, f"Present values of {lives.table.height:,} persons together")
    account = {**_account(people, left_out), "population": lives.population.to_dicts()}
    _wrote(out, lives.table.height, lives.table.height, provenance, account, as_json=as_json)


@app.command()
def score(
    source: Input,
    out_dir: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Directory for the parts; an unfinished run there goes on.")],
    product: Annotated[Literal["forecasts", "lifetimes", "paths"], typer.Option(help="What to compute.")] = "forecasts",
    bundle: BundleOption = None,
    horizons: Annotated[str | None, typer.Option(help="Forecasts: years ahead.", show_default="1-30")] = None,
    coverage: Annotated[str | None, typer.Option(help="Forecasts and lifetimes: coverage of the intervals.")] = None,
    quantiles: Annotated[str | None, typer.Option(help="Forecasts and lifetimes: quantiles.")] = None,
    rate: Annotated[float | None, typer.Option(help="Lifetimes: real discount rate a year.", show_default="0.02")] = None,
    to_age: Annotated[int | None, typer.Option(help="Lifetimes and paths: last age.", show_default="64")] = None,
    from_age: Annotated[int | None, typer.Option(help="Lifetimes: add the observed past from this age.")] = None,
    tax: Annotated[str | None, typer.Option(help="Lifetimes: se-2022, paper or none.")] = None,
    paths: PathsOption = options.PATHS,
    seed: Seed = 0,
    scenario: ScenarioOption = None,
    rollout: RolloutOption = None,
    engine: Annotated[Literal["local"], typer.Option(help="Where the work is done.")] = "local",
    workers: Annotated[int, typer.Option(min=1, help="Processes; the rows do not depend on it.")] = 1,
    persons_per_partition: Annotated[int, typer.Option(min=1, help="Persons of one part.")] = 500,
    database: Database = None,
    database_key: DatabaseKey = None,
    record: Record = False,
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    as_json: Json = False,
) -> None:
    """Compute a product for everybody in a file or folder of any size, part by part; killed, the same command goes on."""
    from saga.scoring import Recipe
    from saga.scoring import score as run

    last, first = options.check_ages(64 if to_age is None else to_age, from_age)
    asked = {
        "horizons": None if horizons is None else options.parse_horizons(horizons),
        "coverage": None if coverage is None else options.parse_coverage(coverage),
        "quantiles": None if quantiles is None else options.parse_quantiles(quantiles),
        "rate": None if rate is None else options.check_rate(rate),
        "to_age": None if to_age is None else last,
        "from_age": first,
        "tax": None if tax is None else options.check_tax(tax),
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if foreign := sorted(given.keys() - _OPTIONS_OF[product]):
        raise UsageError(f"The product {product} has no option --{foreign[0].replace('_', '-')}. Leave it out.")
    if record and product != "forecasts":
        raise UsageError(f"The product {product} has no option --record. Leave it out.")
    _check_record(record, database)

    def follow(recipe: Recipe) -> Any:
        from calibration.issue import Following

        return Following.of(recipe, out_dir, url=str(database), key=database_key, record=record)

    with console.progress("Scoring", quiet=as_json) as progress:
        report = run(
            source,
            out_dir,
            bundle=bundle or options.default_bundle(),
            product=product,
            paths=options.check_paths(paths),
            seed=options.check_seed(seed),
            scenario=scenario,
            rollout=rollout,
            mapping=mapping,
            prices=options.parse_prices(prices),
            on_error=on_error,
            options=given,
            workers=workers,
            persons_per_partition=persons_per_partition,
            progress=progress,
            under=follow if database is not None and product == "forecasts" else None,
        )
    text = f"{report.rows:,} rows for {report.persons_out:,} of {report.persons_in:,} persons are in {report.out_dir}."
    if report.rejected:
        text += f" Without a result: {_counted(report.rejected)}; see _rejected.csv there."
    console.result(text, {"out": report.out_dir, "engine": engine, "resumed": report.resumed, **report.totals}, as_json=as_json)


@app.command()
def serve(
    bundle: BundleOption = None,
    host: Annotated[str, typer.Option(envvar="SAGA_HOST", help="Address to listen on; beyond loopback it needs --keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="SAGA_PORT", min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    keys: Annotated[Path | None, typer.Option(envvar="SAGA_KEYS", help="File of hashed bearer keys, made by `saga keys new`.")] = None,
    rollout: RolloutOption = None,
    threads: Threads = None,
) -> None:
    """Serve forecasts over HTTP until interrupted."""
    from api.server import serve as listen

    try:
        listen(
            bundle=bundle or options.default_bundle(),
            host=host,
            port=port,
            keys=keys,
            threads=threads,
            rollout=rollout,
            say=lambda text: typer.echo(text, nl=False),  # flushed, so that whoever reads a pipe sees the address
        )
    except KeyboardInterrupt:  # the way to end a service
        console.note("Stopped.")


@app.command()
def report(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Page to write: .html.")],
    bundle: Annotated[Path | None, typer.Argument(metavar="BUNDLE", help="Directory of a bundle.", show_default="bundles/small")] = None,
    panel: Annotated[
        Path | None, typer.Option("--panel", help="Judge the bundle anew on this panel.", show_default="what the bundle holds")
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="Keep the results of --panel in the bundle.")] = False,
    horizons: Horizons = "1,5,10,20,30",
    paths: PathsOption = 200,
    persons: Annotated[int | None, typer.Option(min=1, help="Judge at most so many test persons.")] = None,
    rollout: RolloutOption = None,
    min_cell: Annotated[int, typer.Option(min=1, help="Figures of fewer persons are not shown.")] = 10,
    database: Annotated[
        str | None, typer.Option(envvar="SAGA_DATABASE", help="Ledger whose state the page about drift shows.", show_default="none")
    ] = None,
    database_key: DatabaseKey = None,
    seed: Seed = 0,
    threads: Threads = None,
    mapping: Mapping_ = None,
    prices: Prices = None,
    on_error: OnError = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Write the calibration report: can the forecasts be trusted, for whom, how far ahead."""
    from calibration.diagnostics import diagnose
    from calibration.following import with_state
    from calibration.report import check_report_file, stored_diagnostics, write_report
    from saga.bundle import Bundle, replace_parts

    place = bundle or options.default_bundle()
    check_report_file(out)
    if panel is None:
        if store:
            raise UsageError("--store keeps what --panel finds. Give --panel, or leave --store out.")
        opened = Bundle.load(place)
        found, judged = stored_diagnostics(opened), opened.digest
    else:
        ahead, drawn, chosen_seed = options.parse_horizons(horizons), options.check_paths(paths), options.check_seed(seed)
        people = _read(panel, mapping, prices, on_error, rejected)
        forecaster = _forecaster(place, threads, rollout)
        with console.progress("Judging", quiet=as_json) as progress:
            found = diagnose(
                forecaster,
                people,
                horizons=ahead,
                paths=drawn,
                seed=chosen_seed,
                persons=persons,
                min_cell=min_cell,
                progress=progress,
            )
        opened, judged = forecaster.bundle, forecaster.bundle.digest
        if store:
            opened = replace_parts(opened, place, command=_command(ctx), diagnostics=found.to_table())
    if database is not None:
        from calibration.store import open_store

        ledger = open_store(database, database_key)
        found = with_state(found, ledger.state(judged), ledger.counts(judged))
    write_report(found, out, bundle=opened.digest)
    lights = Counter(found["lights"]["status"].to_list())
    facts = {"out": out, "bundle": opened.digest, "stored": store, "lights": dict(lights), "provenance": found.provenance}
    console.result(f"Wrote {out}: of {lights.total()} lights, {_counted(lights)}.", facts, as_json=as_json)


@app.command()
def explain(
    source: Input,
    person: Annotated[str, typer.Option(help="Id of the person.")],
    out: Annotated[Path, typer.Option(help="Page (.html) or figures (.json) to write.")],
    bundle: BundleOption = None,
    figure: Annotated[Literal["mean", "p_zero"], typer.Option(help="The mean of log earnings, or the chance of none.")] = "mean",
    gap: Annotated[int, typer.Option(min=1, max=5, help="Years ahead of the last record.")] = 1,
    seed: Seed = 0,
    mapping: Mapping_ = None,
    prices: Prices = None,
    as_json: Json = False,
) -> None:
    """Explain one person's forecast: what each cell of the record adds to it, and which years the model looks at."""
    from evaluation.explain import explain as attribute
    from evaluation.explanation import check_explanation_file, write_explanation
    from saga.forecaster import Forecaster
    from saga.inspection import attention
    from saga.sources import keep_apart

    chosen_seed = options.check_seed(seed)
    keep_apart(source, out, "--out")
    check_explanation_file(out)
    forecaster = Forecaster.load(bundle or options.default_bundle(), rollout="exact")  # attention is the decoder's
    people = _read(source, mapping, prices, "fail", None).only([person])
    found = attribute(forecaster, people, person, gap=gap, figure=figure)
    looks = attention(forecaster, people, seed=chosen_seed)
    provenance = {"bundle": forecaster.bundle.digest, "panel": people.meta.panel_id, "figure": figure, "gap": gap, "seed": chosen_seed}
    write_explanation(found, looks, out, provenance)
    console.result(f"Wrote the explanation of one forecast to {out}.", {"out": out, "provenance": provenance}, as_json=as_json)


@bundle_app.command("inspect")
def bundle_inspect(directory: BundleArgument, as_json: Json = False) -> None:
    """Show what a bundle is and where it comes from."""
    from saga.bundle import Bundle

    opened = Bundle.load(directory)
    facts = {
        "path": opened.path,
        "digest": opened.digest,
        "calibration": opened.calibration_digest,
        "parameters": opened.parameters,
        "weights": {name: list(tensor.shape) for name, tensor in opened.weights.items()},
        **{key: opened.manifest[key] for key in ("code_version", "seed", "command", "parents", "files")},
        "config": opened.config,
        "split": opened.split,
        "metrics": opened.metrics,
    }
    lines = [opened.card.strip(), ""]
    lines += [f"{key:<12} {facts[key]}" for key in ("digest", "calibration", "parameters", "code_version", "seed", "command")]
    lines += [
        f"{'parents':<12} {', '.join(opened.manifest['parents']) or 'none'}",
        f"{'files':<12} {', '.join(sorted(opened.manifest['files']))}",
    ]
    console.result("\n".join(lines), facts, as_json=as_json)


@bundle_app.command("verify")
def bundle_verify(directory: BundleArgument, as_json: Json = False) -> None:
    """Check every byte of a bundle; exit code 2 names the file that is missing, unknown or changed."""
    from saga.bundle import Bundle

    opened = Bundle.load(directory)
    facts = {"path": opened.path, "intact": True, "digest": opened.digest, "files": len(opened.manifest["files"])}
    console.result(f"{directory} is intact: {facts['files']} files, digest {opened.digest}.", facts, as_json=as_json)


@keys_app.command("new")
def keys_new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will hold the key.")],
    file: Annotated[Path | None, typer.Option(help="Append the key's hash to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Make a bearer key: it is shown once, only its hash is kept."""
    from api.security import new_key

    key, line = new_key(name)
    if file is not None:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as handle:
            handle.write(line + "\n")
    kept = f"Its hash is in {file}." if file is not None else f"Line for the key file: {line}"
    console.result(f"Key of {name}, shown only now: {key}\n{kept}", {"name": name, "key": key, "line": line}, as_json=as_json)


def _append(
    bundle: Path,
    panel: Panel,
    out: Path | None,
    database: str | None,
    key: Path | None,
    since: int | None,
    persons: int,
    paths: int,
    seed: int,
    threads: int | None,
    *,
    as_json: bool,
) -> None:
    from calibration.append import append
    from calibration.store import open_store

    if out is not None:
        raise UsageError("--append writes to the ledger, not to a bundle. Leave --out away.")
    store = open_store(database or f"sqlite:///{bundle.resolve()}.ledger.sqlite", key)
    workers = threads or os.cpu_count() or 1
    with console.progress("Forecasting", quiet=as_json) as progress:
        done = append(
            bundle,
            panel,
            store,
            since=since,
            persons=persons,
            paths=paths,
            seed=options.check_seed(seed),
            workers=workers,
            progress=progress,
        )
    told, made = done.settled, done.recorded
    report = {
        "origins": list(done.origins),
        "promised": made.new,
        **{name: getattr(told, name) for name in ("new", "duplicate", "conflicting", "unmatched", "promises")},
        "problems": [problem.as_dict() for problem in told.problems],
        "version": done.state.version,
        "through": done.state.through,
    }
    text = f"{told.new:,} outcomes settled {told.promises:,} promises; {made.new:,} new promises. State {done.state.version}"
    through = f"outcomes up to {done.state.through}" if done.state.through else "no outcome yet"
    console.result(f"{text}, {through}.", report, as_json=as_json)
    if told.problems:
        console.note(f"{told.conflicting:,} outcomes contradict known ones and changed nothing, first: {told.problems[0]}")
        raise typer.Exit(1)


def _check_record(record: bool, database: str | None) -> None:
    if record and database is None:
        raise UsageError("--record enters promises in a ledger. Name it with --database or SAGA_DATABASE, or leave --record out.")


def _issued(
    forecaster: Forecaster,
    people: Panel,
    database: str,
    key: Path | None,
    wanted: Mapping[str, Any],
    draw: Mapping[str, Any],
    *,
    record: bool,
    progress: Any,
) -> tuple[pl.DataFrame, dict[str, Any], dict[str, Any]]:
    """The forecast table under the thresholds of the ledger; which state that was, for the provenance; what was recorded."""
    from calibration.issue import Adapted, issue
    from calibration.store import open_store

    store = open_store(database, key)
    adapted = Adapted.of(forecaster, store.state(forecaster.bundle.digest))
    state = {"adaptive": adapted.identity()}
    if not record:
        return adapted.forecaster.forecast(people, **wanted, **draw, progress=progress), state, {}
    table, made = issue(adapted, people, store, wanted, draw, progress=progress)
    console.note(f"Ledger: {made.new:,} new promises, {made.repeated:,} known, {made.late:,} about years whose outcome is known.")
    return table, state, {"recorded": asdict(made)}


def _read(source: Path, mapping: str | None, prices: str | None, on_error: Literal["fail", "drop"], rejected: Path | None) -> Panel:
    from saga.ingest import read_panel
    from saga.validation import RULES

    try:
        panel = read_panel(source, mapping=mapping, prices=options.parse_prices(prices), on_error=on_error, rejected=rejected)
    except InputError as error:
        if not any(problem.rule in RULES for problem in error.problems) or on_error == "drop":
            raise
        where = f"The broken rows are in {rejected}" if rejected else "`--rejected FILE` writes the broken rows"
        raise InputError(f"{error.args[0]}. {where}, `--on-error drop` goes on without them.", error.problems) from None
    meta = panel.meta
    for what, counts in (("set aside", meta.excluded), ("dropped", meta.dropped), ("cells made unknown by the mapping", meta.nulled)):
        if counts:
            console.note(f"{what}: {_counted(counts)}")
    if meta.ignored:
        console.note(f"columns not used: {', '.join(meta.ignored)}")
    return panel


def _forecaster(bundle: Path | None, threads: int | None, rollout: Literal["exact", "light"] | None) -> Forecaster:
    from saga.forecaster import Forecaster

    return Forecaster.load(bundle or options.default_bundle(), threads=threads, workers=threads or os.cpu_count() or 1, rollout=rollout)


def _forecastable(forecaster: Forecaster, panel: Panel, on_error: str, to_age: int = MAX_AGE) -> tuple[Panel, list[Problem]]:
    """The persons who can be forecast, and with `drop` the others with their reason; with `fail` there may be no others."""
    obstacles = forecaster.obstacles(panel, to_age)
    reasons = [*([panel.meta.lost] if panel.meta.lost else []), *obstacles.values()]
    if not reasons:
        return panel, []
    count = sum(problem.count for problem in reasons)
    if on_error == "fail":
        raise InputError(f"{count:,} person(s) cannot be forecast; `--on-error drop` leaves them out and says so.", reasons[:20])
    persons = [person for person in panel.persons() if person not in obstacles]
    if not persons:
        raise InputError("Nobody in the input can be forecast.", reasons[:20])
    rules: Counter[str] = Counter()
    for problem in reasons:
        rules[problem.rule] += problem.count
    console.note(f"{count:,} persons cannot be forecast and are left out: {_counted(rules)}")
    return panel.only(persons), reasons


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in counts.items())


def _account(panel: Panel, left_out: Sequence[Problem]) -> dict[str, Any]:
    meta = panel.meta
    return {
        "excluded": meta.excluded,
        "dropped": meta.dropped,
        "ignored": meta.ignored,
        "left_out": [p.as_dict() for p in left_out],
    }


def _wrote(out: Path, rows: int, persons: int, provenance: Mapping[str, Any], account: Mapping[str, Any], *, as_json: bool) -> None:
    source = f"{provenance['currency']} {provenance['price_year']}, bundle {provenance['bundle'][:12]}, seed {provenance['seed']}"
    text = f"Wrote {rows:,} rows for {persons:,} persons to {out} ({source})."
    console.result(text, {"out": out, "rows": rows, "persons": persons, "provenance": provenance, **account}, as_json=as_json)


def _show_metrics(metrics: pl.DataFrame) -> None:
    """Sharpness and honesty at a glance: CRPS and 90 % coverage of everybody, by model and horizon."""
    shown = metrics.filter(pl.col("group") == "all", pl.col("metric").is_in(["crps_log", "coverage_90"]))
    console.table(
        shown.pivot("horizon", index=["setting", "metric", "model"], values="value").sort("setting", "metric"), "All test persons"
    )


def _command(ctx: typer.Context) -> str:
    return shlex.join(["saga", *ctx.obj])


def _watched(as_json: bool) -> bool:
    with console.progress("", quiet=as_json) as progress:
        return progress is not None
