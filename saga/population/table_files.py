"""Policy tables as files: CSV, Excel, Stata and HTML, with provenance and the internal log."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars_readstat import write_readstat

from saga.files.folders import new_folder, put_json
from saga.files.html import render_page
from saga.forecast_warnings import SIMULATED
from saga.population.policy_tables import TOTAL, PolicyTables

LOG = "internal_suppression_log.csv"
LABELS = {
    "persons": "Number of persons",
    "total": "Sum of earnings",
    "mean": "Mean earnings, zeros counted",
    **{f"p{share}": f"{share} % of persons earn less than" for share in (10, 25, 50, 75, 90)},
    "gini": "Gini coefficient, zeros counted",
    "zero_share": "Share of persons without earnings",
    "poverty_share": "Share of persons with less than 60 % of the median of all",
}
_WITHOUT_UNIT = ("persons", "gini", "zero_share", "poverty_share")
_MAX_YEARS, _YEAR_STEP = 8, 5  # of more than 8 years the page shows every fifth and the last


def write_files(tables: PolicyTables, out: str | Path, provenance: Mapping[str, Any]) -> None:
    """Write a new folder with all formats to a path or URL; `provenance.json` comes last."""
    with new_folder(out) as folder:
        frames = {"statistics": tables.statistics, "transitions": tables.transitions}
        for name, frame in frames.items():
            folder.put(f"{name}.csv", frame.write_csv().encode())
            folder.put(f"{name}.dta", stata_file(frame))
        folder.put("tables.xlsx", _excel_file(frames, provenance))
        page = render_page("saga.population", "tables.html", _page_values(tables, provenance))
        folder.put("tables.html", page.encode())
        folder.put(LOG, tables.log.write_csv().encode())
        put_json(folder, "provenance.json", provenance)


def stata_file(frame: pl.DataFrame) -> bytes:
    """The content of a Stata file with a table; the library can only write it to a path."""
    with tempfile.TemporaryDirectory(prefix="saga-") as name:
        path = Path(name, "table.dta")
        flags = pl.col("suppressed").cast(pl.Int8)
        unknown = pl.selectors.by_dtype(pl.Null).cast(pl.Float64)  # a column without any value
        write_readstat(frame.with_columns(flags, unknown), str(path), format="dta")
        return path.read_bytes()


def _excel_file(frames: Mapping[str, pl.DataFrame], provenance: Mapping[str, Any]) -> bytes:
    import xlsxwriter

    content = io.BytesIO()
    with xlsxwriter.Workbook(content, {"in_memory": True}) as book:
        for name, frame in frames.items():
            frame.write_excel(book, worksheet=name, autofit=True)
        record = pl.DataFrame(
            {"entry": list(provenance), "value": [str(value) for value in provenance.values()]}
        )
        record.write_excel(book, worksheet="provenance", autofit=True)
    return content.getvalue()


def _page_values(tables: PolicyTables, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows: a table per statistic, with a row per group and a column per year."""
    frame = tables.statistics
    groups = frame.columns[1 : frame.columns.index("statistic")]
    years = frame["year"].unique().sort().to_list()
    step = 1 if len(years) <= _MAX_YEARS else _YEAR_STEP
    shown_years = sorted({*years[::step], years[-1]})
    persons = frame.filter(pl.col("statistic") == "persons")
    everybody = persons.filter(
        pl.col("year") == years[0], *(pl.col(group) == TOTAL for group in groups)
    )["value"]
    unit = f"{provenance['currency']} of {provenance['price_year']}"
    inhabited = persons.filter(pl.col("suppressed") | (pl.col("value") > 0))[groups].unique()
    shown = frame.filter(pl.col("year").is_in(shown_years))
    if groups:  # a group without a person in any year, such as an impossible age, has no row
        shown = shown.join(inhabited, on=groups, how="semi", maintain_order="left")
    sections = []
    for statistic, label in LABELS.items():
        rows = shown.filter(statistic=statistic).with_columns(text=_cell_text(statistic))
        cells = rows.partition_by(groups, maintain_order=True) if groups else [rows]
        cells.sort(key=lambda cell: [_position(cell[group][0]) for group in groups])
        sections.append(
            {
                "name": label if statistic in _WITHOUT_UNIT else f"{label}, {unit}",
                "columns": [*(_words(group).capitalize() for group in groups), *shown_years],
                "rows": [_page_row(cell, groups) for cell in cells],
            }
        )
    by = [_words(group) for group in groups]
    return {
        "title": "Earnings of a population" + (f" by {' and '.join(by)}" if by else ""),
        "by": " and ".join(by),
        "persons": "the persons"
        if everybody.null_count()
        else f"about {everybody[0]:,.0f} persons",
        "first_year": years[0],
        "weighted": bool(provenance.get("weighted")),
        "simulated": SIMULATED if provenance.get("trained_on") == "simulated people" else "",
        "years_left_out": shown_years != years,
        "sections": sections,
        "provenance": {_words(name): str(value) for name, value in provenance.items()},
    }


def _position(level: str) -> tuple[bool, int, str]:
    """Where a level stands in its column: numbers by size, then words; the total last."""
    number = re.match(r"-?\d+", level)
    return level == TOTAL, int(number[0]) if number else 0, level


def _page_row(cell: pl.DataFrame, groups: Sequence[str]) -> dict[str, Any]:
    """A row of the page: the groups of a cell and its values by year."""
    levels = [cell[group][0] for group in groups]
    return {
        "groups": ["all" if level == TOTAL else _words(level) for level in levels],
        "texts": cell["text"].to_list(),
        "is_total": all(level == TOTAL for level in levels),
    }


def _cell_text(statistic: str) -> pl.Expr:
    def text(value: float) -> str:
        if statistic.endswith("share"):
            return f"{100 * value:.1f} %"
        return f"{value:.3f}" if statistic == "gini" else f"{value:,.0f}"

    value = pl.col("value").map_elements(text, return_dtype=pl.String)
    return pl.when("suppressed").then(pl.lit("x")).otherwise(value)


def _words(name: str) -> str:
    return name.replace("_", " ")
