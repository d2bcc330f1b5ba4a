"""The pages of an evaluation: every table its directory holds, as Markdown and as one HTML file with charts."""

from __future__ import annotations

from pathlib import Path

from evaluation.report import charts
from evaluation.report.paper import Results, paper_tables
from evaluation.report.result_tables import Table, build_tables, published, to_html, to_markdown
from saga.files.atomic import commit


def all_tables(results: Results) -> list[Table]:
    """Accuracy and coverage by setting, then the paper's tables."""
    return [*build_tables(results.metrics), *paper_tables(results)]


def write_pages(out: Path) -> None:
    """Writes `out/tables.md` and `out/tables.html` from the Parquet files in `out`."""
    results = Results.read(out)
    tables = all_tables(results)
    footer = "\n".join(f"- {name}: {value}" for name, value in results.provenance.items())
    source = f"Figures {published()['label']}: {published()['source']}. {published()['note']}"
    text = f"# Results\n\n{to_markdown(tables)}\n{source}\n\n{footer}\n"
    page = to_html(tables, results.provenance, charts.drawn(results))
    commit(out / "tables.md", lambda part: part.write_text(text, encoding="utf-8"))
    commit(out / "tables.html", lambda part: part.write_text(page, encoding="utf-8"))
