"""Short descriptions of objects and values, as text and as HTML for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class Summary:
    """A title, and lines of text by name."""

    title: str
    lines: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The title, and one line for each name."""
        width = max(map(len, self.lines), default=0)
        return "\n".join(
            [self.title, *(f"  {name:<{width}}  {line}" for name, line in self.lines.items())]
        )

    @property
    def html(self) -> str:
        """The title, and a table of the lines."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(line)}</td></tr>'
            for name, line in self.lines.items()
        )
        return f"<p><strong>{escape(self.title)}</strong></p><table>{rows}</table>"


class Summarised(ABC):
    """An object that `print` and notebooks show by its summary, and logs in one line."""

    @abstractmethod
    def summary(self) -> Summary:
        """What the object is."""

    def __str__(self) -> str:
        return self.summary().text

    def __repr__(self) -> str:
        summary = self.summary()
        name, line = next(iter(summary.lines.items()))
        return f"<{summary.title}: {name} {line}>"

    def _repr_html_(self) -> str:
        return self.summary().html


def count(n: int, noun: str) -> str:
    """`1 person`, `2 persons`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def format_counts(counts: Mapping[str, object] | Iterable[str]) -> str:
    """Rules or statuses with their numbers, or names alone, as text."""
    if not isinstance(counts, Mapping):
        return ", ".join(counts)
    numbers = {name: f"{n:,}" if isinstance(n, int) else n for name, n in counts.items()}
    return ", ".join(f"{name} {number}" for name, number in numbers.items())
