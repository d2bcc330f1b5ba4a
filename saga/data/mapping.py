"""Mappings from another register's columns and codes to the panel's.

A mapping names columns and recodes them; it computes nothing else. Its keys are the fields of
`SourceMapping`; an unknown key is an error. Entries that find nothing in a source are errors
(`unfit`) or effects that are told (`apply`). `saga.data.mapping_file` reads files of mappings.
"""

from __future__ import annotations

import codecs
import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Literal

import polars as pl
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from saga.data.casting import in_type, is_end_of_year, with_decimal_point
from saga.data.csv_text import UTF_8
from saga.data.panel import FLOOR
from saga.errors import InputError, Problem
from saga.schema import BY_NAME, EXTRA_PREFIX, FAMILY, PRICE_YEAR, REQUIRED, Column, extra_column

MISFIT = "the mapping does not fit the source"
_WHOLE = re.compile(r"^(-?\d+)\.0+$")


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
            raise InputError.of(
                MISFIT,
                "ambiguous-column",
                f"{name} may be {' or '.join(spellings)}",
                "Write the exact spelling in the mapping.",
            )
        result += spellings
    return list(dict.fromkeys(result))


@lru_cache(maxsize=64)
def _by_lower_case(names: tuple[str, ...]) -> dict[str, list[str]]:
    lower: dict[str, list[str]] = {}
    for name in names:
        lower.setdefault(name.strip().lower(), []).append(name)
    return lower


def cell_text(column: str) -> pl.Expr:
    """The column as text without surrounding blanks; whole numbers have no `.0`."""
    return _without_zeros(pl.col(column).cast(pl.String).str.strip_chars())


def _without_zeros(text: pl.Expr) -> pl.Expr:
    return text.str.replace(_WHOLE.pattern, "${1}")


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


_TEXT = pl.String()
_NO_CODE = "a count is no number"  # is reported as an unknown code
_YEARS = frozenset(name for name, column in BY_NAME.items() if column.kind == "year")
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_RANGE = re.compile(rf"{_NUMBER}\s*(?:-|\u2013|\.\.)\s*{_NUMBER}")


def _key(value: object) -> str:
    """A YAML scalar as text, to compare with cells: true -> "true", 1.0 -> "1"."""
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    return _WHOLE.sub(r"\1", text)


def _codes(table: object) -> object:
    if not isinstance(table, dict):
        return table
    return {
        column: _of_column(column, codes) if isinstance(codes, dict) else codes
        for column, codes in table.items()
    }


def _of_column(column: str, codes: dict[object, object]) -> dict[str, str | None]:
    result: dict[str, str | None] = {}
    for code, new in codes.items():
        key = _key(code)
        span = _RANGE.fullmatch(key)
        if key in result:
            raise ValueError(f"{column} has two entries for the code {key}")
        if span and float(span[1]) > float(span[2]):
            raise ValueError(f"{column} has the range {key}, which ends before it begins")
        for other in filter(None, map(_RANGE.fullmatch, result)):
            if span and float(other[1]) <= float(span[2]) and float(span[1]) <= float(other[2]):
                raise ValueError(f"{column} has the ranges {other[0]} and {key}, which overlap")
        result[key] = None if new is None else _key(new)
    return result


def _values(table: object) -> object:
    """`null_if` with all of a column's values as texts."""
    if not isinstance(table, dict):
        return table
    return {
        name: [
            part if part is None else _key(part)
            for part in (values if isinstance(values, list | tuple) else [values])
        ]
        for name, values in table.items()
    }


def _in_order(bounds: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    low, high = bounds
    if low is not None and high is not None and not low <= high:
        raise ValueError("the highest credible value is below the lowest")
    return bounds


def _known_encoding(name: str) -> str:
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError(f"there is no encoding {name}; use utf-8, latin-1 or cp1252") from None


def _none(value: object) -> object:
    return None if isinstance(value, str) and value.lower() == "none" else value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sum(_Strict):
    """A column that is the sum of several; unknown parts count as 0, it is unknown if all are."""

    sum: tuple[str, ...] = Field(min_length=1)


class FirstPositive(_Strict):
    """A category read from counts: the code of the first positive one, `otherwise` if none is.

    A count that is no number is reported as an unknown code.
    """

    first_positive: dict[str, str] = Field(min_length=1)
    otherwise: str


class Deflator(_Strict):
    """A price index file, and the year of the resulting prices."""

    file: str
    base_year: int


class ExtraColumn(_Strict):
    """How a further column of the source is read.

    A `static` column does not change with the year; a `lasting` one seldom does. Forecasts continue
    both with the last known value.
    """

    kind: Literal["category", "number"]
    static: bool = False
    lasting: bool = False


class MacroFile(_Strict):
    """A CSV file with the macro series of a country, see `saga.data.macro_rows`."""

    file: str


ColumnSource = str | tuple[str, ...] | Sum | FirstPositive


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


class SourceMapping(_Strict):
    """How the panel's columns are made from a source.

    Names of source columns match exactly, or else without regard to case and surrounding blanks. A
    `*` in a name stands for any letters (`P*_LopNr`, for ids with the number of a project).

    Attributes:
        name: The panel's id if the caller gives none.
        columns: Panel column -> its source: a name; a list of names, of which the first known cell
            counts; a sum; or the first positive of several counts; an empty list: the panel does
            not get it. A column that is not listed has its own name as source.
        digits: Panel column -> number of leading characters of the source's code that are used.
        extra: Source column -> its kind, for columns that the panel does not have. The network and
            the baselines receive them. The keys of `digits` and `codes` may name them.
        family: Source column with the family of a person, for standard errors; never a feature.
        codes: Panel column -> {source code or numeric range "lo-hi": panel code, null: unknown};
            other codes do not change.
        keep: Source column -> [lowest, highest] credible value; cells outside are unknown.
        null_if: Source column -> value, or values, that make the row's earnings unknown.
        currency: Currency of the amounts.
        scale: Unit of the amounts, for example 100 for hundreds of SEK.
        deflator: The price index of the currency.
        floor: Floor of log scores, in prices of the base year; none: zeros do not occur.
        macro: The macro series of the years: "sweden", a file; none: the network receives none.
        year_in_filename: Whether the year is part of the file name, for one file per year.
        encoding: Encoding of CSV files that are not UTF-8, for example latin-1.
        decimal: Decimal sign of numbers in CSV files; with a comma, dots and blanks separate
            thousands.
    """

    name: str | None = None
    columns: dict[str, ColumnSource] = {}
    extra: dict[str, ExtraColumn] = {}
    family: str | None = None
    digits: dict[str, Annotated[int, Field(ge=1)]] = {}
    codes: Annotated[dict[str, dict[str, str | None]], BeforeValidator(_codes)] = {}
    keep: dict[str, Annotated[tuple[float | None, float | None], AfterValidator(_in_order)]] = {}
    null_if: Annotated[dict[str, tuple[str, ...]], BeforeValidator(_values)] = {}
    currency: str = "SEK"
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    deflator: Deflator | None = None
    floor: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_none)] = FLOOR
    macro: Annotated[Literal["sweden"] | MacroFile | None, BeforeValidator(_none)] = "sweden"
    year_in_filename: bool = False
    encoding: Annotated[str, AfterValidator(_known_encoding)] = UTF_8
    decimal: Literal[".", ","] = "."
    _base: SourceMapping | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _consistent(self) -> SourceMapping:
        for part in ("columns", "digits", "codes"):
            known = {*BY_NAME, *(self.extra if part != "columns" else ())}
            unknown = [name for name in getattr(self, part) if name not in known]
            if unknown:
                raise ValueError(
                    f"`{part}` names {', '.join(unknown)}, which the panel does not have; "
                    f"its columns are {', '.join(BY_NAME)}"
                    + (f", and of its own {', '.join(self.extra)}" if self.extra else "")
                )
        if twice := [name for name in self.extra if name in BY_NAME]:
            raise ValueError(
                f"`extra` names {', '.join(twice)}, which the panel has; use `columns`"
            )
        names = [column.name for column in self.extra_columns]
        if EXTRA_PREFIX in names or len(set(names)) < len(names):
            raise ValueError(
                "`extra` names columns that differ by neither letters nor digits; rename one of "
                "them in the source"
            )
        if self.currency != "SEK" and not {"floor", "macro"} <= self.model_fields_set:
            raise ValueError(
                "another currency than SEK needs `floor` (a number in that currency, or none) "
                "and `macro` (none, or a file)"
            )
        for name, source in self.columns.items():
            if isinstance(source, FirstPositive) and name in {*self.codes, *self.digits}:
                raise ValueError(
                    f"`codes` and `digits` of {name} do nothing: `first_positive` gives it the "
                    "panel's codes"
                )
            parts = [part.strip().lower() for part in _parts(source)]
            if isinstance(source, Sum) and len(set(parts)) < len(parts):
                raise ValueError(f"the sum of {name} has a column twice")
            if isinstance(source, Sum) and None in self.codes.get(name, {}).values():
                raise ValueError(
                    f"`codes` of {name} are compared with the sum, not with its parts; a code for "
                    f"missing values of a part goes to `keep: {{{source.sum[0]}: [0, null]}}`"
                )
        if (
            self.currency == "SEK"
            and self.deflator is not None
            and self.deflator.base_year != PRICE_YEAR
            and self.macro == "sweden"
        ):
            raise ValueError(
                f"SEK are deflated to prices of {PRICE_YEAR}: set `base_year: {PRICE_YEAR}`"
            )
        return self

    @property
    def extra_columns(self) -> tuple[Column, ...]:
        """The panel's own columns, and the family if there is one."""
        extra = (extra_column(name, **dict(column)) for name, column in self.extra.items())
        return (*extra, *((FAMILY,) if self.family is not None else ()))

    @property
    def files(self) -> tuple[str, ...]:
        """Files beside the data that are not part of the panel."""
        parts = (self.deflator, self.macro if isinstance(self.macro, MacroFile) else None)
        return tuple(part.file for part in parts if part is not None)

    @property
    def price_year(self) -> int:
        """The year in whose prices the panel's money is."""
        return self.deflator.base_year if self.deflator else PRICE_YEAR

    def used_columns(self, names: Sequence[str]) -> list[str]:
        """The columns that this mapping reads, of a source with columns `names`, in their order."""
        parts = [*map(_parts, self._sources().values()), tuple(self.keep), tuple(self.null_if)]
        used = {spelling for part in parts for spelling in find_columns(part, names)}
        return [name for name in names if name in used]

    def columns_of(self, column: str, names: Sequence[str]) -> list[str]:
        """The columns, of a source with columns `names`, from which a panel column is made."""
        used = set(find_columns(_parts(self._sources()[column]), names))
        return [name for name in names if name in used]

    def check_types(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise InputError if characters of a code are those of numbers, which lost their zeros."""
        for name in self._sources() if self.digits else ():
            digits = self.digits.get(self._key(name))
            if digits is not None and any(
                schema[column].is_numeric() for column in self.columns_of(name, list(schema))
            ):
                raise InputError.of(
                    MISFIT,
                    "lost-zeros",
                    f"{name} is read from the first {digits} characters of a code, but the source "
                    "has numbers, which have no leading zeros",
                    "Export the code as text.",
                    column=name,
                )

    def only(self, column: str) -> SourceMapping:
        """The part that makes one column of the panel."""
        key = self._key(column)
        parts = {part: getattr(self, part) for part in ("columns", "digits", "codes", "extra")}
        chosen = {
            part: {name: value for name, value in of.items() if name == key}
            for part, of in parts.items()
        }
        family = self.family if column == FAMILY.name else None
        return SourceMapping.model_validate({**chosen, "family": family})

    def without_codes(self) -> SourceMapping:
        """This mapping, with the source's codes as they are."""
        return self.model_copy(update={"codes": {}, "digits": {}})

    def lacking(self, names: Sequence[str]) -> list[str]:
        """The required panel columns, and parts of their sums, that a source does not have."""
        lacking = list[str]()
        for name in REQUIRED:
            source = self._sources()[name]
            if not find_columns(_parts(source), names):
                lacking.append(name)
            elif isinstance(source, Sum):
                lacking += [part for part in source.sum if not find_columns((part,), names)]
        return lacking

    def on_top_of(self, base: SourceMapping) -> SourceMapping:
        """This mapping; entries that `base` has too may find nothing in a source."""
        mapping = self.model_copy()
        mapping._base = base
        return mapping

    def _is_own(self, part: str, *path: str) -> bool:
        """Whether an entry is not one of the base."""
        entry, base = getattr(self, part), getattr(self._base or SourceMapping(), part)
        for key in path:
            if not isinstance(base, Mapping) or key not in base:
                return True
            entry, base = entry[key], base[key]
        return bool(entry != base)

    def found(self, names: Sequence[str]) -> set[str]:
        """The columns of the panel that a file with columns `names` has, and parts of sums.

        Also the columns of `keep` and `null_if`.
        """
        parts = {part for part in (*self.keep, *self.null_if) if find_columns((part,), names)}
        for name, source in self._sources().items():
            columns = _parts(source)
            if find_columns(columns, names):
                parts.add(name)
            if isinstance(source, Sum | FirstPositive):
                parts |= {part for part in columns if find_columns((part,), names)}
        return parts

    def unfit(self, names: Sequence[str]) -> list[Problem]:
        """Why a source with columns `names` would be read otherwise than the mapping says.

        It lacks a column of `keep` or `null_if`, or a part of a sum of which it has others. Entries
        of the base may lack theirs, but for `null_if` and required columns. Other entries without a
        column are effects of `apply`.
        """
        sources = {part for source in self._sources().values() for part in _parts(source)}
        needed = [("null_if", name) for name in self.null_if]
        needed += [
            ("keep", name)
            for name in self.keep
            if self._is_own("keep", name) and (name in self.columns or name not in sources)
        ]
        for column, source in self.columns.items():
            parts = _parts(source) if isinstance(source, Sum | FirstPositive) else ()
            is_needed = column in REQUIRED or self._is_own("columns", column)
            if is_needed and find_columns(parts, names):
                needed += [(f"columns.{column}", part) for part in parts]
        problems = []
        for entry, name in needed:
            if not find_columns((name,), names):
                why = f"the column {name} is missing, which `{entry}` names"
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
                hint = f" Is it {near[0]}?" if near else ""
                if made_from := _parts(self.columns.get(name, ())):
                    hint = f" The panel's {name} is made from {', '.join(made_from)}."
                fix = f"Name a column of the source, or remove the name from the mapping.{hint}"
                problems.append(Problem("missing-column", why, fix, column=name))
        return problems

    def _sources(self) -> dict[str, ColumnSource]:
        sources = {name: self.columns.get(name, name) for name in BY_NAME}
        if self.year_in_filename:
            sources["year"] = (*_parts(sources["year"]), "year")
        sources |= {extra_column(name, "category").name: name for name in self.extra}
        return sources if self.family is None else {**sources, FAMILY.name: self.family}

    def _key(self, name: str) -> str:
        """The name of a panel column in `digits` and `codes`."""
        source_of = {extra_column(source, "category").name: source for source in self.extra}
        return source_of.get(name, name)

    def apply(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Effect]]:
        """The frame in panel columns and codes, and what `keep`, `null_if` and `codes` did.

        The result has only columns that the source has, in the source's types. Raises `InputError`
        if `digits` applies to numbers, which have lost their leading zeros.
        """
        self.check_types(frame.schema)
        effects: list[Effect] = []
        if self.decimal == ",":
            frame = frame.with_columns(
                with_decimal_point(column) for column in self._number_columns(frame)
            )
        for name, (low, high) in self.keep.items():
            columns = find_columns((name,), frame.columns)
            if not columns:
                effects.append(Effect(f"keep {name}", (), 0, 0, self._is_own("keep", name)))
            for column in columns:
                value = cell_number(frame, column)
                credible = value.is_between(
                    -math.inf if low is None else low, math.inf if high is None else high
                )
                if not frame.schema[column].is_numeric():  # a text stays, to be reported
                    value = value.fill_nan(None)
                outside = frame.select(value.is_not_null() & ~credible).to_series()
                n_outside = int(outside.sum())
                n_known = frame.height - frame[column].null_count()
                is_own = self._is_own("keep", name)
                effects.append(Effect(f"keep {name}", (column,), n_known, n_outside, is_own))
                frame = frame.with_columns(pl.when(~outside).then(pl.col(column)).alias(column))
        unknown = self._unknown_earnings(frame, effects)
        taken = {
            name: (source, columns)
            for name, source in self._sources().items()
            if (columns := find_columns(_parts(source), frame.columns))
        }
        if all(self._is_taken_as_is(name, *taken[name]) for name in taken):
            # The usual case of a call, at a tenth of the time of a query.
            result = pl.DataFrame(
                [frame[spelling].alias(name) for name, (_, [spelling]) in taken.items()]
            )
        else:
            result = frame.select(
                self._column(name, source, columns, frame).alias(name)
                for name, (source, columns) in taken.items()
            )
        for name, (source, columns) in taken.items():
            if self.codes.get(self._key(name)):
                effects += self._effects_of_codes(name, source, columns, frame)
        effects = [*self._effects_of_columns(taken, result), *effects]
        if "earnings" in taken and unknown:
            result = result.with_columns(
                pl.when(~pl.any_horizontal(unknown)).then(pl.col("earnings")).alias("earnings")
            )
        return result, effects

    def _effects_of_columns(
        self, taken: Mapping[str, tuple[ColumnSource, list[str]]], result: pl.DataFrame
    ) -> Iterator[Effect]:
        """What entries about columns of the panel did; they match nothing if there is no column.

        A column that is left out (`[]`) is what its entry means.
        """
        by_key = {self._key(name): (name, columns) for name, (_, columns) in taken.items()}
        paths: list[tuple[str, ...]] = [
            (part, key)
            for part in ("columns", "extra", "digits", "codes")
            for key in getattr(self, part)
            if getattr(self, part)[key] != () and not (part == "codes" and key in by_key)
        ]
        if self.family is not None:
            paths.append(("family",))
        for path in paths:
            name, columns = by_key.get(path[1] if path[1:] else FAMILY.name, ("", []))
            known = result.height - result[name].null_count() if name else 0
            yield Effect(" ".join(path), tuple(columns), known, 0, self._is_own(*path))
            parts = self.columns.get(name, ()) if path[0] == "columns" else ()
            for part in parts if isinstance(parts, tuple) and self._is_own(*path) else ():
                if not find_columns((part,), columns):
                    yield Effect(f"columns {name}: {part}", (), 0, 0, True)

    def _effects_of_codes(
        self, name: str, source: ColumnSource, columns: list[str], frame: pl.DataFrame
    ) -> list[Effect]:
        key, dtype = self._key(name), frame.schema[columns[0]]
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
                self._is_own("codes", key, code),
            )
            for code, new in self.codes[key].items()
        ]

    def _number_columns(self, frame: pl.DataFrame) -> list[str]:
        """Text columns of the source that are read as numbers, also those of which codes are."""
        kinds = {**{name: c.kind for name, c in BY_NAME.items()}}
        kinds |= {column.name: column.kind for column in self.extra_columns}
        sources = [
            _parts(source)
            for name, source in self._sources().items()
            if kinds[name] in ("money", "number") or isinstance(source, Sum | FirstPositive)
        ]
        columns = {
            spelling
            for part in (*sources, tuple(self.keep))
            for spelling in find_columns(part, frame.columns)
        }
        return [name for name in frame.columns if name in columns and frame.schema[name] == _TEXT]

    def _unknown_earnings(self, frame: pl.DataFrame, effects: list[Effect]) -> list[pl.Series]:
        unknown: list[pl.Series] = []
        for name, values in self.null_if.items():
            for column in find_columns((name,), frame.columns):
                text, is_own = cell_text(column).str.to_lowercase(), self._is_own("null_if", name)
                for value in values:
                    flagged = frame.select((text == value.lower()).fill_null(False)).to_series()
                    n = int(flagged.sum())
                    effects.append(Effect(f"null_if {name}: {value}", (column,), n, n, is_own))
                    unknown.append(flagged.alias(str(len(unknown))))
        return unknown

    def flags(self, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """The distinct cells of each column of `null_if`, as `written`, and as `read`.

        They are read as "true" if they make the row's earnings unknown, else as "false".
        """
        for name, values in self.null_if.items():
            lower = [value.lower() for value in values]
            for column in find_columns((name,), frame.columns):
                text = cell_text(column)
                is_match = text.str.to_lowercase().is_in(lower).cast(_TEXT)
                yield name, frame.select(written=text, read=is_match).drop_nulls().unique()

    def credible(self, column: str, codes: Iterable[str]) -> list[float]:
        """The numbers but 0 among `codes` that `keep` does not make unknown in a source column."""
        bounds = [b for name, b in self.keep.items() if find_columns((name,), (column,))]
        numbers = [float(code) for code in codes if re.fullmatch(_NUMBER, code)]
        return [
            number
            for number in numbers
            if number != 0
            and all(
                (-math.inf if low is None else low)
                <= number
                <= (math.inf if high is None else high)
                for low, high in bounds
            )
        ]

    def _is_taken_as_is(self, name: str, source: ColumnSource, columns: list[str]) -> bool:
        """Whether a panel column is a source column under its own or another name."""
        is_plain = not isinstance(source, Sum | FirstPositive) and not self._recodes(name)
        return is_plain and len(columns) == 1

    def _column(
        self, name: str, source: ColumnSource, columns: list[str], frame: pl.DataFrame
    ) -> pl.Expr:
        if isinstance(source, Sum):
            return self._recoded(name, sum_cells(frame, columns), frame.schema[columns[0]])
        if isinstance(source, FirstPositive):
            return _first_positive(source, frame)
        if self._recodes(name):
            parts = [self._recoded(name, cell_text(part), frame.schema[part]) for part in columns]
            return pl.coalesce(map(_known_text, parts))
        return pl.coalesce(_in_one_type(name, columns, frame.schema))

    def _recodes(self, name: str) -> bool:
        has_any = bool(self.codes or self.digits)
        return has_any and self._key(name) in {*self.codes, *self.digits}

    def _recoded(self, name: str, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        """A column with the panel's codes in place of those of the source."""
        if not self._recodes(name):
            return value
        text = _without_zeros(value.cast(pl.String))
        digits = self.digits.get(self._key(name))
        result = text if digits is None else text.str.slice(0, digits)
        codes = self.codes.get(self._key(name), {})
        # Exact codes take precedence over ranges, so they are applied last.
        for code in sorted(codes, key=lambda code: _RANGE.fullmatch(code) is None):
            new = pl.lit(codes[code], dtype=pl.String)
            result = pl.when(_matches(code, text, dtype)).then(new).otherwise(result)
        return result


def _matches(code: str, text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Whether cells of a source, as `text`, have a code of a mapping or lie in its range."""
    same = text == (code.lower() if dtype == pl.Boolean() else code)
    number = text.cast(pl.Float64, strict=False)
    if span := _RANGE.fullmatch(code):
        return same | number.is_between(float(span[1]), float(span[2]))
    is_number = dtype.is_numeric() and re.fullmatch(_NUMBER, code)
    return same | (number == float(code)) if is_number else same


def _parts(source: ColumnSource) -> tuple[str, ...]:
    """The names of the columns of which a column is made."""
    if isinstance(source, str):
        return (source,)
    if isinstance(source, Sum):
        return source.sum
    return tuple(source.first_positive) if isinstance(source, FirstPositive) else source


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
