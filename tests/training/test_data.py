"""Batches: every person-year has the same weight, although records of persons who die are short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from saga.training.data import Batch, Batches, PanelData
from saga.training.masking import Masking

from saga.features.calendar import Calendar, macro_features
from saga.features.sequences import Sequences
from saga.macro.history import MacroHistory, sweden

PERSONS, YEARS, HAZARD = 6_000, 30, 0.05
CALENDAR = Calendar(sweden())


@pytest.fixture(scope="module")
def mortal() -> Sequences:
    """Persons with the same hazard of death in every year, observed for 30 years at most."""
    rng = np.random.default_rng(0)
    observed = np.minimum(rng.geometric(HAZARD, PERSONS), YEARS)
    rows = int(observed.sum())
    return Sequences(
        person_id=np.arange(PERSONS).astype(np.str_),
        birth_year=np.full(PERSONS, 1965),
        dead_year=np.where(observed < YEARS, 1990 + observed, 0),
        offsets=np.append(0, observed.cumsum()),
        year=np.concatenate([np.arange(1990, 1990 + n) for n in observed]),
        state=np.full(rows, 2, np.int8),
        z=np.zeros(rows, np.float32),
        other=np.full((rows, 14), np.nan, np.float32),
        codes=np.zeros((rows, 10), np.int16),
    )


def batches(persons: Sequences, kind: type[Batches] = Batches) -> list[Batch]:
    epoch = kind(persons, CALENDAR, Masking(), 64, seed=1)
    return [epoch[i] for i in range(len(epoch))]


def hazard(epoch: list[Batch], divided_by: str) -> tuple[float, float]:
    """The constant hazard that minimises the epoch's loss, and its standard error."""
    deaths = years = 0.0
    for batch in epoch:
        eligible = (batch["gap"] == 1) & (batch["next_dead"] | (batch["next_state"] > 0))
        targets = (batch["gap"] > 0).sum()
        weight = 1 / float(batch["person_years"] if divided_by == "person_years" else targets)
        deaths += weight * float((batch["next_dead"] & eligible).sum())
        years += weight * float(eligible.sum())
    count = sum(int((batch["gap"] == 1).sum()) for batch in epoch)
    return deaths / years, (HAZARD / count) ** 0.5


def test_training_estimates_the_true_hazard(mortal: Sequences) -> None:
    epoch = batches(mortal)
    estimate, error = hazard(epoch, "person_years")
    assert estimate == pytest.approx(HAZARD, abs=4 * error)
    # A mean over targets gives too much weight to batches with many deaths: they have fewer
    # targets after thinning.
    wrong, _ = hazard(epoch, "targets")
    assert wrong > HAZARD + 4 * error


def test_batches_have_equally_many_person_years_and_each_person_once(mortal: Sequences) -> None:
    plan = Batches(mortal, CALENDAR, Masking(), 64, seed=1).plan()
    assert sorted(np.concatenate(plan).tolist()) == list(range(PERSONS))
    years = np.array([mortal.lengths[batch].sum() for batch in plan])
    assert np.abs(years / years.mean() - 1).max() < 0.1
    assert len(plan) == pytest.approx(PERSONS / 64, abs=2)
    persons = np.array([len(batch) for batch in plan])
    assert persons.max() > 3 * persons.min()


def test_batches_of_several_panels_keep_each_persons_economy(mortal: Sequences) -> None:
    """Persons of both, each in a batch with the calendar of the own panel alone."""
    far = MacroHistory(1990, np.tile([0.5, 0.5, 0.0], (YEARS + 10, 1)))
    here, there = replace(mortal, birth_year=mortal.birth_year - 1), mortal
    data = PanelData(here, here, CALENDAR, batch_persons=64, seed=1, also=[(there, Calendar(far))])
    epoch = list(data.train_dataloader())
    growth = macro_features(far.values, far.values[0, 0])[0, 2]
    n_persons, order = [0, 0], list[bool]()
    for batch in epoch:
        targets = batch["macro"][batch["gap"] > 0]
        is_far = bool((targets[:, 2] == growth).any())
        assert not is_far or bool((targets[:, 2] == growth).all())
        n_persons[is_far] += len(batch["origin"])
        order.append(is_far)
    assert n_persons == pytest.approx([PERSONS, PERSONS], rel=0.03)
    assert np.diff(order).mean() > 1 / 4  # panels alternate
