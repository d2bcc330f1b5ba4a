"""Every study has the options that its first lines name."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "studies"
STUDIES = sorted(
    file.stem for file in FOLDER.glob("*.py") if "def main(" in file.read_text(encoding="utf-8")
)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


class ParserMadeError(Exception):
    """The study has made its parser."""


def study(name: str) -> ModuleType:
    return importlib.import_module(f"studies.{name}")


@pytest.mark.parametrize("name", STUDIES)
def test_the_docstring_of_a_study_names_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: set[str] = set()

    def parse(parser: argparse.ArgumentParser, *_: object) -> None:
        options.update(text for action in parser._actions for text in action.option_strings)
        raise ParserMadeError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    module = study(name)
    with pytest.raises(ParserMadeError):
        module.main()
    text = module.__doc__ or ""
    command = text.split("\n\n")[1].split("\n    saga ")[0]
    assert f"python -m studies.{name}" in command
    assert options - {"-h", "--help"} <= set(OPTION.findall(text))
    assert set(OPTION.findall(command)) <= options
