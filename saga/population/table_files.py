"""Policy tables as files: CSV, Excel, Stata and HTML, with provenance and the internal log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars_readstat import write_readstat

from saga.errors import UsageError
from saga.files.atomic import commit_json, whole_folder
from saga.files.html import render_page
from saga.population.policy_tables import PolicyTables

LOG = "internal_suppression_log.csv"


def check_folder(out: Path) -> None:
    """Raise UsageError unless the folder is absent or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty. Name a new folder.")


def write_files(tables: PolicyTables, out: Path, provenance: Mapping[str, Any]) -> None:
    """Write a new folder with all formats; it is complete or absent."""
    with whole_folder(out) as folder:
        frames = {"statistics": tables.statistics, "transitions": tables.transitions}
        for name, frame in frames.items():
            frame.write_csv(folder / f"{name}.csv")
            flags = pl.col("suppressed").cast(pl.Int8)
            write_readstat(frame.with_columns(flags), str(folder / f"{name}.dta"), format="dta")
        _write_excel(frames, folder / "tables.xlsx", provenance)
        page = render_page("saga.population", "tables.html", _page_values(tables, provenance))
        (folder / "tables.html").write_text(page, encoding="utf-8")
        tables.log.write_csv(folder / LOG)
        commit_json(folder / "provenance.json", provenance)


def _write_excel(
    frames: Mapping[str, pl.DataFrame], path: Path, provenance: Mapping[str, Any]
) -> None:
    import xlsxwriter

    with xlsxwriter.Workbook(path) as book:
        for name, frame in frames.items():
            frame.write_excel(book, worksheet=name, autofit=True)
        record = pl.DataFrame(
            {"entry": list(provenance), "value": [str(value) for value in provenance.values()]}
        )
        record.write_excel(book, worksheet="provenance", autofit=True)


def _page_values(tables: PolicyTables, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of the page: a table of each statistic, a row per cell and a column per year."""
    frame = tables.statistics
    groups = frame.columns[1 : frame.columns.index("statistic")]
    shown = frame.with_columns(
        text=pl.when("suppressed")
        .then(pl.lit("x"))
        .otherwise(pl.col("value").map_elements(_number, return_dtype=pl.String))
    )
    sections = []
    for (statistic,), rows in shown.partition_by(
        "statistic", as_dict=True, maintain_order=True
    ).items():
        wide = rows.pivot("year", index=groups, values="text", maintain_order=True)
        if not groups:
            wide = rows.pivot("year", index="statistic", values="text", maintain_order=True)
        sections.append({"name": statistic, "columns": wide.columns, "rows": wide.rows()})
    return {
        "title": "Policy tables",
        "sections": sections,
        "provenance": {name: str(value) for name, value in provenance.items()},
    }


def _number(value: float) -> str:
    return f"{value:,.3f}" if abs(value) <= 1 and value != int(value) else f"{value:,.0f}"
