"""`saga calibrate`: a trained bundle and a panel -> the same bundle with its calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibration.cqr import fit_cqr
from calibration.fit import LEVELS, MIN_MAP, fit_calibration
from calibration.limits import fit_limits
from saga.bundle import Bundle, check_replaceable, replace_parts
from saga.errors import InputError, Problem
from saga.forecaster import Forecaster, Progress
from saga.groups import Grouping
from saga.options import MAX_HORIZON
from saga.outcomes import draw_origins, history, last_year, realised
from saga.panel import Panel
from saga.split import persons_of


def calibrate(
    bundle: str | Path,
    panel: Panel,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    paths: int = 200,
    levels: Sequence[float] = LEVELS,
    persons: int | None = None,
    workers: int = 1,
    map_persons: int = MIN_MAP,
    command: str = "saga calibrate",
    progress: Progress | None = None,
) -> Bundle:
    """Fit the conformal layer on the panel's calibration persons (one keyed origin each) and write it into the bundle.

    The split is a hash of panel and person, so nobody the model was trained on takes part if the panel goes by the `panel_id` it was
    trained under. `persons` caps how many are used, `workers` is the number of processes. The bundle is replaced as a whole, or
    written to `out`. Raises InputError when nobody is left, BundleError where `out` is not a place for a bundle.
    """
    forecaster = Forecaster.load(bundle, workers=workers)
    target = bundle if out is None else out
    check_replaceable(target)
    chosen = persons_of(panel, "calibration")[:persons]
    if not chosen:
        fix = "Give a panel with some hundreds of persons."
        raise InputError("There is nobody to calibrate on.", [Problem("too-few-persons", "No calibration persons in the panel", fix)])
    people, grouping = panel.only(chosen), Grouping.fit(panel.only(persons_of(panel, "train")))
    end = last_year(panel)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end)
    known = history(people, origins)
    simulated = forecaster.simulate(known, paths=paths, seed=seed, calibrated=False, progress=progress)
    simulated = replace(simulated, groups=grouping.labels(known, origins) if len(grouping.cuts) else {})
    outcomes = realised(people, origins, range(1, MAX_HORIZON + 1), end=end)
    calibrator = fit_calibration(simulated, outcomes, seed=seed, levels=levels, scale=panel.meta.floor, map_persons=map_persons)
    calibrator = fit_limits(calibrator, simulated, outcomes, seed=seed)
    # The published method beside ours, so that anyone can compare: conformalised quantile regression in levels.
    calibrator = replace(calibrator, grouping=grouping if len(grouping.cuts) else None, extra=fit_cqr(simulated, outcomes, levels))
    used = int((~np.isnan(outcomes)).any(1).sum())
    summary = {"persons": used, "paths": paths, "seed": seed, "levels": list(levels), "panel_id": panel.meta.panel_id}
    return replace_parts(
        forecaster.bundle,
        target,
        calibration=calibrator.to_table(),
        metrics={**forecaster.bundle.metrics, "calibration": summary},
        command=command,
    )
