"""The panel's rules: which rows break them, and the messages about it.

A rule concerns a cell, a row or a person; if it concerns a person, all rows of the person break it.
The rules are dataframely rules, generated from the table of columns (`saga.schema`). A violation is
a row of the source, a rule and a column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import dataframely as dy
import numpy as np
import polars as pl

from saga.data.casting import FEW_ROWS
from saga.errors import Problem
from saga.schema import BY_NAME, COLUMNS, EXIT, MAX_AGE, MIN_AGE, Column


@dataclass(frozen=True)
class Rule:
    """What is wrong and how to fix it; `{column}` and `{allowed}` are placeholders.

    `of_person` says whether the rule concerns a person.
    """

    message: str
    fix: str
    of_person: bool = False


RULES: Mapping[str, Rule] = {
    "not-a-number": Rule(
        "{column} contains something that is not a number",
        "Write numbers with a decimal point and no thousands separator, and leave unknown cells "
        "empty. For a file, a mapping may say `decimal: ','` and `null_if`.",
    ),
    "not-a-year": Rule(
        "{column} contains something that is not a whole year",
        "Write years as whole numbers, such as 2015.",
    ),
    "not-text": Rule(
        "{column} contains something that is neither plain text nor a whole number",
        "Write it as text without control characters.",
    ),
    "missing-value": Rule("{column} is empty", "Fill it in, or leave the row out."),
    "not-finite": Rule("{column} is infinite or not a number", "Leave unknown cells empty (null)."),
    "negative": Rule(
        "{column} is negative", "Correct the amount; 0 means none, empty means unknown."
    ),
    "out-of-range": Rule(
        "{column} is outside {allowed}", "Correct the value or its unit, or leave the cell empty."
    ),
    "unknown-code": Rule(
        "{column} has an unknown code",
        "Use {allowed}. If a file is read, a mapping may recode it (`codes`). If the column has "
        "another meaning, leave it out (`columns: {{{column}: []}}`).",
    ),
    "duplicate": Rule("a person has two rows for one year", "Keep one row per person and year."),
    "born-after-record": Rule(
        "the birth year is after the person's first record",
        "Correct birth_year, or the years.",
        of_person=True,
    ),
    "not-constant": Rule(
        "{column} changes within a person", "Give a person one value in all rows.", of_person=True
    ),
    "record-before-entry": Rule(
        "a person has a record before entry_year",
        "entry_year is the first year with the person.",
        of_person=True,
    ),
    "record-after-exit": Rule(
        "a person has a record in or after exit_year",
        "exit_year is the first year without the person; correct it, or the rows.",
        of_person=True,
    ),
    "exit-without-year": Rule(
        "exit_reason is given without exit_year", "Give both, or leave both empty.", of_person=True
    ),
}

_Expression = Callable[[pl.Expr], pl.Expr]
_NEVER_EMPTY = ("person_id", "year", "birth_year")


def _cell_rules(column: Column) -> dict[str, _Expression]:
    """Rule -> expression that is true if a cell conforms; unknown cells conform to each rule."""
    rules: dict[str, _Expression] = {}
    if column.dtype == pl.Float64():
        rules["not-finite"] = lambda cell: cell.is_finite()
    low, high = column.minimum, column.maximum
    if column.kind == "money":
        if low is not None:
            rules["negative"] = lambda cell: cell.is_nan() | (cell >= low)
    elif low is not None or high is not None:
        bottom, top = -float("inf") if low is None else low, float("inf") if high is None else high
        # For values that are not finite there is another rule.
        rules["out-of-range"] = lambda cell: (
            cell.is_between(bottom, top) | ~cell.cast(pl.Float64).is_finite()
        )
    if column.codes:
        rules["unknown-code"] = lambda cell: cell.is_in(column.codes)
    elif column.pattern:
        rules["unknown-code"] = lambda cell: cell.str.contains(column.pattern)
    return rules


def _allowed(column: Column) -> str:
    if column.codes:
        return ", ".join(column.codes)
    if column.pattern:
        digits = "".join(filter(str.isdigit, column.pattern))
        return f"codes of {digits} digits, as text"
    low, high = (
        "" if bound is None else f"{bound:g}" for bound in (column.minimum, column.maximum)
    )
    return f"{low} to {high}" if high else f"{low} and more"


def _same_throughout(column: Column) -> pl.Expr:
    value = pl.col(column.name)
    if column.codes:
        value = value.cast(pl.Enum(column.codes), strict=False).to_physical()
    return value.min().over("person") == value.max().over("person")


def _row_rules(columns: tuple[Column, ...]) -> dict[str, pl.Expr]:
    """Rules over several cells: "rule" or "rule column" -> expression.

    Rows are sorted by person and year.
    """
    present = {column.name for column in columns}
    year, person = pl.col("year"), pl.col("person")
    same_as_before = (person == person.shift(1)) & (year == year.shift(1))
    rules = {
        "duplicate": ~(same_as_before | ((person == person.shift(-1)) & (year == year.shift(-1))))
        | pl.col("person_id").is_null(),
        "born-after-record": year.min().over("person") >= pl.col("birth_year").max().over("person"),
    }
    rules |= {
        f"not-constant {column.name}": _same_throughout(column)
        for column in columns
        if column.static and column.name != "person_id"
    }
    if "entry_year" in present:
        rules["record-before-entry entry_year"] = year.min().over("person") >= pl.col(
            "entry_year"
        ).max().over("person")
    if "exit_year" in present:
        rules["record-after-exit exit_year"] = year.max().over("person") < pl.col(
            "exit_year"
        ).min().over("person")
    if "exit_reason" in present:
        has_year = (
            pl.col("exit_year").is_not_null().any().over("person")
            if "exit_year" in present
            else pl.lit(False)
        )
        rules["exit-without-year exit_reason"] = (
            pl.col("exit_reason").is_null().all().over("person") | has_year
        )
    return rules


def _rule(expression: pl.Expr) -> Any:
    return dy.rule()(lambda _: expression)


@cache
def person_years(columns: tuple[Column, ...]) -> type[dy.Schema]:
    """The dataframely schema of a panel with these columns, `row` and `person`."""
    types: dict[pl.DataType, Any] = {
        pl.String(): dy.String,
        pl.Int32(): dy.Int32,
        pl.Float64(): dy.Float64,
    }
    body: dict[str, Any] = {"row": dy.UInt32(nullable=False), "person": dy.UInt32(nullable=False)}
    for column in columns:
        nullable = column.name not in _NEVER_EMPTY
        infinite = {"allow_inf": True, "allow_nan": True} if column.dtype == pl.Float64() else {}
        body[column.name] = types[column.dtype](
            nullable=nullable, check=_cell_rules(column), **infinite
        )
    for name, expression in _row_rules(columns).items():
        body[name] = _rule(expression)
    return type("PersonYears", (dy.Schema,), body)


@cache
def _conforms(columns: tuple[Column, ...]) -> pl.Expr:
    """Whether no row breaks a rule of `person_years`.

    Most panels conform, and for a small one the frame of a failure costs more than all rules.
    """
    cells = [
        pl.col(column.name).is_not_null().all() for column in columns if column.name in _NEVER_EMPTY
    ]
    cells += [
        rule(pl.col(column.name)).all()
        for column in columns
        for rule in _cell_rules(column).values()
    ]
    rows = [rule.all() for rule in _row_rules(columns).values()]
    return pl.all_horizontal(*cells, *rows)


def _plainly_conforms(tagged: pl.DataFrame, columns: tuple[Column, ...]) -> bool:
    """Whether simple checks already show that no row breaks a rule of `person_years`.

    They are stricter than the rules, so False says nothing. A query has a fixed cost that is
    several times that of these checks for one person.
    """
    if any(tagged[name].null_count() for name in _NEVER_EMPTY):
        return False
    person, year, birth_year = (tagged[name].to_list() for name in ("person", "year", "birth_year"))
    if len(set(zip(person, year, strict=True))) < len(person):
        return False
    if any(y < born for y, born in zip(year, birth_year, strict=True)):
        return False
    labels = dict[str, list[Any]]()
    for column in columns:
        cells = tagged[column.name]
        if cells.null_count() == len(cells):
            continue
        if not _cells_plainly_conform(cells, column):
            return False
        if column.static and column.name != "person_id":
            of_person = cells.to_list()
            if len(set(zip(person, of_person, strict=True))) > person[-1] + 1:
                return False
            labels[column.name] = of_person
    entry, exit_, reason = (labels.get(name, [None] * len(person)) for name in EXIT)
    return all(
        (first is None or y >= first) and (after is None or y < after) and (not why or after)
        for y, first, after, why in zip(year, entry, exit_, reason, strict=True)
    )


def _cells_plainly_conform(cells: pl.Series, column: Column) -> bool:
    """Whether all known cells have an allowed code, or finite numbers in the allowed range."""
    if column.dtype == pl.String():
        codes = set(cells.to_list()) - {None}
        if column.codes:
            return codes.issubset(column.codes)
        return not column.pattern or all(
            re.fullmatch(column.pattern, code, re.ASCII) for code in codes
        )
    low, high = column.minimum, column.maximum
    known = cells.drop_nulls().to_numpy() if cells.null_count() else cells.to_numpy()
    return bool(
        np.isfinite(known).all()
        and (low is None or (known >= low).all())
        and (high is None or (known <= high).all())
    )


def find_violations(
    frame: pl.DataFrame, columns: tuple[Column, ...], unreadable: Mapping[str, pl.Series]
) -> pl.DataFrame:
    """Every broken rule: columns `row` (of the source), `rule` and `column`.

    `column` is null if the rule concerns several. `frame` has the columns `row` and `columns` in
    the panel's types, sorted by person and year. `unreadable` maps a column to the rows whose cell
    could not be read.
    """
    parts = [
        pl.DataFrame({"row": unreadable[column.name]}, schema={"row": pl.UInt32}).with_columns(
            rule=pl.lit(_unreadable_rule(column)), column=pl.lit(column.name)
        )
        for column in columns
        if column.name in unreadable
    ]
    person = frame["person_id"].rle_id().cast(pl.UInt32).alias("person")
    tagged = frame[["row", *(column.name for column in columns)]].insert_column(1, person)
    is_plain = 0 < tagged.height <= FEW_ROWS and _plainly_conforms(tagged, columns)
    if not is_plain and not tagged.select(_conforms(columns)).item():
        failure = person_years(columns).filter(tagged).failure
        details = failure.details()
        for key in failure.counts():
            rule, name = _parsed_key(key)
            rows = details.lazy().filter(pl.col(key) == "invalid").select("row").collect()
            if rule == "missing-value" and name is not None and name in unreadable:
                rows = rows.filter(~pl.col("row").is_in(unreadable[name].implode()))
            parts.append(rows.with_columns(rule=pl.lit(rule), column=pl.lit(name, dtype=pl.String)))
    if not parts:
        return _no_violations()
    return pl.concat([_no_violations(), *parts]).filter(pl.col("row").is_not_null())


@cache
def _no_violations() -> pl.DataFrame:
    return pl.DataFrame(schema={"row": pl.UInt32, "rule": pl.String, "column": pl.String})


def _unreadable_rule(column: Column) -> str:
    if column.dtype == pl.String():
        return "not-text"
    return "not-a-year" if column.dtype == pl.Int32() else "not-a-number"


def _parsed_key(key: str) -> tuple[str, str | None]:
    """Rule and column of a dataframely rule's key.

    Examples: "sex|check__unknown-code", "year|nullability", "not-constant sex".
    """
    if "|" in key:
        column, check = key.split("|")
        rule = "missing-value" if check == "nullability" else check.removeprefix("check__")
        return rule, column
    rule, _, column = key.partition(" ")
    return rule, column or None


def describe_violations(
    broken: pl.DataFrame, frame: pl.DataFrame, columns: Sequence[Column] = COLUMNS
) -> list[Problem]:
    """One problem for each broken rule and column, in the order of `RULES`.

    It counts persons if the rule is about persons, else rows, and names the first of them.
    """
    placed = broken.join(frame.select("row", "person_id", "year"), on="row", how="left")
    groups = placed.group_by("rule", "column").agg(
        pl.len().alias("rows"),
        pl.col("person_id").n_unique().alias("persons"),
        pl.col("person_id", "year").sort_by("row").first(),
    )
    by_name = {**BY_NAME, **{column.name: column for column in columns}}
    rules, names = list(RULES), [None, *by_name]
    ordered = sorted(
        groups.iter_rows(named=True),
        key=lambda group: (rules.index(group["rule"]), names.index(group["column"])),
    )
    return [_problem(group, by_name) for group in ordered]


def _problem(group: Mapping[str, Any], by_name: Mapping[str, Column]) -> Problem:
    rule, name = RULES[group["rule"]], group["column"]
    words = {"column": name, "allowed": _allowed(by_name[name]) if name else ""}
    year = None if rule.of_person else group["year"]
    count = group["persons"] if rule.of_person else group["rows"]
    return Problem(
        group["rule"],
        rule.message.format(**words),
        rule.fix.format(**words),
        name,
        group["person_id"],
        year,
        count,
    )


def is_outside_ages(frame: pl.DataFrame) -> pl.Series:
    """Whether the age of each row is not covered by a panel (null if it is unknown).

    A negative age breaks a rule instead.
    """
    age = frame["year"] - frame["birth_year"]
    return ((age >= 0) & (age < MIN_AGE)) | (age > MAX_AGE)
