"""saga evaluate: score a bundle and the baselines on test persons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import n_workers, read_persons

if TYPE_CHECKING:
    import polars as pl


def evaluate(
    bundle: options.BundleArgument,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Directory for metrics.parquet and the tables.")],
    baselines: Annotated[
        str,
        typer.Option(
            help="'all' (on a generated register with the clairvoyant), or names such as "
            "carry,groupq,clairvoyant."
        ),
    ] = "all",
    tables: Annotated[
        str,
        typer.Option(
            help="accuracy (always made); also lifetimes, placebos, hindsight, calibration-size "
            "(each costs simulations); or 'all'."
        ),
    ] = "accuracy",
    variants: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of further bundles (ablations), shown as rows. Keys of an entry: name, "
            "table, label, note, bundle."
        ),
    ] = None,
    sample: Annotated[
        Literal["all", "paper"],
        typer.Option(
            help="paper: only origins at ages 26-54 whose last ten years have few gaps and five "
            "positive years."
        ),
    ] = "all",
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Directory of scores per person, before averaging.", show_default="OUT/scores"
        ),
    ] = None,
    horizons: options.Horizons = "1,5,10,20",
    rollout: options.Rollout = None,
    paths: options.Paths = 200,
    persons: options.TestPersons = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    split: Annotated[
        Literal["person", "cohort"],
        typer.Option(
            help="cohort: of each part of the person split, only the paper's birth years."
        ),
    ] = "person",
    mapping: options.Mapping = None,
    prices: options.Prices = None,
    on_error: options.OnError = "fail",
    rejected: options.Rejected = None,
    as_json: options.Json = False,
) -> None:
    """Score a bundle and the baselines on persons outside training and calibration."""
    import polars as pl

    from evaluation.bundle_evaluation import EvaluationOptions
    from evaluation.bundle_evaluation import evaluate as run_evaluation
    from evaluation.contest import ContestOptions
    from evaluation.scoring.comparison import verdict_lines

    contest_options = ContestOptions(
        horizons=options.parse_horizons(horizons),
        n_paths=paths,
        seed=seed,
        sample=sample,
        split=split,
        n_persons=persons,
        cache=cache,
    )
    evaluation_options = EvaluationOptions(
        baselines=tuple(name.strip() for name in baselines.split(",")),
        tables=[name.strip() for name in tables.split(",")],
        variants=variants,
        futures=panel if (panel / "future").is_dir() else None,
        register=panel if (panel / "register.json").is_file() else None,
        rollout=rollout,
        workers=n_workers(threads),
    )
    test_panel = read_persons(panel, mapping, prices, on_error, rejected)
    with console.progress("Scoring", quiet=as_json) as progress:
        metrics = run_evaluation(
            bundle,
            test_panel,
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
                f"Wrote metrics.parquet ({metrics.height:,} rows), tables.md and tables.html to "
                f"{out}.",
            ]
        ),
        {"out": out, "split": split, "rows": metrics.height, "verdicts": lines},
        as_json=as_json,
    )


def _show_metrics(metrics: pl.DataFrame) -> None:
    """Print CRPS and 90 % coverage of all test persons, by model and horizon."""
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
