"""A module has one name: `saga.api` is the folder `api`, in a checkout and in the wheel alike."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("saga", "api", "training", "calibration", "evaluation")
BUNDLES = ("prior", "small")
# Not code, and not read by code.
NOT_SHIPPED = {".md", ".pyc"}


def _run(command: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed_name(path: str) -> str:
    """Where a file of the checkout is in the wheel."""
    return path if path.startswith("saga/") else f"saga/{path}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout as a zip brings it: files alone, without links and without git."""
    folder = tmp_path_factory.mktemp("source")
    archive = folder / "saga.zip"
    parts = (*FOLDERS, "bundles", "pyproject.toml", "README.md", "LICENSE")
    files = _run(["git", "ls-files", "--", *parts], ROOT)
    with zipfile.ZipFile(archive, "w") as bundle:
        for name in files.splitlines():
            bundle.write(ROOT / name, name)
    with zipfile.ZipFile(archive) as bundle:
        bundle.extractall(folder / "checkout")
    return folder / "checkout"


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    _run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
         "--quiet", "--disable-pip-version-check", "--wheel-dir", str(source.parent), str(source)],
        source,
    )  # fmt: skip
    (built,) = source.parent.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The installed wheel, behind other packages with the names of our folders."""
    folder = tmp_path_factory.mktemp("site")
    for name in FOLDERS[1:]:
        (folder / "theirs" / name).mkdir(parents=True)
        (folder / "theirs" / name / "__init__.py").write_text(f"OWNER = 'theirs: {name}'\n")
    ours = folder / "ours"
    _run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet",
         "--disable-pip-version-check", "--target", str(ours), str(wheel)],
        folder,
    )  # fmt: skip
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SAGA_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(folder / "theirs"), str(ours)])}


def test_every_folder_with_code_is_a_package_of_the_distribution() -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for name in FOLDERS
        for path in (ROOT / name).rglob("*.py")
    }
    packages = {installed_name(f"{folder}/").strip("/").replace("/", ".") for folder in folders}
    assert set(described["packages"]) == packages | {f"saga.bundles.{name}" for name in BUNDLES}


@pytest.mark.slow
def test_the_wheel_has_the_files_of_the_checkout_byte_for_byte(source: Path, wheel: Path) -> None:
    expected = {
        installed_name(path.relative_to(source).as_posix()): path.read_bytes()
        for name in (*FOLDERS, "bundles")
        for path in (source / name).rglob("*")
        if path.is_file() and (name == "bundles" or path.suffix not in NOT_SHIPPED)
    }
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("saga_forecast-0.1.0.dist-info/top_level.txt").split() == [b"saga"]
        files = {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }
    assert files.keys() == expected.keys()
    assert files == expected


def test_no_link_is_tracked() -> None:
    entries = _run(["git", "ls-files", "--stage"], ROOT).splitlines()
    assert [entry for entry in entries if entry.startswith("120000")] == []


def test_no_module_is_imported_under_a_second_name() -> None:
    """In a checkout `import api` would find the folder, and load a copy beside `saga.api`."""
    files = _run(["git", "ls-files", "*.py"], ROOT).splitlines()
    bare = rf"^\s*(from|import) ({'|'.join(FOLDERS[1:])})[. ]"
    assert [
        f"{name}:{number}: {line}"
        for name in files
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if re.match(bare, line) and name != "tests/test_wheel.py"
    ] == []


@pytest.mark.thorough
def test_python_and_the_command_line_work_beside_packages_of_the_same_names(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    program = f"""
import api, calibration, evaluation, training
from saga import Forecaster, read_panel
forecaster = Forecaster.load()
print(forecaster.bundle.path)
print(forecaster.forecast(read_panel({str(ROOT / "examples/people.csv")!r})).table.height)
import saga.api.app, saga.evaluation.explain.explanation_page, saga.training.fit
print(*(module.OWNER for module in (api, calibration, evaluation, training)))
"""
    printed = _run([sys.executable, "-c", program], tmp_path, environment).splitlines()
    assert "site" in printed[0]
    assert printed[0].endswith("ours/saga/bundles/small")
    assert int(printed[1]) > 0
    assert printed[2] == "theirs: api theirs: calibration theirs: evaluation theirs: training"

    script = Path(environment["PYTHONPATH"].split(os.pathsep)[1]) / "bin" / "saga"
    forecast = [sys.executable, str(script), "forecast", str(ROOT / "examples/people.csv")]
    assert "Wrote" in _run([*forecast, "--out", "forecast.csv"], tmp_path, environment)
    assert (tmp_path / "forecast.csv").read_text().count("\n") == int(printed[1]) + 1
