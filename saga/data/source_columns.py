"""Columns of a source: their spelling, and their cells as text or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

import polars as pl

from saga.errors import InputError, Problem

# A number with a decimal comma; dots or blanks between thousands, or none.
_COMMA_NUMBER = r"^-?(\d+|\d{1,3}([.\s]\d{3})+)(,\d+)?$"


def misfit(problem: Problem) -> InputError:
    """The error of a mapping that cannot be applied to the source."""
    return InputError("the mapping does not fit the source", [problem])


def find_columns(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """The source's spelling (one of `names`) of each of `columns` that it has."""
    lower, result = _by_lower_case(tuple(names)), list[str]()
    for name in columns:
        if "*" in name:
            spellings = [
                spelling
                for key, same in lower.items()
                if fnmatchcase(key, name.lower())
                for spelling in same
            ]
        else:
            spellings = [name] if name in names else lower.get(name.lower(), [])
        if len(spellings) > 1:
            why = f"{name} may be {' or '.join(spellings)}"
            fix = "Write the exact spelling in the mapping."
            raise misfit(Problem("ambiguous-column", why, fix))
        result += spellings
    return result


@lru_cache(maxsize=64)
def _by_lower_case(names: tuple[str, ...]) -> dict[str, list[str]]:
    lower: dict[str, list[str]] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), []).append(name)
    return lower


def cell_text(column: str) -> pl.Expr:
    """The column as text without surrounding blanks; whole numbers have no `.0`."""
    return pl.col(column).cast(pl.String).str.strip_chars().str.strip_suffix(".0")


def with_decimal_point(column: str) -> pl.Expr:
    """Numbers with a decimal comma as numbers with a point; other texts cannot be read as numbers.

    A cell such as 12.5 may be 12,5 or a part of 12.500, so it must not pass for a number.
    """
    text = pl.col(column).str.strip_chars()
    number = text.str.replace_all(r"[.\s]", "").str.replace(",", ".", literal=True)
    return (
        pl.when(text.str.contains(_COMMA_NUMBER))
        .then(number)
        .otherwise(text.str.replace_all(".", ":", literal=True))
        .alias(column)
    )


def cell_number(frame: pl.DataFrame, column: str) -> pl.Expr:
    """The column as numbers; text cells become NaN, which validation reports."""
    if frame.schema[column].is_numeric():
        return pl.col(column).cast(pl.Float64)
    text = cell_text(column).replace("", None)
    return pl.when(text.is_not_null()).then(
        text.cast(pl.Float64, strict=False).fill_null(float("nan"))
    )


def sum_cells(frame: pl.DataFrame, columns: Sequence[str]) -> pl.Expr:
    """The sum of the known cells of a row; unknown if all are."""
    parts = [cell_number(frame, column) for column in columns]
    return pl.when(pl.any_horizontal(part.is_not_null() for part in parts)).then(
        pl.sum_horizontal(parts)
    )
