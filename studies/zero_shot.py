"""How well does a bundle forecast a panel that its weights have never seen?

    python -m studies.zero_shot --panel FILE --mapping M [--prices YEAR] [--source bundles/prior]
        --out DIR [--baselines groupq,gbt] [--horizons 1,2,5,10] [--seed 1] [--report FILE]

The test persons of the panel's split are left out, so that the figures may guide the choice of the
source bundle. All other persons are split anew. The level and scale of the panel and the baselines
are fitted on the new training persons, and the new test persons are judged. No weight is changed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
from saga.evaluation.bundle_evaluation import EvaluationOptions, evaluate
from saga.evaluation.contest import ContestOptions
from saga.training.fit import train
from saga.training.harness import RunOptions

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.data.split import persons_of
from saga.pages.format import markdown_table
from studies.study_page import StepLog, command_line, page_head, publish_page, study_parser

METRICS = {"crps_log": "CRPS of logs", "brier_zero": "Brier score of zero"}


def without_test_persons(panel: Panel) -> Panel:
    """The panel without its test persons, and with another name, so that it is split anew."""
    test = set(persons_of(panel, "test"))
    others = panel.only([person for person in panel.persons() if person not in test])
    return replace(others, meta=replace(panel.meta, panel_id=f"{panel.meta.panel_id}-development"))


def score_table(metrics: pl.DataFrame, metric: str, horizons: list[int]) -> str:
    """Means of a score over all judged persons: a row per model, a column per horizon."""
    rows = metrics.filter(metric=metric, group="all", setting="in-time").drop_nulls("value")
    table = rows.pivot("horizon", index="model", values="value").sort("model")
    columns = [str(h) for h in horizons if str(h) in table.columns]
    cells = [[row["model"], *(f"{row[h]:.4f}" for h in columns)] for row in table.to_dicts()]
    return markdown_table(["model", *(f"h = {h}" for h in columns)], cells)


def main() -> None:
    """Fit the level, judge, and print the tables."""
    parser = study_parser(__doc__)
    parser.add_argument("--panel", type=Path, required=True)
    parser.add_argument("--mapping")
    parser.add_argument("--prices", type=int)
    parser.add_argument("--source", type=Path, default=Path("bundles/prior"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--baselines", default="groupq,gbt")
    parser.add_argument("--horizons", default="1,2,5,10")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="Markdown file to write as well.")
    args = parser.parse_args()
    panel = without_test_persons(
        read_panel(args.panel, mapping=args.mapping, prices=args.prices, on_error="drop")
    )
    run = RunOptions(command=command_line(__file__), progress=False, source=args.source)
    bundle = train(panel, args.out / "zero-shot", config="zero-shot", seed=args.seed, run=run)
    horizons = [int(horizon) for horizon in args.horizons.split(",")]
    metrics = evaluate(
        bundle.path,
        panel,
        args.out / "evaluation",
        ContestOptions(horizons, seed=args.seed, cache=args.out / "scores"),
        EvaluationOptions(tuple(args.baselines.split(","))),
        progress=StepLog() if sys.stderr.isatty() else None,
    )
    judged = metrics.filter(metric="crps_log", group="all", model="saga")["n"].max()
    page = page_head(
        "Zero-shot forecasts", __file__, source=bundle.manifest["parents"][0][:12], judged=judged
    )
    for metric, title in METRICS.items():
        if metric in metrics["metric"]:
            page += f"\n\n## {title}\n\n{score_table(metrics, metric, horizons)}"
    publish_page(page, args.report)


if __name__ == "__main__":
    main()
