"""How much do published figures move with the seed of the paths?

    python -m studies.stability PANEL [--bundle bundles/small] [--persons 1000] [--paths 500]
        [--seeds 5] [--value-seeds 5] [--seed 0] [--report FILE]

Persons of the panel are forecast from its last year with default options and --seeds seeds. For
quantiles and both ends of the 90 % set, the table gives the range over the seeds as a share of the
person's median, its median and its 90th percentile over persons, at the horizons 1 to 20. A further
table gives the share of person-horizons whose `includes_zero_90` differs between seeds, and how
often it changes from one horizon to the next. The last table gives the range of the 90 % interval
of the present value over --value-seeds seeds as a share of the person's mean; 0 leaves it out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga.data.reading import read_panel
from saga.files.markdown import markdown_table
from saga.forecaster import Forecaster
from saga.requests import PATHS, Draws, ForecastRequest, LifetimeRequest
from studies.cross_section import follow_persons
from studies.study_page import bundle_parser, page_head, publish_page

Array = NDArray[np.float64]
HORIZONS = tuple(range(1, 21))
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FIGURES = ("q05", "q25", "q50", "q75", "q95", "lower_90", "upper_90")
ZERO = "includes_zero_90"
VALUE_FIGURES = ("lower_90", "upper_90", "q50")


def main() -> None:
    """Print the tables."""
    parser = bundle_parser(__doc__, n_persons=1_000, n_paths=PATHS)
    parser.add_argument("panel", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--value-seeds", type=int, default=5)
    args = parser.parse_args()
    forecaster, panel = Forecaster.load(args.bundle), read_panel(args.panel)
    trained_on = forecaster.bundle.split["panel_id"]
    persons = follow_persons(panel, trained_on=trained_on, n_persons=args.persons)
    panel = persons.past
    request = ForecastRequest(horizons=HORIZONS, quantiles=QUANTILES)
    draws = [Draws(args.paths, args.seed + k) for k in range(max(args.seeds, args.value_seeds))]
    tables = [forecaster.forecast(panel, request, one).table for one in draws[: args.seeds]]
    sections = [
        page_head(
            "Stability over seeds",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            panel=panel.meta.panel_id,
            persons=len(persons.origins),
            seeds=args.seeds,
        ),
        "Range over seeds as a share (%) of the person's median.",
        range_table(tables),
        f"`{ZERO}` differs between seeds at {100 * differing_zero(tables):.2f} % of "
        f"person-horizons; it changes {zero_changes(tables[0]):.2f} times a person over the "
        "horizons.",
    ]
    if args.value_seeds:
        lifetimes = [
            forecaster.lifetime(panel, LifetimeRequest(), one).table
            for one in draws[: args.value_seeds]
        ]
        sections += [
            "Present values of the years to age 64: range over seeds as a share (%) of the mean.",
            value_table(lifetimes),
        ]
    publish_page("\n\n".join(sections), args.report)


def relative_ranges(tables: list[pl.DataFrame], name: str, scale: str) -> Array:
    """Range (n,) of a column over tables with the same rows, by the mean of the column `scale`.

    NaN if a value is missing; 0 if range and scale are 0.
    """
    values, scales = (
        np.stack([table[column].cast(pl.Float64).fill_null(np.nan).to_numpy() for table in tables])
        for column in (name, scale)
    )
    span, size = values.max(axis=0) - values.min(axis=0), scales.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(span == 0, 0.0, span / size))


def range_table(tables: list[pl.DataFrame]) -> str:
    """Median and 90th percentile over persons of the range of each figure, by horizon.

    Persons whose median is zero are left out.
    """
    rows = []
    for h in HORIZONS:
        of_horizon = [table.filter(horizon=h) for table in tables]
        cells = [
            _two_quantiles(relative_ranges(of_horizon, name, "q50"), of_horizon[0]["q50"])
            for name in FIGURES
        ]
        rows.append([str(h), *cells])
    return markdown_table(["h", *(f"{name}: median / 90th" for name in FIGURES)], rows)


def _two_quantiles(ranges: Array, scale: pl.Series) -> str:
    known = ranges[(scale.to_numpy() > 0) & np.isfinite(ranges)]
    if not len(known):
        return ""
    median, high = np.quantile(known, (0.5, 0.9))
    return f"{100 * median:.2f} / {100 * high:.2f}"


def differing_zero(tables: list[pl.DataFrame]) -> float:
    """Share of rows whose set contains zero with one seed, but not with another."""
    zero = np.stack([table[ZERO].to_numpy() for table in tables])
    return float((zero.any(axis=0) & ~zero.all(axis=0)).mean())


def zero_changes(table: pl.DataFrame) -> float:
    """Mean number of changes of `includes_zero_90` from one horizon to the next, per person."""
    changed = (pl.col(ZERO) != pl.col(ZERO).shift(1)).over("person_id").fill_null(False)
    ordered = table.sort("person_id", "horizon")
    return float(ordered.select(changed.sum()).item() / table["person_id"].n_unique())


def value_table(tables: list[pl.DataFrame]) -> str:
    """Median, 90th percentile and maximum over persons of the ranges of present values."""
    rows = []
    for name in VALUE_FIGURES:
        ranges = relative_ranges(tables, name, "mean")
        ranges = ranges[np.isfinite(ranges)]
        if len(ranges):
            quantiles = np.quantile(ranges, (0.5, 0.9, 1.0)).tolist()
            rows.append([name, *(f"{100 * value:.1f}" for value in quantiles)])
    return markdown_table(["figure", "median", "90th percentile", "largest"], rows)


if __name__ == "__main__":
    main()
