"""Path bands and present values that were issued, stored so that they can be judged.

A *span* is a band or a present value over the K years after an origin. Its score is that of
`saga.conformal.families.path_band` or `present_value` in the published forecast: the
smallest threshold whose set contains the outcomes. The thresholds of all persons follow the scores;
`AdaptiveState` has their cells under the kind in place of a group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import BAND, PRESENT_VALUE, AdaptiveState
from saga.calibration.adaptive.issued_intervals import pack_marginals, unpack_marginals
from saga.calibration.adaptive.ledger_tables import pack_thresholds
from saga.calibration.adaptive.marginal_moves import (
    LEVELS,
    followed_groups,
    mean_levels,
    move_of,
    moved_levels,
)

from saga.conformal.calibrator import Calibrator
from saga.conformal.families import YEAR
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import probability_of_less
from saga.distributions import Marginals
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.person_forecasts import PersonForecasts
from saga.requests import COVERAGE
from saga.schema import MAX_AGE

Array = NDArray[np.float64]
SPANS = (2, 5)  # default numbers of years that deliveries issue bands and present values about


@dataclass(frozen=True, eq=False)
class IssuedSpans:
    """Issued bands or present values of r persons over `years` years, for L = 4 coverages.

    `base` (L,) are the split thresholds and `issued` (L,) those in force, each by itself, NaN if
    the bundle has none. `forecasts` are packed distributions, one per person. `scales` are the
    knots and values of the band scale by horizon, for bands only. `cells` (r,) name the cells whose
    moves the years have, as `cells_of_text` reads them. `levels` are the probabilities in force:
    of a band (r, years, 9) those of each year, of a present value (r, 1, 9) the mean of the moves.
    """

    kind: str
    years: int
    person_id: NDArray[np.str_]
    origin_year: NDArray[np.int64]
    base: Array
    issued: Array
    forecasts: tuple[bytes, ...]
    scales: Mapping[int, tuple[Array, Array]]
    cells: tuple[str, ...]
    levels: Array

    def __len__(self) -> int:
        return len(self.person_id)

    def entries(self, rows: range) -> list[dict[str, Any]]:
        """Columns of the table of issued intervals, for some of the persons."""
        base, issued = pack_thresholds(self.base), pack_thresholds(self.issued)
        return [
            {
                "origin_year": int(self.origin_year[row]),
                "family": self.kind,
                "horizon": self.years,
                "group": self.kind,
                "base": base,
                "issued": issued,
                "distribution": self.forecasts[row],
                "cells": self.cells[row],
                "levels": pack_thresholds(self.levels[row]),
            }
            for row in rows
        ]


def collect_bands(
    marginals: Marginals, split: Calibrator, state: AdaptiveState, years: int
) -> IssuedSpans:
    """The bands over `years` that recalibrated `marginals` give under a state.

    `split` is the calibrator before the state moved it.
    """
    marginals.require_recalibrated()
    known = marginals.take(_reach(marginals, years))
    by_year = [pack_marginals(known.at_horizon(h)) for h in range(1, years + 1)]
    packed = tuple(b"".join(of_person) for of_person in zip(*by_year, strict=True))
    scales = {h: split.band.scale(h) for h in range(1, years + 1)}
    return _issue(BAND, years, known, split, state, packed, scales)


def _moves_of_years(
    kind: str, forecasts: PersonForecasts, split: Calibrator, state: AdaptiveState, years: int
) -> tuple[tuple[str, ...], Array]:
    """`cells` and `levels` of `IssuedSpans`."""
    text = np.full(len(forecasts), "", dtype=object)
    levels = np.empty((len(forecasts), years if kind == BAND else 1, len(LEVELS)))
    in_force = {h: moved_levels(state, h, followed_groups(split, h)) for h in range(1, years + 1)}
    for groups, rows in split.fitted.candidate_cells(forecasts):
        cells = [split.fitted.moved_cell(h, groups) for h in range(1, years + 1)]
        text[rows] = json.dumps(cells)
        of_years = [None if cell is None else in_force[cell[0]][cell[1]] for cell in cells]
        levels[rows] = levels_of_span(kind, of_years)
    return tuple(text.tolist()), levels


def levels_of_span(kind: str, of_years: Sequence[Array | None]) -> Array:
    """The probabilities in force of a span, from those of its years (9,), None without a move.

    Of a band they are those of the years, (K, 9). A present value has one distribution, which
    moves by the mean of the years' moves, (1, 9).
    """
    levels = np.stack([np.asarray(LEVELS) if year is None else year for year in of_years])
    return levels if kind == BAND else mean_levels(levels)[None]


def cells_of_text(text: str) -> list[tuple[int, str] | None]:
    """The cell, horizon and group, whose move each year of a span has; None without one."""
    return [None if cell is None else (int(cell[0]), str(cell[1])) for cell in json.loads(text)]


def collect_values(
    paths: Paths, split: Calibrator, state: AdaptiveState, years: int
) -> IssuedSpans:
    """The present values of the next `years` that recalibrated `paths` give under a state."""
    paths.require_recalibrated()
    known = paths.take(_reach(paths, years))
    values = SimulatedValues.of(known, lambda p: present_value(p, years=years))
    packed = tuple(pack_marginals(values.distribution)) if len(known) else ()
    return _issue(PRESENT_VALUE, years, known, split, state, packed, {})


def collect_lifetimes(
    paths: Paths, split: Calibrator, state: AdaptiveState, to_age: int
) -> list[IssuedSpans]:
    """The present values until `to_age`, one object for each number of years left."""
    years_left = to_age - (paths.origin_year - paths.birth_year)
    return [
        collect_values(paths.take(years_left == years), split, state, years)
        for years in np.unique(years_left[years_left > 0]).tolist()
    ]


def _reach(forecasts: PersonForecasts, years: int) -> NDArray[np.bool_]:
    """The persons who are at most 64 in all of the years."""
    return np.asarray(forecasts.origin_year - forecasts.birth_year + years <= MAX_AGE)


def _issue(
    kind: str,
    years: int,
    forecasts: PersonForecasts,
    split: Calibrator,
    state: AdaptiveState,
    packed: tuple[bytes, ...],
    scales: Mapping[int, tuple[Array, Array]],
) -> IssuedSpans:
    fitted = split.thresholds_of_kind.get((kind, years))
    known = fitted.thresholds if fitted else {}
    base = np.array([known.get(share) for share in COVERAGE], dtype=np.float64)
    base = np.where(base < 1, base, np.nan)
    if np.isnan(base).all():  # no outcome could judge them
        forecasts, packed = forecasts.take(slice(0)), ()
    offset = np.array([state.offset(kind, years, share) for share in COVERAGE])
    cells, levels = _moves_of_years(kind, forecasts, split, state, years)
    return IssuedSpans(
        kind,
        years,
        forecasts.person_id,
        forecasts.origin_year.astype(np.int64),
        base,
        base + offset,
        packed,
        scales,
        cells,
        levels,
    )


def judge_value(packed: bytes, amounts: Array) -> Array:
    """Probability of a smaller present value than that of outcomes (K,), and that of zero.

    They are the `ranks` (1, 2) of a present value.
    """
    (_, marginals), *_ = unpack_marginals([packed])
    realised = realised_value(amounts[None])[:, None]
    less = probability_of_less(marginals, realised)
    return np.stack([less[:, 0], marginals.p_zero[:, 0].astype(np.float64)], axis=1)


def judge_band(packed: bytes, amounts: Array) -> Array:
    """Probability of less than each outcome (K,), and that of zero: `ranks` (K, 2) of a band."""
    size = len(packed) // len(amounts)
    by_year = [packed[start : start + size] for start in range(0, len(packed), size)]
    (_, marginals), *_ = unpack_marginals(by_year)
    less = probability_of_less(marginals, amounts[:, None])[:, 0]
    return np.stack([less, marginals.p_zero[:, 0].astype(np.float64)], axis=1)


def band_scores_of(ranks: Array, scales: Mapping[int, tuple[Array, Array]]) -> Array:
    """Scores (n,) of bands with `ranks` (n, K, 2): the largest of the years."""
    less, p_zero = ranks[..., 0], ranks[..., 1]
    central = np.where(less == 0, np.maximum(1 - 2 * p_zero, 0.0), np.abs(2 * less - 1))
    on_scale = [np.interp(central[:, k], *scales[k + 1]) for k in range(ranks.shape[1])]
    return np.asarray(np.max(on_scale, axis=0))


def unmoved(ranks: Array, levels: Array) -> Array:
    """The `ranks` (n, K, 2) of spans before the moves that `levels` (K, 9) describe."""
    maps = [move_of(in_force) for in_force in levels]
    return np.stack(
        [np.interp(ranks[:, k], values, knots) for k, (knots, values) in enumerate(maps)], axis=1
    )


def moved(ranks: Array, levels: Array) -> Array:
    """The `ranks` (n, K, 2) of spans after the moves to `levels` (K, 9)."""
    return np.stack(
        [np.interp(ranks[:, k], *move_of(in_force)) for k, in_force in enumerate(levels)], axis=1
    )


def span_scores(kind: str, probability: Array, p_zero: Array) -> Array:
    """Scores (n, L) for each of COVERAGE, from what the log has of n spans."""
    if kind == BAND:
        return np.tile(probability[:, None], len(COVERAGE))
    return np.stack([YEAR.rank_scores(probability, p_zero, share) for share in COVERAGE], axis=1)
