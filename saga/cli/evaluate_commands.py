"""saga evaluate, vintages, benchmark: scores of a bundle, of earlier models and of entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saga.cli import console, options
from saga.cli.inputs import Model, SplitReading, command_line, refuse_options
from saga.errors import UsageError
from saga.requests import Draws, ForecastRequest, Option

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from saga.data.panel import Panel
    from saga.evaluation.fold_training import FoldTraining
    from saga.requests import RolloutName


# Options with --folds only, and options without --folds only.
_FOLDS_ONLY = ("config", "source", "until")
_BUNDLE_ONLY = ("tables", "variants", "split")


def evaluate(
    ctx: typer.Context,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Directory for metrics.parquet and the tables.")],
    reading: SplitReading,
    model: Annotated[Model, "rollout", "threads"],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE",
            help="Directory of a bundle; none with --folds.",
            show_default="required without --folds",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Judge every person once: train a bundle and fit the baselines for each of so "
            "many folds, on the persons of the other folds."
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="--folds: auto, tiny, small, base or a YAML file, as in `saga train`.",
            show_default="as in `saga train`",
        ),
    ] = None,
    source: options.TrainingStart = None,
    until: Annotated[
        int | None,
        typer.Option(help="--folds: fit on the years up to this one, and also judge later ones."),
    ] = None,
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
            help="accuracy (always made); also lifetimes, placebos, hindsight (each costs "
            "simulations); or 'all'."
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
    request: Annotated[ForecastRequest, "horizons"] = ForecastRequest((1, 5, 10, 20)),
    draws: Annotated[Draws, "n_paths", "seed"] = Draws(200),
    persons: options.TestPersons = None,
    split: Annotated[
        Literal["person", "cohort"],
        typer.Option(
            help="cohort: of each part of the person split, only the paper's birth years."
        ),
    ] = "person",
    as_json: options.Json = False,
) -> None:
    """Score a bundle and the baselines on persons outside training and calibration.

    Examples:
        saga evaluate bundles/ours --panel register/ --out results  # against every baseline
        saga evaluate bundles/ours --panel register/ --baselines gbt --out trees  # against trees
        saga evaluate --folds 5 --panel panel.csv --out results  # every person judged once
    """
    from saga.evaluation.contest import ContestOptions
    from saga.evaluation.contest_tables import FILES
    from saga.evaluation.report.pages import PAGES
    from saga.files.tables import check_out
    from saga.pages.layout import check_page

    _check_mode(ctx, bundle, folds)
    for name in PAGES:
        check_page(out / name, "page", (".md", ".html"))
    for name in FILES:
        check_out(out / f"{name}.parquet")
    contest_options = ContestOptions(
        horizons=request.horizons,
        n_paths=draws.n_paths,
        seed=draws.seed,
        sample=sample,
        split=split,
        n_persons=persons,
        until=until,
        cache=cache,
    )
    names = tuple(name.strip() for name in baselines.split(","))
    test_panel = reading.read(panel)
    with console.progress("Scoring", quiet=as_json) as bar:
        progress = None if bar is None else lambda step, done, total: bar(done, total, step)
        if folds is not None:
            from saga.evaluation.fold_evaluation import FoldOptions, evaluate_folds

            training = _fold_training(
                config, source, model.rollout, test_panel, command_line(ctx), as_json=as_json
            )
            metrics = evaluate_folds(
                test_panel,
                out,
                contest_options,
                FoldOptions(folds, training, names, model.workers),
                progress=progress,
                notice=console.note,
            )
        else:
            from saga.evaluation.bundle_evaluation import EvaluationOptions
            from saga.evaluation.bundle_evaluation import evaluate as evaluate_bundle

            assert bundle is not None
            metrics = evaluate_bundle(
                bundle,
                test_panel,
                out,
                contest_options,
                EvaluationOptions(
                    baselines=names,
                    tables=[name.strip() for name in tables.split(",")],
                    variants=variants,
                    futures=panel if (panel / "future").is_dir() else None,
                    register=panel if (panel / "register.json").is_file() else None,
                    rollout=model.rollout,
                    workers=model.workers,
                ),
                progress=progress,
                notice=console.note,
            )
    _report(metrics, out, split, as_json=as_json)


def _fold_training(
    config: str | None,
    source: str | None,
    rollout: RolloutName | None,
    panel: Panel,
    command: str,
    *,
    as_json: bool,
) -> FoldTraining:
    """How the bundle of each fold is trained: as `saga train` would on this panel."""
    from saga.evaluation.fold_training import FoldTraining
    from saga.training.train_config import choose_start

    chosen_config, start = choose_start(
        config, source, simulated=panel.meta.simulated, n_persons=len(panel.persons())
    )
    is_quiet = as_json or console.is_watched(quiet=as_json)
    return FoldTraining(chosen_config, rollout, command, start, None if is_quiet else console.note)


def _check_mode(ctx: typer.Context, bundle: Path | None, folds: int | None) -> None:
    """Raise UsageError unless there is either BUNDLE or --folds, with the options of this mode."""
    if (bundle is None) == (folds is None):
        raise UsageError(
            "Give the directory of a bundle, or --folds 5 to train and judge a bundle per fold."
            if bundle is None
            else "--folds trains a bundle per fold. Leave BUNDLE out."
        )
    if folds is None:
        refuse_options(ctx, _FOLDS_ONLY, "{} is only for --folds. Leave it out.")
    else:
        refuse_options(ctx, _BUNDLE_ONLY, "{} is not for --folds. Leave it out.")


def _report(metrics: pl.DataFrame, out: Path, split: str, *, as_json: bool) -> None:
    """Print the verdicts of the comparisons, and what was written."""
    import polars as pl

    from saga.evaluation.report.contest_summary import describe_missing_sets
    from saga.evaluation.scoring.comparison import verdict_lines

    lines = list(verdict_lines(pl.read_parquet(out / "comparisons.parquet", glob=False)).values())
    lines += filter(None, [describe_missing_sets(metrics)])
    if not as_json:
        _show_metrics(metrics)
    files = f"metrics.parquet ({metrics.height:,} rows), tables.md and tables.html"
    console.result(
        "\n".join([*lines, f"Wrote {files} to {out}."]),
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


def vintages(
    ctx: typer.Context,
    panel: options.Panel,
    out: Annotated[Path, typer.Option(help="Folder of the vintages; complete ones are kept.")],
    reading: SplitReading,
    draws: Annotated[Draws, "n_paths", "seed"] = Draws(200),
    request: Annotated[ForecastRequest, "horizons"] = ForecastRequest((1, 2, 5, 10, 20)),
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
    from saga.bundle import Bundle
    from saga.evaluation.report.vintage_table import describe_vintages
    from saga.evaluation.vintages import (
        VintageOptions,
        choose_cutoffs,
        make_vintages,
        store_vintages,
    )
    from saga.files.atomic import sole_output
    from saga.pages.layout import check_page, write_page
    from saga.training.harness import RunOptions
    from saga.training.train_config import choose_start

    page = check_page(out / "vintages.md", "page", (".md",))
    people = reading.read(panel)
    if store is not None:
        people = Bundle.load(store).salted(people)
    chosen, start = choose_start(
        config, source, simulated=people.meta.simulated, n_persons=len(people.persons())
    )
    report = None if as_json or console.is_watched(quiet=as_json) else console.note
    settings = VintageOptions(
        config=chosen,
        folds=folds,
        horizons=request.horizons,
        by=options.read_texts(by),
        draws=draws,
        persons=persons,
        run=RunOptions(command=command_line(ctx), source=start, report=report),
    )
    years = cutoffs or choose_cutoffs(people, every, min(request.horizons))
    with console.progress("Vintages", quiet=as_json) as progress:
        errors = make_vintages(people, out, sorted(years), settings, progress=progress)
    text = describe_vintages(errors)
    write_page(page, text)
    stored = None
    if store is not None:
        with sole_output(store):
            stored = store_vintages(errors, store, people.meta.panel_id, command_line(ctx))
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


_Truth = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the futures of a judged round, kept apart from the pasts.",
        show_default="in the round: a development round",
    ),
]


def pasts(
    out: Annotated[Path, typer.Argument(metavar="ROUND", help="Folder to write.")],
    draws: Annotated[Draws, "seed"],
    model: Annotated[Model, "bundle"],
    persons: Annotated[int, typer.Option(min=1_000, help="Persons in the round.")] = 20_000,
    futures: Annotated[int, typer.Option(min=1, help="Futures of the economy.")] = 20,
    request: Annotated[ForecastRequest, "horizons"] = ForecastRequest((1, 5, 10, 20)),
    truth: _Truth = None,
    workers: options.Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Write a round: persons' pasts, the rows of an entry, and those of SAGA and simple methods.

    With --truth the seed is not in ROUND. Draw it from 0 to 2^63 - 1 and keep it until the end;
    the digest in round.json binds it and the outcomes.
    """
    from saga.evaluation.benchmark.rounds import RoundSettings, write_round

    with console.progress("Simulating", quiet=as_json) as bar:
        progress: Callable[[str, int, int], None] | None = (
            None if bar is None else lambda step, done, total: bar(done, total, step)
        )
        record = write_round(
            out,
            RoundSettings(draws.seed, persons, futures, request.horizons),
            bundle=model.directory,
            truth=truth,
            workers=workers,
            progress=progress,
        )
    console.result(
        f"Wrote {out}: {record['rows']:,} rows to forecast, of {record['judged_persons']:,} "
        f"persons. Digest of the truth: {record['commitment']}",
        {"out": out, **record},
        as_json=as_json,
    )


def score_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The entry: .csv or .parquet.")],
    round_: Annotated[Path, typer.Option("--round", help="Folder of the round.")],
    truth: _Truth = None,
    paths: Annotated[
        Path | None,
        typer.Option(help="Joint paths of the entry, to judge totals as distributions."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the scores by person, group and total.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Score an entry beside SAGA and simple methods; a wrong file is refused by row and column.

    Examples:
        saga benchmark pasts round --seed 1  # docs/how-to/benchmark.md describes the format
        saga benchmark score entry.csv --round round
    """
    from saga.evaluation.benchmark.entry_scores import score_entry, summarise, write_scores

    tables = score_entry(file, round_, truth=truth, paths=paths)
    if out is not None:
        write_scores(tables, out, file.name)
    if not as_json:
        console.table(summarise(tables), f"{file.stem} in {round_}, all persons")
    metrics, comparisons = (tables[name].to_dicts() for name in ("metrics", "comparisons"))
    text = "" if out is None else f"Wrote persons, metrics and comparisons to {out}."
    value = {"entry": file.stem, "metrics": metrics, "comparisons": comparisons}
    console.result(text, value, as_json=as_json)
