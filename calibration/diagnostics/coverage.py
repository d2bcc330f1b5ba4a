"""Tables of intervals: what they rest on, their coverage by group and by year, their widths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from saga.calibration.diagnostics.whole_distribution import class_starts
from saga.calibration.fit.person_scores import rank_needed

from saga.conformal.calibration_table import ALL
from saga.requests import percent_label

ZERO_BINS = 10  # equal parts of the scale of the probability of zero
MIN_PERIOD_PERSONS = 100  # years are joined until a period has so many persons


def tabulate_guarantees(cases: Cases) -> Rows:
    """Calibration persons, guarantee, drift term and persons judged of each horizon."""
    rows: Rows = []
    calibrator, least = cases.calibrator, cases.min_persons
    for h, results in cases.results.items():
        cell, n_map = calibrator.cells.get((h, ALL)), cases.mapped_on(h) or 0
        n_threshold, n = cell.n_threshold if cell else 0, results.height
        guarantees = results["guarantee"].mode().sort().to_list()
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


@dataclass(frozen=True, eq=False)
class _Slice:
    """Persons whose coverage is a figure of a question.

    `columns` are those of the row that name it; `inside` says who is inside, `target` which share
    should be; `calibrated_on` are the calibration persons, None: too few, so the band is binomial.
    """

    columns: Mapping[str, Any]
    unclear: Verdict
    inside: pl.Series
    target: float
    calibrated_on: int | None


def tabulate_coverage(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of everybody and of groups.

    Everybody at all coverages is one question, the groups are another. Each question shares its
    probability of a false alarm among its own figures.
    """
    slices: list[_Slice] = []
    for h, results in cases.results.items():
        for (grouping, group), members in cases.members[h].items():
            is_everybody = grouping == ALL
            name = None if is_everybody else f"{grouping}={group}"
            question = "coverage" if is_everybody else "groups"
            part = results.clear() if members is None else results[members]
            for coverage in cases.coverage:
                label = percent_label(coverage)
                issued = part.drop_nulls(f"inside_{label}")
                row = {"horizon": h, "grouping": grouping, "group": group, "coverage": coverage}
                if issued.height >= cases.min_persons:
                    row |= {kind: _mean(issued[f"{kind}_{label}"]) for kind in ("under", "over")}
                slices.append(
                    _Slice(
                        row,
                        Verdict(question, h, coverage=coverage, group=name),
                        issued[f"inside_{label}"],
                        coverage,
                        cases.calibrated_on(h, grouping, group),
                    )
                )
    return _judge_all(cases, slices)


def tabulate_widths(cases: Cases) -> Rows:
    """Typical widths of the intervals of each group, and typical forecasts."""
    rows: Rows = []
    for h, results in cases.results.items():
        for (grouping, group), members in cases.members[h].items():
            part = results.clear() if members is None else results[members]
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
    slices: list[_Slice] = []
    for (kind, years), inside in several_years.items():
        fitted = cases.calibrator.thresholds_of_kind.get((kind, years))
        slices += [
            _Slice(
                {"question": kind, "horizon": years, "coverage": coverage},
                Verdict("together", years, coverage=coverage, group=kind),
                pl.Series(inside[~np.isnan(inside[:, j]), j]),
                coverage,
                fitted.n if fitted else None,
            )
            for j, coverage in enumerate(cases.coverage)
        ]
    return _judge_all(cases, slices)


def tabulate_zero_bins(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of the intervals of 90 %, or of the highest coverage, by the probability of zero.

    There are ten bins. An interval covers its probability of zero at least, so the target of a bin
    is the mean of max(coverage, probability of zero).
    """
    coverage, slices = cases.headline, list[_Slice]()
    for h, issued in _issued(cases).items():
        bins = (pl.col("p_zero") * ZERO_BINS).cast(pl.Int32).clip(0, ZERO_BINS - 1)
        issued = issued.with_columns(bin=bins)
        counts = {str(i): n for i, n in issued["bin"].value_counts().iter_rows()}
        m = cases.calibrated_on(h)
        for i in sorted(map(int, publishable(counts, cases.min_persons))):
            part = issued.filter(bin=i)
            p_from, p_to = i / ZERO_BINS, (i + 1) / ZERO_BINS
            target = float(np.maximum(part["p_zero"].to_numpy(), coverage).mean())
            row = {"horizon": h, "coverage": coverage, "forced": target}
            slices.append(
                _Slice(
                    row | {"p_from": p_from, "p_to": p_to},
                    Verdict("zero_bins", h, coverage=coverage, group=f"{p_from:.1f}-{p_to:.1f}"),
                    part["inside"],
                    target,
                    # With so few calibration persons a threshold has no rank.
                    None if m is None or rank_needed(m, target) > m else m,
                )
            )
    return _judge_all(cases, slices, "zero_bins")


def tabulate_periods(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of the 90 % intervals (or those of the highest coverage) by year of the outcome.

    Years are joined until a period has 100 persons.
    """
    fewest = max(MIN_PERIOD_PERSONS, cases.min_persons)
    slices = [
        _Slice(
            {"horizon": h, "first_year": first, "last_year": last},
            Verdict(
                "periods",
                h,
                coverage=cases.headline,
                group=str(first) if first == last else f"{first}-{last}",
            ),
            issued.filter(pl.col("year").is_between(first, last))["inside"],
            cases.headline,
            cases.calibrated_on(h),
        )
        for h, issued in _issued(cases).items()
        for first, last in join_years(issued["year"], fewest)
    ]
    rows, verdicts = _judge_all(cases, slices, "periods")
    return [row for row in rows if "n" in row], verdicts


def _issued(cases: Cases) -> dict[int, pl.DataFrame]:
    """By horizon, the persons with an interval of the headline coverage, and who is `inside`."""
    inside = pl.col(f"inside_{percent_label(cases.headline)}")
    return {
        h: results.with_columns(inside=inside).drop_nulls("inside")
        for h, results in cases.results.items()
    }


def _mean(flags: pl.Series) -> float:
    return float(flags.cast(pl.Float64).mean())  # type: ignore[arg-type]


def _judge_all(
    cases: Cases, slices: Sequence[_Slice], every: str | None = None
) -> tuple[Rows, list[Verdict]]:
    """A row for each slice, and the worst verdict of each question and horizon.

    `every` is a question that has a verdict at each horizon, also without a slice. The slices of a
    question share its probability of a false alarm.
    """
    figures = Counter(each.unclear.question for each in slices)
    verdicts: dict[tuple[str, int], list[Verdict]] = {}
    if every is not None:
        verdicts |= {(every, h): [] for h in cases.results}
    rows: Rows = []
    for each in slices:
        unclear = each.unclear
        judged, verdict = _judge(cases, each, QUESTION_ALPHA / figures[unclear.question])
        rows.append({**each.columns, **judged})
        verdicts.setdefault((unclear.question, unclear.horizon), []).append(verdict)
    return rows, [worst_verdict(each or [Verdict(*key)]) for key, each in verdicts.items()]


def _judge(cases: Cases, judged: _Slice, alarm: float) -> tuple[dict[str, Any], Verdict]:
    """Columns about the share inside and the verdict on it, unclear with too few persons.

    `alarm` is the probability of a false alarm.
    """
    n, unclear, target = len(judged.inside), judged.unclear, judged.target
    if n < cases.min_persons:
        return {"status": unclear.status}, unclear
    share = _mean(judged.inside)
    lower, upper = coverage_band(target, n, judged.calibrated_on, probability=1 - alarm)
    tolerance = unclear.tolerance
    verdict_status = status(
        share,
        lower,
        upper,
        n,
        target=target,
        tolerance=tolerance,
        sees_miss=coverage_sees_miss(lower, target, n, judged.calibrated_on, tolerance),
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
    distinct, persons = np.unique(years.to_numpy(), return_counts=True)
    periods = np.split(distinct, class_starts(persons, min_persons)[1:])
    return [(int(period[0]), int(period[-1])) for period in periods if len(period)]
