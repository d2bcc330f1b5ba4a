"""Writes docs/cli.md: every command of `saga` with its options, from the program itself.

`--check` exits 1 if the page is not what the program says.

Usage: python docs/cli/write.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from saga.cli import app

PAGE = Path(__file__).resolve().parents[1] / "cli.md"
HEAD = """# The command line

Written by `python docs/cli/write.py`. `saga COMMAND -h` shows the same with more examples and the
values that are allowed; options of commands that judge and simulate are there alone.
In parentheses: the environment variable. `saga --install-completion` adds completion to your shell.
With `--json` most commands print one JSON object. Exit codes: 0 done, 1 a check failed, 2 wrong use
or bad input, 3 interrupted (the same command resumes), 70 internal error.
"""
SHARED_BY = 2  # commands
EXAMPLES = 2  # of a command; `-h` shows all
IN_HEAD = "--json"
# Commands that judge and simulate, of the evidence; other pages say how they are used.
NAMES_ONLY = (
    *("saga evaluate", "saga vintages", "saga audit", "saga circumstances"),
    *("saga report", "saga benchmark", "saga register"),
)
PRODUCTS = ("saga forecast", "saga lifetime", "saga pensions")  # whose options `saga score` has
SHARED_HEAD = """## Options of several commands

A command's section names those of this list that it has, by heading if it has all or all but one.
Brackets: the default.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of the program."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for inner, inner_command in getattr(command, "commands", {"": command}).items():
            yield f"saga {name} {inner}".rstrip(), inner_command


def shared_rows() -> dict[str, dict[str, str]]:
    """Heading -> name -> line of what several commands have in the same words."""
    counts, headings = Counter[str](), dict[str, tuple[str, str]]()
    for full_name, command in commands():
        for parameter in () if full_name.startswith(NAMES_ONLY) else shown(command):
            text = row(parameter)
            counts[text] += 1
            headings.setdefault(text, (parameter.rich_help_panel or "All", name_of(parameter)))
    shared: dict[str, dict[str, str]] = {}
    for text in sorted(headings, key=lambda text: -counts[text]):
        heading, name = headings[text]
        if counts[text] >= SHARED_BY:
            shared.setdefault(heading, {}).setdefault(name, text)
    return shared


def plain(text: str) -> str:
    """The line of an option without its default and without the product before its meaning."""
    return re.sub(r" \[[^]]*\]|(?<=: )[A-Z][a-z ]+: (pension rule: )?", "", text).lower()


def shown(command: Any) -> list[Any]:
    """The arguments, then the options of a command, without those that the head names."""
    parameters = [one for one in command.params if name_of(one) not in ("--help, -h", IN_HEAD)]
    return sorted(parameters, key=lambda parameter: parameter.param_type_name)


def name_of(parameter: Any) -> str:
    """The name of an argument, or the spellings of an option."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join(parameter.opts)


def row(parameter: Any) -> str:
    """The line of an argument or option: name, default, meaning."""
    text = (parameter.help or "").partition(" Allowed: ")[0]
    annotation = parameter.type_descriptor.annotation
    if get_origin(annotation) is Literal and any(c not in text for c in get_args(annotation)):
        text += f" One of {', '.join(f'`{choice}`' for choice in get_args(annotation))}."
    if parameter.envvar:
        text += f" (`{parameter.envvar}`)"
    default = shown_default(parameter)
    return f"- `{name_of(parameter)}`{f' [{default}]' if default else ''}: {text}"


def shown_default(parameter: Any) -> str:
    """The default of an argument or option as people read it."""
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return str(parameter.show_default)
    return (
        "" if parameter.default is None or parameter.default is False else f"`{parameter.default}`"
    )


def named(shared: dict[str, dict[str, str]], rows: list[str]) -> Iterator[str]:
    """Names of the shared options among the rows of a command, by heading if it has nearly all."""
    for heading, options in shared.items():
        there = [f"`{name}`" for name, text in options.items() if text in rows]
        missing = [f"`{name}`" for name, text in options.items() if text not in rows]
        if len(there) > 2 and len(missing) < 2:
            yield f"*{heading}*" + "".join(f" without {name}" for name in missing)
        else:
            yield from there


def page() -> str:
    """The page as Markdown."""
    shared = shared_rows()
    lists = "\n\n".join(
        "\n".join([f"*{heading}*", "", *options.values()]) for heading, options in shared.items()
    )
    parts = [HEAD, f"{SHARED_HEAD}\n{lists}\n"]
    of_products = {
        plain(row(one))
        for name, command in commands()
        if name in PRODUCTS
        for one in shown(command)
    }
    for name, command in commands():
        about, _, examples = (command.help or "").partition("\n\nExamples:\n")
        rows = [row(parameter) for parameter in shown(command)]
        also = list(named(shared, rows))
        common = {text for options in shared.values() for text in options.values()}
        rows = [text for text in rows if text not in common]
        if name == "saga score":
            also.append("those of " + ", ".join(f"`{product}`" for product in PRODUCTS))
            rows = [text for text in rows if plain(text) not in of_products]
        if name.startswith(NAMES_ONLY):
            about = about.partition("\n\n")[0]
        lines = [f"## {name}", "", " ".join(about.split()), ""]
        if examples:
            printed = list(map(str.strip, examples.strip().splitlines()[:EXAMPLES]))
            if len(printed) == 1:
                printed = [printed[0].partition("  #")[0]]
            lines += ["```console", *printed, "```", ""]
        if name.startswith(NAMES_ONLY):
            also, rows = [], []
        elif rows:
            lines += [*rows, ""]
        if also:
            lines += [f"{'Also' if rows else 'Options:'} {', '.join(also)}."]
        parts.append("\n".join(lines).rstrip() + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page, or compare it."""
    if sys.argv[1:] == ["--check"]:
        sys.exit(int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page()))
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
