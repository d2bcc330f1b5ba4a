"""What do poorer records cost the bundle, and is it still better than the baselines?

    python -m studies.poorer_records REGISTER --out DIR [--bundle bundles/small]
        [--baselines carry,groupq,gbt] [--persons N] [--paths 200] [--seed 0] [--cache DIR]
        [--workers 1] [--report FILE]

REGISTER is any panel. Forecasts of its test persons are scored in-time at h = 1, 5, 10, 20, and
forward if it has `future/draw=k` (`saga register generate --future-to 2042 --future-draws 20`).
Origins and outcomes are the same for every reduction (`studies.record_reductions`). Scores and
fitted baselines stay in --cache (OUT/kept), so the same command resumes; the cache of `saga
evaluate --cache` can be used. Exit 1 if the bundle is not better than some baseline with p < .01
(Holm over horizons).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl
from saga.evaluation.contest import PATHS, Contest, ContestOptions
from saga.evaluation.contestants import LazyContestant
from saga.evaluation.scoring.comparison import (
    BUNDLE_NAME,
    HINDSIGHT,
    SURE,
    VARIANT,
    YEAR,
    compare_models,
)
from saga.evaluation.scoring.evaluation_settings import Setting
from saga.evaluation.scoring.metrics import metrics_table
from saga.evaluation.selection import select_baselines

from saga.data.reading import read_panel
from saga.files.tables import write_table
from saga.forecaster import Forecaster
from saga.pages.format import in_percent, markdown_table, p_value
from saga.requests import Draws
from studies.record_reductions import REDUCTIONS, WHOLE, Reduction
from studies.study_page import StepLog, bundle_parser, code_commit, page_head, publish_page, say

UNTOLD = f"{VARIANT}untold"  # in-time, the bundle that does not know the realised macro series
KEYS = ("setting", "horizon", "model")
NOTE = """CRPS of log earnings, lower is better; ± is the standard error. "loss" is that of the
bundle against itself with all columns and years. Baselines are fitted on and judged with the
reduced records. "saga better by" is the share of the row's CRPS, from paired differences (clusters:
persons in-time, persons and drawn futures forward), with p adjusted for the horizons (Holm). ?
marks p of .01 and above, **!** a baseline that is as good or better. In-time, baselines know the
realised macro series from outcomes of these years, so the bundle is conditioned on it there;
"saga:untold" is the bundle that is not."""


def contestants_of(
    contest: Contest, reduction: Reduction, forecaster: Forecaster, baselines: Sequence[str]
) -> list[LazyContestant]:
    """The bundle, in-time also told the realised macro series, and baselines of such records."""
    training = reduction.training(contest.sample.training)
    return [
        contest.bundle(forecaster),
        *(
            contest.baseline(reduction.baseline(unfitted), training)
            for unfitted in select_baselines(baselines)
        ),
        *contest.hindsight(forecaster),
    ]


def score_reduction(
    contest: Contest,
    reduction: Reduction,
    settings: Sequence[Setting],
    contestants: Iterable[LazyContestant],
    folder: Path,
) -> pl.DataFrame:
    """CRPS of log earnings with reduced records, one row per setting, horizon and model.

    `difference` is the model's mean less the bundle's, paired, with `se_difference` and `p_holm`;
    `relative` is its share of the model's. In-time, the bundle is the one that is told the realised
    macro series, if it takes part; the other is then called UNTOLD.
    """
    reduced = [reduction.setting(setting) for setting in settings]
    scores = []
    for contestant in contestants:
        for setting in reduced:
            if contestant.only_setting in (None, setting.name):
                scores.append(
                    pl.scan_parquet(contest.scores(contestant, setting, folder), glob=False)
                )
        contestant.close()
    rows = pl.concat(scores)
    informed = rows.filter(model=HINDSIGHT).select("setting").unique().collect()["setting"]
    renamed = pl.col("model").replace({HINDSIGHT: BUNDLE_NAME, BUNDLE_NAME: UNTOLD})
    is_informed = pl.col("setting").is_in(informed.to_list())
    rows = rows.with_columns(pl.when(is_informed).then(renamed).otherwise("model").alias("model"))
    groups = pl.concat(
        setting.origins.frame().select(
            pl.lit(setting.name).alias("setting"), "person_id", pl.col("origin").alias("year")
        )
        for setting in settings
    )
    compared = compare_models(rows, groups).filter(pl.col("test") != YEAR)
    both = (
        table.filter(metric="crps_log", group="all")
        for table in (metrics_table(rows, groups.drop("year"), contest.horizons), compared)
    )
    means, tested = both
    return (
        means.select(*KEYS, "n", "value", "se")
        .join(
            tested.select(*KEYS, "difference", "relative", "p_holm", se_difference="se"),
            on=KEYS,
            how="left",
            maintain_order="left",
        )
        .with_columns(record=pl.lit(reduction.name))
    )


def with_losses(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of all records, with the `loss` against the whole record as a share of its CRPS."""
    whole = table.filter(record=WHOLE.name).select(*KEYS, whole="value")
    return table.join(whole, on=KEYS, maintain_order="left").with_columns(
        loss=pl.col("value") / pl.col("whole") - 1
    )


def shortfalls(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of baselines that the bundle does not surely beat."""
    rivals = table.filter(~pl.col("model").is_in([BUNDLE_NAME, UNTOLD]))
    return rivals.filter(~((pl.col("difference") > 0) & (pl.col("p_holm") < SURE)).fill_null(False))


def losses_to_markdown(table: pl.DataFrame) -> str:
    """A row per poorer record and setting: losses by horizon, and the smallest lead of all."""
    horizons = sorted(set(table["horizon"]))
    header = ["record", "setting", *(f"loss, %, {h} y" for h in horizons)]
    rows = []
    for reduction in REDUCTIONS[1:]:
        of_record = table.filter(record=reduction.name)
        for (setting,), part in of_record.group_by("setting", maintain_order=True):
            bundle = part.filter(model=BUNDLE_NAME)
            losses = dict(bundle.select("horizon", "loss").iter_rows())
            rivals = part.filter(~pl.col("model").is_in([BUNDLE_NAME, UNTOLD]))
            closest = rivals.sort("relative").row(0, named=True)
            lead = f"{in_percent(closest['relative'])} (p {p_value(closest['p_holm'])})"
            at = f"{closest['model']}, {closest['horizon']} years"
            cells = [in_percent(losses[h]) for h in horizons]
            rows.append([reduction.label, str(setting), *cells, f"{lead}, {at}"])
    return markdown_table([*header, "smallest lead over a baseline, %"], rows)


def to_markdown(table: pl.DataFrame) -> str:
    """A table per setting; ? marks a lead that is not sure, **!** none."""
    labels = {reduction.name: reduction.label for reduction in REDUCTIONS}
    header = ["record", "years ahead", "persons", "model", "CRPS", "loss, %", "saga better by, %"]
    parts = []
    for (setting,), part in table.group_by("setting", maintain_order=True):
        rows = []
        for row in part.sort(
            pl.col("record").replace_strict(
                {name: k for k, name in enumerate(labels)}, return_dtype=pl.Int32
            ),
            "horizon",
            pl.col("model") != BUNDLE_NAME,
            "model",
        ).iter_rows(named=True):
            lead = ""
            if row["difference"] is not None:
                sure = row["p_holm"] is not None and row["p_holm"] < SURE
                mark = " **!**" if row["difference"] <= 0 else "" if sure else " ?"
                lead = f"{in_percent(row['relative'])} (p {p_value(row['p_holm'])}){mark}"
            error = "" if row["se"] is None else f" ± {row['se']:.4f}"
            rows.append(
                [
                    *(labels[row["record"]], str(row["horizon"]), f"{row['n']:,}", row["model"]),
                    "no outcome" if row["value"] is None else f"{row['value']:.4f}{error}",
                    in_percent(row["loss"]) if row["model"] in (BUNDLE_NAME, UNTOLD) else "",
                    lead,
                ]
            )
        parts.append(f"## {setting}\n\n{markdown_table(header, rows)}")
    return "\n\n".join(parts)


def main() -> int:
    """Score every reduction, write missing.parquet and missing.md, print the page."""
    parser = bundle_parser(__doc__, n_persons=None, n_paths=PATHS)
    parser.add_argument("register", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--baselines", default="carry,groupq,gbt")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, workers=args.workers)
    names = args.baselines.split(",")
    select_baselines(names)  # an unknown name fails before the panel is read
    folder = args.cache or args.out / "kept"
    contest = Contest(
        read_panel(args.register),
        ContestOptions(
            n_paths=args.paths,
            seed=args.seed,
            n_persons=args.persons,
            until=forecaster.bundle.training_records.last_year,
            cache=folder,
        ),
        progress=StepLog(),
    )
    futures = args.register if any(args.register.glob("future/draw=*")) else None
    settings = list(contest.settings(futures))
    tables = []
    for reduction in REDUCTIONS:
        say(f"{reduction.label}:")
        contestants = contestants_of(contest, reduction, forecaster, names)
        tables.append(score_reduction(contest, reduction, settings, contestants, folder))
    table = with_losses(pl.concat(tables))
    about = {
        **forecaster.provenance(Draws(args.paths, args.seed)),
        **contest.provenance,
        "commit": code_commit(),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_table(table, args.out / "missing.parquet", about)
    facts = {name: about[name] for name in ("panel", "bundle", "rollout", "seed", "paths")}
    head = page_head("What poorer records cost", __file__, **facts)
    missed = shortfalls(table)
    verdict = (
        f"In {missed.height} rows the bundle is not surely better than the baseline."
        if missed.height
        else "The bundle is better than every baseline on every record at every horizon."
    )
    publish_page(
        "\n\n".join([head, NOTE, losses_to_markdown(table), to_markdown(table), verdict]),
        args.out / "missing.md",
        args.report,
    )
    return int(missed.height > 0)


if __name__ == "__main__":
    sys.exit(main())
