"""Tables as Markdown text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of these column headings and rows of text, without a final line break."""
    head, *body = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([head, "|" + "---|" * len(header), *body])
