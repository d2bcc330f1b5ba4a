"""Prints the size of the code by room, beside that of an earlier commit.

    python docs/size.py [--since 587f00a]

The number of statements does not depend on the width of lines, comments and docstrings. Product is
`saga` without `saga/register`, with `api`, `training` and `calibration`; evidence is the register,
`evaluation`, `studies` and `benchmarks`. Files are those of the last commit.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from pathlib import PurePosixPath

EVIDENCE = ("saga/register", "evaluation", "studies", "benchmarks")
PRODUCT = ("saga", "api", "training", "calibration")


def read_commit(commit: str) -> dict[str, str]:
    """The Python files of a commit, by path."""
    archive = subprocess.run(["git", "archive", commit], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name: content.read().decode()
            for member in tar
            if member.name.endswith(".py") and (content := tar.extractfile(member))
        }


def count_statements(text: str) -> int:
    """Number of statements, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(
        not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes
    )


def room_of(path: str) -> str:
    """The room of a file: a package, or a package of `saga` or `calibration`."""
    parts = PurePosixPath(path).parts[:-1]
    return "/".join(parts[: 2 if parts[:1] in (("saga",), ("calibration",)) else 1]) or "."


def kind_of(room: str) -> str:
    """Whether a room is product, evidence, tests or something else."""
    if room in EVIDENCE or room.split("/")[0] in EVIDENCE:
        return "evidence"
    first = room.split("/")[0]
    return "product" if first in PRODUCT else "tests" if first == "tests" else "other"


def sizes(commit: str) -> dict[str, tuple[int, int]]:
    """Lines and statements by room."""
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path, text in read_commit(commit).items():
        lines, statements = totals[room_of(path)]
        totals[room_of(path)] = (lines + text.count("\n"), statements + count_statements(text))
    return totals


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", default="587f00a", help="commit to compare with")
    args = parser.parse_args()
    before, now = sizes(args.since), sizes("HEAD")
    rows = [f"| | lines at {args.since} | statements | lines now | statements |", "|---" * 5 + "|"]
    for kind in ("product", "evidence", "tests"):
        cells = [
            sum(counts[k] for room, counts in by_room.items() if kind_of(room) == kind)
            for by_room in (before, now)
            for k in (0, 1)
        ]
        rows.append(f"| {kind} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    rows += ["", "| room | kind | lines | statements |", "|---" * 4 + "|"]
    for room, (lines, statements) in sorted(now.items(), key=lambda item: -item[1][0]):
        if kind_of(room) in ("product", "evidence"):
            rows.append(f"| `{room}` | {kind_of(room)} | {lines:,} | {statements:,} |")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
