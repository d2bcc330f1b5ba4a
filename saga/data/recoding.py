"""The panel's columns and codes from those of a source, by a mapping; and what its entries did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from saga.data.casting import in_type, is_end_of_year, with_decimal_point
from saga.data.mapping import (
    NUMBER,
    RANGE,
    WHOLE,
    ColumnSource,
    FirstPositive,
    SourceMapping,
    Sum,
    limits,
    parts_of,
)
from saga.data.spellings import find_columns
from saga.schema import COLUMNS, FAMILY

_TEXT = pl.String()


_NO_CODE = "a count is no number"  # is reported as an unknown code


_POWER = r"^-?\d(\.\d+[eE]\+?|[eE]\+)\d+$"
_YEARS = frozenset(column.name for column in COLUMNS if column.kind == "year")


@dataclass(frozen=True)
class Effect:
    """What an entry of a mapping did to the cells of a source.

    Attributes:
        entry: Key of the mapping, with the column or the code that it is about.
        columns: The source's columns that it applies to.
        matched: Number of cells that it applies to.
        unknown: Number of cells that it made unknown.
        is_own: Whether it is the user's, and not of a mapping that comes with SAGA.
    """

    entry: str
    columns: tuple[str, ...]
    matched: int
    unknown: int
    is_own: bool


def recode(mapping: SourceMapping, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Effect]]:
    """The frame in panel columns and codes, and what its entries did.

    The result has only columns that the source has, in the source's types. Raises `InputError`
    if `digits` applies to numbers, which have lost their leading zeros.
    """
    mapping.check_types(frame.schema)
    effects: list[Effect] = []
    if mapping.decimal == ",":
        numbers = _number_columns(mapping, frame)
        n_cells = sum(frame.height - frame[column].null_count() for column in numbers)
        effects.append(Effect("decimal", tuple(numbers), n_cells, 0, mapping.is_own("decimal")))
        frame = frame.with_columns(with_decimal_point(column) for column in numbers)
    taken = {
        name: (source, columns)
        for name, source in mapping.sources().items()
        if (columns := find_columns(parts_of(source), frame.columns))
    }
    read = {column for _, columns in taken.values() for column in columns}
    read |= set(find_columns(tuple(mapping.null_if), frame.columns))
    for name, bounds in mapping.keep.items():
        columns = [column for column in find_columns((name,), frame.columns) if column in read]
        is_own = mapping.is_own("keep", name)
        if not columns:
            effects.append(Effect(f"keep {name}", (), 0, 0, is_own))
        for column in columns:
            value = cell_number(frame, column)
            credible = value.is_between(*limits(bounds))
            if not frame.schema[column].is_numeric():  # a text stays, to be reported
                value = value.fill_nan(None)
            outside = frame.select(value.is_not_null() & ~credible).to_series()
            n_numbers = frame.select(value.is_not_nan().sum()).item()
            effects.append(Effect(f"keep {name}", (column,), n_numbers, int(outside.sum()), is_own))
            frame = frame.with_columns(pl.when(~outside).then(pl.col(column)).alias(column))
    unknown = _unknown_earnings(mapping, frame, effects)
    if all(
        len(columns) == 1
        and not isinstance(source, Sum | FirstPositive)
        and not mapping.recodes(name)
        for name, (source, columns) in taken.items()
    ):
        # The usual case of a call, at a tenth of the time of a query.
        result = pl.DataFrame(
            [frame[spelling].alias(name) for name, (_, [spelling]) in taken.items()]
        )
    else:
        result = frame.select(
            _column(mapping, name, source, columns, frame).alias(name)
            for name, (source, columns) in taken.items()
        )
    for name, (source, columns) in taken.items():
        if mapping.codes.get(mapping.key_of(name)):
            effects += _effects_of_codes(mapping, name, source, columns, frame)
    effects = [*_effects_of_columns(mapping, taken, result), *effects]
    if "earnings" in taken and unknown:
        result = result.with_columns(
            pl.when(~pl.any_horizontal(unknown)).then(pl.col("earnings")).alias("earnings")
        )
    return result, effects


def _effects_of_columns(
    mapping: SourceMapping,
    taken: Mapping[str, tuple[ColumnSource, list[str]]],
    result: pl.DataFrame,
) -> Iterator[Effect]:
    """What entries about columns of the panel did; they match nothing if there is no column.

    A column that is left out (`[]`) is what its entry means.
    """
    by_key = {mapping.key_of(name): (name, columns) for name, (_, columns) in taken.items()}
    paths: list[tuple[str, ...]] = [
        (part, key)
        for part in ("columns", "extra", "digits", "codes")
        for key in getattr(mapping, part)
        if getattr(mapping, part)[key] != () and not (part == "codes" and key in by_key)
    ]
    if mapping.family is not None:
        paths.append(("family",))
    for path in paths:
        name, columns = by_key.get(path[1] if path[1:] else FAMILY.name, ("", []))
        known = result.height - result[name].null_count() if name else 0
        yield Effect(" ".join(path), tuple(columns), known, 0, mapping.is_own(*path))
        parts = mapping.columns.get(name, ()) if path[0] == "columns" else ()
        for part in parts if isinstance(parts, tuple) and mapping.is_own(*path) else ():
            if not find_columns((part,), columns):
                yield Effect(f"columns {name}: {part}", (), 0, 0, True)


def _effects_of_codes(
    mapping: SourceMapping, name: str, source: ColumnSource, columns: list[str], frame: pl.DataFrame
) -> list[Effect]:
    key, dtype = mapping.key_of(name), _compared_type(mapping, name, frame.schema[columns[0]])
    is_sum = isinstance(source, Sum)
    values = [sum_cells(frame, columns)] if is_sum else list(map(cell_text, columns))
    # Only the few distinct cells are compared with the codes.
    cells = pl.concat(frame.select(value.cast(pl.String).alias(name)) for value in values)
    distinct = cells.drop_nulls().group_by(name).len("n")
    text = _without_zeros(pl.col(name))
    return [
        Effect(
            f"codes {key}: {code}",
            tuple(columns),
            n := int(distinct.filter(_matches(code, text, dtype))["n"].sum()),
            n if new is None else 0,
            mapping.is_own("codes", key, code),
        )
        for code, new in mapping.codes[key].items()
    ]


def _number_columns(mapping: SourceMapping, frame: pl.DataFrame) -> list[str]:
    """Text columns of the source that are read as numbers, also those of which codes are."""
    amounts = _amounts(mapping)
    sources = [
        parts_of(source)
        for name, source in mapping.sources().items()
        if name in amounts or isinstance(source, Sum | FirstPositive)
    ]
    columns = {
        spelling
        for part in (*sources, tuple(mapping.keep))
        for spelling in find_columns(part, frame.columns)
    }
    return [name for name in frame.columns if name in columns and frame.schema[name] == _TEXT]


def _amounts(mapping: SourceMapping) -> set[str]:
    """Columns of the panel that are amounts or other numbers."""
    columns = (*COLUMNS, *mapping.extra_columns)
    return {column.name for column in columns if column.kind in ("money", "number")}


def _compared_type(mapping: SourceMapping, name: str, dtype: pl.DataType) -> pl.DataType:
    """The type in which cells are compared with codes: texts of numbers as numbers."""
    return pl.Float64() if dtype == _TEXT and name in _amounts(mapping) else dtype


def _unknown_earnings(
    mapping: SourceMapping, frame: pl.DataFrame, effects: list[Effect]
) -> list[pl.Series]:
    unknown: list[pl.Series] = []
    for name, values in mapping.null_if.items():
        for column in find_columns((name,), frame.columns):
            is_own = mapping.is_own("null_if", name)
            for value in values:
                flagged = frame.select(_is_flag(value, column, frame)).to_series()
                n = int(flagged.sum())
                effects.append(Effect(f"null_if {name}: {value}", (column,), n, n, is_own))
                unknown.append(flagged.alias(str(len(unknown))))
    return unknown


def flags(mapping: SourceMapping, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The distinct cells of each column of `null_if`, as `written`, and as `read`.

    They are read as "true" if they make the row's earnings unknown, else as "false".
    """
    for name, values in mapping.null_if.items():
        for column in find_columns((name,), frame.columns):
            is_match = pl.any_horizontal(_is_flag(value, column, frame) for value in values)
            cells = frame.select(written=cell_text(column), read=is_match.cast(_TEXT))
            yield name, cells.drop_nulls().unique()


def _is_flag(value: str, column: str, frame: pl.DataFrame) -> pl.Expr:
    """Whether cells have a value of `null_if`, in whatever case, or lie in its range."""
    text = cell_text(column).str.to_lowercase()
    return _matches(value.lower(), text, frame.schema[column]).fill_null(False)


def _column(
    mapping: SourceMapping, name: str, source: ColumnSource, columns: list[str], frame: pl.DataFrame
) -> pl.Expr:
    if isinstance(source, Sum):
        return _recoded(mapping, name, sum_cells(frame, columns), frame.schema[columns[0]])
    if isinstance(source, FirstPositive):
        return _first_positive(source, frame)
    if mapping.recodes(name):
        parts = [_recoded(mapping, name, cell_text(part), frame.schema[part]) for part in columns]
        return pl.coalesce(map(_known_text, parts))
    return pl.coalesce(_in_one_type(name, columns, frame.schema))


def _recoded(mapping: SourceMapping, name: str, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A column with the panel's codes in place of those of the source."""
    if not mapping.recodes(name):
        return value
    text = _without_zeros(value.cast(pl.String))
    digits = mapping.digits.get(mapping.key_of(name))
    result = text if digits is None else text.str.slice(0, digits)
    codes = mapping.codes.get(mapping.key_of(name), {})
    dtype = _compared_type(mapping, name, dtype)
    # Exact codes take precedence over ranges, so they are applied last.
    for code in sorted(codes, key=lambda code: RANGE.fullmatch(code) is None):
        new = pl.lit(codes[code], dtype=pl.String)
        result = pl.when(_matches(code, text, dtype)).then(new).otherwise(result)
    return result


def cell_text(column: str) -> pl.Expr:
    """The column as text without surrounding blanks; whole numbers have no `.0`."""
    return _without_zeros(pl.col(column).cast(pl.String).str.strip_chars())


def _without_zeros(text: pl.Expr) -> pl.Expr:
    return text.str.replace(WHOLE.pattern, "${1}")


def cell_number(frame: pl.DataFrame, column: str) -> pl.Expr:
    """The column as numbers; text cells become NaN, which validation reports."""
    if frame.schema[column].is_numeric() or frame.schema[column] == pl.Boolean:
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


def _matches(code: str, text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Whether cells of a source, as `text`, have a code of a mapping or lie in its range.

    A text that R or Java wrote with an exponent is a number; other texts, such as 007, are codes.
    """
    same = text == (code.lower() if dtype == pl.Boolean() else code)
    number = text.cast(pl.Float64, strict=False)
    if span := RANGE.fullmatch(code):
        return same | number.is_between(float(span[1]), float(span[2]))
    if not re.fullmatch(NUMBER, code):
        return same
    is_number = pl.lit(True) if dtype.is_numeric() else text.str.contains(_POWER)
    return same | (is_number & (number == float(code)))


def _known_text(text: pl.Expr) -> pl.Expr:
    return pl.when(text.str.strip_chars() != "").then(text)


def _in_one_type(name: str, columns: Sequence[str], schema: pl.Schema) -> Iterator[pl.Expr]:
    """The columns of a list; if they are texts, or not of one type, texts, null where blank."""
    dtypes = {schema[column] for column in columns}
    has_text = any(isinstance(dtype, pl.String | pl.Categorical | pl.Enum) for dtype in dtypes)
    are_numbers = all(dtype.is_numeric() or dtype == pl.Null for dtype in dtypes)
    for column in columns:
        if are_numbers or (len(dtypes) == 1 and not has_text):
            yield pl.col(column)
            continue
        text = in_type(column, _TEXT, schema, exact=name == "person_id")
        if name in _YEARS and schema[column] in (pl.Date, pl.Datetime):
            date = pl.col(column)
            text = pl.when(is_end_of_year(date)).then(date.dt.year().cast(_TEXT)).otherwise(text)
        yield _known_text(text)


def _first_positive(source: FirstPositive, frame: pl.DataFrame) -> pl.Expr:
    counts = [
        (code, cell_number(frame, column))
        for name, code in source.first_positive.items()
        for column in find_columns((name,), frame.columns)
    ]
    known = pl.any_horizontal(count.is_not_null() for _, count in counts)
    result: pl.Expr = pl.when(known).then(pl.lit(source.otherwise))
    for code, count in reversed(counts):
        result = pl.when(count > 0).then(pl.lit(code)).otherwise(result)
    unreadable = pl.any_horizontal(count.is_nan() for _, count in counts)
    return pl.when(unreadable).then(pl.lit(_NO_CODE)).otherwise(result)
