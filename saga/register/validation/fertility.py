"""Measured in a register: childlessness by cohort, age at the first child, and what a first child does to earnings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from saga.register.simulation.cohort_simulation import RegisterSettings, simulate_chunk
from saga.register.simulation.life_state import LifeState
from saga.register.simulation.parameters import Parameters
from saga.register.validation.estimators import Estimate, Sample, smooth
from saga.register.validation.level_statistics import Measured
from saga.register.validation.register_arrays import Bools, People
from saga.register.validation.targets import CHILDLESS
from saga.schema import MAX_AGE

LIVES = 4_000  # simulated again a cohort, to see the births before the panel
EVENT = range(-5, 16)  # years from the first birth; the year before it is the base
LONG_RUN = range(5, 11)


def childless(people: People) -> Measured:
    """Shares without a child by cohort. The panel sees no births before its first year, so the cohorts' lives are simulated again.

    Nothing is yielded where this version has other parameters than made the register.
    """
    about = people.about
    try:
        parameters = TypeAdapter(Parameters).validate_python(about["parameters"])
    except ValidationError:
        return
    for group, cohorts in CHILDLESS.items():
        for born, age, _ in cohorts:
            if born + MAX_AGE < people.years.start:
                continue
            run = RegisterSettings(
                persons=about["persons"],
                seed=about["seed"],
                first_year=people.years.start,
                last_year=max(born + age, people.years.start),
                parameters=parameters,
            )
            yield f"childless.{group}.{born}", _childless_at(run, born, age, women=group == "women")


def _childless_at(run: RegisterSettings, born: int, age: int, *, women: bool) -> Estimate:
    without: list[NDArray[np.float64]] = []

    def look(year: int, life: LifeState) -> None:
        if year == born + age:
            there = life.resident & (life.female == women)
            without.append((life.parity()[there] == 0).astype(np.float64))

    simulate_chunk(run, born, 0, LIVES, look)
    values = without[0]
    return Sample(values, np.arange(len(values)), len(values)).mean()


def first_births(people: People) -> NDArray[np.int64]:
    """The year of the first child of each person seen without one before (n,), 0 where there is none or it is not seen."""
    infant = people.child == 1
    first = infant.argmax(axis=1)
    column = np.arange(people.child.shape[1])
    before = column < first[:, None]
    clean = (
        infant.any(axis=1)
        & ~(before & (people.child > 0)).any(axis=1)
        & (before & (people.child == 0)).any(axis=1)
    )
    return np.where(clean, people.years.start + first, 0)


def age_at_first(people: People) -> Measured:
    """Women's mean age at the first child, by year."""
    born = first_births(people)
    for year in (1991, 2020):
        if year in people.years:
            yield (
                f"first_birth.{year}",
                people.sample(
                    people.age(year).astype(np.float32), (born == year) & people.female
                ).mean(),
            )


def penalty(people: People) -> Measured:
    """Loss of mothers relative to fathers, in per cent of what mothers would earn (Kleven, Landais and Søgaard 2019, eq. 3)."""
    first = first_births(people)
    mothers, fathers = (
        event_study(people, first, mask) for mask in (people.female, ~people.female)
    )
    if mothers is None or fathers is None:
        return

    def loss(k: int) -> Estimate:
        without = mothers.without[EVENT.index(k)]
        return smooth(
            lambda v: float((v[0] - v[1]) / without),
            fathers.effect[EVENT.index(k)],
            mothers.effect[EVENT.index(k)],
        )

    yield "child_penalty.mothers", smooth(lambda v: float(v.mean()), *map(loss, LONG_RUN))
    yield "child_penalty.gap15", loss(15)


@dataclass(frozen=True)
class EventStudy:
    """Effect of each year of `EVENT` on real earnings (SEK), and mean earnings predicted without it."""

    effect: list[Estimate]
    without: NDArray[np.float64]

    def relative(self, k: int) -> Estimate:
        """Effect `k` years from the birth relative to the earnings predicted without it."""
        place = EVENT.index(k)
        return smooth(lambda v: float(v[0] / self.without[place]), self.effect[place])


def event_study(people: People, first: NDArray[np.int64], mask: Bools) -> EventStudy | None:
    """Least squares of real earnings, zeros counted, on age, year and years from the first birth (dummies) among parents at `mask`.

    First births at 20-45. The predicted level is taken as known in the standard errors. None where nobody is seen on both sides.
    """
    age_at = first - people.born
    parents = np.flatnonzero(mask & (first > 0) & (age_at >= 20) & (age_at <= 45))
    event = np.array(people.years)[None, :] - first[parents, None]
    known = np.isin(event, EVENT) & np.isfinite(people.earnings[parents])
    row, column = np.nonzero(known)
    if not len(row):
        return None
    years = np.array(people.years)[column]
    real = np.stack([people.real(year) for year in people.years], axis=1)[parents][row, column]
    age = years - people.born[parents[row]]
    cell, member = np.unique(
        np.stack([age, years, event[row, column]], axis=1), axis=0, return_inverse=True
    )
    design = np.concatenate(
        [cell[:, i : i + 1] == np.unique(cell[:, i]) for i in (0, 1)] + [cell[:, 2:] == _dummies()],
        axis=1,
    ).astype(float)
    weight = np.bincount(member.ravel(), minlength=len(cell)).astype(float)
    total = np.bincount(member.ravel(), real, len(cell))
    solve = np.linalg.pinv(design.T @ (weight[:, None] * design))
    beta = solve @ (design.T @ total)
    events = len(_dummies())
    residual = real - (design @ beta)[member.ravel()]
    share = (design @ solve[:, -events:])[
        member.ravel()
    ]  # effect of an observation on each event coefficient
    level = design[:, :-events] @ beta[:-events]
    effects, without = [], []
    for k in EVENT:
        at = cell[:, 2] == k
        without.append(float((weight * level)[at].sum() / max(weight[at].sum(), 1.0)))
        place = int(np.flatnonzero(_dummies() == k)[0]) if k != -1 else None
        value = 0.0 if place is None else float(beta[len(beta) - events + place])
        change = np.zeros(len(row)) if place is None else share[:, place] * residual
        effects.append(
            Estimate(
                value,
                np.bincount(parents[row], change, len(people)).astype(np.float64),
                len(parents),
            )
        )
    return EventStudy(effects, np.array(without))


def _dummies() -> NDArray[np.int64]:
    return np.array([k for k in EVENT if k != -1])
