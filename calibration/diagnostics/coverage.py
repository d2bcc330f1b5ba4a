"""Tables of intervals: what they rest on, their coverage by group and by year, their widths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from saga.calibration.diagnostics.person_results import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.several_years import Inside
from saga.calibration.diagnostics.verdicts import (
    Verdict,
    coverage_band,
    coverage_sees_miss,
    publishable,
    status,
    typical_value,
    worst_verdict,
)
from saga.calibration.fit.person_scores import rank_needed

from saga.conformal.calibration_table import ALL
from saga.diagnostics_tables import QUESTIONS
from saga.forecast_tables import percent_label

ZERO_BINS = 10  # equal parts of the scale of the probability of zero
MIN_PERIOD_PERSONS = 100  # years are joined until a period has so many persons


def tabulate_guarantees(cases: Cases) -> Rows:
    """Calibration persons, guarantee, drift term and persons judged of each horizon."""
    rows: Rows = []
    calibrator, least = cases.calibrator, cases.min_persons
    for h, results in cases.results.items():
        cell, n_map = calibrator.cells.get((h, ALL)), cases.mapped_on(h) or 0
        n_threshold, n = cell.n_threshold if cell else 0, results.frame.height
        guarantees = results.frame["guarantee"].mode().sort().to_list()
        drift_term, _ = calibrator.drift.get((h, cases.headline), (None, 0))
        rows.append(
            {
                "horizon": h,
                "persons_map": n_map if n_map == 0 or n_map >= least else None,
                "persons_threshold": (
                    n_threshold if n_threshold == 0 or n_threshold >= least else None
                ),
                "guarantee": guarantees[0] if guarantees else "none",
                "n": n if n >= least else None,
                "drift_term": drift_term,
            }
        )
    return rows


def tabulate_coverage(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of everybody and of groups.

    Everybody at all coverages is one question, the groups are another. Each question shares its
    probability of a false alarm among its own figures.
    """
    n_everybody = len(cases.results) * len(cases.coverage)
    n_groups = sum(len(members) - 1 for members in cases.members.values()) * len(cases.coverage)
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, results in cases.results.items():
        by_question: dict[str, list[Verdict]] = {"coverage": [], "groups": []}
        for (grouping, group), members in cases.members[h].items():
            is_everybody = grouping == ALL
            question = "coverage" if is_everybody else "groups"
            alarm = QUESTION_ALPHA / (n_everybody if is_everybody else max(1, n_groups))
            part = results.frame.clear() if members is None else results.frame[members]
            for coverage in cases.coverage:
                label = percent_label(coverage)
                issued = part.drop_nulls(f"inside_{label}")
                judged, verdict = _judge(
                    cases,
                    Verdict(
                        question,
                        h,
                        coverage=coverage,
                        group=None if is_everybody else f"{grouping}={group}",
                    ),
                    issued[f"inside_{label}"],
                    coverage,
                    calibrated_on=cases.calibrated_on(h, grouping, group),
                    alarm=alarm,
                )
                row = {"horizon": h, "grouping": grouping, "group": group, "coverage": coverage}
                if verdict.n is not None:
                    row |= {kind: _mean(issued[f"{kind}_{label}"]) for kind in ("under", "over")}
                rows.append(row | judged)
                by_question[question].append(verdict)
        verdicts += [worst_verdict(each) for each in by_question.values() if each]
    return rows, verdicts


def tabulate_widths(cases: Cases) -> Rows:
    """Typical widths of the intervals of each group, and typical forecasts."""
    rows: Rows = []
    for h, results in cases.results.items():
        for (grouping, group), members in cases.members[h].items():
            part = results.frame.clear() if members is None else results.frame[members]
            for coverage in cases.coverage:
                label = percent_label(coverage)
                row: dict[str, Any] = {"horizon": h, "grouping": grouping, "group": group}
                row["coverage"] = coverage
                issued = part.drop_nulls(f"width_{label}")
                if issued.height >= cases.min_persons:
                    row |= {
                        "n": issued.height,
                        "width": typical_value(issued[f"width_{label}"].to_numpy()),
                        "typical": typical_value(issued["median"].to_numpy()),
                        "with_zero": issued[f"with_zero_{label}"].mean(),
                        "without": 1 - issued.height / part.height,
                    }
                rows.append(row)
    return rows


def tabulate_several_years(cases: Cases, several_years: Inside) -> tuple[Rows, list[Verdict]]:
    """Coverage of path bands of K years, and of present values of K years."""
    alarm = QUESTION_ALPHA / max(1, len(several_years) * len(cases.coverage))
    rows: Rows = []
    verdicts: dict[int, list[Verdict]] = {}
    for (kind, years), inside in several_years.items():
        fitted = cases.calibrator.thresholds_of_kind.get((kind, years))
        for j, coverage in enumerate(cases.coverage):
            judged, verdict = _judge(
                cases,
                Verdict("together", years, coverage=coverage, group=kind),
                pl.Series(inside[~np.isnan(inside[:, j]), j]),
                coverage,
                calibrated_on=fitted.n if fitted else None,
                alarm=alarm,
            )
            rows.append({"question": kind, "horizon": years, "coverage": coverage} | judged)
            verdicts.setdefault(years, []).append(verdict)
    return rows, [worst_verdict(of_years) for of_years in verdicts.values()]


def tabulate_zero_bins(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of the intervals of 90 %, or of the highest coverage, by the probability of zero.

    There are ten bins. An interval covers its probability of zero at least, so the target of a bin
    is the mean of max(coverage, probability of zero).
    """
    coverage = cases.headline
    inside_column = f"inside_{percent_label(coverage)}"
    parts: dict[tuple[int, int], pl.DataFrame] = {}
    for h, results in cases.results.items():
        issued = results.frame.drop_nulls(inside_column).with_columns(
            (pl.col("p_zero") * ZERO_BINS).cast(pl.Int32).clip(0, ZERO_BINS - 1).alias("bin")
        )
        counts = {str(i): n for i, n in issued["bin"].value_counts().iter_rows()}
        shown = publishable(counts, cases.min_persons)
        parts |= {(h, int(name)): issued.filter(bin=int(name)) for name in sorted(shown, key=int)}
    rows: Rows = []
    verdicts: dict[int, list[Verdict]] = {h: [] for h in cases.results}
    for (h, i), part in parts.items():
        p_from, p_to = i / ZERO_BINS, (i + 1) / ZERO_BINS
        target = float(np.maximum(part["p_zero"].to_numpy(), coverage).mean())
        m = cases.calibrated_on(h)
        judged, verdict = _judge(
            cases,
            Verdict("zero_bins", h, coverage=coverage, group=f"{p_from:.1f}-{p_to:.1f}"),
            part[inside_column],
            target,
            # With so few calibration persons a threshold has no rank: the band is then binomial.
            calibrated_on=None if m is None or rank_needed(m, target) > m else m,
            alarm=QUESTION_ALPHA / len(parts),
        )
        row: dict[str, Any] = {"horizon": h, "coverage": coverage, "forced": target}
        rows.append(row | {"p_from": p_from, "p_to": p_to} | judged)
        verdicts[h].append(verdict)
    return rows, [
        worst_verdict(of_horizon or [Verdict("zero_bins", h)]) for h, of_horizon in verdicts.items()
    ]


def tabulate_periods(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of the 90 % intervals (or those of the highest coverage) by year of the outcome.

    Years are joined until a period has 100 persons.
    """
    coverage = cases.headline
    inside_column = f"inside_{percent_label(coverage)}"
    issued = {h: results.frame.drop_nulls(inside_column) for h, results in cases.results.items()}
    fewest = max(MIN_PERIOD_PERSONS, cases.min_persons)
    periods = {h: join_years(frame["year"], fewest) for h, frame in issued.items()}
    alarm = QUESTION_ALPHA / max(1, sum(len(of_horizon) for of_horizon in periods.values()))
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, frame in issued.items():
        enough = frame.height >= cases.min_persons
        of_horizon = [] if enough else [Verdict("periods", h)]
        for first, last in periods[h] if enough else []:
            period = str(first) if first == last else f"{first}-{last}"
            judged, verdict = _judge(
                cases,
                Verdict("periods", h, coverage=coverage, group=period),
                frame.filter(pl.col("year").is_between(first, last))[inside_column],
                coverage,
                calibrated_on=cases.calibrated_on(h),
                alarm=alarm,
            )
            rows.append({"horizon": h, "first_year": first, "last_year": last} | judged)
            of_horizon.append(verdict)
        verdicts.append(worst_verdict(of_horizon))
    return rows, verdicts


def _mean(flags: pl.Series) -> float:
    return float(flags.cast(pl.Float64).mean())  # type: ignore[arg-type]


def _judge(
    cases: Cases,
    unclear: Verdict,
    inside: pl.Series,
    target: float,
    *,
    calibrated_on: int | None,
    alarm: float,
) -> tuple[dict[str, Any], Verdict]:
    """Columns about the share of `inside`, and the verdict on it, `unclear` with too few persons.

    `target` is what the share should be, `alarm` the probability of a false alarm.
    """
    n = len(inside)
    if n < cases.min_persons:
        return {"status": unclear.status}, unclear
    share = _mean(inside)
    lower, upper = coverage_band(target, n, calibrated_on, probability=1 - alarm)
    tolerance = QUESTIONS[unclear.question]
    verdict_status = status(
        share,
        lower,
        upper,
        n,
        target=target,
        tolerance=tolerance,
        sees_miss=coverage_sees_miss(lower, target, n, calibrated_on, tolerance),
        mild_above=True,
    )
    columns = {
        "n": n,
        "inside": share,
        "band_lower": lower,
        "band_upper": upper,
        "status": verdict_status,
    }
    return columns, replace(unclear, status=verdict_status, n=n, size=share - target)


def join_years(years: pl.Series, min_persons: int) -> list[tuple[int, int]]:
    """Periods of consecutive years with at least `min_persons` persons each.

    Years that remain at the end join the last period.
    """
    periods: list[tuple[int, int]] = []
    first, n_joined = None, 0
    for year, n in years.alias("year").value_counts().sort("year").iter_rows():
        first, n_joined = year if first is None else first, n_joined + n
        if n_joined >= min_persons:
            periods.append((first, year))
            first, n_joined = None, 0
    if first is not None:
        start = periods.pop()[0] if periods else first
        periods.append((start, int(years.max())))  # type: ignore[arg-type]
    return periods
