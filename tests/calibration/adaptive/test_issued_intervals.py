"""What a promise says later is what the published set said."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibration.adaptive.adaptive_state import AdaptiveState, CellState, adapt
from calibration.adaptive.issued_intervals import collect_intervals, conformity_scores
from calibration.fit.split_conformal import fit_calibration
from saga.paths import Paths

World = Callable[..., tuple[Paths, NDArray[np.float64]]]


def test_a_promise_is_missed_exactly_where_the_published_set_misses(world: World) -> None:
    calibrated = fit_calibration(*world(4_000, 11), seed=0)
    cell = CellState(0.02, 0.0, 1.0, 300, 0, 2020, (1.0,))
    state = {
        (group, h, level): cell for h, group in calibrated.cells for level in calibrated.coverage
    }
    adapted = adapt(calibrated, AdaptiveState(3, 2020, state))
    paths, outcomes = world(600, 13)
    paths = calibrated.recalibrate(paths)
    made = collect_intervals(paths, calibrated, adapted, (1, 2))
    assert len(made) == 2 * len(paths)
    y = np.concatenate([outcomes[:, 0], outcomes[:, 1]])
    missed = conformity_scores(made.nested_sets, y)[:, None] > made.issued
    inside = adapted.intervals(paths, calibrated.coverage).covered(outcomes)
    published = np.concatenate([inside[:, 0], inside[:, 1]]) == 1
    assert (missed == ~published).mean() > 0.999  # ends are rounded to floating point
    zero = y == 0
    assert (missed == ~published)[zero].all(), "zero ties with thresholds, so it has to be exact"
    assert (made.issued >= made.base).all()
