"""What are the prior and privacy worth, by the number of persons that a panel has for training?

    python -m studies.training_sizes --panel FILE [--mapping M] [--prices YEAR] --out DIR
        [--sizes 500,2000,7000] [--source bundles/prior] [--baselines gbt] [--horizons 1,2,5,10]
        [--privacy 8,3] [--judged N] [--seed 0] [--report FILE] [--picture FILE.svg]

One person in five is judged and never trained on. Of the others, as many as the size says are
chosen, at random and nested. On them a bundle is trained from the source and one from random
weights, both with `--config auto` (80 % train, 10 % decide when training stops, 10 % calibrate),
and the baselines are fitted on all of them. With `--privacy` the source without training and a
private training for each epsilon take the place of random weights. Tests are paired by person or
family, and adjusted for the horizons (Holm 1979). A repeated command continues.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl
from saga.evaluation.contest import Contest, ContestOptions
from saga.evaluation.contest_tables import score_tables
from saga.evaluation.fold_training import SHARES, FoldTraining
from saga.evaluation.scoring.comparison import BUNDLE_NAME
from saga.evaluation.scoring.evaluation_settings import Sample
from saga.evaluation.selection import select_baselines
from saga.training.fit import settings_for
from saga.training.train_config import AUTO, TrainConfig
from saga.training.transfer import Source

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.forecaster import Forecaster
from saga.keyed_random import sample_persons
from saga.pages.format import markdown_table
from studies.study_page import command_line, page_head, publish_page, say, study_parser

FOLDS = 5
SCRATCH = "random weights"
UNTRAINED = "prior without training"
LABELS = {BUNDLE_NAME: "fine-tuned prior", "gbt": "boosted trees"}


def judge_size(
    panel: Panel,
    size: int,
    out: Path,
    options: ContestOptions,
    *,
    source: Path,
    baselines: list[str],
    privacy: list[float],
) -> dict[str, pl.DataFrame]:
    """The contest's tables, if every model learns from `size` persons of the first four folds.

    Args:
        panel: All persons.
        size: Number of persons outside the judged fold.
        out: Directory of bundles and scores.
        options: Horizons, paths and seed.
        source: Bundle that trainings start from, but for one with random weights.
        baselines: Names of baselines.
        privacy: Epsilons of private trainings.
    """
    judged = None if options.n_persons is None else options.n_persons * FOLDS
    sample = next(Sample.of_folds(panel, FOLDS, seed=options.seed, persons=judged))
    contest = Contest(panel, options, sample=sample)
    learnt_from = sample_persons(
        sample.training.persons(), size, "training-sizes", panel.meta.panel_id
    )
    outside = panel.only(learnt_from)
    recipes: dict[str, tuple[str | TrainConfig, Path | None]] = {BUNDLE_NAME: (AUTO, source)}
    if privacy:
        n_training = len(persons_of(outside, "train", SHARES))
        recipes[UNTRAINED] = ("zero-shot", source)
        for epsilon in privacy:
            settings = settings_for(AUTO, n_training, Source.open(source), epsilon)
            recipes[f"epsilon {epsilon:g}"] = (settings, source)
    else:
        recipes[SCRATCH] = (AUTO, None)
    contestants = []
    for name, (config, start) in recipes.items():
        training = FoldTraining(config, source=start, command=command_line(__file__), report=say)
        bundle = training.bundle(outside, out / name, fold=1, seed=options.seed, until=None)
        contestants.append(contest.bundle(Forecaster(bundle), name))
    contestants += [contest.baseline(b, outside) for b in select_baselines(baselines)]
    scored = contest.score(contestants, out, list(contest.settings()))
    return score_tables([scored], options.horizons)


def size_table(metrics: pl.DataFrame, comparisons: pl.DataFrame) -> pl.DataFrame:
    """A row per model and horizon: persons, value, difference from the fine-tuned prior, p."""
    of_all = (pl.col("metric") == "crps_log", pl.col("group") == "all")
    means = metrics.filter(*of_all).select("model", "horizon", "value", "n")
    return means.join(
        comparisons.filter(*of_all, pl.col("test") != "year").select(
            "model", "horizon", "difference", "se", "p_holm"
        ),
        on=["model", "horizon"],
        how="left",
        validate="1:1",
    )


def draw_sizes(table: pl.DataFrame, path: Path) -> None:
    """A line per model and a panel per horizon: CRPS over the number of persons."""
    ahead = pl.when(pl.col("horizon") == 1).then(pl.lit("1 year ahead"))
    rows = table.with_columns(
        pl.col("model").replace(LABELS),
        ahead.otherwise(pl.format("{} years ahead", pl.col("horizon"))).alias("ahead"),
    )
    sizes = alt.Axis(values=rows["size"].unique().sort().to_list(), format=",d")
    base = alt.Chart(rows).encode(
        x=alt.X(
            "size:Q",
            scale=alt.Scale(type="log", nice=False, padding=12),
            axis=sizes,
            title="persons to learn from",
        ),
        y=alt.Y("value:Q", scale=alt.Scale(zero=False), title="CRPS of log earnings"),
        color=alt.Color("model:N", title=None, legend=alt.Legend(orient="top")),
    )
    layers = alt.layer(base.mark_line(), base.mark_point(filled=True)).properties(
        width=190, height=150
    )
    order = rows.sort("horizon")["ahead"].unique(maintain_order=True).to_list()
    chart = layers.facet(
        facet=alt.Facet("ahead:N", title=None, sort=order), columns=2
    ).resolve_scale(y="independent")
    chart.save(path)


def main() -> None:
    """Judge every size, and print the table."""
    parser = study_parser(__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mapping")
    parser.add_argument("--prices", type=int)
    parser.add_argument("--sizes", default="500,2000,7000")
    parser.add_argument("--source", type=Path, default=Path("bundles/prior"))
    parser.add_argument("--baselines", default="gbt")
    parser.add_argument("--privacy", default="", help="Epsilons, for the price of a promise.")
    parser.add_argument("--judged", type=int, help="Largest number of persons judged.")
    parser.add_argument("--horizons", default="1,2,5,10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    parser.add_argument("--picture", type=Path, help="SVG file of the scores by size.")
    args = parser.parse_args()
    panel = read_panel(args.panel, mapping=args.mapping, prices=args.prices, on_error="drop")
    horizons = [int(horizon) for horizon in args.horizons.split(",")]
    options = ContestOptions(horizons, n_paths=100, seed=args.seed, n_persons=args.judged)
    tables = []
    for size in (int(size) for size in args.sizes.split(",")):
        say(f"{size:,} persons")
        scored = judge_size(
            panel,
            size,
            args.out / str(size),
            options,
            source=args.source,
            baselines=[name for name in args.baselines.split(",") if name],
            privacy=[float(epsilon) for epsilon in args.privacy.split(",") if epsilon],
        )
        tables.append(
            size_table(scored["metrics"], scored["comparisons"]).with_columns(size=pl.lit(size))
        )
    table = pl.concat(tables).sort("size", "horizon", "value")
    cells = [
        [
            f"{row['size']:,}",
            str(row["horizon"]),
            f"{row['n']:,}",
            LABELS.get(row["model"], row["model"]),
            f"{row['value']:.4f}",
            "" if row["difference"] is None else f"{row['difference']:+.4f} ± {row['se']:.4f}",
            "" if row["p_holm"] is None else f"{row['p_holm']:.3f}",
        ]
        for row in table.iter_rows(named=True)
    ]
    columns = ["persons to learn from", "years ahead", "judged", "model", "CRPS of logs"]
    columns += ["worse than the fine-tuned prior by", "p (Holm)"]
    page = page_head("Scores by number of training persons", __file__, panel=panel.meta.panel_id)
    publish_page(f"{page}\n\n{markdown_table(columns, cells)}", args.report)
    if args.picture:
        draw_sizes(table, args.picture)


if __name__ == "__main__":
    main()
