"""Writes docs/columns.md: every column of a panel with its unit, range and codes.

`--check` exits 1 if the page is not what the table of columns says.

Usage: python docs/columns/write.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from saga import schema
from saga.schema import Column

PAGE = Path(__file__).resolve().parents[1] / "columns.md"
HEAD = f"""# Columns and codes of a panel

Written by `python docs/columns/write.py`; the service has the same at `GET /v1/variables`. One row
is one person in one year. {len(schema.REQUIRED)} columns are required; the others improve a
forecast. Other names and codes: a [mapping](how-to/mapping.md).

- **0 is none, an empty cell is unknown, and a year without a row is a year without a record.**
- Ages {schema.MIN_AGE} to {schema.MAX_AGE} are used. A forecast reads at most the last {schema.MAX_CONTEXT_YEARS} years of a record.
- Amounts are SEK of the row's own year, unless `--prices` says otherwise.
- A constant column has one value for each person.
"""  # noqa: E501
MOST_CODES = 10  # of a column that the page lists
_TITLES = {
    "required": "Required",
    "money": "Amounts in SEK a year, not negative unless said",
    "number": "Other numbers",
    "category": "Categories",
    "label": "Entry and exit",
}


def values(column: Column) -> str:
    """The unit and the allowed values of a column."""
    if column.codes and len(column.codes) > MOST_CODES:
        return f"`{column.codes[0]}` to `{column.codes[-1]}`: `GET /v1/variables`"
    if column.codes and all(map(str.isdigit, column.codes)):
        return f"`{column.codes[0]}` to `{column.codes[-1]}`"
    if column.codes:
        return ", ".join(f"`{code}`" for code in column.codes)
    if column.pattern:
        return f"{''.join(filter(str.isdigit, column.pattern))} digits, as text"
    low, high = column.minimum, column.maximum
    if low is not None and high is not None:
        return f"{low:g} to {high:g} ({column.unit})"
    if low is not None:
        return f"{column.unit}, not negative" if low == 0 else f"from {low:g} ({column.unit})"
    return column.unit or "text"


def table(columns: list[Column]) -> list[str]:
    """The Markdown table of some columns."""
    rows = [
        f"| `{column.name}` | {column.description}"
        f"{'; constant' if column.static and not column.required else ''} | {values(column)} |"
        for column in columns
    ]
    if all(column.kind == "money" and not column.required for column in columns):
        rows = [f"| `{column.name}` | {column.description} |" for column in columns]
        return ["| column | meaning |", "|---|---|", *rows]
    return ["| column | meaning | values |", "|---|---|---|", *rows]


def page() -> str:
    """The page as Markdown."""
    groups: dict[str, list[Column]] = {key: [] for key in _TITLES}
    for column in schema.COLUMNS:
        groups["required" if column.required else column.kind].append(column)
    parts = ["\n".join([f"## {title}", "", *table(groups[key])]) for key, title in _TITLES.items()]
    return "\n\n".join([HEAD.strip(), *parts]) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    if sys.argv[1:] == ["--check"]:
        sys.exit(int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page()))
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
