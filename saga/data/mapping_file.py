"""Mappings in YAML files: faults are named by line or key."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from saga.data.mapping import SourceMapping
from saga.errors import Problem, UsageError
from saga.files.yaml_text import read_yaml

_OTHER_TYPES = re.compile(r"str|Sum|FirstPositive|tuple\[.*|MacroFile|literal\[.*|function-.*")
_FORMS = {  # of keys that have several, or parts
    "columns": "a column's name, a list of names, `sum` or `first_positive`; numbers in quotes",
    "extra": "`extra: {NAME: {kind: category}}`, or number in place of category",
    "keep": "`keep: {NAME: [0, 500000]}`",
    "deflator": "`deflator: {file: cpi.csv, base_year: 1987}`",
    "macro": "`macro: none`, or `macro: {file: series.csv}`",
}


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
    title = f"the mapping {name} cannot be used"
    content = read_yaml(text, title, "mapping") if content is None else content
    try:
        base = content.pop("extends", None) if isinstance(content, dict) else None
        if base is not None:
            content = _extended(content, base)
        mapped = SourceMapping.model_validate({} if content is None else content)
        on = SourceMapping() if base is None else SourceMapping.model_validate(_shipped(base))
        return mapped.on_top_of(on), folder
    except ValidationError as error:
        raise UsageError(title, _explain(error)) from None


def _shipped(name: str) -> dict[str, Any]:
    file = resources.files("saga.data").joinpath("mappings", f"{name}.yaml")
    return dict(read_yaml(file.read_text(encoding="utf-8"), name, "mapping"))


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
        elif part["type"] != "value_error" and (form := _FORMS.get(key.partition(".")[0])):
            why = f"`{key}` is missing or of another form"
            problem = Problem("mapping", why, f"Write {form}.")
        problems[key] = problem
    return list(problems.values())
