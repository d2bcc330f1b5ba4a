"""The calibration report: the diagnostics as one HTML page for policy analysts.

No figure is computed here. Styles, pictures and the tables to download are in the file; it loads
nothing from outside.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from saga.calibration.diagnostics.diagnosis import Diagnostics
from saga.calibration.diagnostics.person_results import headline_coverage
from saga.calibration.diagnostics.report_labels import (
    FACT_LABELS,
    QUESTION_TEXTS,
    QUINTILE_LABELS,
    RULE_LABELS,
    SCORE_LABELS,
    SEVERAL_YEARS_LABELS,
    STATUS_WORDS,
    label_groups,
)
from saga.calibration.diagnostics.report_pictures import draw_pictures
from saga.calibration.diagnostics.table_columns import TABLES
from saga.calibration.diagnostics.uses import decide_uses
from saga.calibration.diagnostics.verdicts import QUESTIONS

from saga.bundle import Bundle
from saga.conformal.calibration_table import ALL, METHODS
from saga.conformal.calibrator import MIN_CELL_PERSONS, REASONS
from saga.errors import Problem, UsageError
from saga.files.atomic import commit
from saga.files.html import render_page
from saga.files.plot_theme import draw_svg
from saga.pictures.person_chart import SMALL, draw_person
from saga.pictures.person_sentences import about, set_text
from saga.version import current_version

SUFFIXES = (".html", ".htm")
PERSON_HORIZONS = (1, 5, 10, 20)  # read out beside the picture of a person
NOT_SHOWN = "-"  # figures that are hidden or unknown


def stored_diagnostics(bundle: Bundle) -> Diagnostics:
    """The diagnostics inside a bundle.

    Raises UsageError, with the command that computes them, if there are none.
    """
    if bundle.diagnostics is None:
        fix = (
            "Run `saga report BUNDLE --panel DIR --store --out FILE.html` on a panel with outcomes."
        )
        missing = Problem(
            "no-diagnostics", "Its forecasts were not judged since it was calibrated", fix
        )
        raise UsageError("The bundle contains no diagnostics to report.", [missing])
    return Diagnostics.from_table(bundle.diagnostics)


def write_report(diagnostics: Diagnostics, out: str | Path, *, bundle: str | None = None) -> Path:
    """Write the report to `out`, whole or not at all.

    `bundle`: digest of the bundle that contains the diagnostics.
    """
    out = Path(out)
    commit(out, lambda part: part.write_text(render(diagnostics, bundle=bundle), encoding="utf-8"))
    return out


def render(diagnostics: Diagnostics, *, bundle: str | None = None) -> str:
    """The page as HTML. The same tables give the same bytes."""
    tables, record = diagnostics.tables, diagnostics.provenance
    horizons = tables["lights"]["horizon"].unique().sort().to_list()
    coverages = tables["coverage"]["level"].unique().sort().to_list()
    headline = headline_coverage(coverages)
    everybody = pl.col("grouping") == ALL
    verdicts = {
        (row["question"], row["horizon"]): row for row in tables["lights"].iter_rows(named=True)
    }
    labels = label_groups(tables["coverage"].filter(~everybody))
    use_horizon, uses = decide_uses(tables, headline, simulated=bool(record.get("people")))
    unit = f"{record.get('currency', '')} a year, prices of {record.get('price_year', '')}".strip()
    return render_page(
        "saga.calibration.diagnostics",
        "report.html",
        {
            "words": STATUS_WORDS,
            "uses": uses,
            "use_horizon": use_horizon,
            "questions": {
                question: QUESTION_TEXTS[question]
                for question in QUESTIONS
                if any(q == question for q, _ in verdicts)
            },
            "tolerances": QUESTIONS,
            "horizons": horizons,
            "coverages": coverages,
            "headline": headline,
            "verdicts": verdicts,
            "by_status": _horizons_by_status(verdicts, horizons),
            "concerns": _list_concerns(verdicts, labels),
            "coverage": _by_group_and_horizon(tables["coverage"], headline),
            "widths": _by_group_and_horizon(tables["widths"], headline),
            "labels": labels,
            "tables": {name: table.to_dicts() for name, table in tables.items()},
            "overall": tables["coverage"].filter(everybody).to_dicts(),
            "reasons": REASONS,
            "few": MIN_CELL_PERSONS,
            "scores": SCORE_LABELS,
            "several": SEVERAL_YEARS_LABELS,
            "rules": RULE_LABELS,
            "people": _describe_people(tables["people"]),
            "adaptive": _describe_adaptive_state(tables, headline),
            "columns": TABLES,
            "pictures": draw_pictures(tables, headline, labels, unit),
            "downloads": {name: _csv_link(table) for name, table in tables.items()},
            "record": record,
            "provenance": {
                FACT_LABELS.get(name, name): METHODS.get(text, text)  # type: ignore[call-overload]
                for name, text in record.items()
            },
            "holder": bundle if bundle != record.get("bundle") else None,
            "version": current_version(),
            "unit": unit,
        },
        _FILTERS,
    )


def _csv_link(table: pl.DataFrame) -> str:
    """A table as a CSV link that needs no server."""
    text = base64.b64encode(table.write_csv().encode()).decode()
    return f"data:text/csv;charset=utf-8;base64,{text}"


def percent(value: float | None, digits: int = 1) -> str:
    """0.898 -> "89.8 %"; a dash without a value."""
    return NOT_SHOWN if value is None else f"{100 * value:.{digits}f} %"


def gap(value: float | None, digits: int = 1) -> str:
    """A difference of shares without its sign: 0.02 -> "2.0 percentage points"."""
    return NOT_SHOWN if value is None else f"{abs(100 * value):.{digits}f} percentage points"


def relative(value: float | None) -> str:
    """A difference of logarithms as a share, without its sign: 0.1 -> "10.5 %"."""
    return NOT_SHOWN if value is None else percent(abs(math.expm1(value)))


def money(value: float | None) -> str:
    """An amount with thousands separated."""
    return NOT_SHOWN if value is None else f"{value:,.0f}"


def number(value: float | None, digits: int = 3) -> str:
    """A plain number."""
    return NOT_SHOWN if value is None else f"{value:.{digits}f}"


def count(value: int | None, min_persons: str | int = "") -> str:
    """A number of persons; "fewer than 10" if it is not shown."""
    return f"fewer than {min_persons}" if value is None else f"{value:,}"


_FILTERS: dict[str, Callable[..., str]] = {  # of the template
    "pct": percent,
    "gap": gap,
    "relative": relative,
    "money": money,
    "about": about,
    "set_text": set_text,
    "number": number,
    "count": count,
}


def _by_group_and_horizon(table: pl.DataFrame, coverage: float) -> dict[Any, dict[str, Any]]:
    """(Grouping, group, horizon) -> the row at this coverage."""
    rows = table.filter(level=coverage).to_dicts()
    return {(row["grouping"], row["group"], row["horizon"]): row for row in rows}


def _horizons_by_status(
    verdicts: Mapping[tuple[str, int], Mapping[str, Any]], horizons: Sequence[int]
) -> dict[str, list[int]]:
    """Status of the first question -> the horizons that have it."""
    by_status: dict[str, list[int]] = {name: [] for name in STATUS_WORDS}
    for h in horizons:
        by_status[verdicts["coverage", h]["status"]].append(h)
    return by_status


def _list_concerns(
    verdicts: Mapping[tuple[str, int], Mapping[str, Any]], labels: Mapping[tuple[str, str], str]
) -> list[dict[str, Any]]:
    """Verdicts "fails" and "watch", in this order, with the group in words."""
    group_labels = {f"{grouping}={group}": label for (grouping, group), label in labels.items()}
    concerns = [
        {**row, "where": group_labels.get(row["group"] or "", row["group"])}
        for row in verdicts.values()
        if row["status"] in ("fails", "watch")
    ]
    return sorted(
        concerns,
        key=lambda row: (
            row["status"] != "fails",
            list(QUESTIONS).index(row["question"]),
            row["horizon"],
        ),
    )


def _describe_adaptive_state(
    tables: Mapping[str, pl.DataFrame], headline: float
) -> list[dict[str, Any]]:
    """Rows of the adaptive state at the headline coverage, with the group in words."""
    rows = tables["adaptive"].filter(level=headline).to_dicts()
    is_everybody = {row["group"] for row in rows} == {ALL}
    names = {f"quintile={q}": f"Past earnings: {label}" for q, label in QUINTILE_LABELS.items()}
    names[ALL] = "Everyone" if is_everybody else "Everyone else"
    return [
        {**row, "persons": names.get(row["group"], row["group"].replace("=", " "))} for row in rows
    ]


def _describe_people(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Each example person: facts for the caption, years ahead that are read out, the picture."""
    people = []
    for (number,), rows in table.partition_by("person", as_dict=True, maintain_order=True).items():
        ahead = rows.drop_nulls("horizon")
        record = rows.filter(pl.col("horizon").is_null())
        known = record.drop_nulls("earnings")
        last, kind = known.row(-1, named=True), rows["kind"][0]
        alt_text = (
            f"Example {number}: {kind.lower()}, age {last['age']}. Past earnings; by year ahead "
            "the median, the 50, 80 and 90 % intervals and the probability of no earnings."
        )
        people.append(
            {
                "number": number,
                "kind": kind,
                "last": last,
                "years": record.height,
                "zeros": known.filter(earnings=0).height,
                "ahead": ahead.filter(pl.col("horizon").is_in(PERSON_HORIZONS)).to_dicts(),
                "picture": draw_svg(draw_person(rows, "", SMALL), alt_text),
            }
        )
    return people
