"""`saga calibrate`: a trained bundle and a panel -> the same bundle with its calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.covariate_shift import DEFAULT_GROUPINGS, Target, labels_of
from saga.calibration.fit.cross_fitting import fit_cross_fitted
from saga.calibration.fit.drift import fit_drift
from saga.calibration.fit.maps import MIN_MAP_PERSONS
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold

from saga.amount_warnings import require_unit
from saga.bundle import Bundle, replace_parts
from saga.conformal.calibrator import Calibrator
from saga.data.groups import Grouping
from saga.data.origins import (
    Origins,
    cut,
    draw_origins,
    history,
    last_year,
    realised_earnings,
    require_trainable,
)
from saga.data.panel import Panel
from saga.data.split import (
    FOLDS_SCHEME,
    Shares,
    assign_folds,
    percents_of,
    persons_of,
    shares_of,
    units_of,
)
from saga.distributions import Marginals
from saga.errors import InputError, Problem, UsageError
from saga.files.bundle_folder import check_replaceable
from saga.forecaster import Forecaster
from saga.macro.scenarios import Scenario
from saga.paths import Paths
from saga.requests import COVERAGE, MAX_HORIZON, CalibrationMethod, Draws, Progress, RolloutName
from saga.training_records import TrainingRecords

MAX_PATH_PERSONS = 20_000  # whose present values are calibrated; paths cost most of the time
# Few persons have several origins each, so that a threshold depends less on which were drawn.
MAX_ORIGINS = 10
ENOUGH_ORIGINS = 10_000  # of all calibration persons


@dataclass(frozen=True)
class CalibrationOptions:
    """What is fitted, and on which paths.

    Attributes:
        method: "sets": maps, prediction sets, limits, path bands, present values. "cqr": the
            paper's intervals only. "cv+": cross-fitted intervals of a bundle with members, which
            has no other method. None: "cv+" with members, else "sets".
        n_paths: Paths per person, for present values.
        seed: Key of origins, folds and paths.
        map_persons: Persons of the map fold that a map needs; with fewer a horizon has the map of
            a shorter one.
        rollout: How paths are simulated, here and by default in forecasts; None: no change.
        until: Leave out later years of the panel, so that the bundle can be judged on them.
        target_by: Groups that describe a target population, the most important first.
        shares: Shares of the parts of a panel on which the bundle was not trained: its training
            persons define the groups, its calibration persons the intervals. None: the bundle's.
    """

    method: CalibrationMethod | None = None
    n_paths: int = 200
    seed: int = 0
    map_persons: int = MIN_MAP_PERSONS
    rollout: RolloutName | None = None
    until: int | None = None
    target_by: tuple[str, ...] = DEFAULT_GROUPINGS
    shares: Shares | None = None


def calibrate_bundle(
    bundle: str | Path,
    panel: Panel,
    options: CalibrationOptions | None = None,
    *,
    out: str | Path | None = None,
    target: Panel | None = None,
    workers: int = 1,
    command: str = "saga calibrate",
    progress: Progress | None = None,
) -> Bundle:
    """Fit a calibration on the panel's calibration persons and write it into the bundle.

    Maps are fitted on forecasts conditioned on the realised macro series of the panel's years,
    thresholds on forecasts that are not. Persons are split as in training, so no
    training person takes part if the panel has the `panel_id` that the bundle was trained with.

    Args:
        bundle: Directory of the trained bundle.
        panel: Records with outcomes. Each calibration person has one keyed origin.
        options: What to fit; None for the defaults.
        out: Directory to write. None: `bundle` is replaced as a whole.
        target: A panel of another population, for whose groups thresholds are weighted.
        workers: Number of processes.
        command: The line that the manifest records.
        progress: Called with persons done and all persons.

    Raises:
        InputError: If the panel has no calibration persons.
        BundleError: If `out` cannot take a bundle.
        UsageError: If the target is in other money or `target_by` names an unknown grouping, or
            an option belongs to the other method, or shares are given for the panel on which the
            bundle was trained.
    """
    options = options or CalibrationOptions()
    facts = panel.meta.facts
    forecaster = Forecaster.load(bundle, workers=workers, rollout=options.rollout, facts=facts)
    # Forecasts are raw, and without the groups of an earlier calibration.
    forecaster = forecaster.with_calibrator(Calibrator())
    in_folds = forecaster.bundle.split["scheme"] == FOLDS_SCHEME
    has_folds = in_folds and len(forecaster.model.members) > 1
    fitting = [k for k, m in _METHODS.items() if m.needs_folds == has_folds]
    name = options.method if options.method is not None else fitting[0]
    method = _METHODS[name]
    _check_options(name, method, has_folds, options, target)
    if options.shares is not None and forecaster.bundle.panel_id == panel.meta.panel_id:
        raise UsageError(
            "--shares would calibrate on persons that the bundle was trained on: the panel is "
            f"{panel.meta.panel_id}. Leave --shares out, or give a panel of other persons."
        )
    panel = forecaster.bundle.salted(panel)
    if options.until is not None:
        panel = cut(panel, options.until)
    destination = bundle if out is None else out
    check_replaceable(destination)
    sample = _draw_sample(
        panel, options, forecaster.bundle, several=method.by_group and target is None
    )
    require_unit(sample.people, forecaster.transforms.reference)
    realised = forecaster.realised_macro(panel, sample.end)
    forecasts = _Forecasts(forecaster, realised, options, progress)
    summary: dict[str, Any] = {
        "method": name,
        "persons": sample.n_persons,
        "origins": sample.n_origins,
        "paths": options.n_paths,
        "seed": options.seed,
        "levels": list(COVERAGE),
        "rollout": forecaster.rollout,
        "records": asdict(TrainingRecords.of(sample.people)),
        "panel_id": panel.meta.panel_id,
        **({} if options.shares is None else {"shares": percents_of(options.shares)}),
        **({} if facts is None else {"facts": facts.provenance()}),
    }
    weights = None
    if target is not None:
        weights, summary["target"] = _target_weights(sample, panel, target, options)
    calibrator = method.fit(sample, forecasts, weights)
    return replace_parts(
        forecaster.bundle,
        destination,
        calibration=calibrator.to_table(),
        metrics={**forecaster.bundle.metrics, "calibration": summary},
        command=command,
    )


@dataclass(frozen=True, eq=False)
class _Sample:
    """The calibration persons with R origins each: records up to the origin, outcomes, groups.

    `people` has all of their records, `draws` the records and origins of each of the R draws.
    Outcomes (R n, H) and groups follow the draws.
    """

    people: Panel
    draws: tuple[tuple[Panel, Origins], ...]
    outcomes: NDArray[np.float64]
    grouping: Grouping
    groups: dict[str, NDArray[np.str_]]
    end: int

    @property
    def n_origins(self) -> int:
        return len(self.draws)

    @property
    def records(self) -> list[Panel]:
        return [records for records, _ in self.draws]

    @property
    def origins(self) -> Origins:
        """The first origin of each person."""
        return self.draws[0][1]

    @property
    def n_persons(self) -> int:
        """The number of persons with an outcome."""
        known = (~np.isnan(self.outcomes)).any(axis=1)
        return int(known.reshape(self.n_origins, -1).any(axis=0).sum())


@dataclass(frozen=True, eq=False)
class _Forecasts:
    """Raw forecasts of calibration persons, free or conditioned on the realised macro series."""

    forecaster: Forecaster
    realised_macro: Scenario | None
    options: CalibrationOptions
    progress: Progress | None

    def marginals(self, draws: Sequence[Panel], scenario: Scenario | None = None) -> Marginals:
        """Forecasts of the persons of each draw, one draw after the other."""
        blocks: list[Marginals] = []
        for k, records in enumerate(draws):
            blocks += self.forecaster.marginals(
                records, scenario, recalibrate=False, progress=self._of_draw(k, len(draws))
            )
        return Marginals.joined(blocks)

    def both(self, draws: Sequence[Panel]) -> tuple[Marginals, Marginals | None]:
        """Forecasts of everybody, and conditioned ones of the map fold (None without macro)."""
        free = self.marginals(draws)
        person_id = free.person_id[: len(free) // len(draws)]
        map_fold = person_id[in_map_fold(person_id, self.options.seed)].tolist()
        if self.realised_macro is None or not map_fold:
            return free, None
        in_fold = [records.only(map_fold) for records in draws]
        return free, self.marginals(in_fold, self.realised_macro)

    def threshold_paths(self, draws: Sequence[Panel]) -> Paths | None:
        """Raw paths of at most `MAX_PATH_PERSONS` of the threshold fold, for present values."""
        person_id = np.array(draws[0].persons(), dtype=np.str_)
        fold = person_id[~in_map_fold(person_id, self.options.seed)][:MAX_PATH_PERSONS]
        if not len(fold):
            return None
        of_draws = [
            self.forecaster.simulate(
                records.only(fold.tolist()),
                Draws(self.options.n_paths, self.options.seed),
                recalibrate=False,
                progress=self._of_draw(k, len(draws)),
            )
            for k, records in enumerate(draws)
        ]
        return Paths.joined(of_draws)

    def _of_draw(self, k: int, n_draws: int) -> Progress | None:
        """Reports the persons of draw `k`, all draws of which are one pass."""
        report = self.progress
        if report is None:
            return None
        return lambda done, n: report(k * n + done, n_draws * n)


def _draw_sample(
    panel: Panel, options: CalibrationOptions, bundle: Bundle, *, several: bool
) -> _Sample:
    """Keyed origins for each calibration person; InputError if there is no such person.

    In a bundle with folds, these are all persons except the test persons. With `several`, each of
    few persons has up to `MAX_ORIGINS` origins.
    """
    shares = options.shares or shares_of(bundle.split)
    in_folds = bundle.split["scheme"] == FOLDS_SCHEME
    chosen = persons_of(panel, "train" if in_folds else "calibration", shares)
    if not chosen:
        fix = "Give a panel with some hundreds of persons."
        raise InputError(
            "There is nobody to calibrate on.",
            [Problem("too-few-persons", "No calibration persons in the panel", fix)],
        )
    people = panel.only(chosen)
    require_trainable(people)
    grouping = Grouping.fit(panel.only(persons_of(panel, "train", shares)))
    n_origins = min(MAX_ORIGINS, -(-ENOUGH_ORIGINS // len(chosen))) if several else 1
    end, horizons = last_year(panel), range(1, MAX_HORIZON + 1)
    draws, outcomes, groups = [], [], []
    for number in range(n_origins):
        origins = draw_origins(people, max_horizon=MAX_HORIZON, seed=options.seed + number, end=end)
        draws.append((history(people, origins), origins))
        outcomes.append(realised_earnings(people, origins, horizons, end=end))
        groups.append(grouping.labels(draws[-1][0], origins) if len(grouping.cuts) else {})
    labels = {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}
    return _Sample(people, tuple(draws), np.concatenate(outcomes), grouping, labels, end)


def _fit_sets(
    sample: _Sample, forecasts: _Forecasts, weights: NDArray[np.float64] | None
) -> Calibrator:
    """Method "sets", with everything that the options name."""
    options, outcomes = forecasts.options, sample.outcomes
    free, conditioned = forecasts.both(sample.records)
    free = replace(free, groups=sample.groups)
    calibrator = fit_calibration(
        free,
        outcomes,
        seed=options.seed,
        realised=conditioned,
        paths=forecasts.threshold_paths(sample.records),
        map_persons=options.map_persons,
        weights=weights,
    )
    first = slice(len(sample.origins))
    return replace(
        calibrator,
        grouping=sample.grouping if len(sample.grouping.cuts) else None,
        drift=fit_drift(calibrator, free.take(first), outcomes[first], seed=options.seed),
    )


def _fit_folds(sample: _Sample, forecasts: _Forecasts, _: NDArray[np.float64] | None) -> Calibrator:
    """Method "cv+"."""
    marginals, people = forecasts.marginals(sample.records), sample.people
    units = units_of(people, sample.origins.person_id.tolist())
    folds = assign_folds(people.meta.split_key, units, len(marginals.members))
    return fit_cross_fitted(marginals, sample.outcomes, folds)


def _fit_cqr(sample: _Sample, forecasts: _Forecasts, _: NDArray[np.float64] | None) -> Calibrator:
    """Method "cqr"."""
    from saga.calibration.fit.cqr import fit_cqr  # imports MAPIE and scikit-learn

    return fit_cqr(forecasts.marginals(sample.records), sample.outcomes)


@dataclass(frozen=True)
class _Method:
    """A calibration method.

    `fit` has the persons, their forecasts and weights. `needs_folds`: the bundle has a member for
    each fold of persons. `by_group`: the option --target applies, and few persons
    have several origins each.
    """

    fit: Callable[[_Sample, _Forecasts, NDArray[np.float64] | None], Calibrator]
    needs_folds: bool = False
    by_group: bool = False


# The first one that fits the bundle is the default.
_METHODS: dict[CalibrationMethod, _Method] = {
    "sets": _Method(_fit_sets, by_group=True),
    "cqr": _Method(_fit_cqr),
    "cv+": _Method(_fit_folds, needs_folds=True),
}


def _target_weights(
    sample: _Sample, panel: Panel, target: Panel, options: CalibrationOptions
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Weights (n, H) of the calibration persons, and the bundle's facts about the target.

    "cells" are the numbers of weighted strata by horizon.
    """
    monies = [(source.meta.currency, source.meta.price_year) for source in (target, panel)]
    if monies[0] != monies[1]:
        fix = "Read the target with the mapping of the panel"
        raise UsageError(
            "Target and panel are in other money",
            [Problem("target-money", "Groups by earnings cannot be compared", fix)],
        )
    population = Target.of(target, sample.grouping, options.target_by)
    labels = labels_of(sample.records[0], sample.grouping, sample.origins, options.target_by)
    person_id = sample.origins.person_id
    weights, support = population.weights(
        labels, sample.outcomes, in_map_fold(person_id, options.seed)
    )
    return weights, {
        "panel_id": population.panel_id,
        "by": list(population.by),
        "persons": len(population.years_left),
        "cells": {str(h): n_strata for h, (n_strata, _) in support.items()},
        "unsupported": {str(h): round(share, 4) for h, (_, share) in support.items()},
    }


def _check_options(
    name: str, method: _Method, has_folds: bool, options: CalibrationOptions, target: Panel | None
) -> None:
    """Raise UsageError for a method or an option that the bundle or the method does not have."""
    if method.needs_folds != has_folds:
        raise UsageError(
            "A bundle with folds has cross-fitted intervals only. Leave --method out."
            if has_folds
            else "Method cv+ needs a bundle with folds. Train it with `saga train --folds 5`."
        )
    if has_folds and options.shares is not None:
        raise UsageError("With folds, nobody is kept for calibration. Leave --shares out.")
    if target is not None and not method.by_group:
        problem = Problem(
            "calibration-method", "--target is an option of nested sets", "Leave it out"
        )
        raise UsageError(f"Method {name} has the same rule for everybody", [problem])
