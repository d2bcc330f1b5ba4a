"""Childlessness, age at the first child, and the effect of a first child on earnings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saga.arrays import Bools
from saga.register.simulation.cohort_simulation import RegisterSettings, simulate_chunk
from saga.register.simulation.life_state import LifeState
from saga.register.simulation.parameters import Parameters
from saga.register.validation.estimators import Estimate, Sample, combine, mean_of
from saga.register.validation.level_statistics import KeyedEstimates
from saga.register.validation.register_arrays import CHILD_AGE_CODES, RegisterArrays
from saga.schema import MAX_AGE

# Birth years whose childlessness is published, and the age at which it is measured.
CHILDLESS_COHORTS = {
    "women": {1950: 45, 1960: 45, 1965: 45},
    "men": {1945: 55, 1950: 55, 1955: 55},
}
COHORT_SIZE = 4_000  # persons simulated per cohort, to see the births before the panel
FIRST_BIRTH_YEARS = (1991, 2020)  # for which the mean age at the first child is published
PARENT_AGES = (20, 45)  # at the first birth
EVENT_YEARS = range(-5, 16)  # years from the first birth
BASE_EVENT = -1  # the year before the birth
EVENT_DUMMIES = np.array([k for k in EVENT_YEARS if k != BASE_EVENT])
LONG_RUN = range(5, 11)  # years after the birth
VERY_LONG_RUN = 15  # years after the birth


def childlessness(register: RegisterArrays) -> KeyedEstimates:
    """Shares without a child by cohort.

    The panel does not show births before its first year, so the cohorts are simulated again.
    Yields nothing if the register was generated with parameters that this version does not have.
    """
    metadata, first_year = register.metadata, register.years.start
    try:
        parameters = Parameters(metadata["parameters"])
    except ValueError:
        return
    for group, cohorts in CHILDLESS_COHORTS.items():
        for born, age in cohorts.items():
            if born + MAX_AGE >= first_year:
                settings = RegisterSettings(
                    persons=metadata["persons"],
                    seed=metadata["seed"],
                    first_year=first_year,
                    last_year=max(born + age, first_year),
                    parameters=parameters,
                )
                estimate = _childless_at(settings, born, age, women=group == "women")
                yield f"childless.{group}.{born}", estimate


def _childless_at(settings: RegisterSettings, born: int, age: int, *, women: bool) -> Estimate:
    childless: list[NDArray[np.float64]] = []

    def observe(year: int, state: LifeState) -> None:
        if year == born + age:
            resident = state.resident & (state.female == women)
            childless.append((state.parity()[resident] == 0).astype(np.float64))

    simulate_chunk(settings, born, 0, COHORT_SIZE, observe)
    values = childless[0]
    return Sample(values, np.arange(len(values)), len(values)).mean()


def first_births(register: RegisterArrays) -> NDArray[np.int64]:
    """The year of the first child of each person seen without a child before (n,).

    0 if the person has no child or the birth is not seen.
    """
    child = register.youngest_child
    infant = child == CHILD_AGE_CODES["infant"]
    first = infant.argmax(axis=1)
    before = np.arange(child.shape[1]) < first[:, None]
    without_child = before & (child == CHILD_AGE_CODES["none"])
    with_child = before & (child > CHILD_AGE_CODES["none"])
    seen = infant.any(axis=1) & ~with_child.any(axis=1) & without_child.any(axis=1)
    return np.where(seen, register.years.start + first, 0)


def age_at_first_birth(register: RegisterArrays) -> KeyedEstimates:
    """Women's mean age at the first child, by year."""
    birth = first_births(register)
    for year in FIRST_BIRTH_YEARS:
        if year in register.years:
            age = register.age(year).astype(np.float32)
            estimate = register.sample(age, (birth == year) & register.female).mean()
            yield f"first_birth.{year}", estimate


def child_penalty(register: RegisterArrays) -> KeyedEstimates:
    """Loss of mothers relative to fathers, as a fraction of mothers' predicted earnings.

    Kleven, Landais and Søgaard (2019, eq. 3).
    """
    birth = first_births(register)
    mothers, fathers = (
        event_study(register, birth, mask) for mask in (register.female, ~register.female)
    )
    if mothers is None or fathers is None:
        return

    def loss(k: int) -> Estimate:
        event = EVENT_YEARS.index(k)
        predicted = mothers.predicted[event]
        return combine(
            lambda v: float((v[0] - v[1]) / predicted), fathers.effect[event], mothers.effect[event]
        )

    yield "child_penalty.mothers", mean_of(*map(loss, LONG_RUN))
    yield f"child_penalty.gap{VERY_LONG_RUN}", loss(VERY_LONG_RUN)


@dataclass(frozen=True)
class EventStudy:
    """Effects of a first birth on earnings, by year of `EVENT_YEARS`.

    Attributes:
        effect: Effect on real earnings (SEK).
        predicted: Mean earnings predicted without it (SEK).
    """

    effect: list[Estimate]
    predicted: NDArray[np.float64]

    def relative(self, k: int) -> Estimate:
        """Effect `k` years from the birth relative to the earnings predicted without it."""
        event = EVENT_YEARS.index(k)
        return combine(lambda v: float(v[0] / self.predicted[event]), self.effect[event])


def event_study(
    register: RegisterArrays, birth: NDArray[np.int64], mask: Bools
) -> EventStudy | None:
    """Event study of real earnings, zeros counted, around first births at 20-45.

    Least squares on dummies of age, year and years from the first birth, for the parents in `mask`.
    The standard errors treat the predicted earnings as known. None if there are no observations.
    """
    age_at_birth = birth - register.birth_year
    youngest, oldest = PARENT_AGES
    parents = np.flatnonzero(
        mask & (birth > 0) & (age_at_birth >= youngest) & (age_at_birth <= oldest)
    )
    calendar = np.array(register.years)
    event = calendar[None, :] - birth[parents, None]
    observed = np.isin(event, EVENT_YEARS) & np.isfinite(register.earnings[parents])
    row, column = np.nonzero(observed)
    if not len(row):
        return None
    years = calendar[column]
    real = np.stack([register.real(year) for year in register.years], axis=1)[parents][row, column]
    age = years - register.birth_year[parents[row]]
    # Observations of the same age, year and event share a row of the design.
    profile, member = np.unique(
        np.stack([age, years, event[row, column]], axis=1), axis=0, return_inverse=True
    )
    member = member.ravel()
    dummies = [profile[:, i : i + 1] == np.unique(profile[:, i]) for i in (0, 1)]
    design = np.concatenate([*dummies, profile[:, 2:] == EVENT_DUMMIES], axis=1).astype(float)
    weight = np.bincount(member, minlength=len(profile)).astype(float)
    inverse = np.linalg.pinv(design.T @ (weight[:, None] * design))
    beta = inverse @ (design.T @ np.bincount(member, real, len(profile)))
    n_events = len(EVENT_DUMMIES)
    residual = real - (design @ beta)[member]
    leverage = (design @ inverse[:, -n_events:])[member]  # of an observation on each event
    baseline = design[:, :-n_events] @ beta[:-n_events]
    effects, predicted = [], []
    for k in EVENT_YEARS:
        at_event = profile[:, 2] == k
        n_observed = max(weight[at_event].sum(), 1.0)
        predicted.append(float((weight * baseline)[at_event].sum() / n_observed))
        value, change = 0.0, np.zeros(len(row))
        if k != BASE_EVENT:
            dummy = int(np.flatnonzero(EVENT_DUMMIES == k)[0])
            value, change = float(beta[dummy - n_events]), leverage[:, dummy] * residual
        influence = np.bincount(parents[row], change, len(register)).astype(np.float64)
        effects.append(Estimate(value, influence, len(parents)))
    return EventStudy(effects, np.array(predicted))
