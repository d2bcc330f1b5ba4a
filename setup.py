"""Packages of the distribution, which has one top-level name: `saga`.

In the checkout `api`, `training`, `calibration` and `evaluation` are folders beside `saga`. Other
distributions use these names too, so the wheel has them inside `saga` (`saga.api`), with imports
that say so, and the bundles as `saga/bundles`. An editable installation keeps the names of the
checkout.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

INNER = ("api", "training", "calibration", "evaluation")
BUNDLES = ("small", "prior")
_MODULE = re.compile(rf"({'|'.join(INNER)})(\.[a-z_][a-z_0-9]*)*")


def nest_imports(source: str, modules: frozenset[str]) -> str:
    """The source of a module whose imports of the inner packages begin with `saga.`.

    A text constant that is the dotted name of one of `modules` is renamed, too: it names a module
    that is run, or the package of a template. Calling it again changes nothing.

    Raises:
        ValueError: If an import binds the bare name of an inner package, which then has no name.
    """
    lines = source.splitlines(keepends=True)
    starts: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_inner(node.module or ""):
            starts.add((node.lineno, node.col_offset + len("from ")))
        elif isinstance(node, ast.Import):
            for name in node.names:
                if _is_inner(name.name):
                    if name.asname is None:
                        raise ValueError(f"line {node.lineno}: write `from ... import` instead")
                    starts.add((name.lineno, name.col_offset))
        elif isinstance(node, ast.Constant) and "." in str(node.value) and node.value in modules:
            segment = ast.get_source_segment(source, node) or ""
            starts.add((node.lineno, node.col_offset + segment.index(node.value)))
    for line, column in sorted(starts, reverse=True):
        text = lines[line - 1].encode()  # `ast` counts bytes
        lines[line - 1] = (text[:column] + b"saga." + text[column:]).decode()
    return "".join(lines)


def _is_inner(module: str) -> bool:
    return _MODULE.fullmatch(module) is not None


@cache
def inner_modules() -> frozenset[str]:
    """Dotted names of all packages and modules in the inner packages, as in the checkout."""
    inner = [package for package in find_packages() if _is_inner(package)]
    files = {
        f"{package}.{path.stem}"
        for package in inner
        for path in Path(*package.split(".")).glob("*.py")
    }
    return frozenset({*inner, *files})


def find_packages() -> list[str]:
    """Dotted names of all folders with Python or data, as in the checkout."""
    patterns = [pattern for name in ("saga", *INNER) for pattern in (name, f"{name}.*")]
    return find_namespace_packages(include=patterns, exclude=["*.__pycache__", "*.__pycache__.*"])


class BuildPy(build_py):
    """Copies modules, and renames their imports of the inner packages."""

    def build_module(self, module, module_file, package):  # type: ignore[no-untyped-def]  # noqa: D102
        outfile, copied = super().build_module(module, module_file, package)
        path = Path(outfile)
        source = path.read_text(encoding="utf-8")
        nested = nest_imports(source, inner_modules())
        if nested != source:
            path.write_text(nested, encoding="utf-8")
        return outfile, copied


def main() -> None:
    """Build what the build backend asks for."""
    packages = find_packages()
    if "editable_wheel" in sys.argv:
        setup(packages=packages)
        return
    names = [f"saga.{name}" if _is_inner(name) else name for name in packages]
    bundles = [f"saga.bundles.{name}" for name in BUNDLES]
    setup(
        packages=[*names, *bundles],
        package_dir={**{f"saga.{name}": name for name in INNER}, "saga.bundles": "bundles"},
        cmdclass={"build_py": BuildPy},
    )


if __name__ == "__main__":
    main()
