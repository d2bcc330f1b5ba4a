"""The pages of an evaluation: all tables as Markdown, and as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saga.evaluation.report.contest_summary import ContestSummary
from saga.evaluation.report.evaluation_results import Results
from saga.evaluation.report.paper import paper_tables
from saga.evaluation.report.result_tables import (
    Table,
    build_tables,
    sources_of,
    to_markdown,
    without_empty_columns,
    without_published,
)

from saga.data.panel import is_simulated
from saga.pages.layout import render_page, write_page

PAGES = ("tables.md", "tables.html")
LISA = "lisa"  # id of a panel that the shipped mapping of this name has read


def all_tables(results: Results) -> list[Table]:
    """Accuracy and coverage by setting, then the paper's tables."""
    return [*build_tables(results.metrics), *paper_tables(results)]


def write_pages(results: Results, out: Path) -> None:
    """Write `out/tables.md` and `out/tables.html`."""
    tables = all_tables(results)
    if not _is_like_the_papers(results.provenance):
        tables = [without_published(table) for table in tables]
    tables = [without_empty_columns(table) for table in tables]
    footer = "\n".join(f"- {name}: {value}" for name, value in results.provenance.items())
    text = f"# Results\n\n{to_markdown(tables)}\n{sources_of(tables)}\n\n{footer}\n"
    page = to_html(tables, results.provenance, ContestSummary.of(results))
    for name, content in zip(PAGES, (text, page), strict=True):
        write_page(out / name, content)


def to_html(tables: Sequence[Table], provenance: Mapping[str, Any], summary: ContestSummary) -> str:
    """One page without outside resources: the summary, the tables."""
    values = {
        "summary": summary,
        "tables": tables,
        "provenance": provenance,
        "source": sources_of(tables),
    }
    return render_page("tables.html", values, "saga.evaluation.report")


def _is_like_the_papers(provenance: Mapping[str, Any]) -> bool:
    """Whether the panel is LISA, or simulated like it: the paper's figures compare."""
    panel = str(provenance.get("panel", ""))
    return provenance.get("currency", "SEK") == "SEK" and (is_simulated(panel) or panel == LISA)
