"""Variants of the model as rows of a table: further bundles, trained elsewhere and named in one file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from evaluation.placebos import PLACEBOS
from evaluation.scoring.comparison import HINDSIGHT, VARIANT
from saga.errors import Problem, UsageError

RESERVED = (*PLACEBOS, HINDSIGHT.removeprefix(VARIANT))
COLUMNS = ("name", "table", "label", "note", "bundle")


class Variant(BaseModel):
    """One row: `name` finds the paper's figure (`published.json`), `table` its title, `note` says how it was trained (the budget)."""

    model_config = ConfigDict(extra="forbid")

    name: str
    table: str
    label: str
    note: str
    bundle: Path


def read_variants(file: Path) -> pl.DataFrame:
    """The rows of a YAML file, a list of mappings with the fields of `Variant`; bundles are found from the file's own directory.

    Columns COLUMNS, all text. Raises UsageError naming the row and field where the file is not such a list, a name occurs twice or a
    bundle is not there.
    """
    try:
        rows = TypeAdapter(list[Variant]).validate_python(
            yaml.safe_load(file.read_text(encoding="utf-8"))
        )
    except (yaml.YAMLError, ValidationError) as error:
        first = (
            error.errors()[0]
            if isinstance(error, ValidationError)
            else {"loc": (), "msg": "it is no YAML"}
        )
        place = ".".join(map(str, first["loc"])) or "the file"
        fix = f"Give a list of {', '.join(COLUMNS)}."
        raise UsageError(
            f"{file} cannot be read", [Problem("variants", f"{place}: {first['msg']}", fix)]
        ) from error
    for row in rows:
        if row.name in RESERVED:
            problem = Problem(
                "variants",
                f"{row.name} is the name of a row that the contest makes itself",
                "Choose another.",
            )
            raise UsageError(f"{file} cannot be read", [problem])
        if sum(other.name == row.name for other in rows) > 1:
            raise UsageError(
                f"{file} cannot be read",
                [Problem("variants", f"{row.name} occurs twice", "Give each row a name.")],
            )
        if not (file.parent / row.bundle).is_dir():
            problem = Problem(
                "variants",
                f"{row.name}: there is no bundle {row.bundle}",
                "Train it first, or leave the row out.",
            )
            raise UsageError(f"{file} cannot be read", [problem])
    data = [{**row.model_dump(), "bundle": str(file.parent / row.bundle)} for row in rows]
    return pl.DataFrame(data, schema=dict.fromkeys(COLUMNS, pl.String))
