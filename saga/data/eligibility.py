"""Who can be forecast from a panel, and why the others cannot."""

from __future__ import annotations

import polars as pl

from saga.data.panel import Panel
from saga.errors import Problem
from saga.schema import MAX_AGE, MIN_AGE


def find_ineligible(panel: Panel, to_age: int = MAX_AGE, ahead: int = 1) -> dict[str, Problem]:
    """Persons that cannot be forecast from this panel, or are above `to_age` in the year `ahead` years on, with the reason."""
    last = panel.frame.group_by("person_id", maintain_order=True).agg(
        pl.col("year").max(),
        pl.col("birth_year").first(),
        pl.col("earnings").is_not_null().any().alias("known"),
        pl.col("exit_year").first(),
    )
    age = pl.col("year") - pl.col("birth_year")
    rules = (
        ("no-earnings", ~pl.col("known"), "No year with known earnings", "Give at least one year with earnings (0 is a value)."),
        ("too-old", age > to_age - ahead, *_too_old(to_age, ahead)),
        ("too-young", age < MIN_AGE, f"The last record is below age {MIN_AGE}", "Leave the person out."),
        ("has-left", pl.col("exit_year").is_not_null(), "The record ends in death or emigration", "Leave the person out."),
    )  # fmt: skip
    out: dict[str, Problem] = {}
    for rule, condition, message, fix in rules:
        for person, year in last.filter(condition).select("person_id", "year").iter_rows():
            out.setdefault(person, Problem(rule, message, fix, person_id=person, year=year))
    return out


def _too_old(to_age: int, ahead: int) -> tuple[str, str]:
    if ahead == 1:
        return (
            f"The last record is at age {to_age} or above",
            "Leave the person out: no year is left.",
        )
    return (
        f"The first year asked for, {ahead} years on, lies above age {to_age}",
        "Ask for an earlier one, or leave the person out.",
    )
