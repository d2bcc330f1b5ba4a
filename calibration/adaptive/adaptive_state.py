"""The adaptive state: offsets that yearly outcomes add to the levels of forecasts.

Everything in this module is a pure function of counts. Counts are added in any order, so the same
outcomes always give the same state, bit for bit.

An outcome has a *score* s in [0, 1] for each coverage: the smallest threshold whose set contains
it. Here the sets are upper limits: the score is the rank of the outcome in the bundle's forecast,
and the *base* q is the coverage itself (`adaptive.marginal_moves`). The *offset* o is
added to q. The *excess* e = s - q is the smallest offset that would have covered the outcome: a
limit issued with offset o misses if e > o. *Experts* are simple rules that propose offsets.

Nothing is clipped to [0, 1]. At 1 or above nothing counts as missed, and below 0 everything does.
The methods and proofs are in docs/method/adaptive.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import rank_needed

from saga.arrays import Floats
from saga.requests import MAX_HORIZON
from saga.small_groups import MIN_PERSONS

Counts = NDArray[np.int64]
CellKey = tuple[str, int, float]  # (group, horizon, coverage)

# Path bands and present values over K years have cells with these names in place of a group, and K
# in place of the horizon.
YEAR, BAND, PRESENT_VALUE = "year", "band", "present_value"  # families of intervals
SPAN_KINDS = (BAND, PRESENT_VALUE)
MAX_THRESHOLD = 1.0  # a threshold that reaches this contains all outcomes
N_BINS = 4096
# An excess is rounded up to the upper edge of its bin.
BIN_EDGES = np.linspace(-MAX_THRESHOLD, MAX_THRESHOLD, N_BINS + 1)[1:]
FULL_WEIGHT_PERSONS = 300  # a year with n < 300 persons has weight n / 300
MAX_SHORT_HORIZON = 5  # the shared drift is that of horizons up to this one
MAX_DEVIATION = 0.5  # between an offset and the guarded one, step x integral of the misses
# Additional pinball loss that divides an expert's weight by e. An offset that is wrong by three
# points of coverage has this loss in one year, if scores have density one.
LOSS_PER_NAT = 0.03**2 / 2
# Share of the weights that is spread over all experts each year (Herbster and Warmuth 1998).
SHARED_WEIGHT = 0.05
TRACKING_RATES = (0.5, 1.0, 2.0)  # steps of the tracking experts, in stable steps
EXPERTS = ("static", *(f"track x{rate:g}" for rate in TRACKING_RATES), "last year", "shared drift")
_LAST_YEAR, _SHARED_DRIFT = len(TRACKING_RATES) + 1, len(TRACKING_RATES) + 2


def stable_step(horizon: int) -> float:
    """A quarter of the largest step that is stable if outcomes arrive a year late.

    An integrator whose feedback is `horizon` + 1 years old is stable below
    k = 2 sin(pi / (2 (2 h + 1))) at density one (Levin and May 1976). The step is k / 4; the margin
    is for scores that are denser.
    """
    return math.sin(math.pi / (2 * (2 * horizon + 1))) / 2


@dataclass(frozen=True, eq=False)
class ExcessCounts:
    """Settled intervals of one cell and one outcome year, for L coverages.

    `counts` (L, N_BINS) are persons by excess; `missed` (L,) are issued thresholds below the score
    of the outcome.
    """

    counts: Counts
    missed: Counts

    @classmethod
    def of(cls, scores: Floats, base: Floats, issued: Floats) -> ExcessCounts:
        """Count conformity `scores` against split thresholds `base` and `issued` ones, all (n, L).

        Thresholds are NaN if no interval was issued.
        """
        is_issued = ~np.isnan(base)
        excess = np.where(is_issued, scores - base, 0.0)
        bins = np.ceil((excess + MAX_THRESHOLD) * (N_BINS / (2 * MAX_THRESHOLD))).astype(np.int64)
        columns = zip(np.clip(bins - 1, 0, N_BINS - 1).T, is_issued.T, strict=True)
        counts = np.stack([np.bincount(bin_[rows], minlength=N_BINS) for bin_, rows in columns])
        return cls(counts, ((scores > issued) & is_issued).sum(axis=0))

    def __add__(self, other: ExcessCounts) -> ExcessCounts:
        return ExcessCounts(self.counts + other.counts, self.missed + other.missed)

    def __neg__(self) -> ExcessCounts:
        """Counts that take these back when they are added."""
        return ExcessCounts(-self.counts, -self.missed)

    @property
    def persons(self) -> Counts:
        """Number of settled intervals, (L,)."""
        return np.asarray(self.counts.sum(axis=1))


@dataclass(frozen=True)
class CellState:
    """State of one cell and coverage.

    Attributes:
        offset: Is added to the threshold of intervals that are issued next.
        integral: Weighted sum over years of (share missed - nominal share).
        weight: Sum of the years' weights.
        persons: Number of settled intervals.
        missed: Number of settled intervals that did not contain the outcome.
        last_year: Last year with an outcome.
        experts: Weights of the experts, in the order of EXPERTS; 0 before an expert is in use.
    """

    offset: float
    integral: float
    weight: float
    persons: int
    missed: int
    last_year: int | None
    experts: tuple[float, ...]


@dataclass(frozen=True)
class AdaptiveState:
    """The states of all cells of one bundle, keyed (group, horizon, coverage).

    `version` counts the deliveries of outcomes that changed the state.
    """

    version: int
    cells: Mapping[CellKey, CellState]

    @property
    def through(self) -> int | None:
        """The last year with an outcome."""
        years = [cell.last_year for cell in self.cells.values() if cell.last_year is not None]
        return max(years, default=None)

    @property
    def digest(self) -> str:
        """SHA-256 over the exact values."""
        rows = [f"{key!r} {astuple(cell)!r}" for key, cell in sorted(self.cells.items())]
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def identity(self) -> dict[str, Any]:
        """The state in provenance; the digest is None before the first outcome."""
        digest = self.digest if self.cells else None
        return {"version": self.version, "through": self.through, "digest": digest}

    def offset(self, group: str, horizon: int, coverage: float) -> float:
        """What to add to the split thresholds of a cell; 0 for a cell without a state."""
        cell = self.cells.get((group, horizon, coverage))
        return 0.0 if cell is None else cell.offset


class StateUpdater:
    """Computes the states of one group, horizons 1 to `max_horizon`, year by year."""

    def __init__(self, coverage: Sequence[float], max_horizon: int = MAX_HORIZON) -> None:
        self._coverage = tuple(coverage)
        self._cells = {h: _CellUpdater(h, np.asarray(coverage)) for h in range(1, max_horizon + 1)}

    def update(self, year: int, counts: Mapping[int, ExcessCounts]) -> None:
        """Add the outcomes of `year`, by horizon; for each year once, in order, without gaps.

        An interval for year Y at horizon h was issued in Y - h, so the experts are judged by the
        offsets that they proposed then.
        """
        short_horizons: list[tuple[Floats, Floats]] = []
        for h, cell_counts in sorted(counts.items()):
            weight, needed = self._cells[h].update(year, cell_counts)
            if h <= MAX_SHORT_HORIZON and np.isfinite(needed).all():
                short_horizons.append((weight, needed))
        drift = _shared_drift(short_horizons)
        for cell in self._cells.values():
            cell.close_year(year, drift)

    def states(self) -> dict[tuple[int, float], CellState]:
        """(Horizon, coverage) -> state, for the intervals that are issued next."""
        return {
            (h, coverage): cell.state(j)
            for h, cell in self._cells.items()
            for j, coverage in enumerate(self._coverage)
        }


def compute_states(
    coverage: Sequence[float], counts: Mapping[tuple[int, int], ExcessCounts]
) -> dict[tuple[int, float], CellState]:
    """The states of one group after all its `counts`, keyed (horizon, outcome year)."""
    if not counts:
        return {}
    years = sorted({year for _, year in counts})
    updater = StateUpdater(coverage)
    for year in range(years[0], years[-1] + 1):
        updater.update(year, {h: cell for (h, y), cell in counts.items() if y == year})
    return updater.states()


def _shared_drift(short_horizons: list[tuple[Floats, Floats]]) -> Floats | None:
    """The drift that short horizons share, (L,), from the weight and the offset needed of each.

    The mean of the offsets is shrunk to zero as far as the horizons disagree (positive-part
    shrinkage, Morris 1983). None for fewer than two horizons.
    """
    if len(short_horizons) < 2:
        return None
    weight, needed = (np.stack(arrays) for arrays in zip(*short_horizons, strict=True))
    mean = (weight * needed).sum(axis=0) / weight.sum(axis=0)
    error = (weight * (needed - mean) ** 2).sum(axis=0) / weight.sum(axis=0) / (len(needed) - 1)
    return np.asarray(mean * np.maximum(0.0, 1 - error / np.maximum(mean**2, 1e-300)))


class _CellUpdater:
    """Computes the states of one horizon; arrays are (experts, L) or (L,)."""

    def __init__(self, horizon: int, coverage: Floats) -> None:
        self.horizon, self.coverage, self.nominal_share = horizon, coverage, 1 - coverage
        self.step = stable_step(horizon)
        self.offsets = np.zeros((len(EXPERTS), len(coverage)))
        self.log_weight = np.zeros((len(EXPERTS), len(coverage)))
        self.offsets_of_year: dict[int, Floats] = {}
        self.integral = np.zeros(len(coverage))
        self.weight = np.zeros(len(coverage))
        self.persons: Counts = np.zeros(len(coverage), dtype=np.int64)
        self.missed: Counts = np.zeros(len(coverage), dtype=np.int64)
        self.last_year: list[int | None] = [None] * len(coverage)

    def update(self, year: int, counts: ExcessCounts) -> tuple[Floats, Floats]:
        """Update the weights and offsets of the experts and the sums with the outcomes of a year.

        Returns the weight of the year and the offset that would have given each coverage, each
        (L,). The offset is NaN if the year has too few persons.
        """
        issued_offsets = self.offsets_of_year.get(year - self.horizon, np.zeros_like(self.offsets))
        has_outcomes, persons = counts.persons > 0, np.maximum(counts.persons, 1)
        weight = np.minimum(1.0, counts.persons / FULL_WEIGHT_PERSONS)
        covered, loss = _coverage_and_loss(
            issued_offsets, counts.counts / persons[:, None], self.coverage
        )
        log_weight = self.log_weight - weight * (loss - loss.min(axis=0)) / LOSS_PER_NAT
        self.log_weight = np.where(has_outcomes, np.log(_mixed(log_weight)), self.log_weight)
        for k, rate in enumerate(TRACKING_RATES, start=1):
            self.offsets[k] += rate * self.step * weight * (1 - covered[k] - self.nominal_share)
        needed = np.array(
            [_offset_needed(row, c) for row, c in zip(counts.counts, self.coverage, strict=True)]
        )
        self.offsets[_LAST_YEAR] = np.where(
            np.isfinite(needed), weight * needed, self.offsets[_LAST_YEAR]
        )
        self.integral += weight * (counts.missed / persons - self.nominal_share)
        self.weight += weight
        self.persons += counts.persons
        self.missed += counts.missed
        self.last_year = [
            year if has_new else last
            for has_new, last in zip(has_outcomes, self.last_year, strict=True)
        ]
        return weight, needed

    def close_year(self, year: int, drift: Floats | None) -> None:
        """Store the offsets of the experts for the intervals that are issued in this year."""
        if drift is not None:
            self.offsets[_SHARED_DRIFT] = drift
        self.offsets_of_year[year] = self.offsets.copy()

    def weights(self) -> Floats:
        """Weights of the experts, (experts, L).

        Before the cell has outcomes, only the static expert and the shared drift are in use.
        """
        in_use = np.ones(self.offsets.shape, dtype=np.bool_)
        in_use[1:_SHARED_DRIFT] = [year is not None for year in self.last_year]
        return _softmax(np.where(in_use, self.log_weight, -np.inf))

    def state(self, j: int) -> CellState:
        weights = self.weights()[:, j]
        mean_offset = float(weights @ self.offsets[:, j])
        guarded = self.step * float(self.integral[j])
        return CellState(
            offset=min(max(mean_offset, guarded - MAX_DEVIATION), guarded + MAX_DEVIATION),
            integral=float(self.integral[j]),
            weight=float(self.weight[j]),
            persons=int(self.persons[j]),
            missed=int(self.missed[j]),
            last_year=self.last_year[j],
            experts=tuple(float(w) for w in weights),
        )


def _coverage_and_loss(offsets: Floats, share: Floats, coverage: Floats) -> tuple[Floats, Floats]:
    """The share covered and the mean pinball loss, each (experts, L).

    `offsets` (experts, L); `share` (L, N_BINS) of persons by excess.
    """
    start = np.zeros((len(coverage), 1))
    covered = np.concatenate([start, np.cumsum(share, axis=1)], axis=1)
    moment = np.concatenate([start, np.cumsum(share * BIN_EDGES, axis=1)], axis=1)
    bins = np.searchsorted(BIN_EDGES, offsets, side="right")
    column = np.arange(len(coverage))
    share_below, moment_below = covered[column, bins], moment[column, bins]
    loss = coverage * (moment[:, -1] - offsets) + offsets * share_below - moment_below
    return share_below, loss


def _offset_needed(counts: Counts, coverage: float) -> float:
    """The offset at the conformal rank of a year's excesses, averaged over 10 neighbours.

    NaN if there are too few persons.
    """
    rank, cumulative = rank_needed(int(counts.sum()), coverage), np.cumsum(counts)
    if rank + MIN_PERSONS - 1 > cumulative[-1]:
        return math.nan
    ranks = np.arange(rank, rank + MIN_PERSONS)
    return float(BIN_EDGES[np.searchsorted(cumulative, ranks)].mean())


def _mixed(log_weight: Floats) -> Floats:
    """Weights of which a share is spread over all experts, so that each can recover."""
    return (1 - SHARED_WEIGHT) * _softmax(log_weight) + SHARED_WEIGHT / len(EXPERTS)


def _softmax(logs: Floats) -> Floats:
    exponentials = np.exp(logs - logs.max(axis=0))
    return np.asarray(exponentials / exponentials.sum(axis=0))
