"""The calibration report: the diagnostics as one HTML page for policy analysts.

No figure is computed here. Styles, pictures and the tables to download are in the file; it loads
nothing from outside.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from saga.conformal.calibration_table import ALL, METHODS
from saga.conformal.calibrator import MIN_CELL_PERSONS, REASONS
from saga.data.panel import named_panel
from saga.diagnostics_tables import QUESTIONS, TABLES, Diagnostics
from saga.model_error import ModelError
from saga.pages.brief import Brief
from saga.pages.charts import coverage_chart, draw_charts
from saga.pages.format import listed, short_percent
from saga.pages.layout import render_page, write_page
from saga.pages.person import SMALL, coverage_labels, draw_person
from saga.pages.theme import draw_svg
from saga.pages.uses import decide_uses
from saga.schema import MAX_AGE
from saga.version import current_version

SUFFIXES = (".html", ".htm")
MISS = QUESTIONS["coverage"]  # too few inside by this much matters in practice
_FEW_ANSWERED = 0.25  # a report of which less can be answered is of one page
PERSON_HORIZONS = (1, 5, 10, 20)  # read out beside the picture of a person
STATUS_WORDS = {
    "holds": ("✓", "holds"),
    "unclear": ("?", "cannot tell"),
    "watch": ("!", "watch"),
    "fails": ("✗", "fails"),
}
QUESTION_TEXTS = {
    "sum": "Is the sum right?",
    "coverage": "Do the intervals cover as many persons as stated?",
    "groups": "Do they cover as stated in every group?",
    "together": "Do they cover as stated for several years together?",
    "shape": "Is the whole distribution right?",
    "mean_error": "Is the forecast right on average?",
    "zero": "Is the probability of no earnings right?",
    "low_pay": "Is the probability of low pay right?",
    "periods": "Did the intervals cover as stated in every period?",
    "zero_bins": "Do they cover as stated whatever the probability of no earnings?",
    "efficiency": "Do the intervals say more than simple rules?",
}
GROUPING_LABELS = {
    "quintile": "Past earnings",
    "sex": "Sex",
    "education_level": "Education",
    "age": "Age",
    "birth_region": "Born in",
    "county_type": "Lives in",
    "origin": "Last earnings",
    "profile": "Record",
}
REGION_LABELS = {
    "sweden": "Sweden",
    "europe": "Europe",
    "elsewhere": "the rest of the world",
    "metropolitan": "metropolitan counties",
    "north": "the north",
    "other": "other counties",
}
QUINTILE_LABELS = {
    "1": "lowest fifth",
    "2": "second fifth",
    "3": "middle fifth",
    "4": "fourth fifth",
    "5": "highest fifth",
}
SEVERAL_YEARS_LABELS = {
    "band": "All of the next years inside the path band",
    "present_value": "The present value of the next years inside its interval",
}
RULE_LABELS = {
    "saga": "SAGA",
    "last_year": "Same as last year",
    "group_quantiles": "Same age and quintile",
}
FACT_LABELS = {
    "bundle": "Bundle that was judged (sha256)",
    "final": "Whose results these are",
    "calibration": "Its calibration (sha256)",
    "calibration_method": "Method of its calibration",
    "code_version": "Written by version",
    "panel": "Panel",
    "people": "Persons of the panel",
    "trained_on": "Trained on panel",
    "persons": "Persons judged",
    "origins": "Forecast from years",
    "last_year": "Outcomes up to",
    "paths": "Simulated futures per person, for present values",
    "seed": "Seed",
    "scenario": "Macro futures",
    "rollout": "How futures are drawn",
    "precision": "Arithmetic of the futures",
    "currency": "Money in",
    "price_year": "Prices of",
    "economy": "Realised macro series of the years",
    "low_pay": "Low pay: below",
    "floor": "In logs, amounts below this count as this",
    "horizons": "Years ahead",
    "min_cell": "Fewest persons per figure",
    "alpha": "Probability of a false alarm",
    "facts": "Dated facts",
    "late_origins": "Warning",
}


# Sentences about the intervals for all persons together, by the status of their verdict; "holds"
# is divided by whether all coverages can be judged, "watch" by the side on which they are.
SHORT_ANSWERS = {
    "holds": "For all persons together, the intervals covered as many as stated {} ahead.",
    "partly": "For all persons together, those intervals that can be judged covered as many as "
    "stated {} ahead; the other coverages rest on too few persons.",
    "fewer": "For all persons together, {} ahead a little fewer persons than stated were inside.",
    "more": "For all persons together, {} ahead more persons than stated were inside: the "
    "intervals are wider than necessary.",
    "fails": "For all persons together, the intervals did not cover as many as stated {} ahead: do "
    "not rely on them there.",
    "unclear": "Too few persons could be followed {} ahead to tell.",
}


def write_report(
    diagnostics: Diagnostics,
    out: str | Path,
    *,
    bundle: str | None = None,
    vintages: pl.DataFrame | None = None,
) -> Path:
    """Write the report to `out`, whole or not at all.

    `bundle`: digest of the bundle that contains the diagnostics; `vintages`: those of the bundle.
    """
    return write_page(Path(out), render_report(diagnostics, bundle=bundle, vintages=vintages))


def render_report(
    diagnostics: Diagnostics, *, bundle: str | None = None, vintages: pl.DataFrame | None = None
) -> str:
    """The page as HTML. The same tables give the same bytes."""
    tables, record = diagnostics.tables, diagnostics.provenance
    horizons = tables["verdicts"]["horizon"].unique().sort().to_list()
    coverages = tables["coverage"]["coverage"].unique().sort().to_list()
    headline, verdicts = _headline(tables), _verdicts(tables)
    everybody = pl.col("grouping") == ALL
    answered = {question for (question, _), row in verdicts.items() if row["status"] != "unclear"}
    labels = label_groups(tables["coverage"].filter(~everybody))
    unit = _unit(record)
    use_horizon, uses = decide_uses(tables, headline, unit, simulated=bool(record.get("people")))
    return render_page(
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
            "answered": answered,
            "is_small": _is_small(verdicts),
            "short_answers": _short_answers(verdicts, horizons),
            "known": _what_is_known(tables, headline),
            "miss": MISS,
            "years_ahead": years_ahead,
            "concerns": _list_concerns(verdicts, labels),
            "coverage": _by_group_and_horizon(tables["coverage"], headline),
            "widths": _by_group_and_horizon(tables["widths"], headline),
            "labels": labels,
            "tables": {name: table.to_dicts() for name, table in tables.items()},
            "overall": tables["coverage"].filter(everybody).to_dicts(),
            "reasons": REASONS,
            "few": MIN_CELL_PERSONS,
            "several": SEVERAL_YEARS_LABELS,
            "rules": RULE_LABELS,
            "people": _describe_people(tables["people"]),
            "drawn": coverage_labels(tables["people"]),
            "columns": TABLES,
            "sums": [row for row in tables["sums"].to_dicts() if row["grouping"] == ALL],
            "vintages": None if vintages is None else ModelError.fit(vintages).describe(),
            "pictures": draw_charts(
                tables if vintages is None else {**tables, "vintages": vintages},
                headline,
                labels,
                RULE_LABELS,
                unit,
            ),
            "downloads": {name: _csv_link(table) for name, table in tables.items()},
            "record": record,
            "panel": named_panel(record.get("panel", "?")),
            "provenance": {
                FACT_LABELS.get(name, name): METHODS.get(text, text)  # type: ignore[call-overload]
                for name, text in record.items()
            },
            "holder": bundle if bundle != record.get("bundle") else None,
            "version": current_version(),
            "unit": unit,
        },
    )


def make_brief(diagnostics: Diagnostics, *, bundle: str | None = None) -> Brief:
    """The report on one page: its uses, its short answers and the picture of the coverage."""
    tables, record = diagnostics.tables, diagnostics.provenance
    headline, verdicts = _headline(tables), _verdicts(tables)
    horizons = tables["verdicts"]["horizon"].unique().sort().to_list()
    _, uses = decide_uses(tables, headline, _unit(record), simulated=bool(record.get("people")))
    known = [
        row
        for row in _what_is_known(tables, headline)
        if row["needed"] and verdicts["coverage", row["horizon"]]["status"] == "unclear"
    ]
    shown = tables["coverage"].filter(grouping=ALL).drop_nulls("inside")
    digest = record.get("bundle", "-")
    # A bundle that is published again with its results has another digest.
    judged = f", whose model and calibration are those of {digest[:12]}"
    holder = f"{(bundle or digest)[:12]}{judged if bundle not in (None, digest) else ''}"
    n_persons = f"{int(record['persons']):,}" if record.get("persons") else "the"
    people = f"{record['people']}. " if record.get("people") else ""
    answers = [text for _, text in _short_answers(verdicts, horizons)]
    if known:
        answers.append(
            f"{years_ahead([row['horizon'] for row in known])} ahead "
            f"{listed(format(row['n'], ',') for row in known)} persons were judged; about "
            f"{max(row['needed'] for row in known):,} would show that {short_percent(MISS)} "
            "too few are inside."
        )
    if _is_small(verdicts):
        # A bundle of folds trains and calibrates on all persons already.
        train = "; saga train --folds 5 trains and calibrates on all of them"
        is_of_folds = record.get("calibration_method") == "cv+"
        answers.append(
            "What to do next: saga evaluate --folds 5 judges each person once"
            f"{'' if is_of_folds else train}."
        )
    return Brief(
        title="Can these forecasts be trusted?",
        about=f"{people}Calibration report of the bundle {holder}. It was judged on "
        f"{n_persons} test persons of {named_panel(record.get('panel', '?'))}; "
        f"outcomes up to {record.get('last_year', '?')}. Amounts in {_unit(record)}.",
        uses=uses,
        answers=answers,
        chart=coverage_chart(shown) if len(shown) else None,
        caption="Share of persons inside the intervals by years ahead. Each mark should lie in its "
        "grey bar, where chance would put it; the dashed line is the stated coverage.",
        source=f"SAGA {current_version()}. Judged: bundle {digest}, calibration "
        f"{record.get('calibration', '-')}, seed {record.get('seed', '-')}. The whole report: saga "
        "report.",
    )


def _headline(tables: Mapping[str, pl.DataFrame]) -> float:
    """The coverage of the intervals that are named."""
    coverages = tables["coverage"]["coverage"].unique().to_list()
    return 0.9 if 0.9 in coverages else max(coverages)


def _verdicts(tables: Mapping[str, pl.DataFrame]) -> dict[tuple[str, int], dict[str, Any]]:
    """(Question, horizon) -> its verdict."""
    rows = tables["verdicts"].iter_rows(named=True)
    return {(row["question"], row["horizon"]): row for row in rows}


def _is_small(verdicts: Mapping[tuple[str, int], Mapping[str, Any]]) -> bool:
    """Whether the persons judged are so few that little can be answered."""
    answered = [row for row in verdicts.values() if row["status"] != "unclear"]
    return len(answered) < _FEW_ANSWERED * len(verdicts)


def years_ahead(horizons: Sequence[int]) -> str:
    """[1] -> "1 year", [1, 5, 10] -> "1, 5 and 10 years"."""
    text = listed(map(str, horizons))
    return f"{text} year{'' if text == '1' else 's'}"


def _unit(record: Mapping[str, str]) -> str:
    """The unit of money of the results."""
    return f"{record.get('currency', '')} a year, prices of {record.get('price_year', '')}".strip()


def _short_answers(
    verdicts: Mapping[tuple[str, int], Mapping[str, Any]], horizons: Sequence[int]
) -> list[tuple[str, str]]:
    """Status and sentence about the intervals for everyone."""
    of_sentence: dict[str, list[int]] = {name: [] for name in SHORT_ANSWERS}
    for h in horizons:
        row = verdicts["coverage", h]
        name = row["status"]
        if name == "watch":
            name = "more" if row["size"] > 0 else "fewer"
        elif name == "holds" and row["judged"] and row["judged"] < row["figures"]:
            name = "partly"
        of_sentence[name].append(h)
    return [
        (verdicts["coverage", ahead[0]]["status"], SHORT_ANSWERS[name].format(years_ahead(ahead)))
        for name, ahead in of_sentence.items()
        if ahead
    ]


def _what_is_known(tables: Mapping[str, pl.DataFrame], headline: float) -> list[dict[str, Any]]:
    """What the persons judged can tell, by years ahead.

    `n` were judged; `coverage` is that of the widest intervals that there are, up to the headline;
    a coverage of `lower` or more cannot be told from it; about `needed` persons would show a
    coverage of `MISS` less. The reach of a sampling band goes with the root of the number of
    persons, if those that calibrate grow with it.
    """
    has_intervals = (pl.col("grouping") == ALL) & (pl.col("coverage") <= headline)
    widest = (
        tables["coverage"]
        .filter(has_intervals)
        .drop_nulls("band_lower")
        .sort("coverage")
        .group_by("horizon", maintain_order=True)
        .last()
        .select("horizon", "coverage", lower="band_lower")
    )
    judged = tables["guarantees"].select("horizon", "n", "guarantee").sort("horizon")
    known = []
    for row in judged.join(widest, on="horizon", how="left", maintain_order="left").to_dicts():
        reach = row["coverage"] - row["lower"] if row["coverage"] else 0.0
        needed = (row["n"] or 0) * (reach / MISS) ** 2
        too_few = needed > (row["n"] or 0)
        known.append({**row, "needed": int(float(f"{needed:.1g}")) if too_few else None})
    return known


def _csv_link(table: pl.DataFrame) -> str:
    """A table as a CSV link that needs no server."""
    text = base64.b64encode(table.write_csv().encode()).decode()
    return f"data:text/csv;charset=utf-8;base64,{text}"


def _by_group_and_horizon(table: pl.DataFrame, coverage: float) -> dict[Any, dict[str, Any]]:
    """(Grouping, group, horizon) -> the row at this coverage."""
    rows = table.filter(coverage=coverage).to_dicts()
    return {(row["grouping"], row["group"], row["horizon"]): row for row in rows}


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


def _describe_people(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Each example person: facts for the caption, years ahead that are read out, the picture."""
    people = []
    ends = {
        f"{old}_{label}": f"{new}_{label}"
        for label in coverage_labels(table)
        for old, new in (("lower", "from"), ("upper", "to"))
    }
    for (number,), rows in table.partition_by("person", as_dict=True, maintain_order=True).items():
        ahead = rows.drop_nulls("horizon")
        record = rows.filter(pl.col("horizon").is_null())
        known = record.drop_nulls("earnings")
        last, kind = known.row(-1, named=True), rows["kind"][0]
        alt_text = (
            f"Example {number}: {kind.lower()}, age {last['age']}. Past earnings; by year ahead "
            "the median, the intervals that there are and the chance of no earnings."
        )
        people.append(
            {
                "number": number,
                "kind": kind,
                "last": last,
                "years": record.height,
                "zeros": known.filter(earnings=0).height,
                "ahead": ahead.filter(pl.col("horizon").is_in(PERSON_HORIZONS)).to_dicts(),
                "picture": draw_svg(draw_person(rows.rename(ends), "", SMALL), alt_text),
            }
        )
    return people


def label_groups(coverage: pl.DataFrame) -> dict[tuple[str, str], str]:
    """(Grouping, group) -> its label, in the order of the table."""
    pairs = coverage.select("grouping", "group").unique(maintain_order=True).iter_rows()
    order = {grouping: i for i, grouping in enumerate(GROUPING_LABELS)}
    ordered = sorted(pairs, key=lambda pair: order.get(pair[0], len(order)))
    return {
        pair: f"{GROUPING_LABELS.get(pair[0], pair[0])}: {_group_text(*pair)}" for pair in ordered
    }


def _group_text(grouping: str, group: str) -> str:
    if grouping == "quintile":
        return QUINTILE_LABELS.get(group, group)
    if grouping == "age" and "-" in group:
        first, last = group.split("-")
        return f"{first}-{min(int(last), MAX_AGE)}"
    if grouping == "origin":
        return {"zero": "none", "positive": "some"}.get(group, group)
    return REGION_LABELS.get(group, group.replace("_", " "))
