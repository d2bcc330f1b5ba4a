"""A stored interval judges an outcome as the published set does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.adaptive.adaptive_state import AdaptiveState, CellState, adapt
from calibration.adaptive.issued_intervals import collect_intervals, conformity_scores
from calibration.fit.split_conformal import fit_calibration
from saga.errors import UsageError
from saga.paths import Paths

World = Callable[..., tuple[Paths, NDArray[np.float64]]]


def test_a_stored_interval_misses_exactly_where_the_published_set_misses(world: World) -> None:
    calibrator = fit_calibration(*world(4_000, 11), seed=0)
    cell = CellState(0.02, 0.0, 1.0, 300, 0, 2020, (1.0,))
    state = {(group, h, c): cell for h, group in calibrator.cells for c in calibrator.coverage}
    adapted = adapt(calibrator, AdaptiveState(3, 2020, state))
    raw_paths, outcomes = world(600, 13)
    with pytest.raises(UsageError, match="raw"):
        collect_intervals(raw_paths, calibrator, adapted, (1, 2))
    paths = calibrator.recalibrate(raw_paths)
    issued = collect_intervals(paths, calibrator, adapted, (1, 2))
    assert len(issued) == 2 * len(paths)
    y = np.concatenate([outcomes[:, 0], outcomes[:, 1]])
    missed = conformity_scores(issued.nested_sets, y)[:, None] > issued.issued
    is_inside = adapted.intervals(paths, calibrator.coverage).covered(outcomes)
    covered = np.concatenate([is_inside[:, 0], is_inside[:, 1]]) == 1
    assert (missed == ~covered).mean() > 0.999  # ends are rounded to floating point numbers
    zero = y == 0
    assert (missed == ~covered)[zero].all(), "zero ties with thresholds, so it has to be exact"
    assert (issued.issued >= issued.base).all()
