"""Writes the reference in docs/python.md: what each public name is and has; `help` says the rest.

The sources are parsed, not imported. `--check` exits 1 if the page is not what the sources say.

Usage: python docs/python/write.py [--check]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import saga

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
BLOCK = re.compile(r"<!-- reference -->\n.*?<!-- end -->", re.DOTALL)
_RESULTS = tuple(
    ("saga.forecast_results", name) for name in ("Forecasts", "Lifetimes", "GroupForecasts")
)
_BASE = ("saga.forecast_results", "Result")
ASKED = ("Request", "Draws", "Recipe", "Result")  # whose fields are named
# Public for other packages of the project; a user of the library has no need of them.
_INSIDE = {
    *("comonotone", "covers", "describe", "calibrator_for", "largest_partition", "of"),
    *("open", "realised_macro", "scenario", "state_weights", "tax_rule", "with_calibrator"),
    *("forecaster", "lifetime_blocks", "path_tables", "plan", "run", "with_earnings", "with_frame"),
    *("with_model", "wage_index", "check", "salted", "check_judgeable"),
    *("provenance", "warnings", "network", "transforms", "process", "calendar"),
    *("reference_draws", "begins_before", "ratio_names", "with_contents"),
}


def definition(module: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    """The class or function `name` of a module."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    path = path if path.is_file() else path.with_suffix("") / "__init__.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    raise SystemExit(f"{module} has no {name}")


def text(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The first paragraph of the docstring."""
    return (ast.get_docstring(node) or "").partition("\n\n")[0]


def signature(node: ast.FunctionDef, owner: str = "") -> str:
    """The signature as Python code, without `self`, `cls` and the types of arguments."""
    arguments = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
    if owner and arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    for argument in (*arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    name = f"{owner}.{node.name}" if owner else node.name
    return f"{name}({ast.unparse(arguments)}){returns}"


def public_methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The public methods of a class that users call."""
    for inner in node.body:
        if not isinstance(inner, ast.FunctionDef) or inner.name.startswith("_"):
            continue
        if inner.name not in _INSIDE and "overload" not in decorators(inner):
            yield inner


def fields(node: ast.ClassDef) -> list[str]:
    """The names of the fields of a dataclass."""
    return [
        ast.unparse(inner.target)
        for inner in node.body
        if isinstance(inner, ast.AnnAssign) and "ClassVar" not in ast.unparse(inner.annotation)
    ]


def entry(module: str, name: str) -> list[str]:
    """The lines about a public name."""
    node = definition(module, name)
    heading = [f"### {name}", ""]
    if isinstance(node, ast.FunctionDef):
        return [*heading, "```text", signature(node), "```", "", text(node), ""]
    methods = list(public_methods(node))
    properties = [method for method in methods if is_property(method)]
    named = [*(fields(node) if name.endswith(ASKED) else ()), *(one.name for one in properties)]
    has = f" Has {', '.join(f'`{one}`' for one in named)}." if named else ""
    lines = [*heading, f"{text(node)}{has}", ""]
    for method in methods:
        if method not in properties:
            lines.append(f"- `{signature(method, name)}`: {' '.join(text(method).split())}")
    return [*lines, ""]


def is_property(node: ast.FunctionDef) -> bool:
    """Whether a method is read without a call."""
    return not decorators(node).isdisjoint({"property", "cached_property"})


def decorators(node: ast.FunctionDef) -> set[str]:
    """The decorators of a method."""
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def reference() -> str:
    """The entries of all public names, and of the results."""
    names = {
        name: module
        for module, of_module in saga._NAMES_BY_MODULE.items()
        for name in of_module
        if not name.endswith("Error")
    }
    pairs = [(names[name], name) for name in sorted(names)]
    lines = [line for pair in (*pairs, *_RESULTS, _BASE) for line in entry(*pair)]
    page = "\n".join(["<!-- reference -->", "", *lines, "<!-- end -->"])
    return re.sub(r"\n{3,}", "\n\n", page)


def main() -> None:
    """Write the reference, or compare it."""
    page = PAGE.read_text(encoding="utf-8")
    written = BLOCK.sub(lambda _: reference(), page)
    if sys.argv[1:] == ["--check"]:
        sys.exit(int(written != page))
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
