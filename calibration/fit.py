"""Fit the conformal layer: split calibration persons in two, learn the maps on one half, the thresholds on the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from saga.calibrators import ALL, Calibrator, Cell, map_ordered
from saga.errors import Problem, UsageError
from saga.keyed import uniform_each
from saga.options import COVERAGE
from saga.panel import FLOOR
from saga.paths import Paths
from saga.scores import pit, pit_uniforms
from saga.sets import Growth, grow

Array = NDArray[np.float64]
LEVELS = COVERAGE  # what forecasts offer unasked must be calibrated
NEIGHBOURS = 10  # persons whose average stands where one person's value would
MAX_KNOTS = 200
MIN_MAP = 100  # persons a map needs; with fewer the raw forecast is better
ATOM_WIDTHS = tuple(0.01 * 2.0**j for j in range(13))
DEFAULT_ATOM_WIDTH = 0.5
COUNTS = (25, 50, 100, 200, 500, 1_000)  # numbers of paths that sets are served from
MIN_ZEROS = 50  # outcomes of zero (and of more) needed to choose the width


def rank_needed(n: int, level: float) -> int:
    """k = ceil((n + 1) level), safe against binary fractions: the order statistic that split conformal prediction uses (Vovk 2012)."""
    return math.ceil((n + 1) * level - 1e-9)


def conformal_quantile(scores: Array, level: float, *, neighbours: int = 1) -> float:
    """The k-th smallest of n scores, k = ceil((n + 1) level); +inf where there are too few.

    With `neighbours` > 1 the average of s_(k) .. s_(k + neighbours - 1), which lies at or above s_(k): coverage is kept, and no single
    person's score is published.
    """
    k = rank_needed(len(scores), level)
    if k + neighbours - 1 > len(scores):
        return math.inf
    return float(np.sort(scores)[k - 1 : k - 1 + neighbours].mean())


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
    paths: Paths, outcomes: Array, *, seed: int, levels: Sequence[float] = LEVELS, scale: float | None = FLOOR, map_persons: int = MIN_MAP
) -> Calibrator:
    """Fit maps and thresholds per horizon from raw paths (n, H, M) of calibration persons, one origin each, and their outcomes (n, H).

    NaN outcomes are left out, horizon by horizon; a horizon with none gets no cell. `scale` is the panel's floor (None: 1). A map
    needs `map_persons` in half A: one from few persons costs more than it mends. Thresholds
    are fitted for sets from all M paths and from fewer (25, 50, 100, ...), each number with its own. Thresholds that would rest on fewer
    than 10 order statistics at or above the needed one are null: no interval. Raises UsageError when shapes disagree, when a person
    occurs twice (the unit of exchangeability is the person), or for a level outside (0, 1).
    """
    _check(paths, outcomes, levels)
    scale = 1.0 if scale is None else scale
    in_a, v = halves(paths.person_id, seed), pit_uniforms(paths)
    counts = [*(count for count in COUNTS if count < paths.count), paths.count]
    cells: dict[tuple[int, str], Cell] = {}
    served = Cell(np.empty(0), np.empty(0), 0, DEFAULT_ATOM_WIDTH, {}, 0)
    for h in range(paths.horizons):
        samples, y = paths.earnings[:, h], outcomes[:, h]
        known = ~np.isnan(y) & ~np.isnan(samples).any(axis=1)
        if not known.any():
            continue
        ordered, y, a = np.sort(samples[known], axis=1), y[known], in_a[known]
        u = pit(ordered[a, None, :], y[a, None], v[known][a, h, None])[:, 0]
        knots, values = fit_map(u, map_persons)
        own = Cell(knots, values, int(a.sum()), DEFAULT_ATOM_WIDTH, {}, int((~a).sum()))
        # Without a map of its own a horizon is served that of the nearest shorter one, so its thresholds are fitted behind that map.
        served = own if own.mapped else served
        atom_width = choose_atom_width(grow(map_ordered(ordered[a], served), scale), y[a])
        thresholds: dict[tuple[int, float], float | None] = {}
        for count in counts:
            # Paths are exchangeable: the first few are what a forecast with so many paths would have drawn.
            fewer = np.sort(samples[known][~a, :count], axis=1)
            scores = grow(map_ordered(fewer, served), scale).with_atom(atom_width).score(y[~a])
            for level in levels:
                q = conformal_quantile(scores, level, neighbours=NEIGHBOURS)
                thresholds[count, level] = q if math.isfinite(q) else None
        cells[h + 1, ALL] = replace(own, atom_width=atom_width, thresholds=thresholds)
    return Calibrator(cells, scale=scale)


def _check(paths: Paths, outcomes: Array, levels: Sequence[float]) -> None:
    if outcomes.shape != paths.earnings.shape[:2]:
        expected = Problem(
            "outcome-shape", f"outcomes are {outcomes.shape}, paths are {paths.earnings.shape[:2]}", "Give one outcome a horizon."
        )
        raise UsageError("paths and outcomes disagree", [expected])
    persons, times = np.unique(paths.person_id, return_counts=True)
    if (times > 1).any():
        worst = str(persons[times > 1][0])
        twice = Problem(
            "person-twice", "a person has more than one origin", "Draw one origin a person.", person_id=worst, count=int((times > 1).sum())
        )
        raise UsageError("calibration needs one origin a person", [twice])
    for level in levels:
        if not 0 < level < 1:
            raise UsageError(
                "a coverage is out of range", [Problem("coverage-range", f"{level:g} is not inside (0, 1)", "Use for example 0.9.")]
            )
