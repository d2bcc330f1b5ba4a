"""saga evaluate, report, explain: how good a bundle is, how far it can be trusted, and why it forecasts what it does."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console
from saga.cli.arguments import (
    BundleArgument,
    BundleOption,
    DatabaseKey,
    Horizons,
    Input,
    Json,
    MappingOption,
    OnErrorOption,
    PanelOption,
    PathsOption,
    Prices,
    Rejected,
    RolloutOption,
    Seed,
    Threads,
)
from saga.cli.inputs import command_line, counted, open_forecaster, read_people
from saga.cli.options import parse_horizons
from saga.errors import UsageError
from saga.requests import Draws, check_horizons, check_seed

if TYPE_CHECKING:
    import polars as pl

Judged = Annotated[int | None, typer.Option(min=1, help="Judge at most so many test persons.")]


def evaluate(
    bundle: BundleArgument,
    panel: PanelOption,
    out: Annotated[Path, typer.Option(help="Directory for metrics.parquet and the tables.")],
    baselines: Annotated[
        str,
        typer.Option(
            help="'all', or names such as carry,groupq,gkos; on a generated register also clairvoyant."
        ),
    ] = "all",
    tables: Annotated[
        str,
        typer.Option(
            help="'accuracy', further lifetimes, placebos, hindsight, calibration-size (each costs simulations), or 'all'."
        ),
    ] = "accuracy",
    variants: Annotated[
        Path | None,
        typer.Option(
            help="YAML: further bundles as rows (ablations); name, table, label, note, bundle."
        ),
    ] = None,
    sample: Annotated[
        Literal["all", "paper"],
        typer.Option(help="paper: ten observed years, five positive, end age 26-54."),
    ] = "all",
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Where un-averaged scores are kept, a row a person.", show_default="OUT/scores"
        ),
    ] = None,
    horizons: Horizons = "1,5,10,20",
    rollout: RolloutOption = None,
    paths: PathsOption = 200,
    persons: Judged = None,
    seed: Seed = 0,
    threads: Threads = None,
    split: Annotated[
        Literal["person", "cohort"],
        typer.Option(help="cohort: the paper's birth years, on their side of the person split."),
    ] = "person",
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Score a bundle and the baselines on the persons that neither training nor calibration has seen."""
    import polars as pl

    from evaluation.contest import ContestOptions, EvaluationOptions, evaluate
    from evaluation.scoring.comparison import verdict_lines

    chosen = tuple(name.strip() for name in baselines.split(","))
    contest_options = ContestOptions(
        horizons=parse_horizons(horizons),
        n_paths=paths,
        seed=seed,
        sample=sample,
        split=split,
        n_persons=persons,
        cache=cache,
    )
    evaluation_options = EvaluationOptions(
        baselines=chosen,
        tables=[name.strip() for name in tables.split(",")],
        variants=variants,
        futures=panel if (panel / "future").is_dir() else None,
        register=panel if (panel / "register.json").is_file() else None,
        rollout=rollout,
        workers=threads or os.cpu_count() or 1,
    )
    people = read_people(panel, mapping, prices, on_error, rejected)
    with console.progress("Scoring", quiet=as_json) as progress:
        metrics = evaluate(
            bundle,
            people,
            out,
            contest_options,
            evaluation_options,
            progress=None
            if progress is None
            else lambda step, done, total: progress(done, total, step),
            notice=console.note,
        )
    lines = verdict_lines(pl.read_parquet(out / "comparisons.parquet"))
    if not as_json:
        _show_metrics(metrics)
    console.result(
        "\n".join(
            [
                *lines,
                f"Wrote metrics.parquet ({metrics.height:,} rows), tables.md and tables.html to {out}.",
            ]
        ),
        {"out": out, "split": split, "rows": metrics.height, "verdicts": lines},
        as_json=as_json,
    )


def report(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Page to write: .html.")],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE", help="Directory of a bundle.", show_default="bundles/small"
        ),
    ] = None,
    panel: Annotated[
        Path | None,
        typer.Option(
            "--panel",
            help="Judge the bundle anew on this panel.",
            show_default="what the bundle holds",
        ),
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Keep the results of --panel in the bundle.")
    ] = False,
    horizons: Horizons = "1,5,10,20,30",
    paths: PathsOption = 200,
    persons: Judged = None,
    rollout: RolloutOption = None,
    min_cell: Annotated[
        int, typer.Option(min=1, help="Figures of fewer persons are not shown.")
    ] = 10,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="SAGA_DATABASE",
            help="Ledger whose state the page about drift shows.",
            show_default="none",
        ),
    ] = None,
    database_key: DatabaseKey = None,
    seed: Seed = 0,
    threads: Threads = None,
    mapping: MappingOption = None,
    prices: Prices = None,
    on_error: OnErrorOption = "fail",
    rejected: Rejected = None,
    as_json: Json = False,
) -> None:
    """Write the calibration report: can the forecasts be trusted, for whom, how far ahead."""
    from calibration.diagnostics.adaptive_table import with_state
    from calibration.diagnostics.diagnosis import diagnose
    from calibration.diagnostics.report import SUFFIXES, stored_diagnostics, write_report
    from saga.bundle import Bundle, default_bundle, replace_parts
    from saga.files.html import check_page

    place = bundle or default_bundle()
    check_page(out, "report", SUFFIXES)
    if panel is None:
        if store:
            raise UsageError(
                "--store keeps what --panel finds. Give --panel, or leave --store out."
            )
        opened = Bundle.load(place)
        found, judged = stored_diagnostics(opened), opened.digest
    else:
        ahead, draws = check_horizons(parse_horizons(horizons)), Draws(paths, seed)
        people = read_people(panel, mapping, prices, on_error, rejected)
        forecaster = open_forecaster(place, threads, rollout)
        with console.progress("Judging", quiet=as_json) as progress:
            found = diagnose(
                forecaster,
                people,
                horizons=ahead,
                draws=draws,
                persons=persons,
                min_cell=min_cell,
                progress=progress,
            )
        opened, judged = forecaster.bundle, forecaster.bundle.digest
        if store:
            opened = replace_parts(
                opened, place, command=command_line(ctx), diagnostics=found.to_table()
            )
    if database is not None:
        from calibration.adaptive.ledger import open_ledger

        ledger = open_ledger(database, database_key)
        found = with_state(found, ledger.state(judged), ledger.counts(judged))
    write_report(found, out, bundle=opened.digest)
    lights = Counter(found["lights"]["status"].to_list())
    facts = {
        "out": out,
        "bundle": opened.digest,
        "stored": store,
        "lights": dict(lights),
        "provenance": found.provenance,
    }
    console.result(
        f"Wrote {out}: of {lights.total()} lights, {counted(lights)}.", facts, as_json=as_json
    )


def explain(
    source: Input,
    person: Annotated[str, typer.Option(help="Id of the person.")],
    out: Annotated[Path, typer.Option(help="Page (.html) or figures (.json) to write.")],
    bundle: BundleOption = None,
    figure: Annotated[
        Literal["mean", "p_zero"],
        typer.Option(help="The mean of log earnings, or the chance of none."),
    ] = "mean",
    gap: Annotated[int, typer.Option(min=1, max=5, help="Years ahead of the last record.")] = 1,
    seed: Seed = 0,
    mapping: MappingOption = None,
    prices: Prices = None,
    as_json: Json = False,
) -> None:
    """Explain one person's forecast: what each cell of the record adds to it, and which years the model looks at."""
    from evaluation.explain.attribution import attribute_forecast
    from evaluation.explain.explanation_page import SUFFIXES, write_explanation
    from saga.attention import attention_by_lag
    from saga.bundle import default_bundle
    from saga.data.files import keep_apart
    from saga.files.html import check_page
    from saga.forecaster import Forecaster

    chosen_seed = check_seed(seed)
    keep_apart(source, out, "--out")
    check_page(out, "explanation", SUFFIXES)
    forecaster = Forecaster.load(
        bundle or default_bundle(), rollout="exact"
    )  # attention is the decoder's
    people = read_people(source, mapping, prices, "fail", None).only([person])
    found = attribute_forecast(forecaster, people, person, gap=gap, figure=figure)
    looks = attention_by_lag(forecaster, people, seed=chosen_seed)
    provenance = {
        "bundle": forecaster.bundle.digest,
        "panel": people.meta.panel_id,
        "figure": figure,
        "gap": gap,
        "seed": chosen_seed,
    }
    write_explanation(found, looks, out, provenance)
    console.result(
        f"Wrote the explanation of one forecast to {out}.",
        {"out": out, "provenance": provenance},
        as_json=as_json,
    )


def _show_metrics(metrics: pl.DataFrame) -> None:
    """Sharpness and honesty at a glance: CRPS and 90 % coverage of everybody, by model and horizon."""
    import polars as pl

    shown = metrics.filter(
        pl.col("group") == "all", pl.col("metric").is_in(["crps_log", "coverage_90"])
    )
    console.table(
        shown.pivot("horizon", index=["setting", "metric", "model"], values="value").sort(
            "setting", "metric"
        ),
        "All test persons",
    )
