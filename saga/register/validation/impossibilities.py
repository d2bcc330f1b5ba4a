"""What cannot be in a register: each rule is checked on every row, and its violations counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from saga import schema
from saga.register.validation.register_arrays import TAXABLE_TRANSFERS

_YEARS_OF_LEVEL = {"short_tertiary": 18, "long_tertiary": 20}  # youngest age of a degree


def _rules() -> dict[str, pl.Expr]:
    """Rule -> whether a row breaks it. Rows are sorted by person and year."""
    age = pl.col("year") - pl.col("birth_year")
    exited = pl.col("exit_year").is_not_null()

    def next_of(name: str) -> pl.Expr:
        return pl.col(name).shift(-1).over("person_id")

    rules = {
        "two rows of a person in a year": pl.struct("person_id", "year").is_duplicated(),
        f"an age outside {schema.MIN_AGE}-{schema.MAX_AGE}": ~age.is_between(
            schema.MIN_AGE, schema.MAX_AGE
        ),
        "a row before the entry": pl.col("year") < pl.col("entry_year"),
        "a row in or after the year of exit": pl.col("year") >= pl.col("exit_year"),
        "an exit without a reason, or a reason without an exit": exited
        != pl.col("exit_reason").is_not_null(),
        "earnings without a week at work": (pl.col("earnings") > 0)
        & (pl.col("employment_rate") == 0)
        & (pl.sum_horizontal(*TAXABLE_TRANSFERS) == 0),
        "a partner's earnings without a partner": (pl.col("spouse_earnings") > 0)
        & ~pl.col("marital_status").is_in(["married", "cohabiting"]),
        "no child at home, but an age of the youngest": (pl.col("children") == "0")
        & (pl.col("youngest_child") != "none"),
        "children at home without an age of the youngest": (pl.col("children") != "0")
        & (pl.col("youngest_child") == "none"),
        "an education that falls": pl.col("education_level")
        .replace_strict(
            list(schema.EDUCATION_LEVELS), list(range(4)), default=None, return_dtype=pl.Int8
        )
        .pipe(lambda level: level.shift(-1).over("person_id") < level),
        "single again after a marriage": (pl.col("marital_status") == "married")
        & (next_of("marital_status") == "single"),
    }
    for level, youngest in _YEARS_OF_LEVEL.items():
        rules[f"{level} below the age of {youngest}"] = (pl.col("education_level") == level) & (
            age < youngest
        )
    for column in schema.COLUMNS:
        if column.static:
            several = pl.col(column.name) != next_of(column.name)
            rules[f"two values of {column.name}"] = several
        if column.codes:
            rules[f"an unknown code of {column.name}"] = ~pl.col(column.name).is_in(column.codes)
        elif column.pattern:
            rules[f"a malformed code of {column.name}"] = ~pl.col(column.name).str.contains(
                column.pattern
            )
        if column.minimum is not None and column.kind in ("money", "number"):
            rules[f"{column.name} below {column.minimum:g}"] = pl.col(column.name) < column.minimum
        if column.maximum is not None and column.kind == "number":
            rules[f"{column.name} above {column.maximum:g}"] = pl.col(column.name) > column.maximum
    return rules


def check_impossibilities(files: Sequence[Path]) -> pl.DataFrame:
    """Number of violations of each rule in the files of a panel; whole persons are in one file.

    Returns:
        Columns `impossible` (text), `rows` (that break the rule) and `checked` (all rows).
    """
    rules = _rules()
    counts = []
    for file in files:
        rows = pl.read_parquet(file, glob=False, hive_partitioning=False)
        broken = [rule.fill_null(False).sum().alias(name) for name, rule in rules.items()]
        counts.append(rows.sort("person_id", "year").select(pl.len().alias("checked"), *broken))
    total = pl.concat(counts).sum().row(0, named=True)
    return pl.DataFrame(
        {
            "impossible": list(rules),
            "rows": [int(total[name]) for name in rules],
            "checked": int(total["checked"]),
        }
    )
