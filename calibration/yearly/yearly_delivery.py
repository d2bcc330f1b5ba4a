"""`saga deliver`: a new delivery of the register, from outcomes to a recommendation.

The ledger changes first, in transactions. The files of the folder are then a function of the ledger
and the bundle alone, each written in one step. So a delivery that is interrupted and repeated gives
the same ledger and the same files as one that was not, and a repetition changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from saga.calibration.adaptive.adaptive_state import AdaptiveState
from saga.calibration.adaptive.issuance import INITIAL_STATE
from saga.calibration.adaptive.ledger import Ledger
from saga.calibration.adaptive.settlement_log import SpanCoverage
from saga.calibration.yearly.drift_tests import (
    ALPHA,
    DriftScale,
    Recommendation,
    YearTests,
    compare_groups,
    compare_levels,
    recommend,
    sequential_test,
)
from saga.calibration.yearly.year_diagnosis import (
    COVERAGE,
    HORIZONS,
    diagnose_years,
    outside_share,
)

from saga.bundle import Bundle
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.errors import UsageError
from saga.files.atomic import commit, commit_json, sweep
from saga.pages.delivery_page import render_delivery
from saga.requests import COVERAGE as COVERAGES
from saga.small_groups import MIN_PERSONS

PAGE, TABLE, REPORT = "delivery.html", "years.parquet", "delivery.json"
TESTED_HORIZON = 1  # outcomes of longer horizons overlap, so their years are not independent


@dataclass(frozen=True, eq=False)
class YearlyReport:
    """What the outcomes so far say: the table of `diagnose_years`, tests, and what to do.

    `spans` are the path bands and present values that could be judged.
    """

    years: pl.DataFrame
    tests: tuple[YearTests, ...]
    scale: DriftScale
    recommendation: Recommendation
    state: AdaptiveState
    counts: Mapping[str, int]
    spans: tuple[SpanCoverage, ...]


def check_folder(out: Path) -> None:
    """Raise UsageError unless `out` is a folder of deliveries, empty or absent."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Name a folder for the pages of the delivery.")
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    other = sorted(name for name in names - {PAGE, TABLE, REPORT} if not name.endswith(".tmp"))
    if other:
        raise UsageError(
            f"The folder {out} has other files ({other[0]}). Name an empty folder, or that of the "
            "delivery before."
        )


def report_years(ledger: Ledger, bundle: Bundle) -> YearlyReport:
    """Diagnose the outcomes that the ledger has of the bundle's forecasts, and test for drift."""
    years = diagnose_years(ledger.settled(bundle.digest, HORIZONS))
    scale = drift_scale(bundle)
    tested = years.filter(pl.col("horizon") == TESTED_HORIZON)["year"].unique().sort().to_list()
    outside = {year: outside_share(years, year, TESTED_HORIZON) for year in tested}
    with_everybody = [year for year in tested if ALL in outside[year]]
    martingale = sequential_test([outside[year][ALL] for year in with_everybody], scale)
    tests = tuple(
        YearTests(
            year,
            compare_levels(outside[year], scale),
            compare_groups(outside[year], scale),
            value,
        )
        for year, value in zip(with_everybody, martingale, strict=True)
    )
    state = ledger.state(bundle.digest) or INITIAL_STATE
    spans = [row for row in ledger.span_coverage(bundle.digest) if row.persons >= MIN_PERSONS]
    counts = ledger.counts(bundle.digest)
    return YearlyReport(years, tests, scale, recommend(tests), state, counts, tuple(spans))


def drift_scale(bundle: Bundle) -> DriftScale:
    """The usual variation of coverage between years, from the bundle's calibration."""
    if bundle.calibration is None:
        return DriftScale(0.0, 0)
    drift = Calibrator.from_table(bundle.calibration).drift
    return DriftScale(*drift.get((TESTED_HORIZON, COVERAGE), (0.0, 0)))


def write_delivery(report: YearlyReport, bundle: Bundle, out: Path) -> dict[str, Any]:
    """Write page, table and report to the folder `out`; the content of the report."""
    out.mkdir(parents=True, exist_ok=True)
    sweep(out)
    values = delivery_values(report, bundle)
    commit(out / TABLE, lambda path: report.years.write_parquet(path))
    page = render_delivery(report.years, values)
    commit(out / PAGE, partial(Path.write_text, data=page, encoding="utf-8"))
    commit_json(out / REPORT, values)
    return values


def delivery_values(report: YearlyReport, bundle: Bundle) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "bundle": bundle.digest,
        "trained_on": bundle.trained_on,
        "recommendation": report.recommendation.action,
        "rule": report.recommendation.rule,
        "command": report.recommendation.command,
        "false_alarm_rate": ALPHA,
        "usual_variation": asdict(report.scale),
        "adaptive": report.state.identity(),
        "settled": report.counts["settled"],
        "waiting": report.counts["waiting"],
        "tests": [asdict(tests) for tests in report.tests],
        "coverage": list(COVERAGES),
        "spans": [asdict(row) for row in report.spans],
    }
