"""Tables of coverage: by group, over several years together, and by period."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from saga.calibration.diagnostics.cases import QUESTION_ALPHA, Cases, Rows
from saga.calibration.diagnostics.person_results import SeveralYears
from saga.calibration.diagnostics.sampling_bands import coverage_band
from saga.calibration.diagnostics.verdicts import (
    Verdict,
    publishable,
    status,
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
    calibrator = cases.calibrator
    for h, results in cases.results.items():
        cell, map_cell = calibrator.cells.get((h, ALL)), calibrator.fitted.map_cell(h)
        guarantees = results.frame["guarantee"].mode().sort().to_list()
        n = results.frame.height
        drift_term, _ = calibrator.drift.get((h, cases.headline), (None, 0))
        rows.append(
            {
                "horizon": h,
                "persons_map": _shown(map_cell.n_map if map_cell else 0, cases.min_persons),
                "persons_threshold": _shown(cell.n_threshold if cell else 0, cases.min_persons),
                "guarantee": guarantees[0] if guarantees else "none",
                "n": n if n >= cases.min_persons else None,
                "drift_term": drift_term,
            }
        )
    return rows


def _shown(n: int, least: int) -> int | None:
    """The number, or None if it is that of a few persons."""
    return n if n == 0 or n >= least else None


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
        of_everybody: list[Verdict] = []
        of_groups: list[Verdict] = []
        for (grouping, group), members in cases.members[h].items():
            alarm = QUESTION_ALPHA / (n_everybody if grouping == ALL else max(1, n_groups))
            part = None if members is None else results.frame[members]
            for coverage in cases.coverage:
                row, verdict = _judge_group(cases, part, h, coverage, alarm, (grouping, group))
                rows.append(row)
                (of_everybody if grouping == ALL else of_groups).append(verdict)
        verdicts.append(worst_verdict(of_everybody))
        if of_groups:
            verdicts.append(worst_verdict(of_groups))
    return rows, verdicts


def _judge_group(
    cases: Cases,
    part: pl.DataFrame | None,
    h: int,
    coverage: float,
    alarm: float,
    group: tuple[str, str],
) -> tuple[dict[str, Any], Verdict]:
    """The row of a group (`grouping`, `group`) at a horizon and coverage, and its verdict."""
    row: dict[str, Any] = {
        "horizon": h,
        "grouping": group[0],
        "group": group[1],
        "level": coverage,
        "status": "unclear",
    }
    question, name = ("coverage", None) if group[0] == ALL else ("groups", "=".join(group))
    label = percent_label(coverage)
    issued = None if part is None else part.filter(pl.col(f"inside_{label}").is_not_null())
    if issued is None or issued.height < cases.min_persons:
        return row, Verdict(question, h, "unclear", coverage=coverage, group=name)
    inside, under, over = (_mean(issued[f"{kind}_{label}"]) for kind in ("inside", "under", "over"))
    calibrated_on = cases.calibrated_on(h, *group)
    row |= _judge_share(question, inside, issued.height, coverage, calibrated_on, alarm)
    verdict = Verdict(question, h, row["status"], issued.height, inside - coverage, coverage, name)
    return row | {"under": under, "over": over}, verdict


def tabulate_several_years(
    cases: Cases, several_years: SeveralYears | None
) -> tuple[Rows, list[Verdict]]:
    """Coverage of path bands of K years, and of present values of K years."""
    if several_years is None:
        return [], []
    figures = list(several_years.inside)
    alarm = QUESTION_ALPHA / max(1, len(figures) * len(cases.coverage))
    rows: Rows = []
    verdicts: dict[int, list[Verdict]] = {}
    for kind, years in figures:
        fitted = cases.calibrator.thresholds_of_kind.get((kind, years))
        for j, coverage in enumerate(cases.coverage):
            column = several_years.inside[kind, years][:, j]
            hits = column[~np.isnan(column)]
            n = len(hits)
            row: dict[str, Any] = {
                "question": kind,
                "horizon": years,
                "level": coverage,
                "status": "unclear",
            }
            verdict = Verdict("together", years, "unclear", coverage=coverage, group=kind)
            if n >= cases.min_persons:
                share, calibrated_on = float(hits.mean()), fitted.n if fitted else None
                row |= _judge_share("together", share, n, coverage, calibrated_on, alarm)
                verdict = Verdict(
                    "together", years, row["status"], n, share - coverage, coverage, kind
                )
            rows.append(row)
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
        n, share = part.height, _mean(part[inside_column])
        target = float(np.maximum(part["p_zero"].to_numpy(), coverage).mean())
        row: dict[str, Any] = {"horizon": h, "level": coverage, "forced": target}
        row |= {"p_from": i / ZERO_BINS, "p_to": (i + 1) / ZERO_BINS}
        m = cases.calibrated_on(h)
        # With so few calibration persons a threshold has no rank: the band is then binomial.
        m = None if m is None or rank_needed(m, target) > m else m
        row |= _judge_share("zero_bins", share, n, target, m, QUESTION_ALPHA / len(parts))
        rows.append(row)
        group = f"{i / ZERO_BINS:.1f}-{(i + 1) / ZERO_BINS:.1f}"
        size = share - target
        verdicts[h].append(Verdict("zero_bins", h, row["status"], n, size, coverage, group))
    return rows, [
        worst_verdict(of_horizon or [Verdict("zero_bins", h, "unclear")])
        for h, of_horizon in verdicts.items()
    ]


def tabulate_periods(cases: Cases) -> tuple[Rows, list[Verdict]]:
    """Coverage of the 90 % intervals (or those of the highest coverage) by year of the outcome.

    Years are joined until a period has 100 persons.
    """
    coverage = cases.headline
    inside_column = f"inside_{percent_label(coverage)}"
    issued = {
        h: results.frame.filter(pl.col(inside_column).is_not_null())
        for h, results in cases.results.items()
    }
    fewest = max(MIN_PERIOD_PERSONS, cases.min_persons)
    periods = {h: join_years(frame["year"], fewest) for h, frame in issued.items()}
    alarm = QUESTION_ALPHA / max(1, sum(len(of_horizon) for of_horizon in periods.values()))
    rows: Rows = []
    verdicts: list[Verdict] = []
    for h, frame in issued.items():
        enough = frame.height >= cases.min_persons
        of_horizon = [] if enough else [Verdict("drift", h, "unclear")]
        for first, last in periods[h] if enough else []:
            inside = frame.filter(pl.col("year").is_between(first, last))[inside_column]
            n, share = len(inside), _mean(inside)
            row: dict[str, Any] = {"horizon": h, "first_year": first, "last_year": last}
            row |= _judge_share("drift", share, n, coverage, cases.calibrated_on(h), alarm)
            rows.append(row)
            period = str(first) if first == last else f"{first}-{last}"
            of_horizon.append(
                Verdict("drift", h, row["status"], n, share - coverage, coverage, period)
            )
        verdicts.append(worst_verdict(of_horizon))
    return rows, verdicts


def _mean(flags: pl.Series) -> float:
    return float(flags.cast(pl.Float64).mean())  # type: ignore[arg-type]


def _judge_share(
    question: str, share: float, n: int, coverage: float, calibrated_on: int | None, alarm: float
) -> dict[str, Any]:
    """Columns about a share inside; `alarm` is the probability of a false alarm."""
    lower, upper = coverage_band(coverage, n, calibrated_on, probability=1 - alarm)
    verdict = status(
        share, lower, upper, n, target=coverage, tolerance=QUESTIONS[question], mild_above=True
    )
    return {"n": n, "inside": share, "band_lower": lower, "band_upper": upper, "status": verdict}


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
