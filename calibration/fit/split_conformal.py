"""Fit the conformal layer: split calibration persons in two, learn the maps on one half, the thresholds on the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.group_shifts import fit_shifts
from saga.conformal.calibrator import (
    ALL,
    MIN_CELL_PERSONS,
    MONDRIAN,
    Calibrator,
    is_shifted,
    members_of,
)
from saga.conformal.prediction_sets import Growth, grow
from saga.conformal.recalibration import Cell
from saga.errors import Problem, UsageError
from saga.keyed_random import uniform_each
from saga.paths import Paths
from saga.requests import COVERAGE
from saga.scores import pit, pit_uniforms

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
LEVELS = COVERAGE  # what forecasts offer unasked must be calibrated
NEIGHBOURS = 10  # persons whose average stands where one person's value would
MAX_KNOTS = 200
MIN_MAP = 100  # persons a map needs; with fewer the raw forecast is better
ATOM_WIDTHS = tuple(0.001 * 2.0**j for j in range(17))
DEFAULT_ATOM_WIDTH = 0.5  # what is usually chosen
YEARS_OF_PAY = 3.0  # the scale of sets, in typical years' earnings: density as in money for most, growth in proportion for high pay
COUNTS = (25, 50, 100, 200, 500, 1_000)  # numbers of paths that sets are served from
MIN_ZEROS = 50  # outcomes of zero (and of more) needed to choose the width


def rank_needed(n: int, level: float) -> int:
    """k = ceil((n + 1) level), safe against binary fractions: the order statistic that split conformal prediction uses (Vovk 2012)."""
    return math.ceil((n + 1) * level - 1e-9)


def conformal_quantile(
    scores: Array,
    level: float,
    *,
    neighbours: int = 1,
    weights: Array | None = None,
    heaviest: float = 1.0,
) -> float:
    """The k-th smallest of n scores, k = ceil((n + 1) level); +inf where there are too few.

    With `neighbours` > 1 the average of s_(k) .. s_(k + neighbours - 1), which lies at or above s_(k): coverage is kept, and no single
    person's score is published. With `weights` (n,) k is the first rank whose scores up to it weigh level x (sum of weights + `heaviest`),
    `heaviest` being the largest weight that anybody may have (Tibshirani et al. 2019, eq. 7, for the heaviest new person); weights of 1
    give the unweighted threshold. Scores of weight 0 count for nothing, and there must be enough persons for the level in effect as well.
    """
    if weights is None:
        ordered, k = np.sort(scores), rank_needed(len(scores), level)
        enough = len(scores)
    else:
        scores, weights = scores[weights > 0], weights[weights > 0]
        order = np.argsort(scores, kind="stable")
        ordered, held = scores[order], np.cumsum(weights[order])
        needed = level * ((held[-1] if len(held) else 0.0) + heaviest) - 1e-9
        k = int(np.searchsorted(held, needed)) + 1
        enough = int(effective(weights) + 1e-9)
        enough = enough if rank_needed(enough, level) + neighbours - 1 <= enough else 0
    if k + neighbours - 1 > len(ordered) or not enough:
        return math.inf
    return float(ordered[k - 1 : k - 1 + neighbours].mean())


def effective(weights: Array) -> float:
    """Effective sample size (sum w)^2 / sum w^2 (Kish 1965): so many equally weighted persons say as much; n for equal weights."""
    total = float(weights.sum())
    return total * total / float((weights**2).sum()) if total > 0 else 0.0


def fit_map(u: Array, map_persons: int = MIN_MAP) -> tuple[Array, Array]:
    """R as knots (K,) and values (K,), from the randomised PIT values `u` (n,) of half A; empty when n < `map_persons`.

    Each inner knot is the average of a block of at least 10 neighbouring order statistics, its value their average rank / (n + 1); blocks
    are finer towards 0 and 1, where tails are decided. R(0) = 0 and R(1) = 1.
    """
    n = len(u)
    if n < max(map_persons, NEIGHBOURS):
        return np.empty(0), np.empty(0)
    ordered, ranks = np.sort(u), np.arange(1, n + 1) / (n + 1)
    blocks = min(MAX_KNOTS - 2, n // NEIGHBOURS)
    wanted = np.round(n * np.sin(np.pi / 2 * np.linspace(0, 1, blocks + 1)) ** 2).astype(np.int64)
    bounds = [0]
    for bound in wanted[1:]:
        if bound - bounds[-1] >= NEIGHBOURS and (n - bound >= NEIGHBOURS or bound == n):
            bounds.append(int(bound))
    bounds[-1] = n
    sizes = np.diff(bounds)
    inner = np.add.reduceat(ordered, bounds[:-1]) / sizes
    value = np.add.reduceat(ranks, bounds[:-1]) / sizes
    return np.concatenate([[0.0], inner, [1.0]]), np.concatenate([[0.0], value, [1.0]])


def choose_atom_width(growth: Growth, outcomes: Array, level: float = 0.9) -> float:
    """The width that ranks the atom so that zeros and positive outcomes are covered most alike at `level`."""
    zero = outcomes == 0
    if min(zero.sum(), (~zero).sum()) < MIN_ZEROS:
        return DEFAULT_ATOM_WIDTH

    def unlike(atom_width: float) -> float:
        scores = growth.with_atom(atom_width).score(outcomes)
        inside = scores <= np.quantile(scores, level)
        return abs(float(inside[zero].mean() - inside[~zero].mean()))

    return min(ATOM_WIDTHS, key=unlike)


def halves(person_id: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
    """Whether each calibration person belongs to half A (maps), by keyed hash; the others are half B (thresholds)."""
    return uniform_each((str(person) for person in person_id), "calibration-half", seed) < 0.5


def fit_calibration(
    paths: Paths,
    outcomes: Array,
    *,
    seed: int,
    levels: Sequence[float] = LEVELS,
    map_persons: int = MIN_MAP,
    weights: Array | None = None,
    came: Paths | None = None,
) -> Calibrator:
    """Fit maps and thresholds per horizon from raw paths (n, H, M) of calibration persons, one origin each, and their outcomes (n, H).

    `came`: paths of the persons of half A under the economy that came. Maps are learnt on them, so that what the economy of those few
    years did beyond its law is not taken for a fault of the model and repeated in every future; None: on `paths` themselves. NaN outcomes
    are left out, horizon by horizon; a horizon with none gets no cell. A map needs `map_persons` in half A: one from few persons costs more
    than it mends. Groups of `paths` have maps and thresholds of their own
    where both halves hold 1,000 of their persons, and shift the thresholds otherwise. Thresholds
    are fitted for sets from all M paths and from fewer (25, 50, 100, ...), each number with its own. Thresholds that would rest on fewer
    than 10 order statistics at or above the needed one are null: no interval. `weights` (n, H) make thresholds those of another population
    (`calibration.fit.covariate_shift`); persons are then counted by their effective number. Raises UsageError when shapes disagree, when a person
    occurs twice (the unit of exchangeability is the person), or for a level outside (0, 1).
    """
    _check(paths, outcomes, levels)
    in_a, v = halves(paths.person_id, seed), pit_uniforms(paths)
    scale = scale_of(outcomes[in_a])
    learnt, row_of = (
        (paths, np.arange(len(paths))) if came is None else (came, _rows_of(came, paths, in_a))
    )
    cells: dict[tuple[int, str], Cell] = {}
    shifts: dict[tuple[int, float], dict[str, float]] = {}
    so_far = Calibrator(cells, scale, shifts=shifts)
    for h in range(paths.n_horizons):
        known = ~np.isnan(outcomes[:, h]) & ~np.isnan(paths.earnings[:, h]).any(axis=1)
        if not known.any():
            continue
        a, b = np.flatnonzero(known & in_a), np.flatnonzero(known & ~in_a)
        w = None if weights is None else weights[:, h]
        groups = {ALL: (a, b), **_own_cells(paths, a, b, max(MIN_CELL_PERSONS, map_persons), w)}
        ordered = np.sort(paths.earnings[a, h], axis=1)
        u = np.full(len(paths), np.nan)
        u[a] = pit(
            np.sort(learnt.earnings[row_of[a], h], axis=1)[:, None, :],
            outcomes[a, h, None],
            v[a, h, None],
        )[:, 0]
        for group, (own_a, own_b) in groups.items():
            cells[h + 1, group] = Cell(
                *fit_map(u[own_a], map_persons),
                len(own_a),
                DEFAULT_ATOM_WIDTH,
                {},
                persons_of(own_b, w),
            )
        # Without a map of its own a cell is served another one's, so its thresholds are fitted behind that map.
        growth = grow(so_far.map_samples(paths.take(a), h + 1, ordered), scale)
        atom_width = choose_atom_width(growth, outcomes[a, h])
        if len(a) >= MIN_CELL_PERSONS and paths.groups:
            scores = growth.with_atom(atom_width).score(outcomes[a, h])
            labels = {name: values[a] for name, values in paths.groups.items()}
            shifts |= {(h + 1, level): fit_shifts(scores, labels, level) for level in levels}
        thresholds: dict[str, dict[tuple[int, float], float | None]] = {
            group: {} for group in groups
        }
        members = members_of(paths.groups, b)
        for count in path_counts(paths):
            # Paths are exchangeable: the first few are what a forecast with so many paths would have drawn.
            fewer = so_far.map_samples(
                paths.take(b), h + 1, np.sort(paths.earnings[b, h, :count], axis=1)
            )
            scores = grow(fewer, scale).with_atom(atom_width).score(outcomes[b, h])
            for level in levels:
                own, shifted = np.full((2, len(paths)), np.nan)
                own[b], shifted[b] = scores, scores - so_far.shift(members, h + 1, level)
                for group, (_, own_b) in groups.items():
                    asked = shifted if is_shifted(group) else own
                    thresholds[group][count, level] = published(
                        asked[own_b], level, *weighed(w, own_b)
                    )
        for group in groups:
            cells[h + 1, group] = replace(
                cells[h + 1, group], atom_width=atom_width, thresholds=thresholds[group]
            )
    return Calibrator(cells, scale=scale, shifts=shifts)


def scale_of(outcomes: Array) -> float:
    """The scale of sets, t = log(earnings + scale), from outcomes (n, H): `YEARS_OF_PAY` x their typical positive amount, to two digits.

    Where earnings are far below it t is straight in money, so that sets are the shortest in money; where they are far above, in logs.
    Typical is the geometric mean over persons of each one's own; 1 where fewer than ten persons have any, so that it is nobody's.
    """
    logs = np.where(outcomes > 0, np.log(np.where(outcomes > 0, outcomes, 1.0)), 0.0).sum(axis=1)
    years = (outcomes > 0).sum(axis=1)
    each = logs[years > 0] / years[years > 0]
    return float(f"{YEARS_OF_PAY * np.exp(each.mean()):.1e}") if len(each) >= NEIGHBOURS else 1.0


def path_counts(paths: Paths) -> list[int]:
    """The numbers of paths that thresholds are fitted for: those of COUNTS below M, and M."""
    return [*(count for count in COUNTS if count < paths.n_paths), paths.n_paths]


def published(
    scores: Array, level: float, weights: Array | None = None, heaviest: float = 1.0
) -> float | None:
    """The threshold that is stored: the average of ten order statistics, None where there are too few."""
    q = conformal_quantile(scores, level, neighbours=NEIGHBOURS, weights=weights, heaviest=heaviest)
    return q if math.isfinite(q) else None


def persons_of(rows: Rows, weights: Array | None) -> int:
    """How many persons some rows are, or with weights are in effect."""
    return len(rows) if weights is None else int(effective(weights[rows]) + 1e-9)


def weighed(weights: Array | None, rows: Rows) -> tuple[Array, float] | tuple[()]:
    """The weights of some rows, and the heaviest of all: a new person of any group weighs no more."""
    return () if weights is None else (weights[rows], float(weights.max()))


def _own_cells(
    paths: Paths, a: Rows, b: Rows, fewest: int, weights: Array | None
) -> dict[str, tuple[Rows, Rows]]:
    """The groups with cells of their own, and their rows among those of half A and of half B.

    Full records have no cell of their own beside those of poorer records: the finer cells by quintile are theirs.
    """
    found = {}
    for name in MONDRIAN:
        for label in np.unique(paths.groups[name]).tolist() if name in paths.groups else []:
            own_a, own_b = (rows[paths.groups[name][rows] == label] for rows in (a, b))
            everybody = len(own_a) == len(a) and len(own_b) == len(b)
            if (
                min(len(own_a), persons_of(own_b, weights)) >= fewest
                and not everybody
                and f"{name}={label}" != "profile=register"
            ):
                found[f"{name}={label}"] = (own_a, own_b)
    return found


def _rows_of(came: Paths, paths: Paths, in_a: NDArray[np.bool_]) -> Rows:
    """Row in `came` of each person of `paths` (n,), -1 for those of half B; UsageError where one of half A is missing."""
    rows = {person: i for i, person in enumerate(came.person_id.tolist())}
    found = np.array([rows.get(person, -1) for person in paths.person_id.tolist()], dtype=np.int64)
    missing, fix = in_a & (found < 0), "Draw them for half A and the same horizons."
    problems = []
    if missing.any():
        worst = str(paths.person_id[missing][0])
        problems.append(
            Problem(
                "came-persons",
                "Persons of half A are missing",
                fix,
                person_id=worst,
                count=int(missing.sum()),
            )
        )
    if came.n_horizons != paths.n_horizons:
        problems.append(
            Problem(
                "came-horizons",
                f"They are of {came.n_horizons} horizons, paths of {paths.n_horizons}",
                fix,
            )
        )
    if problems:
        raise UsageError("paths under the economy that came are not those of half A", problems)
    return found


def _check(paths: Paths, outcomes: Array, levels: Sequence[float]) -> None:
    paths.require_raw()
    if outcomes.shape != paths.earnings.shape[:2]:
        expected = Problem(
            "outcome-shape",
            f"outcomes are {outcomes.shape}, paths are {paths.earnings.shape[:2]}",
            "Give one outcome a horizon.",
        )
        raise UsageError("paths and outcomes disagree", [expected])
    persons, times = np.unique(paths.person_id, return_counts=True)
    if (times > 1).any():
        worst = str(persons[times > 1][0])
        twice = Problem(
            "person-twice",
            "a person has more than one origin",
            "Draw one origin a person.",
            person_id=worst,
            count=int((times > 1).sum()),
        )
        raise UsageError("calibration needs one origin a person", [twice])
    for level in levels:
        if not 0 < level < 1:
            raise UsageError(
                "a coverage is out of range",
                [
                    Problem(
                        "coverage-range", f"{level:g} is not inside (0, 1)", "Use for example 0.9."
                    )
                ],
            )
