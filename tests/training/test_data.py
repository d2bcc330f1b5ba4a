"""Batches: what a step weighs. Records are short because people die, so weights must not depend on length."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from saga.features.calendar import Calendar
from saga.features.sequences import Sequences
from saga.macro.history import sweden
from training.data import Batch, Batches
from training.masking import Masking

PERSONS, YEARS, HAZARD = 6_000, 30, 0.05
CALENDAR = Calendar(sweden())


@pytest.fixture(scope="module")
def mortal() -> Sequences:
    """People with one and the same hazard of death in every year, seen for 30 years at most."""
    rng = np.random.default_rng(0)
    seen = np.minimum(rng.geometric(HAZARD, PERSONS), YEARS)
    rows = int(seen.sum())
    return Sequences(
        person_id=np.arange(PERSONS).astype(np.str_),
        birth_year=np.full(PERSONS, 1965),
        dead_year=np.where(seen < YEARS, 1990 + seen, 0),
        offsets=np.append(0, seen.cumsum()),
        year=np.concatenate([np.arange(1990, 1990 + n) for n in seen]),
        state=np.full(rows, 2, np.int8),
        z=np.zeros(rows, np.float32),
        other=np.full((rows, 14), np.nan, np.float32),
        codes=np.zeros((rows, 10), np.int16),
    )


def batches(people: Sequences, kind: type[Batches] = Batches) -> list[Batch]:
    epoch = kind(people, np.arange(PERSONS), CALENDAR, Masking(), 64, seed=1)
    return [epoch[i] for i in range(len(epoch))]


def hazard(epoch: list[Batch], divided_by: str) -> tuple[float, float]:
    """The constant hazard that minimises the epoch's loss, and its standard error with equal weights."""
    deaths = years = 0.0
    for batch in epoch:
        asked = (batch["gap"] == 1) & (batch["next_dead"] | (batch["next_state"] > 0))
        weight = 1 / float(batch["whole"] if divided_by == "whole" else (batch["gap"] > 0).sum())
        deaths += weight * float((batch["next_dead"] & asked).sum())
        years += weight * float(asked.sum())
    count = sum(int((batch["gap"] == 1).sum()) for batch in epoch)
    return deaths / years, (HAZARD / count) ** 0.5


def test_the_hazard_that_training_learns_is_the_people_s(mortal: Sequences) -> None:
    epoch = batches(mortal)
    learnt, error = hazard(epoch, "whole")
    assert learnt == pytest.approx(HAZARD, abs=4 * error)
    # A mean over what is asked gives batches of the dead, whose thinned records ask less, too much weight.
    wrong, _ = hazard(epoch, "asked")
    assert wrong > HAZARD + 4 * error


def test_batches_of_equally_many_persons_of_one_length_teach_too_high_a_hazard(
    mortal: Sequences,
) -> None:
    class Equal(Batches):
        def plan(self) -> list[NDArray[np.int64]]:
            order = np.argsort(self.sequences.lengths, kind="stable")
            return np.array_split(order, len(self))

    for divided_by in ("whole", "asked"):
        wrong, error = hazard(batches(mortal, Equal), divided_by)
        assert wrong > 1.5 * HAZARD > HAZARD + 8 * error


def test_batches_hold_equally_many_person_years_and_every_person_once(mortal: Sequences) -> None:
    plan = Batches(mortal, np.arange(PERSONS), CALENDAR, Masking(), 64, seed=1).plan()
    assert sorted(np.concatenate(plan).tolist()) == list(range(PERSONS))
    years = np.array([mortal.lengths[batch].sum() for batch in plan])
    assert np.abs(years / years.mean() - 1).max() < 0.1
    assert len(plan) == pytest.approx(PERSONS / 64, abs=2)
    persons = np.array([len(batch) for batch in plan])
    assert persons.max() > 3 * persons.min()
