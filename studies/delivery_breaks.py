"""Do forecasts stay right over yearly deliveries, with and without a planted break?

    python -m studies.delivery_breaks --register DIR [--bundle DIR] [--persons 400]
        [--value-persons 300] [--futures 20] [--seed 0] [--cache DIR] [--report FILE]

The register must have futures with all columns up to 2038 (`saga register generate --persons 4800
--seed 7 --future-to 2038 --future-draws 20 --future-records`). The bundle knows outcomes up to
2022. Each year from 2022 to 2032 a delivery brings a year of each future; the persons are forecast
one to five years ahead, and outcomes arrive when they are due. Breaks begin in 2024
(`studies.delivery_forecasts.plant`). Coverage is that of central intervals of 90 %, with random
ranks within the probability of zero.

Path bands and present values over five years are shown in the same way: *marginals* are those of
the moved marginals with the bundle's threshold, and *moved* also moves the threshold. Present
values are those of `--value-persons`.

Results of each future are kept in --cache, so a repeated command continues. --report is written
after each future. Writes docs/pictures/deliveries.svg.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from saga.calibration.adaptive.adaptive_state import SPAN_KINDS
from saga.calibration.yearly.drift_tests import (
    ALPHA,
    compare_groups,
    compare_levels,
    sequential_test,
)
from saga.calibration.yearly.yearly_delivery import drift_scale

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from studies.delivery_forecasts import (
    BREAKS,
    GROUPS,
    N_HORIZONS,
    forecasts_of_future,
    sample_persons,
)
from studies.delivery_methods import JUDGED, METHODS, SPAN_METHODS, Deliveries
from studies.delivery_tables import draw_deviations, product_table, recovery_table
from studies.study_page import bundle_parser, page_head, publish_page, say

PICTURE = Path(__file__).resolve().parents[1] / "docs/pictures/deliveries.svg"
MIN_GROUP = 50  # persons of a group in a year and future


def rows_of_future(deliveries: Deliveries, draw: int, planted: str) -> list[dict[str, object]]:
    """Coverage of one future by product, method, outcome year and group, in points from 90."""
    rows: list[dict[str, object]] = []

    def add(product: str, method: str, year: int, group: str, inside: Floats) -> None:
        known = inside[~np.isnan(inside)]
        if len(known) >= MIN_GROUP:
            rows.append(
                {
                    "draw": draw,
                    "break": planted,
                    "product": product,
                    "method": method,
                    "year": year,
                    "group": group,
                    "persons": len(known),
                    "deviation": 100 * float(known.mean()) - 90,
                }
            )

    for origin, part in deliveries.parts.items():
        for h in JUDGED:
            for method in METHODS:
                inside = deliveries.covered(method, origin, h)
                add(f"h = {h}", method, origin + h, ALL, inside)
                for grouping in GROUPS if method in ("static", "moved") else ():
                    for label in np.unique(part.groups[grouping]).tolist():
                        members = inside[part.groups[grouping] == label]
                        add(f"h = {h}", method, origin + h, f"{grouping}={label}", members)
            ratio = 100 * deliveries.width_ratio(origin, h)
            rows.append(
                {**rows[-1], "product": f"width h = {h}", "method": "moved", "group": ALL}
                | {"year": origin + h, "deviation": ratio - 100}
            )
        for kind in SPAN_KINDS:
            for method in SPAN_METHODS:
                inside = deliveries.span_covered(kind, method, origin)
                add(kind, method, origin + N_HORIZONS, ALL, inside)
                for grouping in GROUPS if method in ("static", "moved") else ():
                    for label in np.unique(part.groups[grouping]).tolist():
                        members = inside[part.groups[grouping] == label]
                        add(kind, method, origin + N_HORIZONS, f"{grouping}={label}", members)
    return rows


def false_alarms(rows: pl.DataFrame, forecaster: Forecaster) -> dict[str, float]:
    """Shares of years (and futures, for the sequential test) with an alarm, without a break."""
    scale = drift_scale(forecaster.bundle)
    static = rows.filter(
        (pl.col("break") == "none")
        & (pl.col("product") == "h = 1")
        & (pl.col("method") == "static")
        & (pl.col("group").str.starts_with("quintile=") | (pl.col("group") == ALL))
    )
    levels, differences, sequential = [], [], []
    for _, future in static.partition_by("draw", as_dict=True, maintain_order=True).items():
        everybody = []
        for _, year in future.sort("year").partition_by("year", as_dict=True).items():
            outside = {
                group: (0.1 - deviation / 100, persons)
                for group, deviation, persons in year.select(
                    "group", "deviation", "persons"
                ).iter_rows()
            }
            everybody.append(outside[ALL])
            levels.append(any(test.alarm for test in compare_levels(outside, scale)))
            differences.append(any(test.alarm for test in compare_groups(outside, scale)))
        sequential.append(max(sequential_test(everybody, scale)) >= 1 / ALPHA)
    return {
        "coverage, of years": float(np.mean(levels)),
        "groups, of years": float(np.mean(differences)),
        "sequential, of futures in eleven years": float(np.mean(sequential)),
    }


def judged_future(
    forecaster: Forecaster,
    panel: Panel,
    register: Path,
    cache: Path,
    draw: int,
    value_persons: set[str],
) -> pl.DataFrame:
    """The coverage of one future under all breaks; it is kept in the cache."""
    results = cache / f"judged-{draw}.parquet"
    if results.exists():
        return pl.read_parquet(results, glob=False)
    rows: list[dict[str, object]] = []
    for planted in BREAKS:
        parts = {
            part.origin: part
            for part in forecasts_of_future(
                forecaster, panel, register, draw, planted, value_persons
            )
        }
        deliveries = Deliveries(parts, forecaster.calibrator)
        deliveries.run()
        rows += rows_of_future(deliveries, draw, planted)
    table = pl.DataFrame(rows)
    table.write_parquet(results)
    return table


def page_of(table: pl.DataFrame, forecaster: Forecaster) -> str:
    """The page about the futures judged so far."""
    alarms = false_alarms(table, forecaster)
    sections = [
        page_head(
            "Deliveries with planted breaks",
            __file__,
            bundle=forecaster.bundle.digest[:12],
            futures=table["draw"].n_unique(),
        ),
        recovery_table(table),
        product_table(table),
        "False alarms without a break, at a stated rate of "
        f"{ALPHA:.0%}: " + ", ".join(f"{name} {share:.1%}" for name, share in alarms.items()) + ".",
    ]
    return "\n\n".join(sections)


def main() -> None:
    """Forecast, deliver, judge; write the tables and the picture after each future."""
    parser = bundle_parser(__doc__, n_persons=400, n_paths=None)
    parser.add_argument("--register", type=Path, required=True)
    parser.add_argument("--futures", type=int, default=20)
    parser.add_argument("--value-persons", type=int, default=300, help="Of these, with paths.")
    parser.add_argument("--cache", type=Path, help="Folder of results to keep.")
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle, threads=1)
    panel = sample_persons(read_panel(args.register), args.persons, args.seed)
    value_persons = set(sample_persons(panel, args.value_persons, args.seed).persons())
    tables: list[pl.DataFrame] = []
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch)
        cache.mkdir(parents=True, exist_ok=True)
        for draw in range(args.futures):
            tables.append(
                judged_future(forecaster, panel, args.register, cache, draw, value_persons)
            )
            say(f"  {draw + 1} of {args.futures} futures")
            if args.report is not None and draw + 1 < args.futures:
                args.report.write_text(page_of(pl.concat(tables), forecaster) + "\n")
    table = pl.concat(tables)
    draw_deviations(table, PICTURE)
    publish_page(page_of(table, forecaster), args.report)


if __name__ == "__main__":
    main()
