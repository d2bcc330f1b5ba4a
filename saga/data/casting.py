"""Conversion of source cells to the panel's types; unreadable cells are reported.

Only these conversions are made: an empty text is unknown, a whole number may be a float or a text,
the first or last day of a year may stand for the year, and a numeric code that lacks one leading
zero receives it. Every other cell that does not fit its column is reported. A text with a control
character does not fit: numpy drops a trailing NUL, so two persons would have the same name. Nor
does an id with a character of no width, which would make another person of it.
"""

from __future__ import annotations

import re
from collections import Counter

import polars as pl

from saga.schema import Column

_CONTROL = r"\p{Cc}"
_UNSEEN = r"[\p{Cc}\u{200B}\u{2060}\u{FEFF}]"  # in an id, spaces and marks of no width, too
# A number with a decimal comma; dots or blanks between thousands, or none.
_COMMA_NUMBER = r"^[-+]?(\d+|\d{1,3}([.\s]\d{3})+)(,\d+)?$"
_GROUP = r"^\s*-?[1-9]\d{0,2}[%s]\d{3}\s*$"  # a number whose sign may separate thousands
_NO_ID = "\x1a"  # a control character, which no id may have
HIVE_UNKNOWN = "__HIVE_DEFAULT_PARTITION__"  # in names of folders, where it is an unknown value
FEW_ROWS = 4_000  # up to here plain Python takes less time than to start operations of polars
_ALL_READABLE = pl.Series([False])


def read_column(cells: pl.Series, column: Column) -> tuple[pl.Series, pl.Series]:
    """The cells in the column's type, and which are unreadable and therefore null; shape (n,)."""
    if isinstance(cells.dtype, pl.Categorical | pl.Enum):
        cells = cells.cast(pl.String)
    if column.kind == "year" and cells.dtype in (pl.Date, pl.Datetime):
        cells = _years(cells)
    if cells.dtype == pl.String and cells.len():
        cells = _cleaned(cells, column)
    if cells.dtype == pl.Boolean and column.kind == "number":
        cells = cells.cast(pl.Float64)
    if cells.dtype == pl.Boolean and _has_any_codes(column):
        cells = cells.cast(pl.String)
    readable = cells.dtype in (pl.String, pl.Null) or cells.dtype.is_numeric()
    if not readable:
        typed = pl.Series(cells.name, [None], dtype=column.dtype).new_from_index(0, cells.len())
    elif column.dtype == pl.String():
        typed = _texts(cells, column)
    elif column.dtype == pl.Int32():
        numbers = cells if cells.dtype.is_integer() else _whole(cells)
        typed = numbers.cast(pl.Int32, strict=False)
    else:
        typed = _numbers(cells)
    if typed.null_count() == cells.null_count():  # the usual case, at a fraction of the time
        return typed.alias(column.name), _ALL_READABLE.new_from_index(0, cells.len())
    return typed.alias(column.name), typed.is_null() & cells.is_not_null()


def _years(dates: pl.Series) -> pl.Series:
    """The years of first and last days of years; other dates stay dates.

    A number of days or seconds that passes for a date is seldom such a day.
    """
    date = pl.col(dates.name)
    frame = dates.to_frame().select(date.dt.year(), is_end=is_end_of_year(date).fill_null(True))
    return frame[dates.name] if frame["is_end"].all() else dates


def is_end_of_year(date: pl.Expr) -> pl.Expr:
    """Whether dates are the first or last day of a year, at midnight."""
    return date.dt.strftime("%m-%d").is_in(["01-01", "12-31"]) & (date == date.dt.truncate("1d"))


def _cleaned(cells: pl.Series, column: Column) -> pl.Series:
    """Text without surrounding blanks, empty text as null, numeric codes with leading zeros."""
    if column.kind not in ("category", "label"):
        if _are_plain(cells):
            return cells
        trimmed = cells.str.strip_chars()
        empty = trimmed == ""
        return trimmed.set(empty, None) if empty.any() else trimmed
    # Only the few distinct codes are cleaned, not each of millions of cells.
    few = cells.len() <= FEW_ROWS
    distinct = list(set(cells.to_list())) if few else cells.unique().to_list()
    codes = [None if code is None else _cleaned_code(code, column) for code in distinct]
    if codes == distinct:
        return cells
    return cells.replace_strict(distinct, codes, return_dtype=pl.String)


def with_decimal_point(column: str) -> pl.Expr:
    """Numbers with a decimal comma as numbers with a point; other texts cannot be read as numbers.

    A cell such as 12.5 may be 12,5 or a part of 12.500, so it must not pass for a number.
    """
    text = pl.col(column).str.strip_chars()
    number = text.str.replace_all(r"[.\s]", "").str.replace(",", ".", literal=True)
    return (
        pl.when(text.str.contains(_COMMA_NUMBER))
        .then(number)
        .when(~text.str.contains(r"\d"))  # a code for what is unknown
        .then(text)
        .otherwise(text.str.replace_all(".", ":", literal=True))
        .alias(column)
    )


def in_groups(cells: pl.Series, sign: str = ".", earlier: Counter[str] | None = None) -> bool:
    """Whether the `sign` in texts may separate thousands, as in 285.000, by all cells.

    Other numbers may show that it is the decimal sign: 0.500 does. 0.5 beside 285.000 does not,
    because a program that leaves out zeros writes 285. `earlier` counts the cells of the column
    that came before, and these are added to it.
    """
    signed = cells.filter(cells.str.contains(sign, literal=True))
    is_group = signed.str.contains(_GROUP % sign)
    others = signed.filter(~is_group).str.contains(rf"[{sign}]\d{{3}}\s*$")
    seen = Counter[str]() if earlier is None else earlier
    seen["group"] += int(is_group.sum())
    seen["group with zero"] += int(signed.filter(is_group).str.contains(r"0\s*$").sum())
    seen["three digits"] += int(others.sum())
    seen["other"] += int((~others).sum())
    is_clear = seen["three digits"] or (seen["other"] and not seen["group with zero"])
    return seen["group"] > 0 and not is_clear


def _are_plain(cells: pl.Series) -> bool:
    """Whether a short column has only texts of printable ASCII without surrounding blanks."""
    return cells.len() <= FEW_ROWS and all(
        text is None or (text.isascii() and text.isprintable() and text == text.strip() != "")
        for text in set(cells.to_list())
    )


def _cleaned_code(code: str, column: Column) -> str | None:
    code = code.strip()
    if (width := _width(column)) is not None:
        code = _with_zero(re.sub(r"^(\d+)\.0+$", r"\1", code), width)
    elif _has_any_codes(column):  # 1.0 of one file and 1 of another are one code
        code = re.sub(r"^(-?\d+)\.0+$", r"\1", code)
    return code or None


def _has_any_codes(column: Column) -> bool:
    """Whether a category may have any codes: a column of the panel's own."""
    named = column.codes or column.pattern
    return column.kind in ("category", "label") and column.dtype == pl.String() and not named


def _numbers(cells: pl.Series) -> pl.Series:
    return cells.cast(pl.Float64, strict=False)


def least_inexact(dtype: pl.DataType) -> int:
    """From here on floats of a type do not have all whole numbers, so an id may be another's."""
    return 1 << (11 if dtype == pl.Float16() else 24 if dtype == pl.Float32() else 53)


def in_type(name: str, dtype: pl.DataType, schema: pl.Schema, *, exact: bool) -> pl.Expr:
    """A column in the type that it has beside others; a whole number as text has no `.0`.

    Where numbers have to be `exact`, others become texts that no id may be.
    """
    if name not in schema:
        return pl.lit(None, dtype=dtype).alias(name)
    cell = pl.col(name)
    if dtype == pl.String() and schema[name].is_decimal():
        cell = cell.cast(pl.Float64)
    if dtype == pl.String() and (schema[name].is_float() or schema[name].is_decimal()):
        is_whole = (cell.floor() == cell) & (cell.abs() < least_inexact(schema[name]))
        whole = cell.cast(pl.Int64, strict=False).cast(pl.String)
        other = pl.lit(_NO_ID if exact else "") + cell.cast(pl.String)
        return pl.when(is_whole).then(whole).otherwise(other).alias(name)
    return cell.cast(dtype)


def _whole(cells: pl.Series) -> pl.Series:
    """Whole numbers; null if the number has a fraction or is too large to be exact."""
    numbers = _numbers(cells)
    whole = (numbers.abs() < least_inexact(cells.dtype)) & (numbers.floor() == numbers)
    return numbers.set(~whole, None).cast(pl.Int64, strict=False)


def _texts(cells: pl.Series, column: Column) -> pl.Series:
    if cells.dtype.is_float() or cells.dtype.is_decimal():
        cells = _whole(cells)
    if cells.dtype == pl.String:
        # Validation compares codes with those of the column.
        if column.codes or column.pattern or _are_plain(cells):
            return cells
        control = cells.str.contains(_UNSEEN if column.kind == "id" else _CONTROL)
        return cells.set(control, None) if control.any() else cells
    texts = cells.cast(pl.String)
    if (width := _width(column)) is None:
        return texts
    distinct = texts.drop_nulls().unique().to_list()
    return texts.replace(distinct, [_with_zero(code, width) for code in distinct])


def _with_zero(code: str, width: int) -> str:
    """The code with its leading zero, if only one digit of `width` is missing."""
    return "0" + code if width > 1 and re.fullmatch(rf"\d{{{width - 1}}}", code) else code


def count_padded(cells: pl.Series, column: Column) -> int:
    """Number of cells whose numeric code lacked a leading zero."""
    width = _width(column) if column.kind == "category" else None
    if width is None or width == 1:
        return 0
    distinct = cells.unique()
    texts = distinct.cast(pl.String).str.strip_chars().str.replace(r"\.0+$", "")
    short = distinct.filter(texts.str.contains(rf"^\d{{{width - 1}}}$"))
    return int(cells.is_in(short.implode()).sum()) if len(short) else 0


def _width(column: Column) -> int | None:
    """Number of digits of the codes of a numeric classification; None if codes are words."""
    if column.codes:
        return len(column.codes[0]) if all(code.isdigit() for code in column.codes) else None
    digits = re.fullmatch(r"\^\\d\{(\d+)\}\$", column.pattern)
    return int(digits[1]) if digits else None
