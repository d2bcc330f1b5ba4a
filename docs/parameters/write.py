"""Writes docs/parameters/parameters.csv, all parameters of the register with note and mark.

It also writes the page about them, docs/register-parameters.md.
Usage: python docs/parameters/write.py [--check]
--check writes nothing and exits with 1 if a file differs from what would be written.
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
PAGE, LIST = ROOT / "docs/register-parameters.md", ROOT / "docs/parameters/parameters.csv"
TABLES = ROOT / "saga/register/simulation/tables"
COLUMNS = ("section", "parameter", "value", "mark", "note", "note_of_group", "class")
MARK = re.compile(r"\[(V|M|C|assumed)\b")
HEAD = """# Parameters of the register

All parameters, with value, mark and note: [parameters.csv](parameters/parameters.csv). The column
`section` is that of `register.json`. `note_of_group` is about several parameters and gives the mark
of those without one of their own. A list of pairs is a curve: values from an age or year on, or
points joined by straight lines. "Per 1.0 of rise" is the effect of a rise of the unemployment rate
by 100 points; one point has a hundredth of it.

How the parameters enter: [the register](register.md).

Marks:

- V: read in a public source
- M: from the literature by memory
- C: set so that simulated moments come near published ones (`studies/register_tuning.py`)
- assumed: no source; the note says what the value does

`python docs/parameters/write.py` writes this page and the list from `parameters.py`, the
`*_parameters.py` and the tables in `saga/register/simulation/`.
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


def parameter_rows() -> Iterator[dict[str, str]]:
    """Rows of the list, in the order of the code."""
    for section, part in read_sections():
        parameters, group_notes = read_parameters(part)
        unmarked: dict[int, list[str]] = {}
        for parameter in parameters:
            if not MARK.search(parameter.note):
                unmarked.setdefault(parameter.group, []).append(parameter.note)
        for parameter in parameters:
            mark, note = marks(parameter, group_notes), parameter.note
            note_of_group = group_notes.get(parameter.group, "")
            if unmarked.get(parameter.group) == [""]:  # that note is about one parameter alone
                note, note_of_group = note or note_of_group, ""
            yield {
                "section": section,
                "parameter": parameter.name,
                "value": parameter.value,
                "mark": mark,
                "note": re.sub(rf" *\[({mark})\]", "", note),
                "note_of_group": note_of_group,
                "class": part.__name__,
            }


def parameter_list() -> str:
    """The list of all parameters, as CSV."""
    file = StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(parameter_rows())
    return file.getvalue()


def sections() -> str:
    """What each class of parameters is about, and the number of its parameters by mark."""
    rows = list(parameter_rows())
    lines = ["| section | about | parameters | marks |", "|---|---|---|---|"]
    for section, part in read_sections():
        by_mark = Counter(row["mark"] for row in rows if row["class"] == part.__name__)
        about = (inspect.getdoc(part) or "").splitlines()[0].rstrip(".")
        shares = ", ".join(
            f"{mark.replace(', ', ' and ')}: {count}" for mark, count in sorted(by_mark.items())
        )
        lines.append(f"| `{section}` | {about} | {by_mark.total()} | {shares} |")
    return "## Sections\n\n" + "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, sections(), tables()])


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
    """Write the page and the list, or check them."""
    written = {PAGE: page(), LIST: parameter_list()}
    if "--check" in sys.argv[1:]:
        return int(any(file.read_text(encoding="utf-8") != written[file] for file in written))
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
