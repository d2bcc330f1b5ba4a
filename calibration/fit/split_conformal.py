"""Split conformal calibration: maps from one fold of persons, thresholds from the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.group_shifts import fit_shifts
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import MIN_CELL_PERSONS, MONDRIAN, Calibrator, is_shifted, members_of
from saga.conformal.prediction_sets import set_scores
from saga.conformal.recalibration import Cell
from saga.distributions import Marginals
from saga.errors import Problem, UsageError
from saga.keyed_random import uniform_each, uniforms
from saga.requests import COVERAGE
from saga.scores import pit_uniforms

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
NEIGHBOURS = 10  # scores whose average is stored instead of one person's score
MAX_BLOCKS = 198  # of a map
MIN_MAP_PERSONS = 100  # persons that a map needs; with fewer the raw forecast is better
_MAP_FOLDS = 5  # of the map fold, to choose how smooth a map is and how far it is shrunk
_MAP_BLOCKS = (10, 25, 70, MAX_BLOCKS)
_MAP_WEIGHTS = np.linspace(0.0, 1.0, 11)


def rank_needed(n: int, coverage: float) -> int:
    """The rank k = ceil((n + 1) coverage) of split conformal prediction (Vovk 2012).

    Subtracting 1e-9 makes up for coverages that have no exact binary fraction.
    """
    return math.ceil((n + 1) * coverage - 1e-9)


def conformal_quantile(
    scores: Array,
    coverage: float,
    *,
    neighbours: int = 1,
    weights: Array | None = None,
    heaviest: float = 1.0,
) -> float:
    """The k-th smallest of n scores, k = ceil((n + 1) coverage); +inf if n is too small.

    With weights the effective number of persons must be large enough, too.

    Args:
        scores: Conformity scores (n,).
        coverage: Share of new persons to cover.
        neighbours: If above 1, the average of s_(k) .. s_(k + neighbours - 1). It is at least
            s_(k), so coverage is kept, and no single person's score is published.
        weights: Weights (n,); scores of weight 0 are ignored. k is then the first rank at which
            the weights up to it reach coverage x (sum of weights + `heaviest`).
        heaviest: Largest weight that a new person can have (Tibshirani et al. 2019, eq. 7).
    """
    if weights is None:
        ordered, k = np.sort(scores), rank_needed(len(scores), coverage)
        is_enough = len(scores) > 0
    else:
        scores, weights = scores[weights > 0], weights[weights > 0]
        order = np.argsort(scores, kind="stable")
        ordered, cumulated = scores[order], np.cumsum(weights[order])
        needed = coverage * ((cumulated[-1] if len(cumulated) else 0.0) + heaviest) - 1e-9
        k = int(np.searchsorted(cumulated, needed)) + 1
        n = int(effective_persons(weights) + 1e-9)
        is_enough = n > 0 and rank_needed(n, coverage) + neighbours - 1 <= n
    if k + neighbours - 1 > len(ordered) or not is_enough:
        return math.inf
    return float(ordered[k - 1 : k - 1 + neighbours].mean())


def effective_persons(weights: Array) -> float:
    """Effective sample size (sum w)^2 / sum w^2 (Kish 1965); n if all weights are equal."""
    total = float(weights.sum())
    return total * total / float((weights**2).sum()) if total > 0 else 0.0


def fit_map(u: Array, map_persons: int = MIN_MAP_PERSONS) -> tuple[Array, Array]:
    """The map R as knots (K,) and values (K,), from randomised PIT values `u` (n,).

    `u` is that of the map fold; with fewer than `map_persons` values there is no map (empty
    arrays). The map is (1 - w) identity + w R, where R is the smoothed empirical distribution
    (`empirical_map`). The weight w and the number of blocks of R are those with the highest
    cross-validated log score: a map from few persons adds noise, and is used as far as it helps.
    The order of `u` does not matter.
    """
    if len(u) < max(map_persons, NEIGHBOURS):
        return np.empty(0), np.empty(0)
    blocks, weight = _choose_map(np.sort(u))
    if weight == 0:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    knots, values = empirical_map(u, blocks)
    return knots, (1 - weight) * knots + weight * values


def _choose_map(ordered: Array) -> tuple[int, float]:
    """The number of blocks and the weight with the best log score of values left out."""
    fold = np.argsort(uniforms(len(ordered), "map-folds")) % _MAP_FOLDS
    gain = np.zeros((len(_MAP_BLOCKS), len(_MAP_WEIGHTS)))
    for k in range(_MAP_FOLDS):
        left_out = ordered[fold == k]
        for i, blocks in enumerate(_MAP_BLOCKS):
            knots, values = empirical_map(ordered[fold != k], blocks)
            # Density of R at the values of the fold that was left out.
            density = np.diff(values) / np.maximum(np.diff(knots), 1e-9)
            inside = np.clip(np.searchsorted(knots, left_out, side="right"), 1, len(knots) - 1) - 1
            for j, weight in enumerate(_MAP_WEIGHTS):
                gain[i, j] += np.log1p(weight * (density[inside] - 1)).sum()
    best = divmod(int(gain.argmax()), len(_MAP_WEIGHTS))
    return _MAP_BLOCKS[best[0]], float(_MAP_WEIGHTS[best[1]])


def empirical_map(u: Array, blocks: int = MAX_BLOCKS) -> tuple[Array, Array]:
    """The smoothed empirical distribution of `u` (n,), as knots (K,) and values (K,).

    Each inner knot is the average of a block of at least 10 neighbouring order statistics, its
    value their average rank / (n + 1). There are at most `blocks`. They are finer towards 0 and 1,
    where tails are decided. The map takes 0 to 0 and 1 to 1.
    """
    n = len(u)
    ordered, ranks = np.sort(u), np.arange(1, n + 1) / (n + 1)
    blocks = min(blocks, n // NEIGHBOURS)
    ideal = np.round(n * np.sin(np.pi / 2 * np.linspace(0, 1, blocks + 1)) ** 2).astype(np.int64)
    bounds = [0]
    for bound in ideal[1:]:
        if bound - bounds[-1] >= NEIGHBOURS and (n - bound >= NEIGHBOURS or bound == n):
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
) -> Calibrator:
    """Maps and thresholds per horizon, from raw marginals of persons with one origin each.

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
            (`calibration.fit.covariate_shift`); persons then count by their effective number.
        realised: Marginals of the map fold's persons, conditioned on the realised macro series,
            on which maps are fitted. Otherwise maps would correct for the booms and recessions of
            a few past years in every future. None: maps are fitted on `marginals`.

    Raises:
        UsageError: If shapes disagree, a person occurs twice (persons are the exchangeable unit),
            or a coverage is outside (0, 1).
    """
    check_persons(marginals, outcomes, coverage)
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
        w = None if weights is None else weights[:, h]
        groups = {
            ALL: (map_rows, rows),
            **_rows_of_groups(marginals, map_rows, rows, max(MIN_CELL_PERSONS, map_persons), w),
        }
        for group, (group_map_rows, group_rows) in groups.items():
            cells[h + 1, group] = Cell(
                *fit_map(u[group_map_rows, h], map_persons),
                len(group_map_rows),
                {},
                count_persons(group_rows, w),
            )
            rows_of[h + 1, group] = group_rows
    mapped = Calibrator(cells).recalibrate(marginals)
    uniforms = pit_uniforms(marginals)
    scores = {share: set_scores(mapped, outcomes, share, uniforms) for share in coverage}
    shifts: dict[tuple[int, float], dict[str, float]] = {}
    for h in {horizon - 1 for horizon, _ in cells}:
        map_rows = np.flatnonzero(has_outcome[:, h] & in_map)
        if len(map_rows) >= MIN_CELL_PERSONS and marginals.groups:
            labels = {name: values[map_rows] for name, values in marginals.groups.items()}
            for share in coverage:
                shifts[h + 1, share] = fit_shifts(scores[share][map_rows, h], labels, share)
    unfinished = Calibrator(cells, shifts=shifts)
    for (horizon, group), group_rows in rows_of.items():
        w = None if weights is None else weights[:, horizon - 1]
        members = members_of(marginals.groups, group_rows)
        thresholds = {}
        for share in coverage:
            shift = unfinished.shift(members, horizon, share) if is_shifted(group) else 0.0
            thresholds[share] = published_threshold(
                scores[share][group_rows, horizon - 1] - shift, share, *weights_of(w, group_rows)
            )
        cells[horizon, group] = replace(cells[horizon, group], thresholds=thresholds)
    return Calibrator(cells, shifts=shifts)


def pit(marginals: Marginals, outcomes: Array, v: Array) -> Array:
    """Randomised probability integral transform of outcomes (n, H) with uniforms v (n, H).

    Uniform under the forecast: F(y) for positive y, and v times the probability of zero for y = 0
    (Czado, Gneiting and Held 2009).
    """
    below = marginals.probability(outcomes)
    return np.where(outcomes == 0, v * below, below)


def published_threshold(
    scores: Array, coverage: float, weights: Array | None = None, heaviest: float = 1.0
) -> float | None:
    """The threshold that is stored: an average of ten order statistics, None if too few."""
    q = conformal_quantile(
        scores, coverage, neighbours=NEIGHBOURS, weights=weights, heaviest=heaviest
    )
    return q if math.isfinite(q) else None


def count_persons(rows: Rows, weights: Array | None) -> int:
    """The number of persons in `rows`, with weights the effective number."""
    return len(rows) if weights is None else int(effective_persons(weights[rows]) + 1e-9)


def weights_of(weights: Array | None, rows: Rows) -> tuple[Array, float] | tuple[()]:
    """The weights of some rows, and the largest weight of all persons."""
    return () if weights is None else (weights[rows], float(weights.max()))


def check_persons(marginals: Marginals, outcomes: Array, coverage: Sequence[float]) -> None:
    """Raise UsageError unless there is one origin per person and one outcome per horizon.

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
    if (times > 1).any():
        twice = Problem(
            "person-twice",
            "a person has more than one origin",
            "Draw one origin per person.",
            person_id=str(persons[times > 1][0]),
            count=int((times > 1).sum()),
        )
        raise UsageError("calibration needs one origin per person", [twice])
    for share in coverage:
        if not 0 < share < 1:
            problem = Problem(
                "coverage-range", f"{share:g} is not inside (0, 1)", "Use for example 0.9."
            )
            raise UsageError("a coverage is out of range", [problem])


def _rows_of_groups(
    marginals: Marginals, map_rows: Rows, rows: Rows, min_persons: int, weights: Array | None
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
                min(len(in_map), count_persons(in_threshold, weights)) >= min_persons
                and not everybody
                and f"{name}={label}" != "profile=register"
            ):
                groups[f"{name}={label}"] = (in_map, in_threshold)
    return groups


def _rows_in(realised: Marginals, marginals: Marginals, in_map: NDArray[np.bool_]) -> Rows:
    """Row in `realised` of each person of the map fold.

    UsageError if a person of the map fold is missing, or the horizons differ.
    """
    row_of = {person: i for i, person in enumerate(realised.person_id.tolist())}
    rows = np.array(
        [row_of.get(person, -1) for person in marginals.person_id.tolist()], dtype=np.int64
    )
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
