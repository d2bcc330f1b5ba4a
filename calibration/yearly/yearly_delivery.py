"""`saga deliver`: a new delivery of the register, from outcomes to a recommendation.

The ledger changes first, in transactions. The files of the folder are then a function of the ledger
and the bundle alone, each written in one step. So a delivery that is interrupted and repeated gives
the same ledger and the same files as one that was not, and a repetition changes nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from saga.calibration.adaptive.issuance import INITIAL_STATE
from saga.calibration.adaptive.ledger import Ledger
from saga.calibration.yearly.drift_tests import (
    ALPHA,
    COMMANDS,
    DriftScale,
    YearTests,
    compare_groups,
    compare_levels,
    recommend,
    sequential_test,
)

from saga.bundle import Bundle
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.errors import UsageError
from saga.files.atomic import commit_json, new_files, read_json
from saga.files.tables import check_out, check_replaceable, write_table
from saga.pages.delivery_page import render_delivery
from saga.pages.layout import check_page, write_page
from saga.requests import COVERAGE as COVERAGES
from saga.small_groups import MIN_PERSONS

PAGE, TABLE, REPORT = "delivery.html", "years.parquet", "delivery.json"
TESTED_HORIZON = 1  # outcomes of longer horizons overlap, so their years are not independent


def check_folder(out: Path) -> None:
    """Raise UsageError unless `out` is a folder of deliveries, empty or absent, or to be made."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Name a folder for the pages of the delivery.")
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    other = sorted(name for name in names - {PAGE, TABLE, REPORT} if not name.endswith(".tmp"))
    if other:
        raise UsageError(
            f"The folder {out} has other files ({other[0]}). Name an empty folder, or that of the "
            "delivery before."
        )
    check_page(out / PAGE, "page", (".html",))
    check_out(out / TABLE)
    check_replaceable(out / REPORT, lambda file: "recommendation" in (read_json(file) or ()))


def write_delivery(ledger: Ledger, bundle: Bundle, out: Path) -> dict[str, Any]:
    """Write page, table and report to the folder `out`; the content of the report.

    They are about the outcomes that the ledger has of the bundle's forecasts.
    """
    years = diagnose_years(ledger.settled(bundle.digest, HORIZONS))
    values = _report_values(ledger, bundle, years)
    provenance = {name: values[name] for name in ("bundle", "adaptive", "settled", "waiting")}
    with new_files(out) as unfinished:
        write_table(years, unfinished / TABLE, provenance)
        write_page(unfinished / PAGE, render_delivery(years, values))
        commit_json(unfinished / REPORT, values)
    return values


def _report_values(ledger: Ledger, bundle: Bundle, years: pl.DataFrame) -> dict[str, Any]:
    """The report as JSON values: tests for drift, what to do, and spans that could be judged."""
    scale = drift_scale(bundle)
    tests = _test_years(years, scale)
    (action, rule), counts = recommend(tests), ledger.counts(bundle.digest)
    spans = ledger.span_coverage(bundle.digest)
    return {
        "bundle": bundle.digest,
        "trained_on": bundle.trained_on,
        "recommendation": action,
        "rule": rule,
        "command": COMMANDS[action],
        "false_alarm_rate": ALPHA,
        "usual_variation": asdict(scale),
        "adaptive": (ledger.state(bundle.digest) or INITIAL_STATE).identity(),
        **counts,
        "tests": [asdict(of_year) for of_year in tests],
        "coverage": list(COVERAGES),
        "spans": [asdict(row) for row in spans if row.persons >= MIN_PERSONS],
    }


def _test_years(years: pl.DataFrame, scale: DriftScale) -> tuple[YearTests, ...]:
    """Tests for drift of each year with figures of all persons."""
    tested = years.filter(pl.col("horizon") == TESTED_HORIZON)["year"].unique().sort().to_list()
    outside = {year: outside_share(years, year, TESTED_HORIZON) for year in tested}
    with_everybody = [year for year in tested if ALL in outside[year]]
    martingale = sequential_test([outside[year][ALL] for year in with_everybody], scale)
    return tuple(
        YearTests(
            year,
            compare_levels(outside[year], scale),
            compare_groups(outside[year], scale),
            value,
        )
        for year, value in zip(with_everybody, martingale, strict=True)
    )


def drift_scale(bundle: Bundle) -> DriftScale:
    """The usual variation of coverage between years, from the bundle's calibration."""
    if bundle.calibration is None:
        return DriftScale(0.0, 0)
    drift = Calibrator.from_table(bundle.calibration).drift
    return DriftScale(*drift.get((TESTED_HORIZON, COVERAGE), (0.0, 0)))


HORIZONS = (1, 2, 5, 10, 20)
COVERAGE = 0.9


def diagnose_years(settled: pl.DataFrame) -> pl.DataFrame:
    """A row per outcome year, horizon and group; the group "all" has all persons.

    `settled` are the outcomes of `Ledger.settled`. Figures of fewer than 10 persons are null.
    Columns:

    - `year`, `horizon`, `group`, and `persons`, their number
    - `covered`, `below`, `above`: shares inside, below and above the published central interval of
      90 %
    - `bundle_covered`: share inside the interval of the bundle, before outcomes moved it
    - `rank`: mean rank of the outcomes in the bundle's forecast, 0.5 if it is right
    - `zeros`: share without earnings, and `p_zero`, its published probability
    """
    tail = (1 - COVERAGE) / 2
    rows = settled.select(
        "year",
        "horizon",
        "group",
        rank="bundle_rank",
        below=pl.col("rank") <= tail,
        above=pl.col("rank") > 1 - tail,
        bundle_covered=(pl.col("bundle_rank") > tail) & (pl.col("bundle_rank") <= 1 - tail),
        zeros="zero",
        p_zero="p_zero",
    )
    everybody = rows.with_columns(pl.lit(ALL).alias("group"))
    figures = ("covered", "below", "above", "bundle_covered", "rank", "zeros", "p_zero")
    by_cell = (
        pl.concat([everybody, rows.filter(pl.col("group") != ALL)])
        .group_by("year", "horizon", "group")
        .agg(
            pl.len().alias("persons"),
            pl.col("^(?:below|above|bundle_covered|rank|zeros|p_zero)$").mean(),
        )
        .with_columns(covered=1 - pl.col("below") - pl.col("above"))
        .sort("year", "horizon", "group")
    )
    shown = pl.col("persons") >= MIN_PERSONS
    return by_cell.select(
        "year",
        "horizon",
        "group",
        "persons",
        *(pl.when(shown).then(pl.col(name)).alias(name) for name in figures),
    )


def outside_share(by_cell: pl.DataFrame, year: int, horizon: int) -> dict[str, tuple[float, int]]:
    """Group -> share outside the bundle's 90 % interval, and persons, in one year and horizon."""
    rows = by_cell.filter(
        (pl.col("year") == year)
        & (pl.col("horizon") == horizon)
        & pl.col("bundle_covered").is_not_null()
    )
    return {
        group: (1 - float(np.float64(inside)), persons)
        for group, inside, persons in rows.select("group", "bundle_covered", "persons").iter_rows()
    }
