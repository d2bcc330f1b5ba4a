"""Writes docs/register-parameters.md from saga/register/simulation/parameters.py: every parameter, its value and the note beside it.

Usage: python docs/parameters/write.py [--check]     --check: exit 1 where the page differs from what would be written
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE, PAGE = ROOT / "saga/register/simulation/parameters.py", ROOT / "docs/register-parameters.md"
HEAD = """# Parameters of the register

Written by `python docs/parameters/write.py` from `saga/register/simulation/parameters.py`. Marks: V read in a public source, M from the literature by
memory, C set so that simulated moments come near published ones (`studies/register_tuning.py`); a note in italics is about the
parameters below it. How they enter: [the register](register.md).
"""


def page() -> str:
    text = SOURCE.read_text()
    notes = {
        t.start[0]: t.string.lstrip("# ")
        for t in tokenize.generate_tokens(StringIO(text).readline)
        if t.type == tokenize.COMMENT
    }
    lines = text.splitlines()
    parts = [HEAD]
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name != "Parameters":
            rows = "\n".join(
                f"| {name} | {value} | {note.replace('|', '/')} |"
                for name, value, note in fields(node, notes, lines)
            )
            parts.append(
                f"## {ast.get_docstring(node)}\n\n| parameter | value | note |\n|---|---|---|\n{rows}\n"
            )
    return "\n".join(parts)


def fields(
    node: ast.ClassDef, notes: dict[int, str], lines: list[str]
) -> Iterator[tuple[str, str, str]]:
    """Name, value and note of each field, in order; a block of comment above a field comes before it as a row of its own."""
    for item in node.body:
        if (
            not isinstance(item, ast.AnnAssign)
            or not isinstance(item.target, ast.Name)
            or item.value is None
        ):
            continue
        above = []
        line = item.lineno - 1
        while line in notes and lines[line - 1].lstrip().startswith("#"):
            above.append(notes[line])
            line -= 1
        if above:
            yield "", "", f"*{' '.join(reversed(above))}*"
        yield (
            f"`{item.target.id}`",
            ast.unparse(item.value),
            notes.get(item.end_lineno or item.lineno, ""),
        )


def main() -> int:
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
