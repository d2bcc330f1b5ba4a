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
from saga.conformal.prediction_sets import Growth, grow
from saga.conformal.recalibration import Cell
from saga.errors import Problem, UsageError
from saga.keyed_random import uniform_each
from saga.paths import Paths
from saga.requests import COVERAGE
from saga.scores import pit, pit_uniforms

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
NEIGHBOURS = 10  # scores whose average is stored instead of one person's score
MAX_KNOTS = 200
MIN_MAP_PERSONS = 100  # persons that a map needs; with fewer the raw forecast is better
ATOM_WIDTHS = tuple(0.001 * 2.0**j for j in range(17))
DEFAULT_ATOM_WIDTH = 0.5  # if there are too few outcomes to choose from ATOM_WIDTHS
YEARS_OF_PAY = 3.0  # the scale of the sets, in years of typical earnings
PATH_COUNTS = (25, 50, 100, 200, 500, 1_000)  # numbers of paths with separate thresholds
MIN_ZEROS = 50  # the choice of an atom width needs so many zero and so many positive outcomes


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

    With fewer than `map_persons` values there is no map (empty arrays). Each inner knot is the
    average of a block of at least 10 neighbouring order statistics, and its value is their average
    rank / (n + 1). Blocks are smaller towards 0 and 1, in the tails. R(0) = 0 and R(1) = 1.
    """
    n = len(u)
    if n < max(map_persons, NEIGHBOURS):
        return np.empty(0), np.empty(0)
    ordered, ranks = np.sort(u), np.arange(1, n + 1) / (n + 1)
    blocks = min(MAX_KNOTS - 2, n // NEIGHBOURS)
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


def choose_atom_width(growth: Growth, outcomes: Array, coverage: float = 0.9) -> float:
    """The atom width that covers zero and positive outcomes (n,) most alike at `coverage`."""
    zero = outcomes == 0
    if min(zero.sum(), (~zero).sum()) < MIN_ZEROS:
        return DEFAULT_ATOM_WIDTH

    def difference(atom_width: float) -> float:
        scores = growth.with_atom(atom_width).score(outcomes)
        inside = scores <= np.quantile(scores, coverage)
        return abs(float(inside[zero].mean() - inside[~zero].mean()))

    return min(ATOM_WIDTHS, key=difference)


def in_map_fold(person_id: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
    """Whether each person is in the map fold (n,), by keyed hash; else the threshold fold."""
    return uniform_each((str(person) for person in person_id), "calibration-half", seed) < 0.5


def fit_calibration(
    paths: Paths,
    outcomes: Array,
    *,
    seed: int,
    coverage: Sequence[float] = COVERAGE,
    map_persons: int = MIN_MAP_PERSONS,
    weights: Array | None = None,
    realised: Paths | None = None,
) -> Calibrator:
    """Maps and thresholds per horizon, from raw paths of persons with one origin each.

    A horizon without outcomes has no cell. A profile or quintile has a cell if each fold contains
    1,000 of its persons. Other groups shift the thresholds. Thresholds are fitted for sets from all
    M paths and from fewer (25, 50, 100, ...). A threshold with fewer than 10 order statistics at or
    above it is None.

    Args:
        paths: Raw paths (n, H, M) of the calibration persons.
        outcomes: Realised earnings (n, H); NaN if unknown.
        seed: Key of the division into folds.
        coverage: Stated coverages.
        map_persons: Persons of the map fold that a map needs. A map from few persons adds more
            noise than it corrects.
        weights: Weights (n, H) that make the thresholds those of another population
            (`calibration.fit.covariate_shift`); persons then count by their effective number.
        realised: Paths of the map fold's persons, conditioned on the realised macro series, on
            which maps are fitted. Otherwise maps would correct for the booms and recessions of a
            few past years in every future. None: maps are fitted on `paths`.

    Raises:
        UsageError: If shapes disagree, a person occurs twice (persons are the exchangeable unit),
            or a coverage is outside (0, 1).
    """
    check_persons(paths, outcomes, coverage)
    in_map, uniforms = in_map_fold(paths.person_id, seed), pit_uniforms(paths)
    scale = scale_of(outcomes[in_map])
    map_paths, map_row = (
        (paths, np.arange(len(paths)))
        if realised is None
        else (realised, _rows_in(realised, paths, in_map))
    )
    cells: dict[tuple[int, str], Cell] = {}
    shifts: dict[tuple[int, float], dict[str, float]] = {}
    unfinished = Calibrator(cells, scale, shifts=shifts)
    for h in range(paths.n_horizons):
        has_outcome = ~np.isnan(outcomes[:, h]) & ~np.isnan(paths.earnings[:, h]).any(axis=1)
        if not has_outcome.any():
            continue
        map_rows, rows = np.flatnonzero(has_outcome & in_map), np.flatnonzero(has_outcome & ~in_map)
        w = None if weights is None else weights[:, h]
        groups = {
            ALL: (map_rows, rows),
            **_rows_of_groups(paths, map_rows, rows, max(MIN_CELL_PERSONS, map_persons), w),
        }
        ordered = np.sort(paths.earnings[map_rows, h], axis=1)
        u = np.full(len(paths), np.nan)
        u[map_rows] = pit(
            np.sort(map_paths.earnings[map_row[map_rows], h], axis=1)[:, None, :],
            outcomes[map_rows, h, None],
            uniforms[map_rows, h, None],
        )[:, 0]
        for group, (group_map_rows, group_rows) in groups.items():
            cells[h + 1, group] = Cell(
                *fit_map(u[group_map_rows], map_persons),
                len(group_map_rows),
                DEFAULT_ATOM_WIDTH,
                {},
                count_persons(group_rows, w),
            )
        # A cell without a map uses another cell's map, also when its thresholds are fitted.
        mapped = unfinished.map_samples(paths.take(map_rows), h + 1, ordered)
        growth = grow(mapped, scale)
        atom_width = choose_atom_width(growth, outcomes[map_rows, h])
        if len(map_rows) >= MIN_CELL_PERSONS and paths.groups:
            scores = growth.with_atom(atom_width).score(outcomes[map_rows, h])
            labels = {name: values[map_rows] for name, values in paths.groups.items()}
            shifts |= {(h + 1, share): fit_shifts(scores, labels, share) for share in coverage}
        thresholds: dict[str, dict[tuple[int, float], float | None]] = {
            group: {} for group in groups
        }
        members = members_of(paths.groups, rows)
        for n_paths in path_counts(paths):
            # Paths are exchangeable: the first `n_paths` are like a forecast of so many paths.
            ordered = np.sort(paths.earnings[rows, h, :n_paths], axis=1)
            mapped = unfinished.map_samples(paths.take(rows), h + 1, ordered)
            scores = grow(mapped, scale).with_atom(atom_width).score(outcomes[rows, h])
            for share in coverage:
                plain, shifted = np.full((2, len(paths)), np.nan)
                plain[rows] = scores
                shifted[rows] = scores - unfinished.shift(members, h + 1, share)
                for group, (_, group_rows) in groups.items():
                    group_scores = (shifted if is_shifted(group) else plain)[group_rows]
                    thresholds[group][n_paths, share] = published_threshold(
                        group_scores, share, *weights_of(w, group_rows)
                    )
        for group in groups:
            cells[h + 1, group] = replace(
                cells[h + 1, group], atom_width=atom_width, thresholds=thresholds[group]
            )
    return Calibrator(cells, scale=scale, shifts=shifts)


def scale_of(outcomes: Array) -> float:
    """The scale s of the sets in t = log(earnings + s), from outcomes (n, H); two digits.

    `YEARS_OF_PAY` x the geometric mean over persons of the geometric mean of each person's positive
    amounts. Far below s the scale is nearly linear in earnings, far above it is logarithmic. 1 if
    fewer than ten persons have positive earnings, so that it describes no single person.
    """
    logs = np.where(outcomes > 0, np.log(np.where(outcomes > 0, outcomes, 1.0)), 0.0).sum(axis=1)
    years = (outcomes > 0).sum(axis=1)
    typical = logs[years > 0] / years[years > 0]
    if len(typical) < NEIGHBOURS:
        return 1.0
    return float(f"{YEARS_OF_PAY * np.exp(typical.mean()):.1e}")


def path_counts(paths: Paths) -> list[int]:
    """Numbers of paths for which thresholds are fitted: those of PATH_COUNTS below M, and M."""
    return [*(count for count in PATH_COUNTS if count < paths.n_paths), paths.n_paths]


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


def check_persons(paths: Paths, outcomes: Array, coverage: Sequence[float]) -> None:
    """Raise UsageError unless there is one origin per person and one outcome per horizon.

    Paths must be raw, and every coverage inside (0, 1).
    """
    paths.require_raw()
    if outcomes.shape != paths.earnings.shape[:2]:
        expected = Problem(
            "outcome-shape",
            f"outcomes are {outcomes.shape}, paths are {paths.earnings.shape[:2]}",
            "Give one outcome per horizon.",
        )
        raise UsageError("paths and outcomes disagree", [expected])
    persons, times = np.unique(paths.person_id, return_counts=True)
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
    paths: Paths, map_rows: Rows, rows: Rows, min_persons: int, weights: Array | None
) -> dict[str, tuple[Rows, Rows]]:
    """The groups that have a cell, with their rows of the map fold and of the threshold fold.

    Full records (profile "register") have no cell, so that the cells by quintile apply to them.
    """
    groups = {}
    for name in MONDRIAN:
        for label in np.unique(paths.groups[name]).tolist() if name in paths.groups else []:
            in_map, in_threshold = (
                fold[paths.groups[name][fold] == label] for fold in (map_rows, rows)
            )
            everybody = len(in_map) == len(map_rows) and len(in_threshold) == len(rows)
            if (
                min(len(in_map), count_persons(in_threshold, weights)) >= min_persons
                and not everybody
                and f"{name}={label}" != "profile=register"
            ):
                groups[f"{name}={label}"] = (in_map, in_threshold)
    return groups


def _rows_in(realised: Paths, paths: Paths, in_map: NDArray[np.bool_]) -> Rows:
    """Row in `realised` of each person of `paths` (n,), -1 in the threshold fold.

    UsageError if a person of the map fold is missing, or the horizons differ.
    """
    row_of = {person: i for i, person in enumerate(realised.person_id.tolist())}
    rows = np.array([row_of.get(person, -1) for person in paths.person_id.tolist()], dtype=np.int64)
    missing, fix = in_map & (rows < 0), "Draw them for the map fold and the same horizons."
    problems = []
    if missing.any():
        problems.append(
            Problem(
                "realised-persons",
                "Persons of the map fold are missing",
                fix,
                person_id=str(paths.person_id[missing][0]),
                count=int(missing.sum()),
            )
        )
    if realised.n_horizons != paths.n_horizons:
        text = f"They have {realised.n_horizons} horizons, paths have {paths.n_horizons}"
        problems.append(Problem("realised-horizons", text, fix))
    if problems:
        raise UsageError(
            "paths conditioned on the realised macro series are not those of the map fold", problems
        )
    return rows
