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
PRODUCT = FOLDERS[:-1]
BUNDLES = ("prior", "small")
# What builds the evidence, and what a build leaves behind.
BUILD = {"backend", "build"}
# Not code, and not read by code.
NOT_SHIPPED = {".md", ".pyc"}


def _run(command: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed_name(path: str) -> str:
    """Where a file of the checkout is in its wheel."""
    if path.startswith("evaluation/oracle/"):
        return path.replace("evaluation/oracle", "saga/register/oracle")
    return path if path.startswith("saga/") else f"saga/{path}"


def build(folder: Path, out: Path) -> Path:
    """The wheel of the distribution in `folder`."""
    _run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
         "--quiet", "--disable-pip-version-check", "--wheel-dir", str(out), str(folder)],
        folder,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


def without_this_checkout(*folders: Path) -> Mapping[str, str]:
    """For `python -S`: the libraries of this environment, not its editable installations."""
    libraries = [path for path in sys.path if "site-packages" in path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *libraries])}


def files_of(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }


def files_under(source: Path, *folders: str) -> dict[str, bytes]:
    """The files that a wheel has of these folders, by their names in it."""
    return {
        installed_name(path.relative_to(source).as_posix()): path.read_bytes()
        for name in folders
        for path in (source / name).rglob("*")
        if path.is_file()
        and (name == "bundles" or path.suffix not in NOT_SHIPPED)
        and path.name != "pyproject.toml"
        and not any(part in BUILD or part.endswith(".egg-info") for part in path.parts)
    }


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
    return build(source, source.parent / "product")


@pytest.fixture(scope="module")
def evidence(source: Path) -> Path:
    return build(source / "evaluation", source.parent / "evidence")


@pytest.fixture(scope="module")
def environment(
    wheel: Path, evidence: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """The installed wheel, behind other packages with the names of our folders."""
    folder = tmp_path_factory.mktemp("site")
    for name in FOLDERS[1:]:
        (folder / "theirs" / name).mkdir(parents=True)
        (folder / "theirs" / name / "__init__.py").write_text(f"OWNER = 'theirs: {name}'\n")
    ours = folder / "ours"
    _run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet",
         "--disable-pip-version-check", "--target", str(ours), str(wheel), str(evidence)],
        folder,
    )  # fmt: skip
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SAGA_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(folder / "theirs"), str(ours)])}


def test_every_folder_with_code_is_a_package_of_its_distribution() -> None:
    for pyproject, folders, bundles in (
        ("pyproject.toml", PRODUCT, {f"saga.bundles.{name}" for name in BUNDLES}),
        ("evaluation/pyproject.toml", ("evaluation",), set[str]()),
    ):
        described = tomllib.loads((ROOT / pyproject).read_text())["tool"]["setuptools"]
        with_code = {
            installed_name(f"{path.parent.relative_to(ROOT).as_posix()}/")
            for name in folders
            for path in (ROOT / name).rglob("*.py")
            if not BUILD & set(path.parts)
        }
        names = {folder.strip("/").replace("/", ".") for folder in with_code}
        assert set(described["packages"]) == names | bundles


@pytest.mark.thorough
@pytest.mark.slow
def test_the_wheels_have_the_files_of_the_checkout_byte_for_byte(
    source: Path, wheel: Path, evidence: Path
) -> None:
    """What judges the forecasts is in a wheel of its own; no file is in both."""
    for built, folders in ((wheel, (*PRODUCT, "bundles")), (evidence, ("evaluation",))):
        files, expected = files_of(built), files_under(source, *folders)
        assert files.keys() == expected.keys()
        assert files == expected
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("saga_forecast-0.1.0.dist-info/top_level.txt").split() == [b"saga"]


@pytest.mark.thorough
@pytest.mark.slow
def test_without_the_evidence_a_command_names_it(wheel: Path, tmp_path: Path) -> None:
    """The product works alone, and says what judges, explains and makes textbook registers."""
    site = tmp_path / "site"
    _run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet",
         "--disable-pip-version-check", "--target", str(site), str(wheel)],
        tmp_path,
    )  # fmt: skip
    program = """
import sys
from importlib import metadata
every_entry_point = metadata.entry_points
metadata.entry_points = lambda **chosen: (
    () if chosen.get("group", "").startswith("saga.") else every_entry_point(**chosen)
)
import saga
assert saga.__path__[0].startswith(sys.argv.pop(1)), saga.__path__
from saga.cli import main
main()
"""
    people, out = str(ROOT / "examples/people.csv"), str(tmp_path / "out")
    textbook = ["register", "generate", "--persons", "5", "--process", "gkos", "--out", out]
    commands = (
        ["evaluate", "bundle", "--panel", people, "--out", out],
        textbook,
        ["train", "--panel", people, "--out", out, "--config", "ablations/lstm"],
    )
    environment = without_this_checkout(site)
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-S", "-c", program, str(site), *command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert "saga-forecast[evidence]" in " ".join(done.stderr.split()), command


@pytest.mark.thorough
@pytest.mark.slow
def test_editable_installations_share_the_package_saga(source: Path, tmp_path: Path) -> None:
    """An editable installation of the evidence leaves `saga` to the product."""
    site = tmp_path / "site"
    _run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index",
         "--quiet", "--disable-pip-version-check", "--target", str(site),
         "-e", str(source), "-e", str(source / "evaluation")],
        tmp_path,
    )  # fmt: skip
    program = f"""
import site, sys
sys.path.insert(0, {str(site)!r})
site.addsitedir({str(site)!r})
import saga, saga.api.problems, saga.evaluation.protocol, saga.register.oracle
print(saga.__file__, saga.evaluation.protocol.__file__, saga.register.oracle.__file__)
"""
    printed = _run([sys.executable, "-S", "-c", program], tmp_path, without_this_checkout()).split()
    assert printed == [
        str(source / name)
        for name in ("saga/__init__.py", "evaluation/protocol.py", "evaluation/oracle/__init__.py")
    ]


def test_no_link_is_tracked() -> None:
    entries = _run(["git", "ls-files", "--stage"], ROOT).splitlines()
    assert [entry for entry in entries if entry.startswith("120000")] == []


def test_no_module_is_imported_under_a_second_name() -> None:
    """In a checkout `import api` would find the folder, and load a copy beside `saga.api`."""
    files = _run(["git", "ls-files", "*.py"], ROOT).splitlines()
    bare = rf"^\s*(from|import) ({'|'.join(FOLDERS[1:])}|saga[.]evaluation[.]oracle)[. ]"
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
import saga.api.app, saga.evaluation.contest, saga.training.fit
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
