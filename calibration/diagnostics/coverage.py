"""Whether intervals hold what they promise: tables of the share of persons inside, by group, over several years, and by period."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from calibration.diagnostics.cases import SHARE, Cases, Rows
from calibration.diagnostics.person_results import Together
from calibration.diagnostics.sampling_bands import coverage_band
from calibration.diagnostics.verdicts import QUESTIONS, Light, status, worst
from saga.conformal.calibrator import ALL
from saga.forecast_tables import percent_label

PERIOD = (
    100  # persons that a period of the drift table has at least: years are joined until it does
)


def promise(cases: Cases) -> Rows:
    """What each horizon rests on: persons behind its map and its threshold, its guarantee, persons judged."""
    rows: Rows = []
    for h, case in cases.judged.items():
        own, mapped, n = (
            cases.calibrator.cells.get((h, ALL)),
            cases.calibrator.map_cell(h),
            case.frame.height,
        )
        promised = case.frame["guarantee"].mode().sort().to_list()
        row = {
            "horizon": h,
            "persons_map": mapped.map_n if mapped else 0,
            "persons_threshold": own.n if own else 0,
        }
        rows.append(
            {
                **row,
                "guarantee": promised[0] if promised else "none",
                "n": n if n >= cases.min_cell else None,
            }
        )
    return rows


def coverage(cases: Cases) -> tuple[Rows, list[Light]]:
    """Everybody at all levels is one question, the groups are another: each shares its alarm among its own figures."""
    everybody = len(cases.judged) * len(cases.levels)
    grouped = max(1, sum(len(cells) - 1 for cells in cases.cells.values()) * len(cases.levels))
    rows: Rows = []
    lights: list[Light] = []
    for h, case in cases.judged.items():
        own: list[Light] = []
        theirs: list[Light] = []
        for (grouping, group), rows_of in cases.cells[h].items():
            alarm = SHARE / (everybody if grouping == ALL else grouped)
            part = None if rows_of is None else case.frame[rows_of]
            for level in cases.levels:
                row, light = _covered(cases, part, h, level, alarm, grouping, group)
                rows.append(row)
                (own if grouping == ALL else theirs).append(light)
        lights.append(worst(own))
        if theirs:
            lights.append(worst(theirs))
    return rows, lights


def _covered(
    cases: Cases,
    part: pl.DataFrame | None,
    h: int,
    level: float,
    alarm: float,
    grouping: str,
    group: str,
) -> tuple[dict[str, Any], Light]:
    row: dict[str, Any] = {
        "horizon": h,
        "grouping": grouping,
        "group": group,
        "level": level,
        "status": "unclear",
    }
    question, who = ("coverage", None) if grouping == ALL else ("groups", f"{grouping}={group}")
    name = percent_label(level)
    given = None if part is None else part.filter(pl.col(f"inside_{name}").is_not_null())
    if given is None or given.height < cases.min_cell:
        return row, Light(question, h, "unclear", level=level, group=who)
    inside, under, over = (_share(given[f"{kind}_{name}"]) for kind in ("inside", "under", "over"))
    row |= _verdict(
        question, inside, given.height, level, cases.calibrated_on(h, grouping, group), alarm
    )
    return row | {"under": under, "over": over}, Light(
        question, h, row["status"], given.height, inside - level, level, who
    )


def together(cases: Cases, found: Together | None) -> tuple[Rows, list[Light]]:
    """Share of persons whose outcomes of the next K years all lie in their band, and whose present value of K years in its interval."""
    if found is None:
        return [], []
    cells = [(kind, h) for kind in found.inside for h in cases.judged if h > 1]
    rows: Rows = []
    lights: dict[int, list[Light]] = {}
    for kind, years in cells:
        for j, level in enumerate(cases.levels):
            column = found.inside[kind][:, years - 1, j]
            hits = column[~np.isnan(column)]
            n, cuts = len(hits), cases.calibrator.thresholds_of_kind.get((kind, years))
            row: dict[str, Any] = {
                "question": kind,
                "horizon": years,
                "level": level,
                "status": "unclear",
            }
            light = Light("together", years, "unclear", level=level, group=kind)
            if n >= cases.min_cell:
                alarm, share = SHARE / (len(cells) * len(cases.levels)), float(hits.mean())
                row |= _verdict("together", share, n, level, cuts.n if cuts else None, alarm)
                light = Light("together", years, row["status"], n, share - level, level, kind)
            rows.append(row)
            lights.setdefault(years, []).append(light)
    return rows, [worst(own) for own in lights.values()]


def drift(cases: Cases) -> tuple[Rows, list[Light]]:
    """Coverage of the 90 % (or highest) intervals by the year of the outcome; years are joined until a period has 100 persons."""
    level = 0.9 if 0.9 in cases.levels else cases.levels[-1]
    name = percent_label(level)
    given = {
        h: case.frame.filter(pl.col(f"inside_{name}").is_not_null())
        for h, case in cases.judged.items()
    }
    periods = {
        h: joined_years(frame["year"], max(PERIOD, cases.min_cell)) for h, frame in given.items()
    }
    alarm = SHARE / max(1, sum(len(found) for found in periods.values()))
    rows: Rows = []
    lights: list[Light] = []
    for h, frame in given.items():
        own = [Light("drift", h, "unclear")] if frame.height < cases.min_cell else []
        for first, last in periods[h] if frame.height >= cases.min_cell else []:
            inside = frame.filter(pl.col("year").is_between(first, last))[f"inside_{name}"]
            n, share = len(inside), _share(inside)
            row: dict[str, Any] = {"horizon": h, "first_year": first, "last_year": last}
            row |= _verdict("drift", share, n, level, cases.calibrated_on(h), alarm)
            rows.append(row)
            when = str(first) if first == last else f"{first}-{last}"
            own.append(Light("drift", h, row["status"], n, share - level, level, when))
        lights.append(worst(own))
    return rows, lights


def _share(hits: pl.Series) -> float:
    return float(hits.cast(pl.Float64).mean())  # type: ignore[arg-type]


def _verdict(
    question: str, share: float, n: int, level: float, calibrated_on: int | None, alarm: float
) -> dict[str, Any]:
    """The columns that say whether a share inside of `n` persons is what `level` promises, with probability `alarm` of a false alarm."""
    lower, upper = coverage_band(level, n, calibrated_on, probability=1 - alarm)
    found = status(
        share, lower, upper, n, target=level, tolerance=QUESTIONS[question], too_much_is_mild=True
    )
    return {"n": n, "inside": share, "band_lower": lower, "band_upper": upper, "status": found}


def joined_years(years: pl.Series, least: int) -> list[tuple[int, int]]:
    """Consecutive years joined until each period has `least` persons; a rest that is too small joins the period before it."""
    periods: list[tuple[int, int]] = []
    first, held = None, 0
    for year, n in years.alias("year").value_counts().sort("year").iter_rows():
        first, held = year if first is None else first, held + n
        if held >= least:
            periods.append((first, year))
            first, held = None, 0
    if first is not None:
        start = periods.pop()[0] if periods else first
        periods.append((start, int(years.max())))  # type: ignore[arg-type]
    return periods
