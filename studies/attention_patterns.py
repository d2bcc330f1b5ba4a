"""Where a bundle's decoder looks: mean attention by lag and years ahead, and by layer and head, over a sample of a panel.

    python -m studies.attention_patterns --panel DIR [--bundle bundles/small] [--persons 300] [--paths 4] [--seed 0] [--report FILE]

Persons are those of the test part where the panel is the one the bundle was trained on, with their whole records; a keyed choice.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from saga.attention import attention_by_lag, head_diversity
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from studies.cross_section import followed
from studies.harness import command_line, study_parser

HORIZONS, LAGS = (1, 5, 10, 20), 10


def main() -> None:
    """Prints three tables: by lag and horizon, by layer and head for the next year, diversity of heads."""
    parser = study_parser(__doc__, n_persons=300, n_paths=4)
    parser.add_argument("--panel", type=Path, required=True)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, rollout="exact")
    who = followed(
        read_panel(args.panel), trained_on=forecaster.bundle.split["panel_id"], persons=args.persons
    )
    table = attention_by_lag(
        forecaster, who.past, horizons=HORIZONS, paths=args.paths, seed=args.seed
    )
    lines = [
        "# Where the decoder looks",
        "",
        f"`{command_line(__file__)}`",
        f"Bundle {forecaster.bundle.digest[:12]}, {len(who.origins):,} persons. Shares of attention in %.",
        "",
        *by_lag(
            table.group_by("horizon", "lag").agg(pl.col("weight").mean()), "horizon", "years ahead"
        ),
        "",
        "The next year, by layer and head:",
        "",
        *by_lag(
            table.filter(horizon=1).with_columns(
                pl.format("{}, {}", "layer", "head").alias("which")
            ),
            "which",
            "layer, head",
        ),
        "",
        "Diversity of heads (0: one subspace, 1: orthogonal ones):",
        "",
        *diversity(head_diversity(forecaster.network)),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.report:
        args.report.write_text(text, encoding="utf-8")


def by_lag(table: pl.DataFrame, key: str, name: str) -> list[str]:
    """Lines of a table with a column a lag of the record, earlier lags and drawn years together."""
    lines = [
        f"| {name} | {' | '.join(map(str, range(LAGS)))} | earlier | drawn years |",
        "|---|" + "---|" * (LAGS + 2),
    ]
    for (value,), part in table.sort(key, "lag").group_by([key], maintain_order=True):
        weight = dict(part.select("lag", "weight").iter_rows())
        shares = [weight.get(lag, 0.0) for lag in range(LAGS)]
        shares += [
            sum(w for lag, w in weight.items() if lag >= LAGS),
            sum(w for lag, w in weight.items() if lag < 0),
        ]
        lines.append(f"| {value} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")
    return lines


def diversity(table: pl.DataFrame) -> list[str]:
    """Lines of the table of head diversity."""
    rows = [
        f"| {row['layer']} | {row['part']} | {row['index']:.3f} |"
        for row in table.drop_nulls().iter_rows(named=True)
    ]
    return ["| layer | part | index |", "|---|---|---|", *rows]


if __name__ == "__main__":
    main()
