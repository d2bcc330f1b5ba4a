"""Mappings from another register's columns and codes to the panel's, as YAML files.

A mapping names columns and recodes them; it computes nothing else. Its keys are the fields of
`SourceMapping`, and `extends`; an unknown key is an error. The mappings `lisa` and `nlsy79` come
with SAGA.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from saga.data.files import UTF_8
from saga.data.panel import FLOOR
from saga.errors import InputError, Problem, UsageError
from saga.schema import BY_NAME, EXTRA_PREFIX, FAMILY, PRICE_YEAR, REQUIRED, Column, extra_column

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


_TEXT = pl.String()
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")


def _key(value: object) -> str:
    """A YAML scalar as text, to compare with cells: true -> "true", 1.0 -> "1"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _codes(table: object) -> object:
    if not isinstance(table, dict):
        return table
    return {
        column: {_key(code): None if new is None else _key(new) for code, new in codes.items()}
        if isinstance(codes, dict)
        else codes
        for column, codes in table.items()
    }


def _known_encoding(name: str) -> str:
    try:
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
    """A category read from counts: the code of the first positive one, `otherwise` if none is."""

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
        null_if: Source column -> value that makes the row's earnings unknown.
        currency: Currency of the amounts.
        scale: Unit of the amounts, for example 100 for hundreds of SEK.
        deflator: The price index of the currency.
        floor: Floor of log scores, in prices of the base year; none: zeros do not occur.
        macro: The macro series of the years: "sweden", a file; none: the network receives none.
        year_in_filename: Whether the year is part of the file name, for one file per year.
        encoding: Encoding of CSV files, for example latin-1.
        decimal: Decimal sign of numbers in CSV files; with a comma, dots and blanks separate
            thousands.
    """

    name: str | None = None
    columns: dict[str, ColumnSource] = {}
    extra: dict[str, ExtraColumn] = {}
    family: str | None = None
    digits: dict[str, Annotated[int, Field(ge=1)]] = {}
    codes: Annotated[dict[str, dict[str, str | None]], BeforeValidator(_codes)] = {}
    keep: dict[str, tuple[float | None, float | None]] = {}
    null_if: dict[str, bool | int | float | str] = {}
    currency: str = "SEK"
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    deflator: Deflator | None = None
    floor: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_none)] = FLOOR
    macro: Annotated[Literal["sweden"] | MacroFile | None, BeforeValidator(_none)] = "sweden"
    year_in_filename: bool = False
    encoding: Annotated[str, AfterValidator(_known_encoding)] = UTF_8
    decimal: Literal[".", ","] = "."

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

    def only(self, column: str) -> SourceMapping:
        """The part that makes one column of the panel."""
        parts = {part: getattr(self, part) for part in ("columns", "digits", "codes")}
        chosen = {
            part: {name: value for name, value in of.items() if name == column}
            for part, of in parts.items()
        }
        return SourceMapping.model_validate(chosen)

    def lacking(self, names: Sequence[str]) -> list[str]:
        """The required panel columns that a source with columns `names` does not have."""
        sources = self._sources()
        return [name for name in REQUIRED if not find_columns(_parts(sources[name]), names)]

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

    def apply(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
        """The frame in panel columns and codes, and the number of cells that became unknown.

        The counts are by the keys of `keep` and `null_if`. The result has only columns that the
        source has, in the source's types. Raises `InputError` if a column of `null_if` is missing,
        or `digits` applies to numbers, which have lost their leading zeros.
        """
        nulled: dict[str, int] = {}
        if self.decimal == ",":
            frame = frame.with_columns(
                with_decimal_point(column) for column in self._number_columns(frame)
            )
        for name, (low, high) in self.keep.items():
            for column in find_columns((name,), frame.columns):
                value = cell_number(frame, column)
                credible = value.is_between(
                    -math.inf if low is None else low, math.inf if high is None else high
                )
                outside = frame.select(value.is_not_null() & ~credible).to_series()
                nulled[f"keep {name}"] = int(outside.sum())
                frame = frame.with_columns(pl.when(~outside).then(pl.col(column)).alias(column))
        unknown = self._unknown_earnings(frame, nulled)
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
        if "earnings" in taken and unknown:
            result = result.with_columns(
                pl.when(~pl.any_horizontal(unknown)).then(pl.col("earnings")).alias("earnings")
            )
        return result, nulled

    def _number_columns(self, frame: pl.DataFrame) -> list[str]:
        """Text columns of the source that are read as numbers."""
        kinds = {**{name: c.kind for name, c in BY_NAME.items()}}
        kinds |= {column.name: column.kind for column in self.extra_columns}
        sources = [
            _parts(source)
            for name, source in self._sources().items()
            if kinds[name] in ("money", "number")
        ]
        columns = {
            spelling
            for part in (*sources, tuple(self.keep))
            for spelling in find_columns(part, frame.columns)
        }
        return [name for name in frame.columns if name in columns and frame.schema[name] == _TEXT]

    def _unknown_earnings(self, frame: pl.DataFrame, nulled: dict[str, int]) -> list[pl.Series]:
        unknown = []
        for name, value in self.null_if.items():
            columns = find_columns((name,), frame.columns)
            if not columns:
                why = f"the column {name} is missing"
                fix = "Add it, or remove it from `null_if` in the mapping if it does not matter."
                raise misfit(Problem("missing-column", why, fix, column=name))
            same = cell_text(columns[0]).str.to_lowercase().is_in([_key(value).lower()])
            flagged = frame.select(same.fill_null(False).alias(name)).to_series()
            nulled[f"null_if {name}"] = int(flagged.sum())
            unknown.append(flagged)
        return unknown

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
        cell = cell_text if self._recodes(name) else pl.col
        return pl.coalesce(
            self._recoded(name, cell(column), frame.schema[column]) for column in columns
        )

    def _recodes(self, name: str) -> bool:
        has_any = bool(self.codes or self.digits)
        return has_any and self._key(name) in {*self.codes, *self.digits}

    def _recoded(self, name: str, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        """A column with the panel's codes in place of those of the source."""
        if not self._recodes(name):
            return value
        text = value.cast(pl.String).str.strip_suffix(".0")
        number = text.cast(pl.Float64, strict=False)
        key = self._key(name)
        digits = self.digits.get(key)
        if digits is not None and dtype.is_numeric():
            why = (
                f"{name} is read from the first {digits} characters of a code, but the source "
                "has numbers, which have no leading zeros"
            )
            raise misfit(Problem("lost-zeros", why, "Export the code as text.", column=name))
        result = text.str.slice(0, digits) if digits is not None else text
        spans = {code: _RANGE.fullmatch(code) for code in self.codes.get(key, {})}
        # Exact codes take precedence over ranges, so they are applied last.
        for code, span in sorted(spans.items(), key=lambda item: item[1] is None):
            matches = (
                number.is_between(float(span[1]), float(span[2]))
                if span
                else text.eq_missing(pl.lit(code))
            )
            new = pl.lit(self.codes[key][code], dtype=pl.String)
            result = pl.when(matches).then(new).otherwise(result)
        return result


def _parts(source: ColumnSource) -> tuple[str, ...]:
    """The names of the columns of which a column is made."""
    if isinstance(source, str):
        return (source,)
    if isinstance(source, Sum):
        return source.sum
    return tuple(source.first_positive) if isinstance(source, FirstPositive) else source


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
    return result


def shipped_mappings() -> tuple[str, ...]:
    """Names of the mappings that come with SAGA."""
    return tuple(
        sorted(
            f.name.removesuffix(".yaml")
            for f in resources.files("saga.data").joinpath("mappings").iterdir()
            if f.name.endswith(".yaml")
        )
    )


def load_mapping(mapping: str | Path) -> tuple[SourceMapping, Path | None]:
    """A mapping by its file or by the name of a shipped one, and its folder (None: shipped).

    Raises `UsageError` if there is no such mapping or it is not valid; the message names the key.
    """
    folder: Path | None = None
    if str(mapping) in shipped_mappings():
        file = resources.files("saga.data").joinpath("mappings", f"{mapping}.yaml")
        text = file.read_text(encoding="utf-8")
    else:
        try:
            text, folder = Path(mapping).read_text(encoding="utf-8"), Path(mapping).parent
        except (OSError, UnicodeDecodeError):
            names = ", ".join(shipped_mappings())
            fix = f"Give a YAML file, or one of the shipped mappings: {names}."
            problem = Problem("mapping", "neither a shipped name nor a readable file", fix)
            raise UsageError(f"there is no mapping {mapping}", [problem]) from None
    try:
        content = yaml.safe_load(text)
        if isinstance(content, dict) and "extends" in content:
            content = _extended(dict(content))
        return SourceMapping.model_validate({} if content is None else content), folder
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else "the file"
        problems = [Problem("mapping", f"{line} is not YAML", "Correct the syntax.")]
    except ValidationError as error:
        problems = [_explain(part) for part in error.errors(include_url=False)]
    raise UsageError(f"the mapping {mapping} cannot be used", problems)


def _extended(content: dict[str, Any]) -> dict[str, Any]:
    """A mapping on top of the shipped one that it extends: its keys count, tables are joined."""
    name = content.pop("extends")
    if name not in shipped_mappings():
        fix = f"Name one of {', '.join(shipped_mappings())}."
        problem = Problem("mapping", "`extends` names no shipped mapping", fix)
        raise UsageError("the mapping cannot be used", [problem])
    file = resources.files("saga.data").joinpath("mappings", f"{name}.yaml")
    base = yaml.safe_load(file.read_text(encoding="utf-8"))
    for key, value in content.items():
        joined = isinstance(value, dict) and key in ("columns", "extra", "digits", "codes", "keep")
        base[key] = {**base.get(key, {}), **value} if joined else value
    return dict(base)


def _explain(error: Any) -> Problem:
    # Pydantic adds the type of each alternative of a union to the key that the user wrote.
    key = ".".join(
        str(part)
        for part in error["loc"]
        if part not in ("str", "Sum", "FirstPositive", "tuple[str, ...]", "MacroFile")
        and not str(part).startswith("literal[")
    )
    if error["type"] == "extra_forbidden":
        fix = f"Use one of {', '.join(SourceMapping.model_fields)}, extends."
        return Problem("mapping", f"the key `{key}` is not known", fix)
    why = str(error["msg"]).removeprefix("Value error, ")
    return Problem("mapping", f"`{key}`: {why}" if key else why, "Correct this key in the mapping.")
