"""How the adaptive state moves the marginals: one map of probabilities per cell.

The state has an offset for each of LEVELS. A share t of the outcomes of a cell should lie below the
forecast's quantile of t; after outcomes have shown otherwise, the quantile of t + offset is used in
its place. The map takes each t + offset to t, is linear in between and applies after the map of the
calibration. So quantiles, sets, limits, bands, paths and present values all follow.

Groups are pooled: their offsets are drawn to those of all persons as far as their differences can
be sampling error. The methods are in docs/method/adaptive.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from saga.calibration.adaptive.adaptive_state import (
    MAX_DEVIATION,
    PRESENT_VALUE,
    SPAN_KINDS,
    AdaptiveState,
    CellState,
    stable_step,
)

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator

# Probabilities whose quantiles are followed. Central sets of 50, 80, 90 and 95 % lie between them.
LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_MAX_THRESHOLD = 0.999  # a threshold of 1 has no finite set
_APART = 1e-9  # smallest distance of two knots
_MIN_GROUPS = 2


def moved_levels(state: AdaptiveState, horizon: int, groups: Sequence[str]) -> dict[str, Floats]:
    """Group -> the probabilities (9,) in force for LEVELS, each level by itself.

    They are the level plus its pooled offset, neither ordered nor limited to [0, 1]. A group whose
    cell has no outcomes yet follows the cell of all persons.
    """
    of_all = _cells(state, ALL, horizon)
    pooled = np.zeros(len(LEVELS)) if of_all is None else _offsets(of_all)
    cells = {group: _cells(state, group, horizon) for group in groups if group != ALL}
    known = {group: cell for group, cell in cells.items() if cell is not None}
    weight = _weight_of_groups(list(known.values()))
    moved = {}
    for group in groups:
        cell = known.get(group)
        offset = pooled
        if cell is not None:
            offset = pooled + weight * (_offsets(cell) - pooled)
            guarded = stable_step(horizon) * np.array([level.integral for level in cell])
            offset = np.clip(offset, guarded - MAX_DEVIATION, guarded + MAX_DEVIATION)
        moved[group] = np.asarray(LEVELS) + offset
    return moved


def move_of(levels: Floats) -> tuple[Floats, Floats]:
    """Knots and values (11,) of the map that takes the probabilities in force to LEVELS.

    Crossed probabilities are put in order (Chernozhukov, Fernández-Val and Galichon 2010), and
    limited to [0, 1].
    """
    ordered = np.sort(levels)
    for k in range(len(ordered)):
        ordered[k] = max(ordered[k], (ordered[k - 1] if k else 0.0) + _APART)
    for k in range(len(ordered), 0, -1):
        ordered[k - 1] = min(ordered[k - 1], (ordered[k] if k < len(ordered) else 1.0) - _APART)
    return np.concatenate([[0.0], ordered, [1.0]]), np.concatenate([[0.0], LEVELS, [1.0]])


def mean_levels(levels: Floats) -> Floats:
    """The probabilities in force (9,) of the mean of the moves that `levels` (K, 9) describe.

    A sum of K years moves like this if a person has the same rank in all years. The quantile of p
    of the sum is then the sum of the years' quantiles of p. The result is exact if the years move
    alike, and holds to first order if they are equally spread.
    """
    maps = [move_of(in_force) for in_force in levels]
    knots = np.unique(np.concatenate([knots for knots, _ in maps]))
    mean = np.mean([np.interp(knots, *of_year) for of_year in maps], axis=0)
    in_force: Floats = np.interp(LEVELS, mean, knots)
    return in_force


def levels_of_span(family: str, of_years: Sequence[Floats | None]) -> Floats:
    """The probabilities in force of what is issued, from those of its years (9,) or None.

    Of a band they are those of the years, (K, 9), of a single year (1, 9). A present value has one
    distribution, which moves by the mean of the years' moves, (1, 9).
    """
    levels = np.stack([np.asarray(LEVELS) if year is None else year for year in of_years])
    return mean_levels(levels)[None] if family == PRESENT_VALUE else levels


def moved(ranks: Floats, levels: Floats) -> Floats:
    """`ranks` (n, K, ...) of K years after the moves to `levels` (K, 9)."""
    years = [np.interp(ranks[:, k], *move_of(in_force)) for k, in_force in enumerate(levels)]
    return np.stack(years, axis=1)


def unmoved(ranks: Floats, levels: Floats) -> Floats:
    """The `ranks` (n, K, ...) of K years before the moves that `levels` (K, 9) describe."""
    years = [np.interp(ranks[:, k], *move_of(in_force)[::-1]) for k, in_force in enumerate(levels)]
    return np.stack(years, axis=1)


def adapt(calibrator: Calibrator, state: AdaptiveState) -> Calibrator:
    """The calibrator with the moves and thresholds of the state.

    The same object for a state without cells.
    """
    if not state.cells:
        return calibrator
    thresholds = {
        (kind, years): replace(
            fitted,
            thresholds={
                share: _moved_threshold(q, state.offset(kind, years, share))
                for share, q in fitted.thresholds.items()
            },
        )
        if kind in SPAN_KINDS
        else fitted
        for (kind, years), fitted in calibrator.thresholds_of_kind.items()
    }
    moves: dict[tuple[int, str], tuple[Floats, Floats]] = {}
    for horizon in sorted({h for h, _ in calibrator.cells}):
        levels = moved_levels(state, horizon, followed_groups(calibrator, horizon))
        moves |= {(horizon, group): move_of(of_group) for group, of_group in levels.items()}
    return replace(calibrator, moves=moves, thresholds_of_kind=thresholds)


def _moved_threshold(q: float | None, offset: float) -> float | None:
    """A threshold of bands or present values plus its offset; the set stays finite."""
    if q is None or q >= 1:
        return q
    return min(max(q + offset, 0.0), max(q, _MAX_THRESHOLD))


def followed_groups(calibrator: Calibrator, horizon: int) -> list[str]:
    """The groups whose cells have thresholds at a horizon, so that outcomes move them."""
    return [
        group
        for h, group in calibrator.cells
        if h == horizon and calibrator.fitted.threshold_group(h, [group]) is not None
    ]


def _cells(state: AdaptiveState, group: str, horizon: int) -> list[CellState] | None:
    cells = [state.cells.get((group, horizon, level)) for level in LEVELS]
    known = [cell for cell in cells if cell is not None]
    return known if len(known) == len(LEVELS) else None


def _offsets(cells: list[CellState]) -> Floats:
    return np.array([cell.offset for cell in cells])


def _weight_of_groups(cells: list[list[CellState]]) -> float:
    """Share of the groups' differences that is not sampling error (Morris 1983), over all levels.

    0 for fewer than two groups, or if the differences are as small as sampling error makes them.
    """
    if len(cells) < _MIN_GROUPS:
        return 0.0
    offsets = np.stack([_offsets(of_group) for of_group in cells])
    persons = np.array(
        [[max(c.persons, 1) / max(c.weight, 1.0) for c in of_group] for of_group in cells]
    )
    level = np.asarray(LEVELS)
    sampling = (level * (1 - level) / persons).mean(axis=0).sum()
    between = offsets.var(axis=0, ddof=1).sum()
    return float(max(0.0, 1 - sampling / between)) if between > 0 else 0.0
