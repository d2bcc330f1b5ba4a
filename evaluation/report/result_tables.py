"""The metrics table as tables to read, and tables as Markdown or one self-contained HTML page. Nothing is computed here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, select_autoescape

from evaluation.scoring.comparison import REFEREE, VARIANT
from evaluation.scoring.gap import BOUND, GAP, select_reference
from evaluation.scoring.metrics import SCORES
from saga.requests import COVERAGE

MONEY = ("crps_sek", "interval_90", "width_90")
COVERAGE_METRICS = tuple(f"coverage_{round(100 * nominal)}" for nominal in COVERAGE)
MEANING = {
    "in-time": "Origins and outcomes inside the panel's years, one drawn origin a test person; ± is the standard error, clustered "
    "by person. Long horizons rest on few origin years.",
    "forward": "Origins in the panel's last year, outcomes in the register's drawn macro futures; ± is the standard error of the mean over "
    "futures. A single future may lie further off: `sd_futures` in the metrics table.",
    "forward, observed": "Origins in the last year that fitting saw, outcomes in the panel's later years; ± is the standard error, "
    "clustered by person. It is one macro future: another would have given other figures.",
}


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table. `best`: the lowest of our models in its row; `alarm`: outside its sampling band."""

    text: str
    best: bool = False
    alarm: bool = False
    published: bool = False


@dataclass(frozen=True)
class Table:
    """A title, a note, the heads of the columns and rows of cells."""

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]] = field(default_factory=list)


@cache
def published() -> dict[str, Any]:
    """The paper's figures with label, source and note: `evaluation/published.json`."""
    text = (Path(__file__).parent / "published.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def build_tables(metrics: pl.DataFrame) -> list[Table]:
    """Accuracy, coverage and group tables of every setting in a metrics table (columns of `evaluation.scoring.metrics.COLUMNS`)."""
    models = ordered(metrics["model"].unique().to_list())
    tables = []
    for setting in metrics["setting"].unique().sort(descending=True).to_list():
        rows = metrics.filter(pl.col("setting") == setting)
        found = {
            (r["metric"], r["horizon"], r["group"], r["model"]): r
            for r in rows.iter_rows(named=True)
        }
        horizons = rows["horizon"].unique().sort().to_list()
        groups = [g for g in rows["group"].unique(maintain_order=True).to_list() if g != "all"]
        tables.append(_accuracy(setting, found, horizons, models))
        tables.append(_coverage(setting, found, horizons, models))
        tables.append(_gap(setting, found, horizons, models))
        for metric, name in (
            ("crps_log", "CRPS of log earnings"),
            ("coverage_90", "Coverage of 90 % sets"),
        ):
            tables.append(
                _by_group(f"{name} by group, {setting}", metric, found, horizons, groups, models)
            )
    return [table for table in tables if table.rows]


def to_markdown(tables: Iterable[Table]) -> str:
    """GitHub tables; the best of a row is bold, coverage outside its band is marked with !."""
    parts = []
    for table in tables:
        lines = [_line(table.head), _line(["---"] * len(table.head))]
        lines += [_line(_marked(cell) for cell in row) for row in table.rows]
        parts.append(f"## {table.title}\n\n{table.note}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def to_html(
    tables: Iterable[Table], provenance: Mapping[str, Any], charts: Sequence[tuple[str, str]] = ()
) -> str:
    """One page without any outside resource; `charts` are titles with SVG text, shown first."""
    environment = Environment(
        loader=PackageLoader("evaluation.report", "."),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("tables.html")
    return template.render(
        tables=list(tables), charts=charts, provenance=provenance, published=published()
    )


def ordered(names: Iterable[str]) -> list[str]:
    """Models as columns stand: saga first, the bound last, its variants nowhere."""
    return sorted(
        (n for n in names if not n.startswith(VARIANT)),
        key=lambda name: (name != REFEREE, name == BOUND, name),
    )


def heading(name: str) -> str:
    """A model's name as the head of a column."""
    return f"{name} (bound)" if name == BOUND else name


def _accuracy(
    setting: str, found: Mapping[Any, Any], horizons: Sequence[int], models: Sequence[str]
) -> Table:
    shown = (*SCORES, "coverage_90")
    figures = {
        (f["metric"], f["horizon"], f["model"]): f["value"]
        for f in published()["figures"]
        if f["group"] == "all" and f["metric"] in shown and f["horizon"] in horizons
    }
    theirs = list(dict.fromkeys(model for _, _, model in figures))
    rows = []
    for metric in shown:
        for h in horizons:
            ours = _row(metric, h, "all", found, models, se=True)
            cells = [
                Cell(_text(metric, figures.get((metric, h, model))), published=True)
                for model in theirs
            ]
            count = max(
                (found[metric, h, "all", m]["n"] for m in models if (metric, h, "all", m) in found),
                default=0,
            )
            rows.append([Cell(metric), Cell(str(h)), Cell(f"{count:,}"), *ours, *cells])
    head = [
        "metric",
        "h",
        "n",
        *_heads(models),
        *(f"{model} ({published()['label']})" for model in theirs),
    ]
    observed = setting == "forward" and all(row["sd_futures"] is None for row in found.values())
    note = MEANING.get("forward, observed" if observed else setting, "")
    note += " Lower is better except for coverage. Money is real, in the panel's currency."
    if BOUND in models:
        note += f" {BOUND} knows the register's law and everybody's hidden state, which no record contains: a bound, not attainable."
    return Table(f"Accuracy, {setting}", note, head, rows)


def _coverage(
    setting: str, found: Mapping[Any, Any], horizons: Sequence[int], models: Sequence[str]
) -> Table:
    rows = []
    for metric in COVERAGE_METRICS:
        figure = next(
            (
                f["value"]
                for f in published()["figures"]
                if f["metric"] == metric and f["group"] == "all" and not f["horizon"]
            ),
            None,
        )
        for h in horizons:
            band = found.get((metric, h, "all", "saga" if "saga" in models else models[0]), {})
            limits = (
                f"{100 * band['band_lower']:.1f}-{100 * band['band_upper']:.1f}"
                if band.get("band_lower") is not None
                else ""
            )
            ours = _row(metric, h, "all", found, models, se=True)
            rows.append(
                [
                    Cell(metric),
                    Cell(str(h)),
                    *ours,
                    Cell(limits),
                    Cell(_text(metric, figure), published=True),
                ]
            )
    note = (
        "Share of outcomes (%) inside sets of the stated level. The band is where 95 % of calibrated forecasters of this many persons "
        "fall; ! marks a share outside its own band."
    )
    if setting == "in-time":
        note += " Guarantee of saga's sets here: finite-sample (persons drawn as the calibration persons were, in the same years)."
    head = [
        "metric",
        "h",
        *_heads(models),
        f"band ({'saga' if 'saga' in models else models[0]})",
        f"saga ({published()['label']})",
    ]
    return Table(f"Coverage, {setting}", note, head, rows)


def _by_group(
    title: str,
    metric: str,
    found: Mapping[Any, Any],
    horizons: Sequence[int],
    groups: Sequence[str],
    models: Sequence[str],
) -> Table:
    rows = []
    for group in groups:
        for h in horizons:
            if any((metric, h, group, model) in found for model in models):
                rows.append(
                    [Cell(group), Cell(str(h)), *_row(metric, h, group, found, models, se=True)]
                )
    return Table(title, "Groups are known at the origin; quintiles rank mean earnings of the last 5 years by age and period.",
                 ["group", "h", *_heads(models)], rows)  # fmt: skip


def _gap(
    setting: str, found: Mapping[Any, Any], horizons: Sequence[int], models: Sequence[str]
) -> Table:
    begin = select_reference(set(models))
    judged = [model for model in models if model not in (begin, BOUND)]
    measured = [h for h in horizons if any((GAP, h, "all", model) in found for model in judged)]
    rows = [[Cell(str(h)), *_row(GAP, h, "all", found, judged, se=True)] for h in measured]
    note = f"In CRPS of log earnings: 0 is as good as {begin}, 100 as good as {BOUND}, which nobody can be; ± is the standard error."
    return Table(f"Share of the gap closed (%), {setting}", note, ["h", *judged], rows)


def _row(
    metric: str,
    horizon: int,
    group: str,
    found: Mapping[Any, Any],
    models: Sequence[str],
    *,
    se: bool,
) -> list[Cell]:
    entries = [found.get((metric, horizon, group, model)) for model in models]
    values = [e["value"] for e in entries if e and e["value"] is not None and e["model"] != BOUND]
    lowest = min(values) if values and metric in SCORES and metric != "width_90" else None
    cells = []
    for entry in entries:
        if not entry or entry["value"] is None:
            scored = entry and (found.get(("crps_log", horizon, group, entry["model"])) or {}).get(
                "n"
            )
            cells.append(Cell("" if not entry else "no interval" if scored else "no outcome"))
            continue
        error = f" ± {_text(metric, entry['se'])}" if se and entry["se"] is not None else ""
        outside = (
            entry["band_lower"] is not None
            and not entry["band_lower"] <= entry["value"] <= entry["band_upper"]
        )
        cells.append(
            Cell(
                _text(metric, entry["value"]) + error, best=entry["value"] == lowest, alarm=outside
            )
        )
    return cells


def _heads(models: Sequence[str]) -> list[str]:
    return [heading(model) for model in models]


def _text(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    if metric in MONEY:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return (
        f"{100 * value:.1f}" if metric.startswith("coverage_") or metric == GAP else f"{value:.4f}"
    )


def _marked(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} !" if cell.alarm else text


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
