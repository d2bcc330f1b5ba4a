"""Methods that follow yearly outcomes: each judges its intervals on the same deliveries.

*static* are the intervals of the bundle, *last year* have the threshold that last year's outcomes
needed, and *moved* are those of `saga.calibration.adaptive`. Online methods for one outcome after
the other (DtACI, conformal PID) swing when a year of outcomes arrives at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from saga.calibration.adaptive.adaptive_state import (
    BAND,
    PRESENT_VALUE,
    SPAN_KINDS,
    AdaptiveState,
    ExcessCounts,
    StateUpdater,
)
from saga.calibration.adaptive.issued_intervals import SPANS, ranks_of_outcomes
from saga.calibration.adaptive.marginal_moves import (
    LEVELS,
    adapt,
    levels_of_span,
    move_of,
    moved_levels,
)

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import FAMILIES, YEAR
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import probability_of_less
from saga.conformal.recalibration import map_paths
from saga.lifetime import present_value, realised_value
from saga.requests import RATE
from studies.delivery_forecasts import (
    FIRST_ORIGIN,
    LAST_ORIGIN,
    N_HORIZONS,
    OriginForecasts,
)

JUDGED = (1, N_HORIZONS)
LOW, HIGH = LEVELS.index(0.05), LEVELS.index(0.95)
METHODS = ("static", "last year", "moved")
SPAN_METHODS = ("static", "last year", "marginals", "moved")
PRODUCTS = ("h = 1", f"h = {N_HORIZONS}", *SPAN_KINDS)
QUINTILES = [f"quintile={k}" for k in range(1, 6)]
FOLLOWED = [*QUINTILES, ALL]


@dataclass
class Deliveries:
    """The deliveries of one future: all methods follow the same outcomes."""

    parts: dict[int, OriginForecasts]
    calibrator: Calibrator
    ranks: dict[int, Floats] = field(default_factory=dict)
    adapted: dict[int, Calibrator] = field(default_factory=dict)  # by origin
    issued: dict[tuple[int, int], Floats] = field(default_factory=dict)  # probabilities in force
    thresholds: dict[tuple[str, int, int], float] = field(default_factory=dict)
    span_scores: dict[tuple[str, str, int, int], Floats] = field(default_factory=dict)
    span_thresholds: dict[tuple[str, str, int, int], float] = field(default_factory=dict)
    unmoved_values: dict[tuple[int, int], tuple[NDArray[np.int64], Floats, Floats]] = field(
        default_factory=dict
    )

    def run(self) -> None:
        """Deliver all years."""
        for origin, part in self.parts.items():
            self.ranks[origin] = _ranks(part)
        updaters = {group: StateUpdater(LEVELS, N_HORIZONS) for group in FOLLOWED}
        state = AdaptiveState(0, {})
        for year in range(FIRST_ORIGIN, LAST_ORIGIN + 1):
            if year > FIRST_ORIGIN:
                for group, updater in updaters.items():
                    updater.update(year, self._counts(year, group))
                cells = {
                    (group, *key): cell
                    for group, updater in updaters.items()
                    for key, cell in updater.states().items()
                }
                state = AdaptiveState(year, cells)
            self.adapted[year] = adapt(self.calibrator, state)
            for h in range(1, N_HORIZONS + 1):
                self.issued[year, h] = self._in_force(year, h, state)
            for kind in SPAN_KINDS:
                self._deliver_span(year, kind, state)
            for h in JUDGED:
                if year - h in self.parts:
                    known = self.ranks[year - h][:, h - 1]
                    scores = np.abs(2 * known[~np.isnan(known)] - 1)
                    self.thresholds["last year", year, h] = float(np.quantile(scores, 0.9))

    def _deliver_span(self, year: int, kind: str, state: AdaptiveState) -> None:
        """Settle the spans that end in `year`, and issue those from it."""
        origin = year - N_HORIZONS
        if origin in self.parts:
            static = _known(self.span_scores[kind, "static", origin, N_HORIZONS])
            last_year = float(np.quantile(static, 0.9))
            self.span_thresholds[kind, "last year", year, N_HORIZONS] = last_year
        updater = StateUpdater((0.9,), N_HORIZONS)
        for earlier in range(FIRST_ORIGIN + 1, year + 1):
            updater.update(earlier, self._span_counts(kind, earlier, state))
        for years in SPANS:
            offset = updater.states()[years, 0.9].offset
            threshold = self._span_threshold(kind, years) + offset
            self.span_thresholds[kind, "moved", year, years] = threshold
            in_force = {h: self.issued[year, h] for h in range(1, years + 1)}
            score = self._band_scores if kind == BAND else self._value_scores
            self.span_scores[kind, "static", year, years] = score(year, years, None)
            self.span_scores[kind, "moved", year, years] = score(year, years, in_force)

    def _span_counts(self, kind: str, year: int, state: AdaptiveState) -> dict[int, ExcessCounts]:
        """The spans that ended in `year`, by their score under the moves of `state`."""
        counts = {}
        for years in SPANS:
            origin = year - years
            if origin not in self.parts:
                continue
            published = _known(self.span_scores[kind, "moved", origin, years])
            base = np.full((len(published), 1), self._span_threshold(kind, years))
            in_force = np.full_like(base, self.span_thresholds[kind, "moved", origin, years])
            missed = ExcessCounts.of(published[:, None], base, in_force).missed
            levels = {h: self._in_force(origin, h, state) for h in range(1, years + 1)}
            score = self._band_scores if kind == BAND else self._rescored_values
            scores = _known(score(origin, years, levels))[:, None]
            counts[years] = ExcessCounts(ExcessCounts.of(scores, base, in_force).counts, missed)
        return counts

    def _span_threshold(self, kind: str, years: int) -> float:
        family = FAMILIES["band" if kind == BAND else "present_value"]
        thresholds = self.calibrator.fitted.nested_thresholds(family, years)[0]
        return float(thresholds[self.calibrator.coverage.index(0.9)])

    def span_covered(self, kind: str, method: str, origin: int) -> Floats:
        """Whether the set of 90 % contains the next five outcomes or their present value (n,)."""
        scores = self.span_scores[kind, _published(method), origin, N_HORIZONS]
        base = self._span_threshold(kind, N_HORIZONS)
        threshold = self.span_thresholds.get((kind, method, origin, N_HORIZONS), base)
        return np.where(np.isnan(scores), np.nan, scores <= threshold)

    def _counts(self, year: int, group: str) -> dict[int, ExcessCounts]:
        counts = {}
        for h in range(1, N_HORIZONS + 1):
            part = self.parts.get(year - h)
            if part is None:
                continue
            rank = self.ranks[year - h][:, h - 1]
            rows = ~np.isnan(rank)
            if group != ALL:
                rows &= part.groups["quintile"] == group.removeprefix("quintile=")
            scores = np.tile(rank[rows, None], len(LEVELS))
            base = np.tile(LEVELS, (len(scores), 1))
            counts[h] = ExcessCounts.of(scores, base, self.issued[year - h, h][rows])
        return counts

    def _in_force(self, origin: int, horizon: int, state: AdaptiveState) -> Floats:
        in_force = moved_levels(state, horizon, FOLLOWED)
        labels, index = np.unique(self.parts[origin].groups["quintile"], return_inverse=True)
        of_label = [in_force.get(f"quintile={label}", in_force[ALL]) for label in labels.tolist()]
        return np.array(of_label)[index]

    def covered(self, method: str, origin: int, horizon: int) -> Floats:
        """Whether the 90 % interval contains the outcome (n,), NaN without an outcome."""
        rank = self.ranks[origin][:, horizon - 1]
        if method == "moved":
            ends = np.sort(self.issued[origin, horizon], axis=1)
            inside = (rank > ends[:, LOW]) & (rank <= ends[:, HIGH])
        else:
            threshold = self.thresholds.get((method, origin, horizon), 0.9)
            inside = np.abs(2 * rank - 1) <= threshold
        return np.where(np.isnan(rank), np.nan, inside)

    def width_ratio(self, origin: int, horizon: int) -> float:
        """Mean width of the moved 90 % intervals over that of the bundle's."""
        part, ends = self.parts[origin], (0.05, 0.95)
        moved, bundle = (
            np.nanmean(np.diff(marginals.at_horizon(horizon).quantiles(ends)))
            for marginals in (self.adapted[origin].recalibrate(part.raw), part.marginals)
        )
        return float(moved / bundle)

    def _band_scores(self, origin: int, years: int, in_force: dict[int, Floats] | None) -> Floats:
        """Score (n,) of the next outcomes in path bands, NaN without one of them.

        `in_force` are the levels (n, 9) of each horizon; None for the bundle's bands.
        """
        part = self.parts[origin]
        less, p_zero = part.less[:, :years].copy(), part.p_zero[:, :years].copy()
        zero = less == 0
        for h, levels in (in_force or {}).items():
            for values in (less, p_zero):
                values[:, h - 1] = _moved(values[:, h - 1], levels)
        scores = self.calibrator.band.rank_scores(np.where(zero, 0.0, less), p_zero, 0.9)
        return np.asarray(np.max(scores, axis=1))  # NaN stays NaN

    def _value_scores(self, origin: int, years: int, in_force: dict[int, Floats] | None) -> Floats:
        """Score (n,) of the realised present value, NaN if it is unknown or without paths."""
        rows, less, p_zero = self._value_ranks(origin, years, is_moved=in_force is not None)
        scores = np.full(len(self.parts[origin].less), np.nan)
        scores[rows] = YEAR.rank_scores(less, p_zero, 0.9)
        return scores

    def _rescored_values(self, origin: int, years: int, in_force: dict[int, Floats]) -> Floats:
        """Scores (n,) under moves, from the ranks before them, as the ledger computes them."""
        key = origin, years
        if key not in self.unmoved_values:
            self.unmoved_values[key] = self._value_ranks(origin, years, is_moved=False)
        rows, less, p_zero = self.unmoved_values[key]
        of_years = np.stack([in_force[h][rows] for h in range(1, years + 1)], axis=1)
        distinct, index = np.unique(of_years, axis=0, return_inverse=True)
        mean = np.array([levels_of_span(PRESENT_VALUE, list(levels))[0] for levels in distinct])
        levels = mean[index.ravel()]
        scores = np.full(len(self.parts[origin].less), np.nan)
        scores[rows] = YEAR.rank_scores(_moved(less, levels), _moved(p_zero, levels), 0.9)
        return scores

    def _value_ranks(
        self, origin: int, years: int, *, is_moved: bool
    ) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Rows of the persons whose present value is known, its probability of less, and of zero.

        The paths are those of the bundle, or mapped to the moved marginals.
        """
        part = self.parts[origin]
        marginals = self.adapted[origin].recalibrate(part.raw) if is_moved else part.marginals
        value = realised_value(part.outcomes[part.simulated][:, :years])
        simulated = ~np.isnan(part.paths.earnings[:, :years]).any(axis=(1, 2))
        index = np.flatnonzero(~np.isnan(value) & simulated)
        rows = part.simulated[index]
        paths = map_paths(part.paths.take(index), marginals.take(rows))
        of_years = partial(present_value, rate=RATE, years=years)
        distribution = SimulatedValues.of(paths, of_years).distribution
        less = probability_of_less(distribution, value[index, None])[:, 0]
        return rows, less, distribution.p_zero[:, 0].astype(np.float64)


def _known(scores: Floats) -> Floats:
    return scores[~np.isnan(scores)]


def _published(method: str) -> str:
    return "moved" if method in ("marginals", "moved") else "static"


def _ranks(part: OriginForecasts) -> Floats:
    ranks = [
        ranks_of_outcomes(less, zero)
        for less, zero in zip(part.less.T, np.nan_to_num(part.p_zero).T, strict=True)
    ]
    return np.where(np.isnan(part.less), np.nan, np.stack(ranks, axis=1))


def _moved(values: Floats, issued: Floats) -> Floats:
    result = np.empty(len(values))
    in_force, index = np.unique(issued, axis=0, return_inverse=True)
    for i, levels in enumerate(in_force):
        rows = index.ravel() == i
        result[rows] = np.interp(values[rows], *move_of(levels))
    return result
