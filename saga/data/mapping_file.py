"""Mappings in YAML files: read as they are written, and faults named by line or key.

YAML 1.1 has words and numbers with a second meaning: `no` is false and `011` is nine. In a mapping
they are codes, so a key is the text that is written, and only `true`, `false`, `null` and decimal
numbers without leading zeros are other values than texts.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from saga.data.mapping import SourceMapping
from saga.errors import Problem, UsageError

_DIGITS = r"[-+]?(?:0|[1-9][0-9]*)"
_SCALARS = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", _DIGITS, "-+0123456789"),
    (
        "float",
        rf"(?:{_DIGITS}(?:\.[0-9]*)?|[-+]?\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf",
        "-+.0123456789",
    ),
)
_OTHER_TYPES = re.compile(r"str|Sum|FirstPositive|tuple\[.*|MacroFile|literal\[.*|function-.*")


class _Loader(yaml.SafeLoader):
    """YAML without second meanings, and without two entries of one key."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML reads the class)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The entries of a table; raises a YAMLError with the line of a second one."""
        result: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in result:
                why = "a key is no text" if key.id != "scalar" else f"{key.value} stands twice"
                raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)
            result[key.value] = self.construct_object(value, deep=deep)
        return result


for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}",
        re.compile(f"^(?:{_pattern})$"),
        ["" if letter == "\0" else letter for letter in _first],
    )


def shipped_mappings() -> tuple[str, ...]:
    """Names of the mappings that come with SAGA."""
    return tuple(
        sorted(
            f.name.removesuffix(".yaml")
            for f in resources.files("saga.data").joinpath("mappings").iterdir()
            if f.name.endswith(".yaml")
        )
    )


def load_mapping(
    mapping: str | Path | Mapping[str, object],
) -> tuple[SourceMapping, Path | None]:
    """A mapping by its file, its entries or the name of a shipped one, and the file's folder.

    Raises `UsageError` if there is no such mapping or it is not valid; the message names the key.
    """
    content: Any
    if isinstance(mapping, Mapping):
        name, folder, text, content = "of this call", None, "", dict(mapping)
    elif str(mapping) in shipped_mappings():
        shipped = SourceMapping.model_validate(_shipped(str(mapping)))
        return shipped.on_top_of(shipped), None
    else:
        name, folder, text, content = str(mapping), Path(mapping).parent, _read(mapping), None
    try:
        content = yaml.load(text, _Loader) if content is None else content
        base = content.pop("extends", None) if isinstance(content, dict) else None
        if base is not None:
            content = _extended(content, base)
        mapped = SourceMapping.model_validate({} if content is None else content)
        on = SourceMapping() if base is None else SourceMapping.model_validate(_shipped(base))
        return mapped.on_top_of(on), folder
    except yaml.YAMLError as error:
        problems = [_explain_syntax(error, text)]
    except ValidationError as error:
        problems = _explain(error)
    raise UsageError(f"the mapping {name} cannot be used", problems)


def _shipped(name: str) -> dict[str, Any]:
    file = resources.files("saga.data").joinpath("mappings", f"{name}.yaml")
    return dict(yaml.load(file.read_text(encoding="utf-8"), _Loader))


def _read(mapping: str | Path) -> str:
    try:
        content = Path(mapping).read_bytes()
    except OSError:
        raise UsageError.of(
            f"there is no mapping {mapping}",
            "mapping",
            "neither a shipped name nor a readable file",
            f"Give a YAML file, or one of the shipped mappings: {', '.join(shipped_mappings())}.",
        ) from None
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
    raise UsageError.of(
        f"the mapping {mapping} cannot be used",
        "mapping",
        f"line {line} is not UTF-8 text",
        "Save the mapping as UTF-8.",
    )


def _extended(content: dict[str, Any], name: object) -> dict[str, Any]:
    """A mapping on top of the shipped one that it extends: its keys count, tables are joined."""
    if name not in shipped_mappings():
        raise UsageError.of(
            "the mapping cannot be used",
            "mapping",
            "`extends` names no shipped mapping",
            f"Name one of {', '.join(shipped_mappings())}.",
        )
    base = _shipped(str(name))
    for key, value in content.items():
        joined = isinstance(value, dict) and key in ("columns", "extra", "digits", "codes", "keep")
        base[key] = {**base.get(key, {}), **value} if joined else value
    return base


def _explain_syntax(error: yaml.YAMLError, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem("mapping", "the file is not YAML", "Correct the syntax.")
    why, fix = f"line {mark.line + 1} is not YAML", "Correct the syntax."
    if isinstance(error, yaml.constructor.ConstructorError):
        why, fix = f"line {mark.line + 1}: {error.problem}", "Join the two entries, or remove one."
    elif "\t" in "".join(text.splitlines()[mark.line : mark.line + 1]):
        why, fix = f"{why}: it contains a tab", "Indent with blanks."
    return Problem("mapping", why, fix)


def _explain(error: ValidationError) -> list[Problem]:
    """A problem for each key; Pydantic has one for each type that the key may have."""
    problems: dict[str, Problem] = {}
    for part in error.errors(include_url=False):
        key = ".".join(str(p) for p in part["loc"] if not _OTHER_TYPES.fullmatch(str(p)))
        why = str(part["msg"]).removeprefix("Value error, ")
        problem = Problem(
            "mapping", f"`{key}`: {why}" if key else why, "Correct this key in the mapping."
        )
        if part["type"] == "extra_forbidden":
            fix = f"Use one of {', '.join(SourceMapping.model_fields)}, extends."
            problem = Problem("mapping", f"the key `{key}` is not known", fix)
        elif key in problems:
            why = (
                f"`{key}` is neither a column's name nor a list of names, `sum` or `first_positive`"
            )
            problem = Problem("mapping", why, "Name columns of the source; numbers in quotes.")
        problems[key] = problem
    return list(problems.values())
