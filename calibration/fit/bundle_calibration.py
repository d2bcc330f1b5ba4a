"""`saga calibrate`: a trained bundle and a panel -> the same bundle with its calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from calibration.fit.covariate_shift import BY, Target, cells_of
from calibration.fit.cqr import fit_cqr
from calibration.fit.drift import fit_drift
from calibration.fit.group_shifts import with_profile
from calibration.fit.split_conformal import LEVELS, MIN_MAP, fit_calibration, halves
from calibration.fit.thresholds import fit_limits
from saga.bundle import Bundle, check_replaceable, replace_parts
from saga.data.groups import Grouping, reduce_to_profile
from saga.data.origins import cut, draw_origins, history, last_year, realised_earnings
from saga.data.panel import Panel
from saga.data.split import persons_of
from saga.errors import InputError, Problem, UsageError
from saga.forecaster import Forecaster, Progress
from saga.paths import Paths
from saga.requests import MAX_HORIZON, Draws, RolloutName

POORER = ("survey", "earnings")  # profiles of records that a full one can be shown as


def calibrate(
    bundle: str | Path,
    panel: Panel,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    paths: int = 200,
    workers: int = 1,
    map_persons: int = MIN_MAP,
    profiles: bool = False,
    rollout: RolloutName | None = None,
    until: int | None = None,
    target: Panel | None = None,
    target_by: Sequence[str] = BY,
    command: str = "saga calibrate",
    progress: Progress | None = None,
) -> Bundle:
    """Fit the conformal layer on the panel's calibration persons (one keyed origin each) and write it into the bundle.

    Maps are learnt on forecasts that are told the economy of the panel's years, thresholds on forecasts that are told nothing of it.

    The split is a hash of panel and person, so nobody the model was trained on takes part if the panel goes by the `panel_id` it was
    trained under. `workers` is the number of processes. With `profiles` the same persons are forecast
    again from what a survey, and from what earnings alone, would show of them, and such records get cells of their own. `rollout`: how
    paths are carried, now and in forecasts by default; None: as before, exactly at first. With `target`
    thresholds are those of that panel's persons, who may be in other groups (`target_by`) in other shares. `until` cuts the panel at that
    year, for a bundle that shall be judged on later ones. The bundle is replaced as a whole, or written to `out`. Raises InputError when
    nobody is left, BundleError where `out` is not a place for a bundle, UsageError for a target in other money or an unknown grouping.
    """
    forecaster = Forecaster.load(bundle, workers=workers, rollout=rollout)
    if until is not None:
        panel = cut(panel, until)
    place = bundle if out is None else out
    check_replaceable(place)
    chosen = persons_of(panel, "calibration")
    if not chosen:
        fix = "Give a panel with some hundreds of persons."
        raise InputError(
            "There is nobody to calibrate on.",
            [Problem("too-few-persons", "No calibration persons in the panel", fix)],
        )
    people, grouping = panel.only(chosen), Grouping.fit(panel.only(persons_of(panel, "train")))
    end = last_year(panel)
    origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=seed, end=end)
    known = history(people, origins)
    economy = forecaster.realised_macro(panel, end)

    def drawn(records: Panel) -> tuple[Paths, Paths | None]:
        """Raw paths of everybody, and those of half A under the economy that came."""
        draws = Draws(paths, seed)
        made = forecaster.simulate(records, draws, recalibrate=False, progress=progress)
        learners = made.person_id[halves(made.person_id, seed)].tolist()
        told = economy is not None and learners
        return made, forecaster.simulate(
            records.only(learners),
            replace(draws, scenario=economy),
            recalibrate=False,
            progress=progress,
        ) if told else None

    simulated, came = drawn(known)
    simulated = replace(
        simulated, groups=grouping.labels(known, origins) if len(grouping.cuts) else {}
    )
    outcomes = realised_earnings(people, origins, range(1, MAX_HORIZON + 1), end=end)
    weights, extra = None, list[pl.DataFrame]()
    if target is not None:
        _same_money(target, panel)
        wanted = Target.of(target, grouping, target_by)
        weights, about = wanted.weights(
            cells_of(known, grouping, origins, target_by),
            outcomes,
            halves(simulated.person_id, seed),
        )
        extra.append(about)
    fitting: dict[str, Any] = {"seed": seed, "map_persons": map_persons, "weights": weights}
    calibrator = fit_calibration(simulated, outcomes, came=came, **fitting)
    calibrator = fit_limits(calibrator, simulated, outcomes, seed=seed, weights=weights)
    for profile in POORER if profiles else ():
        shown, came = drawn(reduce_to_profile(known, profile))
        poorer = fit_calibration(replace(shown, groups={}), outcomes, came=came, **fitting)
        calibrator = with_profile(calibrator, poorer, profile)
    # The published method beside ours, so that anyone can compare: conformalised quantile regression in levels.
    extra += [
        fit_cqr(simulated, outcomes, LEVELS),
        fit_drift(calibrator, simulated, outcomes, seed=seed),
    ]
    calibrator = replace(
        calibrator, grouping=grouping if len(grouping.cuts) else None, extra=pl.concat(extra)
    )
    used = int((~np.isnan(outcomes)).any(1).sum())
    summary: dict[str, Any] = {
        "persons": used,
        "paths": paths,
        "seed": seed,
        "levels": list(LEVELS),
        "rollout": forecaster.rollout,
        "until": end,
        "panel_id": panel.meta.panel_id,
    }
    if target is not None:
        summary["target"] = {
            "panel_id": target.meta.panel_id,
            "by": list(target_by),
            "persons": len(wanted.left),
        }
    return replace_parts(
        forecaster.bundle,
        place,
        calibration=calibrator.to_table(),
        metrics={**forecaster.bundle.metrics, "calibration": summary},
        command=command,
    )


def _same_money(target: Panel, panel: Panel) -> None:
    money = [(own.meta.currency, own.meta.price_year) for own in (target, panel)]
    if money[0] != money[1]:
        fix = "Read the target with the mapping of the panel"
        raise UsageError(
            "Target and panel are in other money",
            [Problem("target-money", "Groups by earnings cannot be compared", fix)],
        )
