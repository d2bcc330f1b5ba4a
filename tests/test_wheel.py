"""The wheel has one top-level name, and works beside packages that use the names of our folders."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INNER = ("api", "training", "calibration", "evaluation")
MODULES = frozenset({"api.jobs", "api.jobs.job_process", "calibration.diagnostics"})


@pytest.fixture(scope="module")
def nest_imports() -> Callable[[str, frozenset[str]], str]:
    spec = spec_from_file_location("saga_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = module_from_spec(spec)
    spec.loader.exec_module(setup)
    nest: Callable[[str, frozenset[str]], str] = setup.nest_imports
    return nest


@pytest.mark.parametrize(
    ("source", "nested"),
    [
        ("from api.app import app\n", "from saga.api.app import app\n"),
        ("from api import app\n", "from saga.api import app\n"),
        ("import training.fit as fit\n", "import saga.training.fit as fit\n"),
        (
            "import os, api.app as a, training.fit as f\n",
            "import os, saga.api.app as a, saga.training.fit as f\n",
        ),
        ("def f():\n    from calibration.fit import g\n", None),
        ("Ä = 'Ä'; from api.app import app\n", "Ä = 'Ä'; from saga.api.app import app\n"),
        ("run('api.jobs.job_process')\n", "run('saga.api.jobs.job_process')\n"),
        ('run(r"""api.jobs""")\n', 'run(r"""saga.api.jobs""")\n'),
    ],
)
def test_imports_and_names_of_modules_are_nested_once(
    nest_imports: Callable[[str, frozenset[str]], str], source: str, nested: str | None
) -> None:
    once = nest_imports(source, MODULES)
    assert once == (nested or source.replace("from calibration", "from saga.calibration"))
    assert nest_imports(once, MODULES) == once


@pytest.mark.parametrize(
    "source",
    [
        "from saga.api.app import app\n",
        "from . import api\n",
        "from api_client import api\n",
        "import apis.app\n",
        "path = 'calibration.parquet'\n",
        "tags = ['calibration']\n",
        "'''Started by `api.jobs`.'''\n",
    ],
)
def test_other_names_and_texts_stay(
    nest_imports: Callable[[str, frozenset[str]], str], source: str
) -> None:
    assert nest_imports(source, MODULES) == source


def test_an_import_that_binds_the_bare_name_is_refused(
    nest_imports: Callable[[str, frozenset[str]], str],
) -> None:
    with pytest.raises(ValueError, match="line 2"):
        nest_imports("import os\nimport api.app\n", MODULES)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "bundles", "saga", *INNER):
        (source / name).symlink_to(ROOT / name)
    _run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
         "--quiet", "--disable-pip-version-check", "--wheel-dir", str(folder), str(source)],
        folder,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The installed wheel, behind other packages with the names of our folders."""
    folder = tmp_path_factory.mktemp("site")
    for name in INNER:
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


def _run(command: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_has_one_top_level_name_and_the_bundles(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        assert archive.read("saga_forecast-0.1.0.dist-info/top_level.txt").split() == [b"saga"]
    assert {name.split("/")[0] for name in files} == {"saga", "saga_forecast-0.1.0.dist-info"}
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "bundles").rglob("*.*")}
    assert {f"saga/{name}" for name in shipped} <= set(files)


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
