"""Split conformal calibration: maps from one fold of persons, thresholds from the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.group_shifts import fit_shifts
from saga.calibration.fit.person_scores import PersonCounts, Rows

from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import MIN_CELL_PERSONS, Calibrator
from saga.conformal.families import YEAR
from saga.conformal.fitted_cells import MONDRIAN
from saga.conformal.recalibration import Cell
from saga.conformal.shifted_thresholds import Members, is_shifted, members_of, sum_effects
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.keyed_random import uniform_each, uniforms
from saga.paths import Paths
from saga.requests import COVERAGE
from saga.scores import pit_uniforms
from saga.small_groups import MIN_PERSONS

Array = NDArray[np.float64]
MAX_BLOCKS = 198  # of a map
MIN_MAP_PERSONS = 100  # persons that a map needs; with fewer the raw forecast is better
_MAP_FOLDS = 5  # of the map fold, to choose how smooth a map is and how far it is shrunk
_MAP_BLOCKS = (10, 25, 70, MAX_BLOCKS)
_MAP_WEIGHTS = np.linspace(0.0, 1.0, 11)


def fit_map(
    u: Array, map_persons: int = MIN_MAP_PERSONS, counts: PersonCounts | None = None
) -> tuple[Array, Array]:
    """The map R as knots (K,) and values (K,), from randomised PIT values `u` (n,).

    `u` is that of the map fold; with fewer than `map_persons` persons there is no map (empty
    arrays). The map is (1 - w) identity + w R, where R is the smoothed empirical distribution
    (`empirical_map`). The weight w and the number of blocks of R are those with the highest
    cross-validated log score: a map from few persons adds noise, and is used as far as it helps.
    The order of `u` does not matter. `counts` says whose values they are, if a person has several.
    """
    order = np.argsort(u, kind="stable")
    n_persons, smallest, unit = len(u), MIN_PERSONS, np.arange(len(u))
    if counts is not None and counts.n_origins > 1:
        # Folds of persons; otherwise of ranks, so that the order of u does not matter.
        persons, unit = np.unique(counts.persons[order], return_inverse=True)
        n_persons, smallest = len(persons), MIN_PERSONS * counts.n_origins
    if n_persons < max(map_persons, MIN_PERSONS) or len(u) < 2 * smallest:
        return np.empty(0), np.empty(0)
    fold = (np.argsort(uniforms(n_persons, "map-folds")) % _MAP_FOLDS)[unit]
    blocks, weight = _choose_map(u[order], fold, smallest)
    if weight == 0:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    knots, values = empirical_map(u, blocks, smallest)
    return knots, (1 - weight) * knots + weight * values


def _choose_map(ordered: Array, fold: NDArray[np.int64], smallest: int) -> tuple[int, float]:
    """The number of blocks and the weight with the best log score of values left out."""
    gain = np.zeros((len(_MAP_BLOCKS), len(_MAP_WEIGHTS)))
    for k in range(_MAP_FOLDS):
        left_out = ordered[fold == k]
        for i, blocks in enumerate(_MAP_BLOCKS):
            knots, values = empirical_map(ordered[fold != k], blocks, smallest)
            # Density of R at the values of the fold that was left out.
            density = np.diff(values) / np.maximum(np.diff(knots), 1e-9)
            inside = np.clip(np.searchsorted(knots, left_out, side="right"), 1, len(knots) - 1) - 1
            for j, weight in enumerate(_MAP_WEIGHTS):
                gain[i, j] += np.log1p(weight * (density[inside] - 1)).sum()
    best = divmod(int(gain.argmax()), len(_MAP_WEIGHTS))
    return _MAP_BLOCKS[best[0]], float(_MAP_WEIGHTS[best[1]])


def empirical_map(
    u: Array, blocks: int = MAX_BLOCKS, smallest: int = MIN_PERSONS
) -> tuple[Array, Array]:
    """The smoothed empirical distribution of `u` (n,), as knots (K,) and values (K,).

    Each inner knot is the average of a block of `smallest` neighbouring order statistics or more,
    its value their average rank / (n + 1). There are at most `blocks`. They are finer towards 0 and
    1, where tails are decided. The map takes 0 to 0 and 1 to 1.
    """
    n = len(u)
    ordered, ranks = np.sort(u), np.arange(1, n + 1) / (n + 1)
    blocks = min(blocks, n // smallest)
    ideal = np.round(n * np.sin(np.pi / 2 * np.linspace(0, 1, blocks + 1)) ** 2).astype(np.int64)
    bounds = [0]
    for bound in ideal[1:]:
        if bound - bounds[-1] >= smallest and (n - bound >= smallest or bound == n):
            bounds.append(int(bound))
    bounds[-1] = n
    sizes = np.diff(bounds)
    inner = np.add.reduceat(ordered, bounds[:-1]) / sizes
    value = np.add.reduceat(ranks, bounds[:-1]) / sizes
    return np.concatenate([[0.0], inner, [1.0]]), np.concatenate([[0.0], value, [1.0]])


def in_map_fold(person_id: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
    """Whether each person is in the map fold (n,), by keyed hash; else the threshold fold."""
    return uniform_each((str(person) for person in person_id), "calibration-half", seed) < 0.5


def fit_calibration(
    marginals: Marginals,
    outcomes: Array,
    *,
    seed: int,
    coverage: Sequence[float] = COVERAGE,
    map_persons: int = MIN_MAP_PERSONS,
    weights: Array | None = None,
    realised: Marginals | None = None,
    n_origins: int = 1,
) -> Calibrator:
    """Maps and thresholds per horizon, from raw marginals of persons with one origin or several.

    A horizon without outcomes has no cell. A profile or quintile has a cell if each fold contains
    1,000 of its persons. Other groups shift the thresholds. A threshold with fewer than 10 order
    statistics at or above it is None.

    Args:
        marginals: Raw marginals (n, H) of the calibration persons.
        outcomes: Realised earnings (n, H); NaN if unknown.
        seed: Key of the division into folds.
        coverage: Stated coverages.
        map_persons: Persons of the map fold that a map needs.
        weights: Weights (n, H) that make the thresholds those of another population
            (`saga.calibration.fit.covariate_shift`); persons then count by their effective number.
        realised: Marginals of the map fold's persons, conditioned on the realised macro series,
            on which maps are fitted. Otherwise maps would correct for the booms and recessions of
            a few past years in every future. None: maps are fitted on `marginals`.
        n_origins: Origins per person, drawn independently by the rule of the forecasts; each
            person has so many rows. Weights need 1.

    Raises:
        UsageError: If shapes disagree, a person does not have `n_origins` rows (persons are the
            exchangeable unit), or a coverage is outside (0, 1).
    """
    check_persons(marginals, outcomes, coverage, n_origins)
    counts = PersonCounts.of(marginals, n_origins, weights)
    in_map = in_map_fold(marginals.person_id, seed)
    has_outcome = ~np.isnan(outcomes) & marginals.exists
    u = np.full(outcomes.shape, np.nan)
    map_marginals = marginals.take(in_map)
    if realised is not None:
        map_marginals = realised.take(_rows_in(realised, marginals, in_map))
    v = pit_uniforms(map_marginals)
    u[in_map] = pit(map_marginals, outcomes[in_map], v)
    cells: dict[tuple[int, str], Cell] = {}
    rows_of: dict[tuple[int, str], Rows] = {}
    for h in np.flatnonzero(has_outcome.any(axis=0)).tolist():
        map_rows = np.flatnonzero(has_outcome[:, h] & in_map)
        rows = np.flatnonzero(has_outcome[:, h] & ~in_map)
        groups = {
            ALL: (map_rows, rows),
            **_rows_of_groups(
                marginals, map_rows, rows, h, counts, max(MIN_CELL_PERSONS, map_persons)
            ),
        }
        for group, (group_map_rows, group_rows) in groups.items():
            cells[h + 1, group] = Cell(
                *fit_map(u[group_map_rows, h], map_persons, counts.take(group_map_rows)),
                len(np.unique(counts.persons[group_map_rows])),
                {},
                counts.count(group_rows, h),
            )
            rows_of[h + 1, group] = group_rows
    mapped = Calibrator(cells).recalibrate(marginals)
    scores = YEAR.scores_by_coverage(mapped, outcomes, coverage, pit_uniforms(marginals))
    shifts: dict[tuple[int, float], dict[str, float]] = {}
    for h in {horizon - 1 for horizon, _ in cells}:
        map_rows = np.flatnonzero(has_outcome[:, h] & in_map)
        persons = counts.persons[map_rows]
        if len(np.unique(persons)) >= MIN_CELL_PERSONS and marginals.groups:
            labels = {name: values[map_rows] for name, values in marginals.groups.items()}
            for share in coverage:
                shifts[h + 1, share] = fit_shifts(
                    scores[share][map_rows, h], labels, share, persons if n_origins > 1 else None
                )
    for (horizon, group), group_rows in rows_of.items():
        members = members_of(marginals.groups, group_rows) if is_shifted(group) else ([], [])
        shift = _sum_shifts(shifts, members, horizon, coverage)
        shifted_scores = {
            share: scores[share][group_rows, horizon - 1] - shift[:, j]
            for j, share in enumerate(coverage)
        }
        thresholds = counts.thresholds(shifted_scores, group_rows, horizon - 1)
        cells[horizon, group] = replace(cells[horizon, group], thresholds=thresholds)
    return Calibrator(cells, shifts=shifts)


def _sum_shifts(
    shifts: Mapping[tuple[int, float], Mapping[str, float]],
    members: Members,
    horizon: int,
    coverage: Sequence[float],
) -> Array:
    """Sums of the shifts of the persons' groups, (n, L) or (1, L), one of L per `coverage`."""
    effects: dict[str, Array] = {}
    for j, share in enumerate(coverage):
        for group, effect in shifts.get((horizon, share), {}).items():
            effects.setdefault(group, np.zeros(len(coverage)))[j] = effect
    return sum_effects(effects, members, (len(coverage),))


def pit(marginals: Marginals, outcomes: Array, v: Array) -> Array:
    """Randomised probability integral transform of outcomes (n, H) with uniforms v (n, H).

    Uniform under the forecast: F(y) for positive y, and v times the probability of zero for y = 0
    (Czado, Gneiting and Held 2009).
    """
    below = marginals.probability(outcomes)
    return np.where(outcomes == 0, v * below, below)


def check_persons(
    marginals: Marginals, outcomes: Array, coverage: Sequence[float], n_origins: int = 1
) -> None:
    """Raise UsageError unless each person has `n_origins` rows, with one outcome per horizon.

    Marginals must be raw, and every coverage inside (0, 1).
    """
    marginals.require_raw()
    if outcomes.shape != marginals.p_zero.shape:
        expected = Problem(
            "outcome-shape",
            f"outcomes are {outcomes.shape}, forecasts are {marginals.p_zero.shape}",
            "Give one outcome per horizon.",
        )
        raise UsageError("forecasts and outcomes disagree", [expected])
    persons, times = np.unique(marginals.person_id, return_counts=True)
    if (times != n_origins).any():
        number = "one origin" if n_origins == 1 else f"{n_origins} origins"
        wrong = Problem(
            "person-twice",
            f"a person has more or fewer than {number}",
            f"Draw {number} per person.",
            person_id=str(persons[times != n_origins][0]),
            count=int((times != n_origins).sum()),
        )
        raise UsageError(f"calibration needs {number} per person", [wrong])
    for share in coverage:
        if not 0 < share < 1:
            problem = Problem(
                "coverage-range", f"{share:g} is not inside (0, 1)", "Use for example 0.9."
            )
            raise UsageError("a coverage is out of range", [problem])


def _rows_of_groups(
    marginals: Marginals,
    map_rows: Rows,
    rows: Rows,
    h: int,
    counts: PersonCounts,
    min_persons: int,
) -> dict[str, tuple[Rows, Rows]]:
    """The groups that have a cell, with their rows of the map fold and of the threshold fold.

    Full records (profile "register") have no cell, so that the cells by quintile apply to them.
    """
    groups = {}
    for name in MONDRIAN:
        for label in np.unique(marginals.groups[name]).tolist() if name in marginals.groups else []:
            in_map, in_threshold = (
                fold[marginals.groups[name][fold] == label] for fold in (map_rows, rows)
            )
            everybody = len(in_map) == len(map_rows) and len(in_threshold) == len(rows)
            if (
                min(len(np.unique(counts.persons[in_map])), counts.count(in_threshold, h))
                >= min_persons
                and not everybody
                and f"{name}={label}" != "profile=register"
            ):
                groups[f"{name}={label}"] = (in_map, in_threshold)
    return groups


def _rows_in(realised: Marginals, marginals: Marginals, in_map: NDArray[np.bool_]) -> Rows:
    """Row in `realised` of each person and origin of the map fold.

    UsageError if a person of the map fold is missing, or the horizons differ.
    """
    row_of = {origin: i for i, origin in enumerate(origins_of(realised))}
    rows = np.array([row_of.get(origin, -1) for origin in origins_of(marginals)], dtype=np.int64)
    missing, fix = in_map & (rows < 0), "Draw them for the map fold and the same horizons."
    problems = []
    if missing.any():
        problems.append(
            Problem(
                "realised-persons",
                "Persons of the map fold are missing",
                fix,
                person_id=str(marginals.person_id[missing][0]),
                count=int(missing.sum()),
            )
        )
    if realised.n_horizons != marginals.n_horizons:
        text = f"They have {realised.n_horizons} horizons, not {marginals.n_horizons}"
        problems.append(Problem("realised-horizons", text, fix))
    if problems:
        raise UsageError(
            "forecasts conditioned on the realised macro series are not those of the map fold",
            problems,
        )
    return rows[in_map]


def origins_of(forecasts: Marginals | Paths) -> list[tuple[str, int]]:
    """Person and origin year of each row; rows with the same ones have the same forecast."""
    return list(zip(forecasts.person_id.tolist(), forecasts.origin_year.tolist(), strict=True))
