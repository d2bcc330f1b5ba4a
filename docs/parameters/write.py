"""Writes docs/register-parameters.md: all parameters of the register with note and mark.

Usage: python docs/parameters/write.py [--check]
--check writes nothing and exits with 1 if the page differs from what would be written.
"""

from __future__ import annotations

import csv
import inspect
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path

from saga.register.simulation.parameters import Parameters

ROOT = Path(__file__).resolve().parents[2]
PAGE, TABLES = ROOT / "docs/register-parameters.md", ROOT / "saga/register/simulation/tables"
MARK = re.compile(r"\[(V|M|C|assumed)\b")
HEAD = """# Parameters of the register

Written by `python docs/parameters/write.py` from `parameters.py`, the `*_parameters.py` and the
tables in `saga/register/simulation/`. Marks:

- V: read in a public source
- M: from the literature by memory
- C: set so that simulated moments come near published ones (`studies/register_tuning.py`)
- assumed: no source; the note says what the value does

A note in italics is about the parameters below it that have no mark of their own. The section is
that of `register.json`. A list of pairs is a curve: values from an age or year on, or points
joined by straight lines. How the parameters enter: [the register](register.md).
"""


@dataclass(frozen=True)
class Parameter:
    """A parameter with its own note and the number of its group of parameters."""

    name: str
    value: str
    note: str
    group: int


def read_sections() -> Iterator[tuple[str, type]]:
    """Section of `register.json` and each dataclass that defines parameters of it."""
    for section in fields(Parameters):
        for part in reversed(type(getattr(Parameters(), section.name)).__mro__):
            if inspect.get_annotations(part):
                yield section.name, part


def read_parameters(part: type) -> tuple[list[Parameter], dict[int, str]]:
    """The parameters that a dataclass defines itself, and the note above each group of them.

    A group ends at a blank line and at the next comment on lines of its own.
    """
    lines = inspect.getsource(part).splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO("\n".join(lines)).readline)
        if token.type == tokenize.COMMENT and token.string != "# fmt: skip"
    }
    notes: dict[str, str] = {}
    groups: dict[str, int] = {}
    group_notes: dict[int, str] = {}
    group, name = 0, ""
    for number, line in enumerate(lines, 1):
        if field := re.match(r"    (\w+): .*=", line):
            name = field[1]
            notes[name], groups[name] = comments.get(number, ""), group
        elif line.lstrip().startswith("#"):
            group += groups.get(name) == group or group == 0
            group_notes[group] = f"{group_notes.get(group, '')} {comments[number]}".strip()
        elif not line.strip():
            group += 1
        elif number in comments and name:  # a comment after the last line of a long value
            notes[name] = comments[number]
    values = {name: repr(getattr(part, name)) for name in notes}
    return [Parameter(n, values[n], notes[n], groups[n]) for n in notes], group_notes


def marks(parameter: Parameter, group_notes: dict[int, str]) -> str:
    """Marks of the parameter's own note, or else those of its group."""
    letters = MARK.findall(parameter.note) or MARK.findall(group_notes.get(parameter.group, ""))
    return ", ".join(dict.fromkeys(letters))


def parameter_lines(part: type) -> Iterator[str]:
    """Lines of the page; a note about a single parameter is in its line."""
    parameters, group_notes = read_parameters(part)
    unmarked = Counter(p.group for p in parameters if not MARK.search(p.note))
    shown: set[int] = set()
    for parameter in parameters:
        note, group = parameter.note, parameter.group
        if not note and unmarked[group] == 1 and group in group_notes and group not in shown:
            note = group_notes[group]
        elif group in group_notes and group not in shown:
            yield f"\n*{group_notes[group]}*\n"
        shown.add(group)
        mark = marks(parameter, group_notes)
        note = re.sub(rf" *\[({mark})\]", "", note)
        yield f"- `{parameter.name}` {parameter.value} [{mark}]{f': {note}' if note else ''}"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, part in read_sections():
        parts.append(
            f"## {(inspect.getdoc(part) or '').splitlines()[0]}\n\nSection `{section}`, "
            f"`{part.__name__}`.\n\n" + "\n".join(parameter_lines(part)).lstrip("\n") + "\n"
        )
    return "\n".join([*parts, tables()])


def tables() -> str:
    """The tables next to the parameter modules: columns, rows, marks and sources."""
    rows = []
    for path in sorted(TABLES.glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            cells = list(csv.DictReader(file))
        columns = ", ".join(f"`{name}`" for name in cells[0] if name not in ("mark", "source"))
        by_mark = Counter(row["mark"] for row in cells).items()
        shares = ", ".join(f"{mark} {count}" for mark, count in by_mark)
        sources = "; ".join(dict.fromkeys(row["source"] for row in cells))
        rows.append(f"| `{path.name}` | {columns} | {len(cells)} | {shares} | {sources} |")
    return (
        "## Tables\n\nEach row names its source and mark.\n\n"
        "| table | columns | rows | marks | sources |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def main() -> int:
    """Write the page, or check it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
