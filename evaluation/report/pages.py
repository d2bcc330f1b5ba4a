"""The pages of an evaluation: all tables as Markdown, and as one HTML file with charts."""

from __future__ import annotations

from pathlib import Path

from evaluation.report.charts import draw_charts
from evaluation.report.contest_summary import ContestSummary
from evaluation.report.evaluation_results import Results
from evaluation.report.paper import paper_tables
from evaluation.report.result_tables import (
    Table,
    build_tables,
    sources_of,
    to_html,
    to_markdown,
    without_published,
)
from saga.files.atomic import commit


def all_tables(results: Results) -> list[Table]:
    """Accuracy and coverage by setting, then the paper's tables."""
    return [*build_tables(results.metrics), *paper_tables(results)]


def write_pages(results: Results, out: Path) -> None:
    """Write `out/tables.md` and `out/tables.html`."""
    tables = all_tables(results)
    if results.provenance.get("currency", "SEK") != "SEK":  # other people, money and prices
        tables = [without_published(table) for table in tables]
    footer = "\n".join(f"- {name}: {value}" for name, value in results.provenance.items())
    text = f"# Results\n\n{to_markdown(tables)}\n{sources_of(tables)}\n\n{footer}\n"
    page = to_html(tables, results.provenance, ContestSummary.of(results), draw_charts(results))
    commit(out / "tables.md", lambda part: part.write_text(text, encoding="utf-8"))
    commit(out / "tables.html", lambda part: part.write_text(page, encoding="utf-8"))
