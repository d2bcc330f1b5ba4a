"""The house rules that a program can check: names, rooms, documents."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("saga", "training", "calibration", "evaluation", "api", "studies")
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py" and "versions" not in path.parts
)
# Names of a file format: a weight of the shipped network, a column of a register's latent state.
FORMAT_NAMES = frozenset(
    {"saga.states.state_network: told", "saga.register.simulation.life_state: own"}
)
# Words that say how a value was obtained, not what it is.
VAGUE_NAMES = frozenset(
    {"asked", "came", "drawn", "found", "given", "held", "kept", "made"}
    | {"mine", "own", "some", "theirs", "told", "wanted", "whom"}
)


@cache
def syntax_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def names_bound(tree: ast.AST) -> Iterator[str]:
    """Names of variables and parameters that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def test_module_names_are_unique() -> None:
    counts = Counter(path.stem for path in MODULES)
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_function_or_class_has_the_name_of_its_module() -> None:
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    assert [
        module_name(path)
        for path in MODULES
        for node in syntax_of(path).body
        if isinstance(node, definitions) and node.name == path.stem
    ] == []


def test_variables_say_what_they_hold() -> None:
    vague = {
        f"{module_name(path)}: {name}"
        for path in MODULES
        for name in names_bound(syntax_of(path))
        if name.strip("_") in VAGUE_NAMES
    }
    assert sorted(vague - FORMAT_NAMES) == []


def test_no_function_takes_options_of_any_kind() -> None:
    """Options travel as typed parameters or objects; libraries that pass others are exempt."""
    untyped = {
        f"{module_name(path)}: {node.name}"
        for path in MODULES
        if path.relative_to(ROOT).parts[0] != "studies"
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.kwarg
    }
    assert sorted(untyped) == ["api.settings: of", "saga.cli.options: run"]


def test_nothing_but_a_run_reads_what_may_be_code() -> None:
    """A process reads the pickle of its parent, and training the checkpoint that it has written."""
    reads = {p for p in MODULES if re.search(r"\b(pickle|torch)\.loads?\(", p.read_text())}
    assert {path.relative_to(ROOT).as_posix() for path in reads} == {
        "saga/simulation/worker_process.py",
        "training/fit.py",
    }


def test_files_are_named_and_never_matched() -> None:
    """A path of a user may contain [ ] * and ?, which polars would take as a pattern."""
    calls = [
        (path, node)
        for path in MODULES
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.Call) and re.fullmatch(r"pl\.scan_\w+", ast.unparse(node.func))
    ]
    assert calls
    patterns = [
        f"{module_name(path)}:{node.lineno}"
        for path, node in calls
        if not any(word.arg == "glob" for word in node.keywords)
    ]
    assert patterns == []
