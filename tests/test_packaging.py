"""pyproject.toml declares the packages and dependencies of the code; the lock pins them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EVIDENCE = tomllib.loads((ROOT / "evaluation" / "pyproject.toml").read_text())
PACKAGES = ("saga", "api", "training", "calibration", "evaluation")
# Installed with fastapi and pydantic, as part of their interface.
INDIRECT = {"anyio", "pydantic-core", "starlette"}
# Of the build.
BUILD = {"setuptools"}
# Used as commands, as plug-ins, or by another library.
NOT_IMPORTED = {
    "cvxpy",
    "import-linter",
    "mypy",
    "psycopg",
    "pytest",
    "pytest-xdist",
    "ruff",
    "tensorboard",
    "types-pyyaml",
    "xlsxwriter",
}


def test_the_build_takes_the_pinned_setuptools() -> None:
    pins = (ROOT / "requirements.lock").read_text().splitlines()
    for project in (PROJECT, EVIDENCE):
        (requirement,) = project["build-system"]["requires"]
        assert requirement in pins


def test_no_image_asks_two_indexes_for_one_package() -> None:
    """Who publishes a higher version under the name on one of them is installed."""
    for dockerfile in (ROOT / "docker").rglob("*Dockerfile"):
        assert "extra-index-url" not in dockerfile.read_text()


def test_no_secret_is_tracked_or_copied_into_an_image() -> None:
    names = [".env", "saga-keys.txt", "saga-ray-token.txt", "b.salt", "l.sqlite.key", "run.ckpt"]
    line = ["git", "check-ignore", *names]
    ignored = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ignored.split() == names
    copied = (ROOT / ".dockerignore").read_text().split()
    assert "*" in copied  # all but what is named
    assert "!bundles" in copied
    assert "**/*.salt" in copied  # which lie beside bundles
    tracked = subprocess.run(
        ["git", "ls-files", "*.log"], cwd=ROOT, capture_output=True, check=True
    )
    assert not tracked.stdout


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~\[ ;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _declared(*extras: str, of: dict[str, Any] = PROJECT) -> set[str]:
    project = of["project"]
    lists = [
        project["dependencies"],
        *(project["optional-dependencies"][extra] for extra in extras),
    ]
    return {_name(requirement) for requirements in lists for requirement in requirements}


@cache
def _modules_of(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.split(".")[0])
    return modules


def _imported(*folders: str, but: str = "") -> set[str]:
    """Distributions that the sources under `folders` import; not the project itself."""
    paths = [path.relative_to(ROOT) for name in folders for path in (ROOT / name).rglob("*.py")]
    modules = set[str]().union(
        *(_modules_of(ROOT / path) for path in paths if but not in path.parts)
    )
    distributions = packages_distributions()
    foreign = modules - set(sys.stdlib_module_names) - set(PACKAGES) - {"__future__"}
    return {
        _name(distributions[module][0]) for module in foreign if module in distributions
    } - INDIRECT


def test_the_code_imports_only_declared_dependencies() -> None:
    # A result becomes a frame of pandas if the user has it; its name is imported for types only.
    # httpx is what `saga.client` needs, and LightGBM what bundles with trees need.
    assert _imported("saga", but="cli") - {"pandas"} <= _declared("ray", "client", "trees", "brief")
    assert _imported("saga") - {"pandas"} <= _declared(
        "train", "serve", "ray", "client", "brief"
    ), "the command line imports what its commands need, when they run"
    assert _imported("training", "calibration") <= _declared("train", "privacy")
    assert _imported("evaluation") - BUILD <= _declared("deepar", of=EVIDENCE)
    assert _imported("api") <= _declared("serve", "jobs")
    assert _imported("tests", "benchmarks", "studies", "docs") <= _declared(
        "train", "serve", "privacy", "dev"
    ) | _declared(of=EVIDENCE)


def test_both_distributions_have_one_version_and_the_extra_installs_the_other() -> None:
    name, version = EVIDENCE["project"]["name"], PROJECT["project"]["version"]
    assert EVIDENCE["project"]["version"] == version
    assert PROJECT["project"]["optional-dependencies"]["evidence"] == [f"{name}=={version}"]
    assert f"saga-forecast[train]=={version}" in EVIDENCE["project"]["dependencies"]


def test_every_declared_dependency_is_used() -> None:
    used = _imported(*PACKAGES, "tests", "benchmarks", "studies", "docs") | NOT_IMPORTED
    assert _declared("train", "serve", "privacy", "dev") - used == set()
    assert _declared(of=EVIDENCE) - used == {"saga-forecast"}


def test_the_lock_pins_every_declared_dependency_exactly() -> None:
    lines = (ROOT / "requirements.lock").read_text().split()
    pins = dict(line.split("==") for line in lines)
    needed = _declared("train", "serve", "ray", "privacy", "dev") | _declared(of=EVIDENCE)
    assert needed - {"saga-forecast"} <= {_name(name) for name in pins}
    assert not any("+" in version for version in pins.values()), (
        "a local version ties the lock to one build of torch"
    )
