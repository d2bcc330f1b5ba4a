"""Persons of a panel who cannot be forecast, and the reasons."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.errors import InputError, Problem
from saga.schema import MAX_AGE, MIN_AGE


def find_ineligible(panel: Panel, to_age: int = MAX_AGE, ahead: int = 1) -> dict[str, Problem]:
    """Person -> reason why the person cannot be forecast.

    One reason is an age above `to_age` in the first forecast year, `ahead` years after the last
    record.
    """
    if not len(panel):
        return {}
    frame = panel.frame
    last = panel.last_rows
    first = np.append(0, last[:-1] + 1)
    age = (frame["year"].to_numpy() - frame["birth_year"].to_numpy())[last]
    known = np.logical_or.reduceat(~np.isnan(_numbers(panel, "earnings")), first)
    give, leave_out = (
        "Give at least one year with earnings (0 is a value).",
        "Leave the person out.",
    )
    too_young = f"The last record is below age {MIN_AGE}"
    exited = "The record ends in death or emigration"
    rules = (
        ("no-earnings", ~known, "No year with known earnings", give),
        ("too-old", age > to_age - ahead, *_too_old(to_age, ahead)),
        ("too-young", age < MIN_AGE, too_young, leave_out),
        ("has-left", ~np.isnan(_numbers(panel, "exit_year")[first]), exited, leave_out),
    )
    reasons: dict[str, Problem] = {}
    for rule, concerned, message, fix in rules:
        if not concerned.any():
            continue
        rows = last[concerned]
        for person_id, last_year in frame[rows].select("person_id", "year").iter_rows():
            problem = Problem(rule, message, fix, person_id=person_id, year=last_year)
            reasons.setdefault(person_id, problem)
    return reasons


def _numbers(panel: Panel, name: str) -> NDArray[np.float64]:
    """A column as numbers, NaN where it is unknown."""
    return panel.frame[name].to_numpy().astype(np.float64)


def keep_eligible(panel: Panel, ineligible: dict[str, Problem]) -> Panel:
    """The panel without the `ineligible` persons.

    Raises:
        InputError: If nobody remains.
    """
    if not ineligible:
        return panel
    persons = [person for person in panel.persons() if person not in ineligible]
    if not persons:
        problems = [*([panel.meta.lost] if panel.meta.lost else []), *ineligible.values()]
        raise InputError("Nobody in the input can be forecast.", problems[:20])
    return panel.only(persons)


def _too_old(to_age: int, ahead: int) -> tuple[str, str]:
    """What is wrong with a person who is too old, and what to do."""
    if ahead == 1:
        return (
            f"The last record is at age {to_age} or above",
            "Leave the person out: no year remains.",
        )
    return (
        f"The first forecast year, {ahead} years on, lies above age {to_age}",
        "Choose an earlier one, or leave the person out.",
    )
