"""The panel's rules: which rows break them, and how to say so.

A rule concerns a cell, a row, or a person (then all rows of the person break it). The rules are dataframely rules,
generated from the column table; a violation is a triple (row, rule, column), so that counts, first places, dropped
rows and the file of rejected rows all come from one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import dataframely as dy
import polars as pl

from saga.errors import Problem
from saga.schema import BY_NAME, MAX_AGE, MIN_AGE, STATIC, Column


@dataclass(frozen=True)
class Rule:
    """A rule by name: what is wrong and how to mend it (`{column}` and `{allowed}` are filled in), and whom it concerns."""

    message: str
    fix: str
    of_person: bool = False


RULES: Mapping[str, Rule] = {
    "not-a-number": Rule(
        "{column} holds something that is not a number",
        "Write numbers with a decimal point and no thousands separator, and leave unknown cells empty.",
    ),
    "not-a-year": Rule(
        "{column} holds something that is not a whole year",
        "Write years as whole numbers, such as 2015.",
    ),
    "not-text": Rule(
        "{column} holds something that is neither plain text nor a whole number",
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
        "Use {allowed}. Where a file is read, a mapping may recode it (`codes`).",
    ),
    "duplicate": Rule("a person has two rows for one year", "Keep one row a person and year."),
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


def _cell_rules(column: Column) -> dict[str, _Expression]:
    """Rule -> expression that is true where a cell keeps it. Unknown cells keep every one of these."""
    rules: dict[str, _Expression] = {}
    if column.dtype == pl.Float64():
        rules["not-finite"] = lambda cell: cell.is_finite()
    low, high = column.minimum, column.maximum
    if column.kind == "money":
        if low is not None:
            rules["negative"] = lambda cell: cell.is_nan() | (cell >= low)
    elif low is not None or high is not None:
        bottom, top = -float("inf") if low is None else low, float("inf") if high is None else high
        # What is not finite has its own rule.
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
        return f"codes of the form {column.pattern.strip('^$')}"
    low, high = (
        "" if bound is None else f"{bound:g}" for bound in (column.minimum, column.maximum)
    )
    return f"{low} to {high}" if high else f"{low} and more"


def _same_throughout(name: str) -> pl.Expr:
    column = BY_NAME[name]
    value = pl.col(name)
    if column.codes:
        value = value.cast(pl.Enum(column.codes), strict=False).to_physical()
    return value.min().over("person") == value.max().over("person")


def _row_rules(present: tuple[str, ...]) -> dict[str, pl.Expr]:
    """Rules over several cells: "rule" or "rule column" -> expression; rows are sorted by person and year."""
    year, person = pl.col("year"), pl.col("person")
    same_as_before = (person == person.shift(1)) & (year == year.shift(1))
    rules = {
        "duplicate": ~(same_as_before | ((person == person.shift(-1)) & (year == year.shift(-1))))
        | pl.col("person_id").is_null(),
        "born-after-record": year.min().over("person") >= pl.col("birth_year").max().over("person"),
    }
    rules |= {
        f"not-constant {name}": _same_throughout(name)
        for name in STATIC
        if name in present and name != "person_id"
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
        known = (
            pl.col("exit_year").is_not_null().any().over("person")
            if "exit_year" in present
            else pl.lit(False)
        )
        rules["exit-without-year exit_reason"] = (
            pl.col("exit_reason").is_null().all().over("person") | known
        )
    return rules


def _rule(expression: pl.Expr) -> Any:
    return dy.rule()(lambda _: expression)


@cache
def person_years(present: tuple[str, ...]) -> type[dy.Schema]:
    """The dataframely schema of a panel that has the columns `present`, with helper columns `row` and `person`."""
    types: dict[pl.DataType, Any] = {
        pl.String(): dy.String,
        pl.Int32(): dy.Int32,
        pl.Float64(): dy.Float64,
    }
    body: dict[str, Any] = {"row": dy.UInt32(nullable=False), "person": dy.UInt32(nullable=False)}
    for name in present:
        column = BY_NAME[name]
        nullable = name not in ("person_id", "year", "birth_year")
        free = {"allow_inf": True, "allow_nan": True} if column.dtype == pl.Float64() else {}
        body[name] = types[column.dtype](nullable=nullable, check=_cell_rules(column), **free)
    for name, expression in _row_rules(present).items():
        body[name] = _rule(expression)
    return type("PersonYears", (dy.Schema,), body)


def violations(
    frame: pl.DataFrame, present: tuple[str, ...], unreadable: Mapping[str, pl.Series]
) -> pl.DataFrame:
    """Every broken rule: columns `row` (number of the source row), `rule`, `column` (null: no single one).

    `frame` has the columns `row` and `present` in the panel's types, sorted by person and year; `unreadable` gives for a
    column the numbers of the rows whose cell could not be read.
    """
    found = [
        pl.DataFrame({"row": rows}, schema={"row": pl.UInt32}).with_columns(
            rule=pl.lit(_unreadable_rule(name)), column=pl.lit(name)
        )
        for name, rows in unreadable.items()
    ]
    tagged = frame.select(
        "row", pl.col("person_id").rle_id().cast(pl.UInt32).alias("person"), *present
    )
    failure = person_years(present).filter(tagged).failure
    if failure.counts():
        details = failure.details()
        for key in failure.counts():
            rule, column = _named(key)
            rows = details.lazy().filter(pl.col(key) == "invalid").select("row").collect()
            if rule == "missing-value" and column is not None and column in unreadable:
                rows = rows.filter(~pl.col("row").is_in(unreadable[column].implode()))
            found.append(
                rows.with_columns(rule=pl.lit(rule), column=pl.lit(column, dtype=pl.String))
            )
    empty = pl.DataFrame(schema={"row": pl.UInt32, "rule": pl.String, "column": pl.String})
    return pl.concat([empty, *found]).filter(pl.col("row").is_not_null())


def _unreadable_rule(name: str) -> str:
    column = BY_NAME[name]
    if column.dtype == pl.String():
        return "not-text"
    return "not-a-year" if column.dtype == pl.Int32() else "not-a-number"


def _named(key: str) -> tuple[str, str | None]:
    """Rule and column of a dataframely rule: "sex|check__unknown-code", "year|nullability", "not-constant sex"."""
    if "|" in key:
        column, check = key.split("|")
        return (
            "missing-value" if check == "nullability" else check.removeprefix("check__")
        ), column
    rule, _, column = key.partition(" ")
    return rule, column or None


def problems(broken: pl.DataFrame, frame: pl.DataFrame) -> list[Problem]:
    """One problem for each broken rule and column, in the order of `RULES`, with its count and first place in the source.

    A rule of persons counts persons, others count rows.
    """
    placed = broken.join(frame.select("row", "person_id", "year"), on="row", how="left")
    groups = placed.group_by("rule", "column").agg(
        pl.len().alias("rows"),
        pl.col("person_id").n_unique().alias("persons"),
        pl.col("person_id", "year").sort_by("row").first(),
    )
    order = {rule: place for place, rule in enumerate(RULES)}
    columns = {name: place for place, name in enumerate(BY_NAME)}
    found = sorted(
        groups.iter_rows(named=True), key=lambda g: (order[g["rule"]], columns.get(g["column"], -1))
    )
    return [_problem(group) for group in found]


def _problem(group: Mapping[str, Any]) -> Problem:
    rule, name = RULES[group["rule"]], group["column"]
    words = {"column": name, "allowed": _allowed(BY_NAME[name]) if name else ""}
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


def outside_ages() -> pl.Expr:
    """True where a row's age is outside the ages that a panel covers; a negative age is not: that is a mistake."""
    age = pl.col("year") - pl.col("birth_year")
    return (age.is_between(0, MIN_AGE - 1) | (age > MAX_AGE)).fill_null(False)
