"""Which years does a bundle's decoder look at?

    python -m studies.attention_patterns --panel DIR [--bundle bundles/small] [--persons 300]
        [--paths 4] [--seed 0] [--report FILE]

Prints mean attention by lag and years ahead, and by layer and head, over a keyed sample of persons
with their whole records. If the bundle was trained on this panel, these are test persons.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
from saga.evaluation.explain.attention import attention_by_lag
from saga.training.head_subspaces import head_diversity

from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.pages.format import markdown_table
from studies.cross_section import follow_persons
from studies.study_page import bundle_parser, page_head, publish_page

HORIZONS, LAGS = (1, 5, 10, 20), 10


def main() -> None:
    """Print three tables: by lag and horizon, by layer and head, diversity of heads."""
    parser = bundle_parser(__doc__, n_persons=300, n_paths=4)
    parser.add_argument("--panel", type=Path, required=True)
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, rollout="exact")
    persons = follow_persons(
        read_panel(args.panel),
        trained_on=forecaster.bundle.panel_id,
        n_persons=args.persons,
    )
    table = attention_by_lag(
        forecaster, persons.past, horizons=HORIZONS, n_paths=args.paths, seed=args.seed
    )
    by_horizon = table.group_by("horizon", "lag").agg(pl.col("weight").mean())
    next_year = table.filter(horizon=1)
    by_head = next_year.with_columns(pl.format("{}, {}", "layer", "head").alias("layer, head"))
    diversity = [
        [str(row["layer"]), row["part"], f"{row['index']:.3f}"]
        for row in head_diversity(forecaster.network).drop_nulls().iter_rows(named=True)
    ]
    parts = [
        page_head(
            "Attention of the decoder",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            persons=len(persons.origins),
        ),
        "Shares of attention in %.",
        lag_table(by_horizon, "horizon", "years ahead"),
        "The next year, by layer and head:",
        lag_table(by_head, "layer, head", "layer, head"),
        "Diversity of heads (0: the same subspace, 1: orthogonal subspaces):",
        markdown_table(["layer", "part", "index"], diversity),
    ]
    publish_page("\n\n".join(parts), args.report)


def lag_table(table: pl.DataFrame, key: str, heading: str) -> str:
    """Attention with one column a lag; earlier lags and simulated years are summed."""
    rows = []
    for (value,), part in table.sort(key, "lag").group_by([key], maintain_order=True):
        weight = dict(part.select("lag", "weight").iter_rows())
        shares = [weight.get(lag, 0.0) for lag in range(LAGS)]
        shares.append(sum(w for lag, w in weight.items() if lag >= LAGS))
        shares.append(sum(w for lag, w in weight.items() if lag < 0))
        rows.append([str(value), *(f"{100 * share:.1f}" for share in shares)])
    return markdown_table([heading, *map(str, range(LAGS)), "earlier", "simulated years"], rows)


if __name__ == "__main__":
    main()
