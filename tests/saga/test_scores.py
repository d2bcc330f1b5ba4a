"""Sets are judged, logs have a floor, and the random numbers of PITs are keyed."""

from __future__ import annotations

import numpy as np

from saga import scores
from saga.data.panel import FLOOR
from saga.paths import Paths


def test_earnings_below_the_floor_have_one_log_and_without_a_floor_the_plain_log() -> None:
    low = np.array([0.0, 100.0, FLOOR])
    assert np.ptp(scores.log_earnings(low)) == 0
    np.testing.assert_allclose(scores.log_earnings(np.array([2.5, 7.0]), None), np.log([2.5, 7.0]))


def test_coverage_of_a_mixed_set() -> None:
    y = np.array([0.0, 0.0, 5.0, 10.0, 11.0, np.nan, 7.0])
    lower = np.array([0.0, 5.0, 5.0, 5.0, 5.0, 5.0, np.nan])
    zero = np.array([True, False, False, True, True, True, False])
    np.testing.assert_array_equal(
        scores.covered(y, lower, lower + 5, zero), [1, 0, 1, 1, 0, np.nan, np.nan]
    )


def test_a_zero_inside_the_set_is_not_penalised_and_one_outside_pays_its_distance() -> None:
    y, lower, upper = np.zeros(2), np.full(2, 100.0), np.full(2, 300.0)
    np.testing.assert_allclose(
        scores.interval_score(y, lower, upper, 0.9, np.array([True, False])), [200, 200 + 20 * 100]
    )


def test_pit_uniforms_are_keyed_by_person_origin_and_horizon() -> None:
    paths = Paths(
        np.array(["a", "b", "a"]),
        np.full(3, 1970),
        np.array([2000, 2000, 2001]),
        np.zeros((3, 4, 1), np.float32),
    )
    v = scores.pit_uniforms(paths)
    assert len(np.unique(v)) == 12
    np.testing.assert_array_equal(scores.pit_uniforms(paths.take(np.array([2, 0]))), v[[2, 0]])
