"""Options from the fields of requests, help, the names of extras, progress."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from saga.cli import app, console
from saga.cli.options import with_options
from saga.errors import UsageError
from saga.requests import (
    REQUESTS,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    PathsRequest,
    Product,
    Request,
    options_of,
)
from tests.command_line import refusal

ROOT = Path(__file__).resolve().parents[3]
GROUP: Any = typer.main.get_command(app)
COMMANDS = {
    f"{name} {inner}".strip(): command
    for name, group in GROUP.commands.items()
    for inner, command in getattr(group, "commands", {"": group}).items()
}
EXAMPLES = [
    line.partition("  #")[0].split(maxsplit=1)[1]
    for command in (GROUP, *COMMANDS.values())
    for line in command.help.partition("Examples:")[2].strip().splitlines()
]


def parsed(words: list[str]) -> Any:
    """The context of a command line; an option that does not exist is an error."""
    context = GROUP.make_context("saga", list(words))
    name, command, rest = GROUP.resolve_command(context, words)
    return command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_is_a_command_line_of_the_program(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule file is read with the options."""
    (tmp_path / "reform.yaml").write_text("base: se\n")
    monkeypatch.chdir(tmp_path)
    parsed(shlex.split(line))


def lines_of_pages() -> list[Any]:
    """The command lines of saga in the code blocks of all pages, without their comments."""
    found: dict[str, str] = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for name, value in re.findall(r"^ *([A-Z]+)=\"(.*)\"$", text, re.M):
            text = text.replace(f"${name}", value)
        for line in re.findall(r"^(?:    |\t)?(?:\.venv/bin/)?saga ([a-z].*)$", text, re.M):
            found.setdefault(line.partition("  #")[0].strip(), page.relative_to(ROOT).as_posix())
    return [pytest.param(line, id=f"{page}: {line}") for line, page in found.items()]


@pytest.mark.parametrize("line", lines_of_pages())
def test_every_command_line_of_a_page_is_one_of_the_program(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule files, and files of those who join, are read with the options."""
    (tmp_path / "reform.yaml").write_text("base: se\n")
    (tmp_path / "inflow.csv").write_text("year,age,persons\n2023,20,100\n")
    monkeypatch.chdir(tmp_path)
    parsed(shlex.split(line, comments=True))


def test_a_wrong_example_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(shlex.split("forecast people.csv --out f.csv --no-such-option"))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_every_option_with_description_bounds_and_default(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "-h"], env={"COLUMNS": "400"})
    assert shown.exit_code == 0
    text = re.sub(r"[\s│]+", " ", shown.stdout)
    for parameter in COMMANDS[name].params:
        assert parameter.help, f"{parameter.name} has no description"
        assert " ".join(parameter.help.split()) in text
        assert all(option in text for option in parameter.opts if option.startswith("-"))
        if isinstance(parameter.default, str | int | float) and parameter.default is not False:
            assert f"{parameter.default}" in text


@pytest.mark.parametrize(
    ("command", "request_type"), [("forecast", "forecasts"), ("lifetime", "lifetimes")]
)
def test_a_command_has_the_options_of_its_request(command: str, request_type: Any) -> None:
    """Names, defaults, bounds and descriptions are those of the fields."""
    there = {parameter.name: parameter for parameter in COMMANDS[command].params}
    of_all = {parameter.name: parameter for parameter in COMMANDS["score"].params}
    for name, (field, option) in options_of(REQUESTS[request_type]).items():
        parameter = there[option.name or name]
        assert parameter.help.startswith(option.help)
        assert parameter.rich_help_panel == "Forecast"
        assert option.help[1:] in of_all[option.name or name].help
        if option.most is not None or option.above is not None:
            assert option.range in parameter.help
        if not isinstance(field.default, tuple):
            assert parameter.default == field.default


def toy(line: str) -> Any:
    """What a command takes that has all requests, and of the draws the seed."""
    taken: list[object] = []

    def command(
        product: Product, request: Request, draws: Annotated[Draws, "seed"] = Draws(200)
    ) -> None:
        taken.extend((product, request, draws))

    program = typer.Typer()
    program.command()(with_options(command))
    done = CliRunner().invoke(program, line.split())
    return taken if done.exit_code == 0 else done


@pytest.mark.parametrize(
    ("line", "request_", "seed"),
    [
        ("lifetimes --rate 0 --seed 3", LifetimeRequest(rate=0.0), 3),
        ("forecasts --horizons 1-3,9 --limits", ForecastRequest((1, 2, 3, 9), limits=True), 0),
        ("forecasts --quantiles 10-12", ForecastRequest(quantiles=(0.1, 0.11, 0.12)), 0),
        ("paths --circumstances --to-age 60", PathsRequest(60, states=True), 0),
    ],
)
def test_a_command_takes_objects_that_are_made_from_its_options(
    line: str, request_: Request, seed: int
) -> None:
    assert toy(line) == [request_.product, request_, Draws(200, seed)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("paths --rate 0", "no option rate"),
        ("lifetimes --paths 20", "No such option: --paths"),
        ("lifetimes --rate 1", "'--rate': 1.0 is not strictly between -0.5 and 1"),
        ("lifetimes --to-age 16", "'--to-age': 16 is not from 17 to 64"),
        ("forecasts --horizons 0-5", "'--horizons': 0 is not from 1 to 30"),
        ("forecasts --horizons one", "'--horizons'"),
        ("forecasts --coverage nan", "'--coverage': nan is not strictly between 0 and 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_option_and_what_is_allowed(
    line: str, message: str
) -> None:
    refused = toy(line)
    shown = refused.stderr if refused.exit_code == 2 else str(refused.exception)
    assert refused.exit_code == 2 or isinstance(refused.exception, UsageError)
    assert message in re.sub(r"[\s│]+", " ", shown)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("report --bundle bundles/small --out r.html", "saga COMMAND BUNDLE"),
        ("serve bundles/small", "--bundle DIRECTORY"),
        ("forecast people.csv bundles/small --out f.csv", "--bundle DIRECTORY"),
        ("lifetime people.csv --rate 0,03 --out f.csv", "with a decimal point: 0.03"),
        ("train --panel people.csv --privacy 1,5 --out b", "with a decimal point: 0.03"),
    ],
)
def test_a_line_written_in_another_way_is_answered_with_the_right_spelling(
    line: str, words: str
) -> None:
    assert words in re.sub(r"[\s│]+", " ", refusal(line))


def test_the_extra_of_every_optional_module_is_named() -> None:
    """`pip install` of the named extra brings the module that a command lacks."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    required = {
        extra: {re.split(r"[<>=\[]", line)[0].lower() for line in extras[extra]}
        for extra in ("train", "serve", "jobs", "trees", "brief")
    }
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
