"""Metrics as tables to read, and tables as Markdown or one self-contained HTML page.

Nothing is computed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from saga.evaluation.scoring.comparison import BUNDLE_NAME, VARIANT
from saga.evaluation.scoring.gap import CLAIRVOYANT, GAP, select_reference
from saga.evaluation.scoring.metrics import SCORES, ZERO, percent_names

from saga.pages.format import in_percent, markdown_table, money, number
from saga.small_groups import MIN_PERSONS

MONEY = ("crps_sek", *percent_names("interval"), *percent_names("width"))
METRIC_LABELS = {
    "crps_log": "CRPS of log earnings",
    "crps_sek": "CRPS, money",
    "mae_log": "mean absolute error, logs",
    "rmse_log": "root mean squared error, logs",
    "pinball_log": "mean pinball loss, logs",
    "brier_zero": "Brier score of no earnings",
    "logscore": "log score",
    **{f"interval_{c}": f"interval score, {c} % sets" for c in (50, 80, 90, 95)},
    **{f"width_{c}": f"width, {c} % sets" for c in (50, 80, 90, 95)},
    **{f"coverage_{c}": f"coverage, {c} % sets" for c in (50, 80, 90, 95)},
}
COVERAGE_METRICS = percent_names("coverage")
MEANING = {
    "in-time": "Origins and outcomes lie inside the panel's years, one drawn origin per test "
    "person; ± is the standard error, clustered by person or family. Long horizons rest on few "
    "origin years.",
    "forward": "Origins lie in the panel's last year, outcomes in the register's drawn macro "
    "futures; ± is the standard error of the mean over futures. A single future may deviate more: "
    "see `sd_futures` in the metrics table.",
    "forward, observed": "Origins lie in the last year that fitting used, outcomes in the panel's "
    "later years; ± is the standard error, clustered by person or family. This is one macro "
    "future; another would give other figures.",
}
NO_INTERVAL = "no interval"
MEANING_OF_NO_INTERVAL = (
    "\u201cNo interval\u201d: too few persons were left to calibrate sets of this coverage."
)
Row = Mapping[str, Any]  # a row of the metrics table


@dataclass(frozen=True)
class TableCell:
    """A text in a table and its marks.

    Args:
        text: The text.
        bold: Whether the figure is the lowest in its row, apart from the bound and the paper; in
            tables of differences, whether the difference is sure (`difference_tables`).
        alarm: Whether the figure lies outside its sampling band.
        published: Whether it is a figure of the paper.
    """

    text: str
    bold: bool = False
    alarm: bool = False
    published: bool = False


@dataclass(frozen=True)
class Table:
    """A title, a note, the column headings and rows of table cells."""

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[TableCell]] = field(default_factory=list)


@cache
def published() -> dict[str, Any]:
    """The paper's figures with label, source and note: `evaluation/report/published.json`."""
    text = (Path(__file__).parent / "published.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


LABEL = published()["label"]


def published_source() -> str:
    """A sentence that says where the published figures come from."""
    return f"Figures {LABEL}: {published()['source']}. {published()['note']}"


def without_published(table: Table) -> Table:
    """The table without the columns of the paper's figures."""
    own_columns = [column for column, name in enumerate(table.head) if LABEL not in name]
    rows = [[row[column] for column in own_columns] for row in table.rows]
    return replace(table, head=[table.head[column] for column in own_columns], rows=rows)


def without_empty_columns(table: Table) -> Table:
    """The table without columns that have no text in any row."""
    filled = [k for k in range(len(table.head)) if any(row[k].text for row in table.rows)]
    rows = [[row[k] for k in filled] for row in table.rows]
    return replace(table, head=[table.head[k] for k in filled], rows=rows)


def sources_of(tables: Iterable[Table]) -> str:
    """Where the published figures of these tables come from; empty if they have none."""
    has_published = any(LABEL in name for table in tables for name in table.head)
    return published_source() if has_published else ""


@dataclass(frozen=True)
class _Metrics:
    """The metrics of one setting; `rows` is by (metric, horizon, group, model)."""

    setting: str
    models: Sequence[str]
    rows: Mapping[tuple[str, int, str, str], Row]
    horizons: Sequence[int]
    groups: Sequence[str]

    @classmethod
    def of(cls, metrics: pl.DataFrame, setting: str, models: Sequence[str]) -> _Metrics:
        """The rows of `setting`."""
        frame = metrics.filter(pl.col("setting") == setting)
        rows = {
            (row["metric"], row["horizon"], row["group"], row["model"]): row
            for row in frame.iter_rows(named=True)
        }
        groups = frame["group"].unique(maintain_order=True).to_list()
        horizons = frame["horizon"].unique().sort().to_list()
        return cls(setting, models, rows, horizons, [g for g in groups if g != "all"])

    def cells(self, metric: str, horizon: int, group: str = "all") -> list[TableCell]:
        """A table cell per model; the lowest score and coverage outside its band are marked."""
        rows = [self.rows.get((metric, horizon, group, model)) for model in self.models]
        values = [
            row["value"]
            for row in rows
            if row and row["value"] is not None and row["model"] != CLAIRVOYANT
        ]
        is_score = metric in SCORES and not metric.startswith("width_")
        lowest = min(values) if is_score and len(set(values)) > 1 else None
        return [self._cell(metric, horizon, group, row, lowest) for row in rows]

    def describe_missing_intervals(self) -> str:
        """What the words "no interval" mean, if a coverage of everybody lacks one; else empty."""
        is_missing = any(
            cell.text == NO_INTERVAL
            for metric in COVERAGE_METRICS
            for horizon in self.horizons
            for cell in self.cells(metric, horizon)
        )
        return f" {MEANING_OF_NO_INTERVAL}" if is_missing else ""

    def _cell(
        self, metric: str, horizon: int, group: str, row: Row | None, lowest: float | None
    ) -> TableCell:
        if row is None:
            return TableCell("")
        if row["value"] is None:
            crps = self.rows.get(("crps_log", horizon, group, row["model"]), {})
            return TableCell(NO_INTERVAL if crps.get("n") else f"fewer than {MIN_PERSONS} outcomes")
        error = f" ± {format_value(metric, row['se'])}" if row["se"] is not None else ""
        return TableCell(
            format_value(metric, row["value"]) + error,
            bold=row["value"] == lowest,
            alarm=outside_band(row),
        )


def build_tables(metrics: pl.DataFrame) -> list[Table]:
    """Accuracy, coverage, gap and group tables of every setting of a metrics table."""
    models = order_models(metrics["model"].unique().to_list())
    tables = []
    for setting in metrics["setting"].unique().sort(descending=True).to_list():
        of_setting = _Metrics.of(metrics, setting, models)
        tables += [
            _accuracy(of_setting),
            _coverage(of_setting),
            _gap(of_setting),
            _by_group("CRPS of log earnings", "crps_log", of_setting),
            _by_group("Coverage of 90 % sets", "coverage_90", of_setting),
            _by_zero(of_setting),
        ]
    return [table for table in tables if table.rows]


def to_markdown(tables: Iterable[Table], level: int = 2) -> str:
    """GitHub tables under headings of a level.

    Cells are bold if they are `bold`, and end in ! if they are an `alarm`.
    """
    return "\n".join(
        f"{'#' * level} {table.title}\n\n"
        + (f"{table.note}\n\n" if table.note else "")
        + markdown_table(table.head, [[_marked(cell) for cell in row] for row in table.rows])
        + "\n"
        for table in tables
    )


def order_models(names: Iterable[str]) -> list[str]:
    """Models in the order of the columns: saga first, the bound last, no variants of saga."""
    return sorted(
        (name for name in names if not name.startswith(VARIANT)),
        key=lambda name: (name != BUNDLE_NAME, name == CLAIRVOYANT, name),
    )


def heading(name: str) -> str:
    """A model's name as a column heading."""
    return f"{name} (bound)" if name == CLAIRVOYANT else name


def outside_band(row: Row) -> bool:
    """Whether a row of the metrics table has a sampling band and its value lies outside."""
    lower, upper = row["band_lower"], row["band_upper"]
    return lower is not None and not lower <= row["value"] <= upper


def format_value(metric: str, value: float | None) -> str:
    """A value of a metric as text; empty if there is none."""
    if value is None:
        return ""
    if metric in MONEY:
        return money(value) if abs(value) >= 1000 else f"{value:.3g}"
    if metric.startswith("coverage_") or metric == GAP:
        return in_percent(value)
    return number(value, 4)


def format_figure(row: Row | None, form: str = ".4f", *, name: str = "value") -> str:
    """The figure `name` of a row with its standard error if there is one; empty without a row."""
    if row is None:
        return ""
    error = "" if row["se"] is None else f" ± {row['se']:{form}}"
    return f"{row[name]:{form}}{error}"


def published_cell(value: float | None, form: str) -> TableCell:
    """A published figure."""
    return TableCell("" if value is None else format(value, form), published=True)


def published_percent(share: float | None) -> TableCell:
    """A published share in per cent."""
    return TableCell(in_percent(share), published=True)


def format_band(row: Row) -> str:
    """The sampling band of a row in per cent; empty if there is none."""
    if row.get("band_lower") is None:
        return ""
    return f"{in_percent(row['band_lower'])}-{in_percent(row['band_upper'])}"


def _accuracy(metrics: _Metrics) -> Table:
    shown = (*SCORES, "coverage_90")
    figures = {
        (f["metric"], f["horizon"], f["model"]): f["value"]
        for f in published()["figures"]
        if f["group"] == "all" and f["metric"] in shown and f["horizon"] in metrics.horizons
    }
    published_models = list(dict.fromkeys(model for _, _, model in figures))
    rows = []
    for metric in shown:
        for h in metrics.horizons:
            counts = [
                metrics.rows[metric, h, "all", model]["n"]
                for model in metrics.models
                if (metric, h, "all", model) in metrics.rows
            ]
            if not counts:  # results of an earlier version lack the metric
                continue
            rows.append(
                [
                    TableCell(METRIC_LABELS.get(metric, metric)),
                    TableCell(str(h)),
                    TableCell(f"{max(counts):,}"),
                    *metrics.cells(metric, h),
                    *(
                        TableCell(format_value(metric, figures.get((metric, h, m))), published=True)
                        for m in published_models
                    ),
                ]
            )
    head = [
        *("measure", "years ahead", "persons"),
        *map(heading, metrics.models),
        *(f"{model} ({LABEL})" for model in published_models),
    ]
    observed = metrics.setting == "forward" and all(
        row["sd_futures"] is None for row in metrics.rows.values()
    )
    note = MEANING.get("forward, observed" if observed else metrics.setting, "")
    note += " Lower is better except for coverage. Money is real, in the panel's currency."
    note += metrics.describe_missing_intervals()
    if CLAIRVOYANT in metrics.models:
        note += (
            f" {CLAIRVOYANT} knows the register's process and the hidden state of every person, "
            "which no record contains: it is a bound that cannot be attained."
        )
    return Table(f"Accuracy, {metrics.setting}", note, head, rows)


def _coverage(metrics: _Metrics) -> Table:
    figures = {
        f["metric"]: f["value"]
        for f in reversed(published()["figures"])
        if f["group"] == "all" and not f["horizon"]
    }
    banded = BUNDLE_NAME if BUNDLE_NAME in metrics.models else metrics.models[0]
    rows = [
        [
            TableCell(METRIC_LABELS[metric]),
            TableCell(str(h)),
            *metrics.cells(metric, h),
            TableCell(format_band(metrics.rows.get((metric, h, "all", banded), {}))),
            TableCell(format_value(metric, figures.get(metric)), published=True),
        ]
        for metric in COVERAGE_METRICS
        for h in metrics.horizons
    ]
    note = (
        "Share of outcomes (%) inside sets of the stated coverage. 95 % of calibrated forecasters "
        "of this many persons fall into the band; ! marks a share outside its own band."
    )
    if metrics.setting == "in-time":
        note += (
            f" As the guarantee of {BUNDLE_NAME}'s sets assumes, persons are drawn as the "
            "calibration persons were, in the same years."
        )
    note += metrics.describe_missing_intervals()
    head = [
        *("measure", "years ahead"),
        *map(heading, metrics.models),
        f"band ({banded})",
        f"{BUNDLE_NAME} ({LABEL})",
    ]
    return Table(f"Coverage, {metrics.setting}", note, head, rows)


def _by_group(name: str, metric: str, metrics: _Metrics) -> Table:
    rows = [
        [TableCell(group), TableCell(str(h)), *metrics.cells(metric, h, group)]
        for group in metrics.groups
        for h in metrics.horizons
        if not group.startswith(ZERO)
        and any((metric, h, group, model) in metrics.rows for model in metrics.models)
    ]
    note = (
        "Groups are known at the origin; quintiles rank mean earnings of the last 5 years by age "
        f"and period. Groups of fewer than {MIN_PERSONS} persons are left out, and others by which "
        "they could be computed."
    )
    head = ["group", "years ahead", *map(heading, metrics.models)]
    return Table(f"{name} by group, {metrics.setting}", note, head, rows)


def _by_zero(metrics: _Metrics) -> Table:
    """Coverage of the bundle's sets by its probability of zero."""
    of_bundle = replace(metrics, models=[BUNDLE_NAME])
    rows = []
    for h in metrics.horizons:
        for group in (name for name in metrics.groups if name.startswith(ZERO)):
            row = metrics.rows.get((COVERAGE_METRICS[0], h, group, BUNDLE_NAME))
            if row is not None:
                cells = [of_bundle.cells(name, h, group)[0] for name in COVERAGE_METRICS]
                label = group.removeprefix(f"{ZERO}=")
                rows.append([*map(TableCell, (str(h), label, f"{row['n']:,}")), *cells])
    note = (
        "Share of outcomes (%) inside the sets, by the forecast probability of no earnings; ! "
        "marks a share outside its own band. If that probability exceeds the coverage, the set is "
        "{0} and covers more. Within bins nothing is guaranteed."
    )
    labels = [METRIC_LABELS[name] for name in COVERAGE_METRICS]
    head = ["years ahead", "probability of no earnings, %", "persons", *labels]
    title = f"Coverage of {BUNDLE_NAME}'s sets by probability of no earnings, {metrics.setting}"
    return Table(title, note, head, rows)


def _gap(metrics: _Metrics) -> Table:
    reference = select_reference(metrics.models) if CLAIRVOYANT in metrics.models else None
    models = [model for model in metrics.models if model not in (reference, CLAIRVOYANT)]
    of_models = replace(metrics, models=models)
    rows = [
        [TableCell(str(h)), *of_models.cells(GAP, h)]
        for h in metrics.horizons
        if any((GAP, h, "all", model) in metrics.rows for model in models)
    ]
    note = (
        f"In CRPS of log earnings: 0 is as good as {reference}, 100 as good as {CLAIRVOYANT}, "
        "which cannot be attained; ± is the standard error."
    )
    return Table(
        f"Share of the gap closed (%), {metrics.setting}", note, ["years ahead", *models], rows
    )


def _marked(cell: TableCell) -> str:
    text = f"**{cell.text}**" if cell.bold else cell.text
    return f"{text} !" if cell.alarm else text
