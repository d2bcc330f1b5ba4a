"""Mappings from another register's columns and codes to the panel's.

A mapping names columns and recodes them; it computes nothing else. Its keys are the fields of
`SourceMapping`; an unknown key is an error. Entries that find nothing in a source are errors
(`unfit`) or effects that are told (`apply`). `saga.data.mapping_file` reads files of mappings.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterable, Mapping, Sequence
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

from saga.data.csv_text import UTF_8
from saga.data.panel import FLOOR
from saga.data.spellings import MISFIT, find_columns
from saga.errors import InputError, Problem, UsageError, check_type, with_nearest
from saga.schema import BY_NAME, EXTRA_PREFIX, FAMILY, PRICE_YEAR, REQUIRED, Column, extra_column

# Panel column -> the argument of Python that names its source.
ARGUMENTS = {"person_id": "id", "year": "time", "earnings": "target", "birth_year": "birth_year"}
WHOLE = re.compile(r"^(-?\d+)\.0+$")


NUMBER = r"(-?\d+(?:\.\d+)?)"
RANGE = re.compile(rf"{NUMBER}\s*(?:-|\u2013|\.\.)\s*{NUMBER}")


def _key(value: object) -> str:
    """A YAML scalar as text, to compare with cells: true -> "true", 1.0 -> "1"."""
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    return WHOLE.sub(r"\1", text)


def _covers(code: str, number: float) -> bool:
    """Whether a number is a code of a mapping, or lies in its range."""
    if span := RANGE.fullmatch(code):
        return float(span[1]) <= number <= float(span[2])
    return re.fullmatch(NUMBER, code) is not None and float(code) == number


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
        span = RANGE.fullmatch(key)
        if key in result:
            raise ValueError(f"{column} has two entries for the code {key}")
        if span and float(span[1]) > float(span[2]):
            raise ValueError(f"{column} has the range {key}, which ends before it begins")
        for other in filter(None, map(RANGE.fullmatch, result)):
            if span and float(other[1]) <= float(span[2]) and float(span[1]) <= float(other[2]):
                raise ValueError(f"{column} has the ranges {other[0]} and {key}, which overlap")
        result[key] = None if new is None else _key(new)
    return result


def _values(table: object) -> object:
    """`null_if` with all of a column's values as texts."""
    if not isinstance(table, dict):
        return table
    if empty := [name for name, values in table.items() if values in ([], ())]:
        raise ValueError(f"{empty[0]} has no value")
    return {
        name: [
            part if part is None else _key(part)
            for part in (values if isinstance(values, list | tuple) else [values])
        ]
        for name, values in table.items()
    }


Bounds = tuple[float | None, float | None]


def limits(bounds: Bounds) -> tuple[float, float]:
    """The lowest and highest credible value; infinite where there is no bound."""
    low, high = bounds
    return -math.inf if low is None else low, math.inf if high is None else high


def _in_order(bounds: Bounds) -> Bounds:
    low, high = limits(bounds)
    if low == -math.inf and high == math.inf:
        raise ValueError("there is neither a lowest nor a highest credible value")
    if not low <= high:
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
        null_if: Source column -> value or range, or several, that make the row's earnings unknown.
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
    keep: dict[str, Annotated[Bounds, AfterValidator(_in_order)]] = {}
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
            parts = [part.strip().lower() for part in parts_of(source)]
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
        """The columns that this mapping reads, of a source with columns `names`, in their order.

        Raises InputError if a column that the mapping does not name has several spellings.
        """
        find_columns(BY_NAME.keys() - self.columns.keys(), names, exact=False)
        parts = [*map(parts_of, self.sources().values()), tuple(self.keep), tuple(self.null_if)]
        used = {spelling for part in parts for spelling in find_columns(part, names)}
        return [name for name in names if name in used]

    def columns_of(self, column: str, names: Sequence[str]) -> list[str]:
        """The columns, of a source with columns `names`, from which a panel column is made."""
        used = set(find_columns(parts_of(self.sources()[column]), names))
        return [name for name in names if name in used]

    def check_types(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise InputError if characters of a code are those of numbers, which lost their zeros."""
        for name in self.sources() if self.digits else ():
            digits = self.digits.get(self.key_of(name))
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
        key = self.key_of(column)
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
            source = self.sources()[name]
            if not find_columns(parts_of(source), names):
                lacking.append(name)
            elif isinstance(source, Sum):
                lacking += [part for part in source.sum if not find_columns((part,), names)]
        return lacking

    def on_top_of(self, base: SourceMapping) -> SourceMapping:
        """This mapping; entries that `base` has too may find nothing in a source."""
        mapping = self.model_copy()
        mapping._base = base
        return mapping

    def with_names(self, names: Mapping[str, str]) -> SourceMapping:
        """This mapping, with the `names` of `given_names` in place of its own."""
        return self.model_copy(update={"columns": {**self.columns, **names}})

    def is_own(self, part: str, *path: str) -> bool:
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
        for name, source in self.sources().items():
            columns = parts_of(source)
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
        sources = {part for source in self.sources().values() for part in parts_of(source)}
        needed = [("null_if", name) for name in self.null_if]
        needed += [
            ("keep", name)
            for name in self.keep
            if self.is_own("keep", name) and (name in self.columns or name not in sources)
        ]
        for column, source in self.columns.items():
            parts = parts_of(source) if isinstance(source, Sum | FirstPositive) else ()
            is_needed = column in REQUIRED or self.is_own("columns", column)
            if is_needed and find_columns(parts, names):
                needed += [(f"columns.{column}", part) for part in parts]
        problems = []
        for entry, name in needed:
            if not find_columns((name,), names):
                why = f"the column {name} is missing, which `{entry}` names"
                fix = "Name a column of the source, or remove the name from the mapping."
                if made_from := parts_of(self.columns.get(name, ())):
                    fix += f" The panel's {name} is made from {', '.join(made_from)}."
                else:
                    fix = with_nearest(fix, name, names)
                problems.append(Problem("missing-column", why, fix, column=name))
        return problems

    def sources(self) -> dict[str, ColumnSource]:
        """The source of each column of the panel, by name."""
        sources = {name: self.columns.get(name, name) for name in BY_NAME}
        if self.year_in_filename:
            sources["year"] = (*parts_of(sources["year"]), "year")
        sources |= {extra_column(name, "category").name: name for name in self.extra}
        return sources if self.family is None else {**sources, FAMILY.name: self.family}

    def key_of(self, name: str) -> str:
        """The name of a panel column in `digits` and `codes`."""
        source_of = {extra_column(source, "category").name: source for source in self.extra}
        return source_of.get(name, name)

    def credible(self, name: str, column: str, codes: Iterable[str]) -> list[float]:
        """The numbers but 0 among `codes` of a source `column` that this mapping says nothing of.

        That are `keep`, the `codes` of the panel's column `name` and, of earnings, `null_if`.
        """
        bounds = [limits(b) for key, b in self.keep.items() if find_columns((key,), (column,))]
        stated = [*self.codes.get(self.key_of(name), ())]
        for key, values in self.null_if.items() if name == "earnings" else ():
            stated += values if find_columns((key,), (column,)) else ()
        numbers = [float(code) for code in codes if re.fullmatch(NUMBER, code)]
        return [
            number
            for number in numbers
            if number != 0
            and all(low <= number <= high for low, high in bounds)
            and not any(_covers(code, number) for code in stated)
        ]

    def recodes(self, name: str) -> bool:
        """Whether the codes of a panel column may differ from those of its source."""
        has_any = bool(self.codes or self.digits)
        return has_any and self.key_of(name) in {*self.codes, *self.digits}


def given_names(
    id: str | None, time: str | None, target: str | None, birth_year: str | None
) -> dict[str, str]:
    """Panel column -> its name in a source, where an argument names it."""
    names = {}
    for (column, argument), name in zip(
        ARGUMENTS.items(), (id, time, target, birth_year), strict=True
    ):
        if name is not None:
            check_type(argument, name, str, f'{argument}="ITS_NAME"')
            names[column] = name
    return names


def require_no_names(names: Mapping[str, str]) -> None:
    """Raise UsageError if `names` are given for the columns of a panel, which has its own."""
    if names:
        arguments = ", ".join(f'{ARGUMENTS[column]}="{name}"' for column, name in names.items())
        raise UsageError(f"The columns of a panel have its own names. Leave {arguments} out.")


def parts_of(source: ColumnSource) -> tuple[str, ...]:
    """The names of the columns of which a column is made."""
    if isinstance(source, str):
        return (source,)
    if isinstance(source, Sum):
        return source.sum
    return tuple(source.first_positive) if isinstance(source, FirstPositive) else source
