"""Help: examples that the program understands, groups of options, the names of extras."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from saga.cli import app, console
from saga.cli.help_pages import EXAMPLES, PANEL_OF

ROOT = Path(__file__).resolve().parents[3]
GROUP: Any = typer.main.get_command(app)


def parsed(words: list[str]) -> Any:
    """The context of a command line; an option that does not exist is an error."""
    context = GROUP.make_context("saga", list(words))
    name, command, rest = GROUP.resolve_command(context, words)
    return command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line, _ in lines])
def test_every_example_is_a_command_line_of_the_program(line: str) -> None:
    assert parsed(shlex.split(line)).params


def test_a_wrong_example_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(shlex.split("forecast people.csv --out f.csv --no-such-option"))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_has_the_examples_and_no_type_for_flags(name: str, option: str) -> None:
    words = [option] if name == "saga" else [name, option]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "Examples:" in shown.stdout
    assert all(f"saga {line}" in shown.stdout for line, _ in EXAMPLES[name])
    assert "<bool>" not in shown.stdout


def test_the_groups_name_options_that_exist() -> None:
    options = {
        parameter.name
        for command in GROUP.commands.values()
        for inner in getattr(command, "commands", {"": command}).values()
        for parameter in inner.params
    }
    assert set(PANEL_OF) - options == set()


def test_the_bundle_as_an_option_is_answered_with_the_right_spelling() -> None:
    done = CliRunner().invoke(app, ["report", "--bundle", "bundles/small", "--out", "r.html"])
    assert done.exit_code == 2
    assert "saga COMMAND BUNDLE" in re.sub(r"[\s│]+", " ", done.stderr)


def test_the_extra_of_every_optional_module_is_named() -> None:
    """`pip install` of the named extra brings the module that a command lacks."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    required = {
        extra: {re.split(r"[<>=\[]", line)[0].lower() for line in extras[extra]}
        for extra in ("train", "serve", "jobs", "trees")
    }
    required["evidence"] = {"captum"}  # the library that `saga explain` needs beside those of train
    distributions = packages_distributions()
    for named, modules in console.EXTRAS.items():
        for module in modules:
            owners = {name.lower().replace("_", "-") for name in distributions[module]}
            assert owners & set().union(*(required[extra] for extra in named.split(","))), module
    covered = {name for modules in console.EXTRAS.values() for name in modules}
    named_distributions = {
        name.lower().replace("_", "-") for module in covered for name in distributions[module]
    }
    assert set().union(*required.values()) - named_distributions == set()


@pytest.mark.parametrize(
    ("module", "status", "text"),
    [("xlsxwriter.workbook", 2, "The package xlsxwriter is missing"), ("saga.x", 70, "Internal")],
)
def test_a_missing_required_package_is_named(
    module: str, status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert console.report(error, as_json=False, debug=False) == status
    assert text in re.sub(r"[\s│]+", " ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("seconds", "done", "recent", "text"),
    [
        (1.0, 10, 10.0, "estimating"),
        (60.0, 0, None, "estimating"),
        (100.0, 500, None, "about 100 s|about 2 min"),
        (100.0, 500, 1.0, "about 8 min"),  # the first 500 were fast
        (100.0, 10, 100.0, "about 165 min|about 2.8 h"),  # the first 10 were slow
        (100.0, 1_000, 10.0, "finishing"),
    ],
)
def test_the_time_left_follows_the_slower_speed(
    seconds: float, done: int, recent: float | None, text: str
) -> None:
    assert re.match(text, console.time_left(seconds, done, 1_000, recent))


def test_a_log_file_gets_a_line_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 30.0, 70.0, 71.0, 140.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now, 200.0))
    with console.progress("Scoring") as advance:
        assert advance is not None
        for done in (10, 20, 21, 40):
            advance(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["Scoring: 20 of 100", "Scoring: 40 of 100"]
