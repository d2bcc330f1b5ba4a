"""The panel's rules: which rows break them, who cannot be forecast, and the messages about it.

A rule concerns a cell, a row or a person; if it concerns a person, all rows of the person break it.
The rules are expressions made from the table of columns (`saga.schema`). A violation is a row of
the source, a rule and a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from saga.data.casting import HIVE_UNKNOWN, count_padded, read_column
from saga.data.mapping import ARGUMENTS, SourceMapping
from saga.data.origins import without_later_exits
from saga.errors import FileProblem, InputError, Problem, with_nearest
from saga.requests import OnError
from saga.schema import BY_NAME, COLUMNS, MAX_AGE, MAX_AMOUNT, MIN_AGE, REQUIRED, Column


@dataclass(frozen=True)
class Rule:
    """What is wrong and how to fix it; `{column}` and `{allowed}` are placeholders.

    `of_person` says whether the rule concerns a person.
    """

    message: str
    fix: str
    of_person: bool = False
    file_fix: str = ""


RULES: Mapping[str, Rule] = {
    "not-a-number": Rule(
        "{column} contains something that is not a number",
        "Write numbers with a decimal point and no thousands separator, and leave unknown cells "
        "empty.",
        file_fix="For a file, a mapping may say `decimal: ','` and `null_if`.",
    ),
    "not-a-year": Rule(
        "{column} contains something that is not a whole year",
        "Write years as whole numbers, such as 2015.",
    ),
    "not-text": Rule(
        "{column} contains something that is neither plain text nor a whole number that its type "
        "stores exactly (single precision: below 16,777,216)",
        "Write it as text without control characters, an id also without those of no width.",
    ),
    "missing-value": Rule("{column} is empty", "Fill it in, or leave the row out."),
    "not-finite": Rule("{column} is infinite or not a number", "Leave unknown cells empty (null)."),
    "negative": Rule(
        "{column} is negative", "Correct the amount; 0 means none, empty means unknown."
    ),
    "too-large": Rule(
        "{column} is too large for an amount in any currency",
        f"Correct the amount or its unit, or leave the cell empty; up to {MAX_AMOUNT:,.0f} is "
        "allowed.",
    ),
    "out-of-range": Rule(
        "{column} is outside {allowed}", "Correct the value or its unit, or leave the cell empty."
    ),
    "unknown-code": Rule(
        "{column} has an unknown code",
        "Use {allowed}; if the column has another meaning, leave it out.",
        file_fix="A mapping may recode it (`codes`) or leave it out (`columns: {{{column}: []}}`).",
    ),
    "word-for-unknown": Rule(
        "{column} has a word by which programs write unknown cells, such as NA, nan or NULL",
        "Leave unknown cells empty; write an id or a code that is such a word otherwise.",
        file_fix="A mapping may recode it: `codes: {{ITS_NAME: {{NA: null}}}}`.",
    ),
    "lost-digits": Rule(
        "{column} has a long number with an exponent, as spreadsheets write it, without its last "
        "digits",
        "Export the column as text.",
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

_WORDS = (
    *("NA", "na", "N/A", "n/a", "<NA>", "NaN", "nan", "NAN", "NaT", "NULL", "null", "Null", "."),
    *("\\N", "(null)", HIVE_UNKNOWN),  # of databases
    *("#N/A", "#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!"),  # of spreadsheets
)
# Of numbers with more than 11 digits: by Excel, and without the plus by Java, Spark and polars.
_SHORTENED = r"^\d(\.\d+[eE]\+?|[eE]\+)(1[1-9]|[2-9]\d)$"
_NEVER_EMPTY = ("person_id", "year", "birth_year")
_VIOLATION = {"row": pl.UInt32, "rule": pl.String, "column": pl.String}
Key = tuple[str, str | None]
"""A rule, and the column that it concerns; None if it concerns several."""


def _cell_rules(column: Column) -> Mapping[Key, pl.Expr]:
    """The rules of single cells: expressions that are false where a cell breaks the rule."""
    cell, name = pl.col(column.name), column.name
    rules: dict[Key, pl.Expr] = {}
    if name in _NEVER_EMPTY:
        rules["missing-value", name] = cell.is_not_null()
    if column.dtype == pl.Float64():
        rules["not-finite", name] = cell.is_finite()
    low, high = column.minimum, column.maximum
    if column.kind == "money":
        if low is not None:
            rules["negative", name] = cell.is_nan() | (cell >= low)
        rules["too-large", name] = ~cell.is_finite() | (cell.abs() <= MAX_AMOUNT)
    elif low is not None or high is not None:
        bottom, top = -float("inf") if low is None else low, float("inf") if high is None else high
        # For values that are not finite there is another rule.
        in_range = cell.is_between(bottom, top) | ~cell.cast(pl.Float64).is_finite()
        rules["out-of-range", name] = in_range
    if column.codes:
        rules["unknown-code", name] = cell.is_in(column.codes)
    elif column.pattern:
        rules["unknown-code", name] = cell.str.contains(column.pattern)
    elif column.dtype == pl.String():  # ids and codes that may be any texts
        is_code = column.kind == "category"  # which may be None
        rules["word-for-unknown", name] = ~cell.is_in(_WORDS if is_code else (*_WORDS, "None"))
        rules["lost-digits", name] = ~cell.str.contains(_SHORTENED)
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


def _row_rules(columns: tuple[Column, ...]) -> Mapping[Key, pl.Expr]:
    """The rules over several cells or rows; rows are sorted by person and year."""
    present = {column.name for column in columns}
    year, person = pl.col("year"), pl.col("person")
    first, last = year.min().over("person"), year.max().over("person")
    same_as_before = (person == person.shift(1)) & (year == year.shift(1))
    same_as_after = (person == person.shift(-1)) & (year == year.shift(-1))
    rules: dict[Key, pl.Expr] = {
        ("duplicate", None): ~(same_as_before | same_as_after),
        ("born-after-record", None): first >= pl.col("birth_year").max().over("person"),
    }
    for column in columns:
        if column.static and column.name != "person_id":
            rules["not-constant", column.name] = _same_throughout(column)
    if "entry_year" in present:
        entry = pl.col("entry_year").max().over("person")
        rules["record-before-entry", "entry_year"] = first >= entry
    if "exit_year" in present:
        rules["record-after-exit", "exit_year"] = last < pl.col("exit_year").min().over("person")
    if "exit_reason" in present:
        has_year = pl.col("exit_year").is_not_null() if "exit_year" in present else pl.lit(False)
        no_reason = pl.col("exit_reason").is_null()
        rules["exit-without-year", "exit_reason"] = no_reason.all().over(
            "person"
        ) | has_year.any().over("person")
    return rules


@cache
def _rules(columns: tuple[Column, ...]) -> Mapping[Key, pl.Expr]:
    """All rules of a panel with these columns; where an expression is null, the row conforms."""
    of_cells = [_cell_rules(column) for column in columns]
    return {key: rule for rules in (*of_cells, _row_rules(columns)) for key, rule in rules.items()}


def find_violations(
    frame: pl.DataFrame, columns: tuple[Column, ...], unreadable: Mapping[str, pl.Series]
) -> pl.DataFrame:
    """Every broken rule: columns `row` (of the source), `rule` and `column`.

    `column` is null if the rule concerns several. `frame` has the columns `row` and `columns` in
    the panel's types, sorted by person and year. `unreadable` maps a column to the rows whose cell
    could not be read.
    """
    ids = frame["person_id"]
    # Rows without an id may be of different persons: each is one of its own.
    person = (ids.rle_id() + ids.is_null().cum_sum()).alias("person")
    tagged = frame.select("row", *(column.name for column in columns)).with_columns(person)
    rules = _rules(columns)
    # Most panels conform, so the rows that break a rule are looked for only where there are some.
    conform = tagged.select(rule.all().alias(str(i)) for i, rule in enumerate(rules.values()))
    rows: dict[Key, pl.Series] = {
        (_unreadable_rule(column), column.name): unreadable[column.name]
        for column in columns
        if column.name in unreadable
    }
    for ((rule, name), expression), conforms in zip(rules.items(), conform.row(0), strict=True):
        if not conforms:
            broken = tagged.filter(~expression)["row"]
            if rule == "missing-value" and name is not None and name in unreadable:
                broken = broken.filter(~broken.is_in(unreadable[name].implode()))
            rows[rule, name] = broken
    parts = [
        of_rule.cast(pl.UInt32)
        .alias("row")
        .to_frame()
        .with_columns(rule=pl.lit(rule), column=pl.lit(column, dtype=pl.String))
        for (rule, column), of_rule in rows.items()
    ]
    return pl.concat([pl.DataFrame(schema=_VIOLATION), *parts])


def _unreadable_rule(column: Column) -> str:
    if column.dtype == pl.String():
        return "not-text"
    return "not-a-year" if column.dtype == pl.Int32() else "not-a-number"


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
    return FileProblem(
        group["rule"],
        rule.message.format(**words),
        rule.fix.format(**words),
        name,
        group["person_id"],
        year,
        count,
        rule.file_fix.format(**words),
    )


def is_outside_ages(frame: pl.DataFrame) -> pl.Series:
    """Whether the age of each row is not covered by a panel (null if it is unknown).

    A negative age breaks a rule instead.
    """
    age = frame["year"] - frame["birth_year"]
    return ((age >= 0) & (age < MIN_AGE)) | (age > MAX_AGE)


_CODES = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)


_HOW = {
    "year": "; one row is one person in one year",
    "birth_year": "; it is the year minus the age",
}
_LENGTHEN = (
    " If the columns {first} to {last} are years, make one row of each person and year: by reshape "
    "long in Stata, pivot_longer in R, melt or unpivot in Python."
)


MAX_CODES = 500  # a column with more codes names persons or places, it does not describe them


def valid_rows(
    rows: pl.DataFrame, broken: pl.DataFrame, columns: Sequence[Column], on_error: OnError
) -> pl.DataFrame:
    """The rows that break no rule. Raises InputError if there are none, or if errors fail."""
    if not broken.height:
        return rows
    problems = describe_violations(broken, rows, columns)
    if problems and on_error == "fail":
        raise InputError("the panel has rows that are not valid", problems)
    valid = rows.join(broken.select("row").unique(), on="row", how="anti", maintain_order="left")
    require_rows(valid, "every row breaks a rule", problems)
    return valid


def require_columns(
    present: Sequence[str],
    unread: Sequence[str],
    mapped: SourceMapping,
    *,
    by_argument: bool = False,
) -> None:
    """Raise InputError if a required column is not `present`, to be named `by_argument` or not."""
    missing = []
    of_years = [column for column in unread if re.search(r"(?<!\d)(19|20)\d\d$", column)]
    for name in REQUIRED:
        if name not in present:
            sought = mapped.columns.get(name, name)
            meant = name if name in unread else sought
            fix = with_nearest(f"Add it{_HOW.get(name, '')}.", meant, unread)
            if name == "year" and len(of_years) > 1:
                fix += _LENGTHEN.format(first=of_years[0], last=of_years[-1])
            file_fix = (
                f'Or name it: {ARGUMENTS[name]}="ITS_NAME".'
                if by_argument
                else "Or name it in a mapping, which `saga init` proposes: "
                f"`columns: {{{name}: ITS_NAME}}`."
            )
            source = f" (looked for {mapped.columns[name]})" if name in mapped.columns else ""
            why = f"the required column {name} is missing{source}"
            missing.append(FileProblem("missing-column", why, fix, name, file_fix=file_fix))
    if missing:
        raise InputError("the panel lacks required columns", missing)


def require_rows(frame: pl.DataFrame, why: str, problems: Sequence[Problem] = ()) -> None:
    """Raise InputError if there is no row, which `why` explains, with further `problems`."""
    if frame.height == 0:
        fix = f"Give at least one person-year at ages {MIN_AGE}-{MAX_AGE}."
        raise InputError("the panel is empty", [Problem("no-rows", why, fix), *problems])


def typed_rows(
    renamed: pl.DataFrame, columns: Sequence[Column]
) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """The frame in the panel's types with source row numbers, and unreadable rows by column."""
    series, unreadable = [], {}
    numbers = pl.int_range(renamed.height, dtype=pl.UInt32, eager=True).alias("row")
    for column in columns:
        typed, bad = read_column(renamed[column.name], column)
        series.append(typed)
        dtype = renamed.schema[column.name]
        if bad.any() and column.dtype == pl.Int32() and not (dtype.is_numeric() or dtype in _CODES):
            raise InputError.of(
                "the panel has rows that are not valid",
                "not-a-year",
                f"{column.name} has dates, times or periods within years, not whole years",
                "Make a column of whole numbers: in Stata by year(), in pandas by .dt.year.",
                column=column.name,
            )
        if bad.any():
            unreadable[column.name] = numbers.filter(bad)
    return pl.DataFrame([numbers, *series]), unreadable


def padded_codes(renamed: pl.DataFrame, columns: Sequence[Column]) -> dict[str, int]:
    """Column -> number of codes that lacked a leading zero."""
    counts = {column.name: count_padded(renamed[column.name], column) for column in columns}
    return {name: n for name, n in counts.items() if n}


def require_few_codes(typed: pl.DataFrame, extra: Sequence[Column]) -> None:
    """Raise InputError if a category of the panel's own has more than MAX_CODES codes."""
    for column in extra:
        if column.kind != "category" or column.name not in typed.columns:
            continue
        n_codes = typed[column.name].drop_nulls().n_unique()
        if n_codes > MAX_CODES:
            raise InputError.of(
                "a category has too many codes",
                "too-many-codes",
                f"{column.name} is a category with {n_codes:,} codes; {MAX_CODES} are allowed",
                "Group the codes with `codes` or `digits` in the mapping, or use `kind: number`.",
                column=column.name,
            )


def inside_ages(typed: pl.DataFrame, broken: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows at ages that a panel covers, and their violations.

    Rows that break a rule about persons, or whose years are not possible, remain at any age: a year
    may be wrong.
    """
    outside = is_outside_ages(typed)
    if not outside.any():
        return typed, broken
    person_rules = [name for name, rule in RULES.items() if rule.of_person]
    is_year = (pl.col("rule") == "out-of-range") & pl.col("column").is_in(["year", "birth_year"])
    rows = broken.filter(pl.col("rule").is_in(person_rules) | is_year)["row"]
    outside = outside.fill_null(False) & ~typed["row"].is_in(rows.implode())
    return typed.filter(~outside), broken.join(
        typed.filter(outside).select("row"), on="row", how="anti"
    )


def rows_until(
    origin: int, typed: pl.DataFrame, unreadable: dict[str, pl.Series]
) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """The rows up to `origin`, without exits after it, and those of them that are unreadable.

    Rows without a readable year remain, to be reported.
    """
    rows = typed.filter((pl.col("year") <= origin) | pl.col("year").is_null())
    rows = without_later_exits(rows, pl.lit(origin))
    numbers = {name: n.filter(n.is_in(rows["row"].implode())) for name, n in unreadable.items()}
    return rows, {name: n for name, n in numbers.items() if n.len()}


def rows_beside(valid: pl.DataFrame, typed: pl.DataFrame, covered: pl.DataFrame) -> int:
    """The number of rows of `typed` that are not `covered`, of persons in `valid`."""
    outside = typed.join(covered, on="row", how="anti")
    return outside.join(valid, on="person_id", how="semi").height


def lost_persons(typed: pl.DataFrame, valid: pl.DataFrame, origin: int | None) -> Problem | None:
    """The persons of `typed` without a row in `valid`."""
    if typed.height == valid.height:
        return None
    persons = typed.select("person_id").drop_nulls().unique()
    lost = persons.join(valid, on="person_id", how="anti")["person_id"].sort()
    if not lost.len():
        return None
    why = (
        f"No row of the person is usable: all are outside ages {MIN_AGE}-{MAX_AGE} or break a rule"
        + (f" or are after {origin}" if origin is not None else "")
    )
    fix = "Leave the person out."
    return Problem("no-usable-row", why, fix, person_id=lost[0], count=lost.len())


# Codes for what is unknown, and amounts so near to them that by chance they are nine times as many.
_NINES, _NEAR_NINES = (
    pl.Series([float(10**digits - k) for digits in range(5, 12) for k in near])
    for near in (range(1, 4), range(4, 31))
)


def persons_of_nines(rows: pl.DataFrame, columns: Sequence[str]) -> dict[str, int]:
    """Column -> persons with amounts such as 99999, 999998 or 9999997, if they are no chance."""
    persons = dict[str, int]()
    for name in columns:
        is_code = rows[name].is_in(_NINES.implode())
        if is_code.any() and is_code.sum() > rows[name].is_in(_NEAR_NINES.implode()).sum():
            persons[name] = rows["person_id"].filter(is_code.fill_null(False)).n_unique()
    return persons


def dropped_by_rule(broken: pl.DataFrame) -> dict[str, int]:
    """Rule -> dropped rows; a row that breaks several rules counts for the first of them."""
    if not broken.height:
        return {}
    order = pl.Enum(list(RULES))
    first = broken.group_by("row").agg(pl.col("rule").cast(order).min())
    counts = first.group_by("rule").len().sort("rule")
    return {str(rule): int(count) for rule, count in counts.iter_rows()}
