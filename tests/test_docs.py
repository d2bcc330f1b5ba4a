"""Documents and program agree: written pages are fresh, links resolve, Python blocks run."""

from __future__ import annotations

import doctest
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from saga.evaluation.textbook import PROCESSES

from saga.bundle import Bundle
from saga.register import RegisterSettings, generate_register

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WRITERS = (
    "docs/cli/write.py",
    "docs/columns/write.py",
    "docs/python/write.py",
)
FIRST_PAGES = ("README.md",)  # whose blocks run in the default suite
NUMBER = r"\d[\d,.]*"
NOTEBOOK = ROOT / "examples" / "first_forecast.ipynb"


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def python_blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def printed(page: Path) -> list[tuple[str, str]]:
    """The bundle that a page names before what its blocks print, and what they print."""
    text = page.read_text(encoding="utf-8")
    blocks = r"^They print[^\n]*\(bundle `(\w+)`\):\n\n```text\n(.*?)^```"
    return re.findall(blocks, text, flags=re.DOTALL | re.MULTILINE)


def shows(output: str, lines: str) -> bool:
    """Whether lines are in an output, but for the last digits: processors round differently."""
    form = f"({NUMBER})".join(map(re.escape, re.split(NUMBER, lines)))
    if (found := re.search(form, output)) is None:
        return False
    shown, written = (
        [float(number.replace(",", "")) for number in numbers]
        for numbers in (found.groups(), re.findall(NUMBER, lines))
    )
    return bool(np.allclose(shown, written, rtol=1e-4, atol=0))


def without_code(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def test_other_numbers_are_not_taken_for_those_of_a_page() -> None:
    assert shows("a 1,234 b", "a 1,234 b")
    assert shows("so\na 361,548.9 b\n", "a 361,546 b")
    assert not shows("a 361,648 b", "a 361,546 b")
    assert not shows("a 361,546 c", "a 361,546 b")


@pytest.mark.parametrize("writer", WRITERS)
def test_written_pages_are_fresh(writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [writer, "--check"])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(ROOT / writer), run_name="__main__")
    assert not done.value.code, f"run: python {writer}"


def test_links_between_pages_resolve() -> None:
    assert [
        f"{page_name(page)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", without_code(page))
        if "://" not in target and not (page.parent / target).exists()
    ] == []


def test_every_room_is_inside_the_picture_of_the_architecture() -> None:
    svg = (ROOT / "docs" / "pictures" / "architecture.svg").read_text(encoding="utf-8")
    width = int(re.findall(r'viewBox="0 0 (\d+) ', svg)[0])
    boxes = re.findall(r'<rect x="([-\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    assert len(boxes) == len(re.findall("<text", svg))
    outside = [box for box in boxes if float(box[0]) < 0 or float(box[0]) + float(box[1]) > width]
    assert outside == []
    assert "#c33" not in svg, "an import goes upwards"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the names that the documents use: bundles, examples."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("bundles", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def registers(workplace: Path) -> None:
    settings = RegisterSettings(persons=500, seed=7, future_to=2042, future_draws=2)
    generate_register(workplace / "register", settings)
    gkos = RegisterSettings(persons=200, seed=1, process=PROCESSES["gkos"])
    generate_register(workplace / "gkos", gkos)


def test_every_test_that_the_threat_model_names_exists() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    assert named - set(re.findall(r"^(?:async )?def (test_\w+)\(", sources, re.M)) == set()


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """Each page of docs/ is in mkdocs.yml once, and each entry is a page."""
    entries = re.findall(r"([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(entries) == sorted(pages)


def test_the_links_of_readme_lead_to_pages_of_the_site_up_to_its_last_section() -> None:
    """The site begins with them: docs/site/hooks.py."""
    first, _, last = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## More")
    links = re.findall(r"\]\(([^)]+)\)", first)
    assert last
    assert [link for link in links if not link.startswith(("docs/", "http://127."))] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_lists_of_a_page_are_whole_on_the_site(page: Path) -> None:
    """After an empty line Python-Markdown ends a list, or takes indented code as its text."""
    item = r"^ *(?:[-*]|\d+\.) .*\n(?: +\S.*\n)*"
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    assert re.findall(rf"{item}\n+( +\S.*)", text, flags=re.M) == []


@pytest.fixture
def on_page_content(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.setitem(sys.modules, "latex2mathml", ModuleType("latex2mathml"))
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", SimpleNamespace(convert=str))
    hook: Callable[[str], str] = runpy.run_path(str(ROOT / "docs/site/hooks.py"))["on_page_content"]
    return hook


def test_no_line_of_a_page_ends_within_an_option(on_page_content: Callable[[str], str]) -> None:
    whole = '<span style="white-space: nowrap">--no-compare</span>'
    assert on_page_content("<code>saga x --no-compare 5</code>") == f"<code>saga x {whole} 5</code>"
    for plain in (
        "<code>a--b</code>",
        "<p>--by</p>",
        "<pre><code><span>x --by</span></code></pre>",
    ):
        assert on_page_content(plain) == plain


def test_links_to_files_that_the_site_lacks_become_text(
    on_page_content: Callable[[str], str],
) -> None:
    leaving = {
        link
        for page in (ROOT / "docs").rglob("*.md")
        for link in re.findall(r"\]\(((?:\.\./)+[^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).resolve().is_relative_to(ROOT / "docs")
    }
    assert len(leaving) > 3
    assert {on_page_content(f'<a href="{link}">text</a>') for link in leaving} == {"text"}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.usefixtures("registers")
def test_the_notebook_runs_from_the_first_cell_to_the_last(workplace: Path) -> None:
    """Without Jupyter: cells run in one process, and the last line of each is shown."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells), "outputs are not committed"
    lines = [line.rstrip() for cell in cells for line in cell["source"]]
    shown = {cell["source"][-1].rstrip() for cell in cells if " = " not in cell["source"][-1]}
    program = "\n".join(
        f"assert ({line})._repr_html_()" if line in shown and not line.startswith("from ") else line
        for line in lines
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=workplace,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("module", ["data.reading", "forecaster", "forecaster_fit"])
def test_examples_of_docstrings_run(
    module: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    tried = doctest.testmod(import_module(f"saga.{module}"))
    assert tried.attempted
    assert not tried.failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.thorough] * (page_name(page) not in FIRST_PAGES))
        for page in PAGES
        if python_blocks(page)
    ],
    ids=page_name,
)
def test_python_blocks_run(page: Path, workplace: Path, request: pytest.FixtureRequest) -> None:
    """The blocks of a page run one after the other in a new process, as a reader would run them."""
    if page_name(page) not in FIRST_PAGES:
        request.getfixturevalue("registers")
    program = "\n".join(python_blocks(page))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=workplace,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    shipped = Bundle.load(ROOT / "bundles" / "small").digest
    for bundle, lines in printed(page):
        assert shows(done.stdout, lines) or not shipped.startswith(bundle)
