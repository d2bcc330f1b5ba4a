"""A stored interval judges an outcome as the published set does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.adaptive.adaptive_state import AdaptiveState, CellState, ExcessCounts, adapt
from calibration.adaptive.issued_intervals import (
    collect_intervals,
    conformity_scores,
    pack_marginals,
    unpack_marginals,
)
from calibration.fit.split_conformal import fit_calibration
from saga.conformal.calibrator import Calibrator
from saga.conformal.prediction_sets import probability_of_less, set_ends
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.scores import covered

Array = NDArray[np.float64]
World = Callable[..., tuple[Marginals, Array]]


@pytest.fixture(scope="module")
def calibrator(world: World) -> Calibrator:
    marginals, outcomes = world(4_000, 11)
    return fit_calibration(marginals, outcomes, seed=0)


def moved(calibrator: Calibrator, offset: float) -> Calibrator:
    cell = CellState(offset, 0.0, 1.0, 300, 0, 2020, (1.0,))
    state = {(group, h, c): cell for h, group in calibrator.cells for c in calibrator.coverage}
    return adapt(calibrator, AdaptiveState(3, 2020, state))


def stored_scores(blobs: tuple[bytes, ...], outcomes: Array, coverage: tuple[float, ...]) -> Array:
    ((_, stored),) = unpack_marginals(blobs)
    less = probability_of_less(stored, outcomes[:, None])
    return conformity_scores(less[:, 0], stored.p_zero[:, 0].astype(np.float64), coverage)


def is_in_separate_sets(marginals: Marginals, q: Array, y: Array, coverage: Array) -> Array:
    """Whether outcomes (n,) are in the sets of thresholds (n, L) before these are nested."""
    columns = []
    for j, share in enumerate(coverage):
        ends = set_ends(marginals, q[:, None, j : j + 1], (float(share),))
        columns.append(covered(y[:, None, None], *ends)[:, 0, 0])
    return np.stack(columns, axis=1)


def test_a_stored_interval_misses_exactly_where_the_published_set_misses(
    calibrator: Calibrator, world: World
) -> None:
    adapted = moved(calibrator, 0.02)
    raw, outcomes = world(600, 13)
    with pytest.raises(UsageError, match="raw"):
        collect_intervals(raw, calibrator, adapted, (1, 2))
    marginals = calibrator.recalibrate(raw)
    issued = collect_intervals(marginals, calibrator, adapted, (1, 2))
    assert len(issued) == 2 * len(marginals)
    y = np.concatenate([outcomes[:, 0], outcomes[:, 1]])
    missed = stored_scores(issued.marginals, y, issued.coverage) > issued.issued
    is_inside = adapted.intervals(marginals, calibrator.coverage).covered(outcomes)
    published = np.concatenate([is_inside[:, 0], is_inside[:, 1]]) == 1
    separate = np.concatenate(
        [
            is_in_separate_sets(
                marginals.at_horizon(h),
                issued.issued[issued.horizon == h],
                outcomes[:, h - 1],
                np.asarray(issued.coverage),
            )
            for h in (1, 2)
        ]
    )
    zero = y == 0
    for inside in (published, separate == 1):
        assert (missed == ~inside).mean() > 0.999  # ends are rounded to floating point numbers
        assert (missed == ~inside)[zero].all(), "zero ties with thresholds, so it has to be exact"
    assert (issued.issued >= issued.base).all()


def test_no_outcome_misses_without_a_finite_set_and_each_one_below_zero(
    calibrator: Calibrator, world: World
) -> None:
    """What the error bound of docs/method/adaptive.md needs, for zero outcomes too."""
    raw, outcomes = world(600, 13)
    marginals = calibrator.recalibrate(raw)
    for offset, share in ((1.0, 0.0), (-1.1, 1.0)):
        issued = collect_intervals(marginals, calibrator, moved(calibrator, offset), (1,))
        scores = stored_scores(issued.marginals, outcomes[:, 0], issued.coverage)
        assert ((scores >= 0) & (scores <= 1)).all()
        counts = ExcessCounts.of(scores, issued.base, issued.issued)
        assert (counts.missed == share * len(marginals)).all()
        assert (counts.persons == len(marginals)).all()


def test_packed_distributions_of_several_grids_are_read_in_their_order() -> None:
    rng = np.random.default_rng(4)
    few, many = (
        Marginals.from_samples(np.exp(rng.normal(12, 1, (3, 1, m))) * (rng.random((3, 1, m)) < 0.7))
        for m in (20, 90)
    )
    blobs = [
        blob
        for pair in zip(pack_marginals(few), pack_marginals(many), strict=True)
        for blob in pair
    ]
    p_zero = np.full(6, np.nan)
    for index, stored in unpack_marginals(blobs):
        p_zero[index] = stored.p_zero[:, 0]
    assert np.array_equal(p_zero[::2], few.p_zero[:, 0])
    assert np.array_equal(p_zero[1::2], many.p_zero[:, 0])
