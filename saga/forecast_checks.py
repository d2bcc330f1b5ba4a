"""Checks of a request before a forecast: persons, money and scenario fit the bundle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from saga.data.panel import Panel
from saga.errors import InputError, Problem, UsageError, check_type
from saga.features.transforms import Transforms
from saga.macro.scenarios import Scenario
from saga.requests import Request
from saga.schema import MAX_AGE, MIN_AGE
from saga.training_records import TrainingRecords


def check_panel(panel: Panel, transforms: Transforms, to_age: int = MAX_AGE) -> None:
    """Check that every person of the panel can be forecast, in the bundle's money.

    Raises:
        InputError: If the panel is empty or a person cannot be forecast.
        UsageError: If it is not a panel, the amounts are in another currency or price year than the
            bundle, or a column of the panel's own is of another kind.
    """
    check_type("panel", panel, Panel, "read_panel(frame)")
    check_money(panel, transforms)
    check_kinds(panel, transforms)
    if not len(panel):
        problem = Problem("empty", "The panel has no rows", "Give at least one person-year.")
        raise InputError("There is nobody to forecast.", [problem])
    problems = list(find_ineligible(panel, to_age).values())
    if problems:
        raise InputError(f"{len(problems)} person(s) cannot be forecast.", problems[:20])


def find_without_rows(
    panel: Panel, request: Request, records: TrainingRecords
) -> dict[str, Problem]:
    """Person -> why the requested table has no row of the person.

    The person cannot be forecast, or all years lie beyond the span of the training `records`.
    """
    reasons = find_ineligible(panel, request.to_age, min(request.horizons))
    if request.beyond_span:
        return reasons
    age = panel.origins - panel.birth_years
    is_reached = records.reach(age[:, None], np.array(request.horizons)).any(axis=1)
    if is_reached.all():
        return reasons
    why = f"Every year lies beyond the training records, which have outcomes {records}"
    fix = "Ask for years within them, or with beyond_span for extrapolated ones."
    beyond = panel.frame[panel.last_rows[~is_reached]].select("person_id", "year")
    for person, last in beyond.iter_rows():
        reasons.setdefault(
            person, Problem("beyond-span", why, fix, "beyond_span", person_id=person, year=last)
        )
    return reasons


def leave_out_ineligible(
    panel: Panel, request: Request, records: TrainingRecords
) -> tuple[Panel, tuple[Problem, ...]]:
    """The persons who have rows, and why the others have none; see `find_without_rows`.

    Raises:
        InputError: If nobody has a row.
        UsageError: If it is no panel.
    """
    check_type("panel", panel, Panel, "read_panel(frame)")
    ineligible = find_without_rows(panel, request, records)
    lost = (panel.meta.lost,) if panel.meta.lost else ()
    return keep_eligible(panel, ineligible), (*lost, *ineligible.values())


def check_kinds(panel: Panel, transforms: Transforms) -> None:
    """Raise UsageError if a column of the panel's own is of another kind than in training."""
    kinds = {column.name: column.kind for column in panel.meta.extra}
    for column in transforms.extra:
        kind = kinds.get(column.name, column.kind)
        if kind != column.kind:
            raise UsageError(
                f"The mapping reads {column.name} as a {kind}, the bundle knows it as a "
                f"{column.kind}. Use the mapping that the bundle was trained with."
            )


def check_money(panel: Panel, transforms: Transforms) -> None:
    """Raise UsageError unless the panel's amounts are in the bundle's currency and price year."""
    panel_money, bundle_money = (
        f"{x.currency} of {x.price_year}" for x in (panel.meta, transforms)
    )
    if panel_money != bundle_money:
        raise UsageError(
            f"The panel is in {panel_money}, the bundle in {bundle_money}. Use the mapping that "
            "the bundle was trained with, or another bundle."
        )


def check_reference(reference: Scenario | None, scenario: Scenario | None) -> None:
    """Raise UsageError if the scenario of a reference is that of the paths."""
    if reference == scenario:
        raise UsageError(
            "The reference has the scenario of the paths, so nothing would differ. Give another "
            "scenario, or no reference."
        )


def check_scenario(scenario: Scenario | None, panel: Panel, request: Request) -> None:
    """Raise UsageError if a scenario covers no year that a row of the answer is about."""
    if scenario is None:
        return
    first = panel.origins + 1
    last = np.minimum(panel.origins + request.horizons[-1], panel.birth_years + request.to_age)
    if not scenario.covers(first, last).any():
        years_told = {*scenario.rows, *scenario.ratios}
        scenario_years = f"{min(years_told)} to {max(years_told)}"
        forecast_years = f"{first.min()} to {last.max()}"
        raise UsageError(
            f"The scenario is about {scenario_years}, the forecasts are about {forecast_years}. "
            "Give years among those."
        )


def find_ineligible(panel: Panel, to_age: int = MAX_AGE, ahead: int = 1) -> dict[str, Problem]:
    """Person -> reason why the person cannot be forecast.

    One reason is an age above `to_age` in the first forecast year, `ahead` years after the last
    record.
    """
    if not len(panel):
        return {}
    frame = panel.frame
    last = panel.last_rows
    age = panel.origins - panel.birth_years
    is_known = ~np.isnan(_numbers(panel, "earnings"))
    n_known = np.bincount(panel.person_numbers[is_known], minlength=len(last))
    give, leave_out = (
        "Give at least one year with earnings (0 is a value).",
        "Leave the person out.",
    )
    too_young = f"The last record is below age {MIN_AGE}"
    exited = "The record ends in death or emigration"
    rules = (
        ("no-earnings", n_known == 0, "No year with known earnings", give),
        ("too-old", age > to_age - ahead, *_too_old(to_age, ahead)),
        ("too-young", age < MIN_AGE, too_young, leave_out),
        ("has-left", ~np.isnan(_numbers(panel, "exit_year")[last]), exited, leave_out),
    )
    reasons: dict[str, Problem] = {}
    for rule, concerned, message, fix in rules:
        if not np.count_nonzero(concerned):  # a tenth of the time of `any`
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
