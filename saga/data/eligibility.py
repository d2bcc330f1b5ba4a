"""Persons of a panel who cannot be forecast, and the reasons."""

from __future__ import annotations

import polars as pl

from saga.data.panel import Panel
from saga.errors import Problem
from saga.schema import MAX_AGE, MIN_AGE


def find_ineligible(panel: Panel, to_age: int = MAX_AGE, ahead: int = 1) -> dict[str, Problem]:
    """Person -> reason why the person cannot be forecast.

    One reason is an age above `to_age` in the first forecast year, `ahead` years after the last
    record.
    """
    last = panel.frame.group_by("person_id", maintain_order=True).agg(
        pl.col("year").max(),
        pl.col("birth_year").first(),
        pl.col("earnings").is_not_null().any().alias("known"),
        pl.col("exit_year").first(),
    )
    age = pl.col("year") - pl.col("birth_year")
    give, leave_out = (
        "Give at least one year with earnings (0 is a value).",
        "Leave the person out.",
    )
    too_young = f"The last record is below age {MIN_AGE}"
    exited = "The record ends in death or emigration"
    rules = (
        ("no-earnings", ~pl.col("known"), "No year with known earnings", give),
        ("too-old", age > to_age - ahead, *_too_old(to_age, ahead)),
        ("too-young", age < MIN_AGE, too_young, leave_out),
        ("has-left", pl.col("exit_year").is_not_null(), exited, leave_out),
    )
    reasons: dict[str, Problem] = {}
    if not last.select(pl.any_horizontal(condition for _, condition, *_ in rules).any()).item():
        return reasons
    for rule, condition, message, fix in rules:
        for person, year in last.filter(condition).select("person_id", "year").iter_rows():
            reasons.setdefault(person, Problem(rule, message, fix, person_id=person, year=year))
    return reasons


def _too_old(to_age: int, ahead: int) -> tuple[str, str]:
    if ahead == 1:
        return (
            f"The last record is at age {to_age} or above",
            "Leave the person out: no year remains.",
        )
    return (
        f"The first forecast year, {ahead} years on, lies above age {to_age}",
        "Choose an earlier one, or leave the person out.",
    )
