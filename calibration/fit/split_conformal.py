"""Split conformal calibration: maps from one fold of persons, thresholds from the other.

A threshold is an average of neighbouring order statistics of the threshold fold's scores, under
maps fitted on the map fold. Coverage is therefore at least as stated in finite samples, whatever
the forecasts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.group_shifts import fit_shifts
from saga.calibration.fit.maps import MIN_MAP_PERSONS, empirical_map, fit_map, pit
from saga.calibration.fit.person_scores import PersonCounts, Rows

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import MIN_CELL_PERSONS, Calibrator
from saga.conformal.families import BAND, FAMILIES, YEAR
from saga.conformal.families.set_family import KindThresholds
from saga.conformal.recalibration import Cell, map_paths
from saga.conformal.split_thresholds import (
    MAX_SHIFTED,
    MONDRIAN,
    Members,
    is_shifted,
    members_of,
    sum_effects,
)
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.keyed_random import uniform_each
from saga.paths import Paths
from saga.requests import COVERAGE
from saga.scores import pit_uniforms
from saga.small_groups import MIN_PERSONS

Key = tuple[int, str]  # horizon and group of a cell
TIE_TOLERANCE = 1e-9  # scores closer than this count as tied: averages of equal scores may differ


def in_map_fold(person_id: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
    """Whether each person is in the map fold (n,), by keyed hash; else the threshold fold."""
    return uniform_each((str(person) for person in person_id), "calibration-half", seed) < 0.5


def fit_calibration(
    marginals: Marginals,
    outcomes: Floats,
    *,
    seed: int,
    coverage: Sequence[float] = COVERAGE,
    map_persons: int = MIN_MAP_PERSONS,
    weights: Floats | None = None,
    realised: Marginals | None = None,
    paths: Paths | None = None,
) -> Calibrator:
    """Maps per horizon, and thresholds of every family of sets, from raw marginals of persons.

    A horizon without outcomes has no cell. A profile or quintile has a cell if each fold contains
    1,000 of its persons. Other groups shift the thresholds. A threshold with fewer than 10 order
    statistics at or above it is None.

    Args:
        marginals: Raw marginals (n, H) of the calibration persons. All have the same number of
            rows: one origin each, or several, drawn independently by the rule of the forecasts.
        outcomes: Realised earnings (n, H); NaN if unknown.
        seed: Key of the division into folds.
        coverage: Stated coverages.
        map_persons: Persons of the map fold that a map needs.
        weights: Weights (n, H) that make the thresholds those of another population
            (`saga.calibration.fit.covariate_shift`); persons then count by their effective number,
            and have one origin each.
        realised: Marginals of the map fold's persons, conditioned on the realised macro series,
            on which maps are fitted. Otherwise maps would correct for the booms and recessions of
            a few past years in every future. None: maps are fitted on `marginals`.
        paths: Raw paths (m, H, M) of persons of the threshold fold, for present values; None: no
            thresholds of present values.

    Raises:
        UsageError: If shapes disagree, persons (the exchangeable unit) have different numbers of
            rows, or a coverage is outside (0, 1).
    """
    check_forecasts(marginals, outcomes, coverage)
    counts = PersonCounts.of(marginals, weights)
    in_map = in_map_fold(marginals.person_id, seed)
    known = ~np.isnan(outcomes) & marginals.exists
    rows_of = dict(_rows_of_cells(marginals, known, in_map, counts, map_persons))
    map_marginals = _of_map_fold(marginals, realised, in_map)
    u = np.full(outcomes.shape, np.nan)
    u[in_map] = pit(map_marginals, outcomes[in_map], pit_uniforms(map_marginals))
    cells = {
        (horizon, group): Cell(
            *fit_map(u[map_rows, horizon - 1], map_persons, counts.take(map_rows)),
            len(np.unique(counts.persons[map_rows])),
            {},
            counts.count(rows, horizon - 1),
        )
        for (horizon, group), (map_rows, rows) in rows_of.items()
    }
    origin_years = {
        key: len(np.unique(marginals.origin_year[rows])) for key, (_, rows) in rows_of.items()
    }
    mapped, uniforms = Calibrator(cells).recalibrate(marginals), pit_uniforms(marginals)
    scores = YEAR.scores_by_coverage(mapped, outcomes, coverage, uniforms)
    shifts = {
        (horizon, share): fit_shifts(
            scores[share][map_rows, horizon - 1],
            {name: values[map_rows] for name, values in marginals.groups.items()},
            share,
            counts.persons[map_rows] if counts.n_origins > 1 else None,
        )
        for (horizon, group), (map_rows, _) in rows_of.items()
        if group == ALL and marginals.groups and cells[horizon, ALL].n_map >= MIN_CELL_PERSONS
        for share in coverage
    }
    for (horizon, group), (_, rows) in rows_of.items():
        members = members_of(marginals.groups, rows) if is_shifted(group) else ([], [])
        shift = _sum_shifts(shifts, members, horizon, coverage)
        shifted = {
            share: _unshifted(scores[share][rows, horizon - 1], shift[:, j])
            for j, share in enumerate(coverage)
        }
        thresholds = counts.thresholds(shifted, rows, horizon - 1)
        cells[horizon, group] = replace(cells[horizon, group], thresholds=thresholds)
    map_scores = BAND.scores(mapped.take(in_map), outcomes[in_map], 0.0)
    band_scales = _fit_band_scales(map_scores, counts.n_origins)
    calibrator = Calibrator(cells, shifts, band_scales=band_scales, origin_years=origin_years)
    thresholds_of_kind = _fit_kinds(calibrator, mapped, outcomes, in_map, counts, paths)
    return replace(calibrator, thresholds_of_kind=thresholds_of_kind)


def _fit_kinds(
    calibrator: Calibrator,
    mapped: Marginals,
    outcomes: Floats,
    in_map: NDArray[np.bool_],
    counts: PersonCounts,
    paths: Paths | None,
) -> dict[tuple[str, int], KindThresholds]:
    """The thresholds of every family except the sets of a year, by kind and horizon."""
    rows = np.flatnonzero(~in_map)
    mapped, y, coverage = mapped.take(rows), outcomes[rows], calibrator.coverage
    # A horizon with outcomes that are too few has an entry, one without outcomes has none.
    has_outcomes: NDArray[np.bool_] = np.any(~np.isnan(outcomes), axis=0)
    uniforms = pit_uniforms(mapped)
    thresholds: dict[tuple[str, int], KindThresholds] = {}
    for kind, family in {**FAMILIES, BAND.kind: calibrator.band}.items():
        if not family.of_paths:
            persons, n_paths = rows, None
            scores = family.scores_by_coverage(mapped, y, coverage, uniforms)
        elif paths is not None:
            row_of = {origin: i for i, origin in enumerate(origins_of(mapped))}
            same = np.array([row_of[origin] for origin in origins_of(paths)], dtype=np.int64)
            persons, n_paths = rows[same], paths.n_paths
            amounts = y[same, : paths.n_horizons]
            mapped_paths = map_paths(paths, mapped.take(same))
            scores = family.scores_by_coverage(mapped_paths, amounts, coverage)
        else:
            continue
        n_horizons = next(iter(scores.values())).shape[1] if scores else 0
        for h in np.flatnonzero(has_outcomes[:n_horizons]).tolist():
            has_score = ~np.isnan(next(iter(scores.values()))[:, h])
            known = {share: values[has_score, h] for share, values in scores.items()}
            thresholds[kind, h + 1] = KindThresholds(
                counts.thresholds(known, persons[has_score], h),
                counts.count(persons[has_score], h),
                n_paths,
            )
    return thresholds


def _unshifted(scores: Floats, shift: Floats) -> Floats:
    """The smallest threshold of the cell, before `shift` (n,), whose set contains each outcome.

    Shifts raise no threshold above `MAX_SHIFTED`, so they bring no higher score inside.
    """
    return scores - np.where(scores > MAX_SHIFTED, np.minimum(shift, 0.0), shift)


def _sum_shifts(
    shifts: Mapping[tuple[int, float], Mapping[str, float]],
    members: Members,
    horizon: int,
    coverage: Sequence[float],
) -> Floats:
    """Sums of the shifts of the persons' groups, (n, L) or (1, L), one of L per `coverage`."""
    effects: dict[str, Floats] = {}
    for j, share in enumerate(coverage):
        for group, effect in shifts.get((horizon, share), {}).items():
            effects.setdefault(group, np.zeros(len(coverage)))[j] = effect
    return sum_effects(effects, members, (len(coverage),))


def _fit_band_scales(scores: Floats, n_origins: int) -> dict[int, tuple[Floats, Floats]]:
    """Horizon -> distribution function of the map fold's scores (n, H), as knots and values.

    A horizon with too few scores has none.
    """
    band_scales = {}
    for h in range(scores.shape[1]):
        known = scores[~np.isnan(scores[:, h]), h]
        if len(known) >= MIN_MAP_PERSONS * n_origins:
            fitted = empirical_map(known, smallest=MIN_PERSONS * n_origins)
            band_scales[h + 1] = _increasing(*fitted)
    return band_scales


def _increasing(knots: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The map through the last value of every distinct knot, so that it has an inverse.

    It starts at (0, 0) and ends at (1, 1).
    """
    last = np.append(np.diff(knots) > TIE_TOLERANCE, True)
    knots, values = knots[last], values[last]
    if knots[0] == 0 and values[0] == 0:
        return knots, values
    return np.append(0.0, knots[knots > 0]), np.append(0.0, values[knots > 0])


def check_forecasts(
    marginals: Marginals, outcomes: Floats, coverage: Sequence[float], *, one_origin: bool = False
) -> None:
    """Raise UsageError unless each forecast has an outcome per horizon.

    Marginals must be raw, every coverage inside (0, 1), and with `one_origin` no person occurs
    twice.
    """
    marginals.require_raw()
    if outcomes.shape != marginals.p_zero.shape:
        expected = Problem(
            "outcome-shape",
            f"outcomes are {outcomes.shape}, forecasts are {marginals.p_zero.shape}",
            "Give one outcome per horizon.",
        )
        raise UsageError("forecasts and outcomes disagree", [expected])
    if one_origin and len(np.unique(marginals.person_id)) < len(marginals):
        raise UsageError("This method needs one origin per person.")
    for share in coverage:
        if not 0 < share < 1:
            problem = Problem(
                "coverage-range", f"{share:g} is not inside (0, 1)", "Use for example 0.9."
            )
            raise UsageError("a coverage is out of range", [problem])


def _rows_of_cells(
    marginals: Marginals,
    known: NDArray[np.bool_],
    in_map: NDArray[np.bool_],
    counts: PersonCounts,
    map_persons: int,
) -> Iterator[tuple[Key, tuple[Rows, Rows]]]:
    """The cells, with their rows of the map fold and of the threshold fold that have outcomes.

    Full records (profile "register") have no cell, so that the cells by quintile apply to them.
    """
    min_persons = max(MIN_CELL_PERSONS, map_persons)
    for h in np.flatnonzero(known.any(axis=0)).tolist():
        folds = [np.flatnonzero(known[:, h] & fold) for fold in (in_map, ~in_map)]
        yield (h + 1, ALL), (folds[0], folds[1])
        for name in MONDRIAN:
            of_persons = marginals.groups.get(name, np.empty(0, dtype=np.str_))
            for label in np.unique(of_persons).tolist():
                map_rows, rows = (fold[of_persons[fold] == label] for fold in folds)
                everybody = len(map_rows) + len(rows) == len(folds[0]) + len(folds[1])
                n_map = len(np.unique(counts.persons[map_rows]))
                if (
                    min(n_map, counts.count(rows, h)) >= min_persons
                    and not everybody
                    and f"{name}={label}" != "profile=register"
                ):
                    yield (h + 1, f"{name}={label}"), (map_rows, rows)


def _of_map_fold(
    marginals: Marginals, realised: Marginals | None, in_map: NDArray[np.bool_]
) -> Marginals:
    """The marginals that maps are fitted on, in the order of `marginals`; see `fit_calibration`."""
    map_fold = marginals.take(in_map)
    if realised is None:
        return map_fold
    row_of = {origin: i for i, origin in enumerate(origins_of(realised))}
    rows = [row_of.get(origin, -1) for origin in origins_of(map_fold)]
    if -1 in rows or realised.n_horizons != marginals.n_horizons:
        raise UsageError(
            "forecasts conditioned on the realised macro series are not those of the map fold",
            [Problem("realised-persons", "Persons or horizons are missing", "Forecast the map "
                     "fold, at the same horizons.")],
        )  # fmt: skip
    return realised.take(np.array(rows, dtype=np.int64))


def origins_of(forecasts: Marginals | Paths) -> list[tuple[str, int]]:
    """Person and origin year of each row; rows with the same ones have the same forecast."""
    return list(zip(forecasts.person_id.tolist(), forecasts.origin_year.tolist(), strict=True))
