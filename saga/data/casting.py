"""Cells of a source -> cells of the panel: one type a column, one spelling a code, and a note of what cannot be read.

Nothing is guessed: an empty text is unknown, a whole number in a float or a text is a whole number, a code that lost
its leading zeros gets them back, and every other cell that is not what its column holds is reported. A name with a control
character within is no text: numpy forgets a NUL at the end, and two persons would answer to one name.
"""

from __future__ import annotations

import re

import polars as pl

from saga.schema import Column

_EXACT = (
    2**53
)  # above, floats do not hold every whole number, so an id would silently become its neighbour
_CONTROL = r"\p{Cc}"


def read_column(cells: pl.Series, column: Column) -> tuple[pl.Series, pl.Series]:
    """The cells in the column's type, shape (n,), and which of them could not be read, (n,) Boolean; those are null."""
    if isinstance(cells.dtype, pl.Categorical | pl.Enum):
        cells = cells.cast(pl.String)
    if cells.dtype == pl.String and cells.len():
        cells = _mended(cells, column)
    if cells.dtype == pl.Boolean and column.dtype == pl.Float64():
        cells = cells.cast(pl.Float64)
    readable = cells.dtype in (pl.String, pl.Null) or cells.dtype.is_numeric()
    if not readable:
        typed = pl.Series(cells.name, [None], dtype=column.dtype).new_from_index(0, cells.len())
    elif column.dtype == pl.String():
        typed = _texts(cells, column)
    elif column.dtype == pl.Int32():
        typed = _whole(_numbers(cells)).cast(pl.Int32, strict=False)
    else:
        typed = _numbers(cells)
    return typed.alias(column.name), typed.is_null() & cells.is_not_null()


def _mended(cells: pl.Series, column: Column) -> pl.Series:
    """Text without blanks around it, empty text as null, and numeric codes with their leading zeros."""
    if column.kind not in ("category", "label"):
        trimmed = cells.str.strip_chars()
        empty = trimmed == ""
        return trimmed.set(empty, None) if empty.any() else trimmed
    # The few distinct codes are mended, not each of millions of cells.
    distinct = cells.unique()
    mended = distinct.str.strip_chars()
    mended = mended.set(mended == "", None)
    if (width := _width(column)) is not None:
        mended = mended.str.replace(r"^(\d+)\.0+$", "$1")
        mended = pl.select(
            pl.when(mended.str.contains(r"^\d+$")).then(mended.str.zfill(width)).otherwise(mended)
        ).to_series()
    return (
        cells
        if mended.equals(distinct, null_equal=True)
        else cells.replace_strict(distinct, mended, return_dtype=pl.String)
    )


def _numbers(cells: pl.Series) -> pl.Series:
    return cells.cast(pl.Float64, strict=False)


def _whole(numbers: pl.Series) -> pl.Series:
    """Whole numbers; null where the number has a fraction or is too large to be exact."""
    whole = (numbers.abs() < _EXACT) & (numbers.floor() == numbers)
    return numbers.set(~whole, None).cast(pl.Int64, strict=False)


def _texts(cells: pl.Series, column: Column) -> pl.Series:
    if cells.dtype.is_float() or cells.dtype.is_decimal():
        cells = _whole(_numbers(cells))
    if cells.dtype == pl.String:
        if column.codes or column.pattern:  # against which each cell is held later
            return cells
        control = cells.str.contains(_CONTROL)
        return cells.set(control, None) if control.any() else cells
    texts = cells.cast(pl.String)
    return texts if (width := _width(column)) is None else texts.str.zfill(width)


def _width(column: Column) -> int | None:
    """How many digits the codes of a numeric classification have; None where codes are words."""
    if column.codes:
        return len(column.codes[0]) if all(code.isdigit() for code in column.codes) else None
    digits = re.fullmatch(r"\^\\d\{(\d+)\}\$", column.pattern)
    return int(digits[1]) if digits else None
