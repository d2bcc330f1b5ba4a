"""Variants of the model: further bundles that a file lists, as rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from saga.evaluation.placebos import PLACEBOS
from saga.evaluation.scoring.comparison import HINDSIGHT, VARIANT

from saga.errors import Problem, UsageError
from saga.files.yaml_text import read_yaml

RESERVED = (*PLACEBOS, HINDSIGHT.removeprefix(VARIANT))
COLUMNS = ("name", "table", "label", "note", "bundle")
_FIELDS = f"Give a list of {', '.join(COLUMNS)}."


class Variant(BaseModel):
    """One row of the file.

    Args:
        name: Unique name, and key of the paper's figure in `published.json` if there is one.
        table: Title of the table that shows the row.
        label: The row's text in the table.
        note: How the bundle was trained (the budget).
        bundle: The directory of the bundle.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    table: str
    label: str
    note: str
    bundle: Path


_VARIANTS = Annotated[list[Variant], Field(min_length=1)]


def read_variants(file: Path) -> pl.DataFrame:
    """The rows of a YAML file, a list of mappings with the fields of `Variant`.

    Paths of bundles are relative to the file's directory. The columns are COLUMNS, all text. Raises
    UsageError if the file is not such a list, a name occurs twice or a bundle does not exist.
    """
    content = read_yaml(file.read_text(encoding="utf-8"), f"{file} cannot be read", "variants")
    try:
        rows = TypeAdapter(_VARIANTS).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise _refused(file, f"{field}: {first['msg']}", _FIELDS) from error
    names = [row.name for row in rows]
    for row in rows:
        if row.name in RESERVED:
            message = f"{row.name} is the name of a row that the contest makes itself"
            raise _refused(file, message, "Choose another.")
        if names.count(row.name) > 1:
            raise _refused(file, f"{row.name} occurs twice", "Give each row a name.")
        if not (file.parent / row.bundle).is_dir():
            message = f"{row.name}: there is no bundle {row.bundle}"
            raise _refused(file, message, "Train it first, or leave the row out.")
    data = [{**row.model_dump(), "bundle": str(file.parent / row.bundle)} for row in rows]
    return pl.DataFrame(data, schema=dict.fromkeys(COLUMNS, pl.String))


def _refused(file: Path, message: str, fix: str) -> UsageError:
    return UsageError(f"{file} cannot be read", [Problem("variants", message, fix)])
