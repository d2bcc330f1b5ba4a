"""Prints how large the house is, beside an earlier commit.

    python docs/size.py [--since faf6f059] [--walks]

The number of statements does not depend on the width of lines, comments and docstrings. Product is
`saga` without `saga/register`, with `api`, `training` and `calibration`; evidence is the register,
`evaluation`, `studies` and `benchmarks`. Files are those of the last commit. `--walks` counts the
product modules that a forecast, a call, a training and an outcome enter, in this checkout.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ("saga/register", "evaluation", "studies", "benchmarks")
PRODUCT = ("saga", "api", "training", "calibration")
KINDS = ("product", "evidence", "tests")


def read_commit(commit: str) -> dict[str, str]:
    """The text files of a commit that are counted, by path."""
    archive = subprocess.run(
        ["git", "archive", commit], capture_output=True, check=True, cwd=ROOT
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name: content.read().decode()
            for member in tar
            if member.name.endswith((".py", ".js", ".md")) and (content := tar.extractfile(member))
        }


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a constant alone, which a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def count_statements(tree: ast.Module) -> int:
    """Number of statements, without docstrings."""
    return sum(isinstance(node, ast.stmt) and not is_docstring(node) for node in ast.walk(tree))


def only_passes_on(tree: ast.Module) -> bool:
    """Whether a module has imports and names for them, and nothing of its own."""
    statements = [node for node in tree.body if not is_docstring(node)]
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in statements if node not in imports]
    return bool(imports) and all(
        isinstance(node, ast.Assign) and not isinstance(node.value, ast.Subscript)  # a type
        for node in others
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


@dataclass
class Size:
    """What a commit has: statements by kind and by room, modules, classes, words, JavaScript."""

    statements: Counter[str] = field(default_factory=Counter)
    rooms: Counter[str] = field(default_factory=Counter)
    modules: int = 0
    passing: list[str] = field(default_factory=list)
    classes: int = 0
    words: int = 0
    script_lines: int = 0


def measure(files: dict[str, str]) -> Size:
    """The size of a commit; packages (`__init__.py`) and migrations are no modules."""
    size = Size()
    for path, text in files.items():
        name = PurePosixPath(path)
        if name.suffix == ".md":
            size.words += len(text.split())
        elif name.suffix == ".js":
            size.script_lines += 0 if "vendor" in name.parts else text.count("\n")
        else:
            tree = ast.parse(text)
            room = room_of(path)
            kind, statements = kind_of(room), count_statements(tree)
            size.statements[kind] += statements
            size.rooms[room] += statements
            if kind == "product" and name.name != "__init__.py" and "versions" not in name.parts:
                size.modules += 1
                size.passing += [path] if only_passes_on(tree) else []
            if kind == "product":
                size.classes += sum(
                    isinstance(node, ast.ClassDef) and not node.name.startswith("_")
                    for node in tree.body
                )
    return size


def modules_entered(program: Callable[[], object]) -> set[str]:
    """Names of the product's modules in which a function of it runs during a program."""
    entered: set[str] = set()

    def hook(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("saga.") and frame.f_code.co_name != "<module>":
            entered.add(name)

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        program()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {name for name in entered if not name.startswith(("saga.register", "saga.evaluation"))}


def command(*words: str) -> Callable[[], object]:
    """A command of SAGA, run in this process."""

    def run() -> object:
        from saga.cli import app

        return app([*words], standalone_mode=False)

    return run


def call(path: str, body: dict[str, object], database: Path | None = None) -> Callable[[], object]:
    """A call to the service, answered in this process."""

    def run() -> object:
        from fastapi.testclient import TestClient
        from pydantic import SecretStr
        from saga.api.app import create_app
        from saga.api.settings import Settings

        url = SecretStr(f"sqlite:///{database}") if database else None
        settings = Settings(bundle=ROOT / "bundles/small", threads=1, database=url)
        with TestClient(create_app(settings, log=io.StringIO())) as client:
            while client.get("/readyz").status_code != 200:
                pass
            answer = client.post(path, json=body)
            return answer.raise_for_status()

    return run


def walks() -> dict[str, set[str]]:
    """The modules that a forecast, a call, a training and an outcome enter."""
    history = [{"year": year, "earnings": 250_000} for year in range(2012, 2022)]
    person = {"person_id": "A", "birth_year": 1980, "sex": "female", "history": history}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        people, register = str(ROOT / "examples/people.csv"), str(folder / "register")
        command("register", "generate", "--persons", "600", "--seed", "5", "--out", register)()
        recorded = call("/v1/forecasts", {"persons": [person], "record": True}, folder / "l.db")
        outcome: dict[str, object] = {"person_id": "A", "year": 2022, "earnings": 260_000}
        recorded()
        return {
            "saga forecast": modules_entered(
                command("forecast", people, "--out", str(folder / "f.csv"))
            ),
            "POST /v1/forecasts": modules_entered(call("/v1/forecasts", {"persons": [person]})),
            "saga train": modules_entered(
                command("train", "--panel", register, "--config", "tiny", "--out", f"{name}/b")
            ),
            "POST /v1/outcomes": modules_entered(
                call("/v1/outcomes", {"outcomes": [outcome]}, folder / "l.db")
            ),
        }


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", default="faf6f059", help="commit to compare with")
    parser.add_argument("--walks", action="store_true", help="also run the four walks")
    args = parser.parse_args()
    before, now = measure(read_commit(args.since)), measure(read_commit("HEAD"))
    rows = [f"| | {args.since} | now |", "|---" * 3 + "|"]
    rows += [
        f"| {kind}: statements | {before.statements[kind]:,} | {now.statements[kind]:,} |"
        for kind in KINDS
    ]
    for name, count in (
        ("product modules", lambda size: size.modules),
        ("modules that only pass on", lambda size: len(size.passing)),
        ("public classes of the product", lambda size: size.classes),
        ("lines of JavaScript", lambda size: size.script_lines),
        ("words of all pages (.md)", lambda size: size.words),
    ):
        rows.append(f"| {name} | {count(before):,} | {count(now):,} |")
    rows += ["", "| room | kind | statements | now |", "|---" * 4 + "|"]
    for room in sorted(before.rooms | now.rooms, key=lambda room: -now.rooms[room]):
        if kind_of(room) in ("product", "evidence"):
            counts = f"{before.rooms[room]:,} | {now.rooms[room]:,}"
            rows.append(f"| `{room}` | {kind_of(room)} | {counts} |")
    if now.passing:
        rows += ["", "Modules that only pass on: " + ", ".join(now.passing)]
    if args.walks:
        rows += ["", "| walk | product modules entered |", "|---|---|"]
        rows += [f"| `{name}` | {len(entered)} |" for name, entered in walks().items()]
    sys.stdout.write("\n".join(re.sub(r" +$", "", row) for row in rows) + "\n")


if __name__ == "__main__":
    main()
