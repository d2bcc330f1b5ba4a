"""Circumstances beside the truth: the truth itself is at no distance, and what is shuffled is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.data.origins import cut
from saga.data.panel import Panel
from saga.features.transforms import Transforms
from saga.forecaster import Forecaster
from saga.states.codes import COLUMNS, STATE
from saga.states.life_courses import ABROAD_STATE, DEAD_STATE
from studies.cross_section import FollowedPersons, follow_persons
from studies.simulated_states import Futures, at_origin, compare, measured, recorded, states

HORIZONS = (1, 5, 10)


@pytest.fixture(scope="module")
def setting(
    tiny_bundle: Path, register_panel: Panel
) -> tuple[FollowedPersons, Transforms, Futures]:
    transforms = Forecaster.load(tiny_bundle).transforms
    persons = follow_persons(cut(register_panel, 2010), trained_on=None)
    return persons, transforms, recorded(register_panel, persons, 10, transforms)


def _distances(
    setting: tuple[FollowedPersons, Transforms, Futures], model: Futures
) -> pl.DataFrame:
    persons, transforms, truth = setting
    before = at_origin(persons, transforms)
    return compare(
        measured(model, before, HORIZONS), [measured(truth, before, HORIZONS)], transforms
    )


def test_the_truth_is_at_no_distance_from_itself(
    setting: tuple[FollowedPersons, Transforms, Futures],
) -> None:
    """As a model tells it: the dead earn 0 and those abroad what they would here, while records of both end."""
    truth = setting[2]
    state = truth.codes[..., STATE]
    told = np.where(
        state == DEAD_STATE, 0.0, np.where(state == ABROAD_STATE, 3e5, truth.earnings)
    ).astype(np.float32)
    found = _distances(setting, replace(truth, earnings=told))
    assert set(found["column"]) == set(COLUMNS)
    assert (state == DEAD_STATE).any()
    assert found["distance"].max() == pytest.approx(0.0, abs=1e-9)
    assert found["joint"].max() == pytest.approx(0.0, abs=1e-9)
    assert (found["kept_model"] == found["kept_true"]).all()


def test_circumstances_that_go_with_the_wrong_earnings_are_seen(
    setting: tuple[FollowedPersons, Transforms, Futures],
) -> None:
    truth = setting[2]
    shuffled = np.random.default_rng(0).permutation(len(truth.codes))
    found = _distances(setting, replace(truth, earnings=truth.earnings[shuffled]))
    told = found.filter(column="state", horizon=5).row(0, named=True)
    assert told["distance"] == pytest.approx(0.0, abs=1e-9)
    assert told["joint"] > 3 * told["joint_chance"]


def test_states_are_shares_of_everybody(
    setting: tuple[FollowedPersons, Transforms, Futures],
) -> None:
    persons, transforms, truth = setting
    found = measured(truth, at_origin(persons, transforms), HORIZONS)
    table = states(found, [found])
    assert table.group_by("horizon").agg(pl.col("model").sum())["model"].to_list() == pytest.approx(
        [100.0] * 3
    )
    assert (table["model"] == table["true"]).all()
