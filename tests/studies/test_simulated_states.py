"""States against the truth: the truth has distance zero, and shuffled earnings are detected."""

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
from studies.simulated_states import (
    FollowedPersons,
    Futures,
    codes_at_origin,
    compare,
    follow_persons,
    measure,
    recorded_future,
)

HORIZONS = (1, 5, 10)


@pytest.fixture(scope="module")
def setting(
    tiny_bundle: Path, register_panel: Panel
) -> tuple[FollowedPersons, Transforms, Futures]:
    transforms = Forecaster.load(tiny_bundle).transforms
    persons = follow_persons(cut(register_panel, 2010), trained_on=None)
    return persons, transforms, recorded_future(register_panel.frame, persons, 10, transforms)


def _distances(
    setting: tuple[FollowedPersons, Transforms, Futures], model: Futures
) -> pl.DataFrame:
    persons, transforms, truth = setting
    origin_codes = codes_at_origin(persons, transforms)
    return compare(
        measure(model, origin_codes, HORIZONS), [measure(truth, origin_codes, HORIZONS)], transforms
    )


def test_the_truth_has_no_distance_from_itself(
    setting: tuple[FollowedPersons, Transforms, Futures],
) -> None:
    """The model has earnings of dead persons (0) and of persons abroad; their records end."""
    truth = setting[2]
    state = truth.codes[..., STATE]
    earnings = np.where(
        state == DEAD_STATE, 0.0, np.where(state == ABROAD_STATE, 3e5, truth.earnings)
    ).astype(np.float32)
    table = _distances(setting, replace(truth, earnings=earnings))
    assert set(table["column"]) == set(COLUMNS)
    assert (state == DEAD_STATE).any()
    assert table["distance"].max() == pytest.approx(0.0, abs=1e-9)
    assert table["joint"].max() == pytest.approx(0.0, abs=1e-9)
    assert (table["unchanged_model"] == table["unchanged_true"]).all()


def test_states_with_the_wrong_earnings_are_detected(
    setting: tuple[FollowedPersons, Transforms, Futures],
) -> None:
    truth = setting[2]
    shuffled = np.random.default_rng(0).permutation(len(truth.codes))
    table = _distances(setting, replace(truth, earnings=truth.earnings[shuffled]))
    row = table.filter(column="state", horizon=5).row(0, named=True)
    assert row["distance"] == pytest.approx(0.0, abs=1e-9)
    assert row["joint"] > 3 * row["joint_chance"]
