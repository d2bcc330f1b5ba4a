"""Panels from a few rows."""

import polars as pl

from saga import schema

BENEFITS = (
    "sickness_benefit",
    "parental_benefit",
    "unemployment_benefit",
    "disability_pension",
    "pension_income",
)


def panel_of(rows: list[dict[str, object]]) -> pl.DataFrame:
    """The rows as a panel, sorted: of the columns not named, benefits are 0 and the others null."""
    frame = pl.DataFrame(rows, infer_schema_length=None)
    rest = [
        pl.lit(0.0 if column.name in BENEFITS else None, column.dtype).alias(column.name)
        for column in schema.COLUMNS
        if column.name not in frame.columns
    ]
    return (
        frame.with_columns(*rest)
        .cast(schema.polars_schema())
        .select(schema.NAMES)
        .sort("person_id", "year")
    )
