"""The adaptive layer: yearly outcomes move the thresholds of the sets, with steps that stay stable however late outcomes are.

Everything here is a pure function of tallies, which are counts: how far each settled promise fell short of, or exceeded, the threshold of
the split layer. Counts add up in any order, so whoever counts the same outcomes gets the same state, bit for bit.

*Score* s: the mass that a nested set holds when the outcome joins (`saga.conformal.prediction_sets`). *Base* q: the split threshold. *Offset*: what the
adaptive layer adds to q. *Excess* e = s - q: the smallest offset that would have covered this outcome. A promise with offset o is missed
where e > o. Nothing is ever clipped to [0, 1]: a threshold of 2 (a log unit beyond the samples) or more is made infinite,
the set of everything; below 0 it is the empty set. See docs/method/adaptive.md for the proofs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.split_conformal import NEIGHBOURS, rank_needed
from saga.conformal.calibrator import Calibrator
from saga.options import MAX_HORIZON

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

MAX_THRESHOLD = 2.0  # a threshold that reaches this, a log unit beyond the samples, becomes infinite: the set holds all, and nothing is missed
BINS = 4096
UPPER = np.linspace(-MAX_THRESHOLD, MAX_THRESHOLD, BINS + 1)[
    1:
]  # an excess counts as the upper edge of its bin: rounded outward
FULL_WEIGHT_PERSONS = (
    300  # persons from which on a year counts fully; fewer move the state in proportion
)
SHORT = (
    5  # horizons up to this one tell the others of drift that their own outcomes cannot show yet
)
LEASH = 0.5  # how far the experts may take an offset from the guarded one
NAT = (
    0.03**2 / 2
)  # pinball loss that costs an expert one nat: three points of coverage for a year, at density one
SHARE = (
    0.05  # weight spread anew each year (Herbster and Warmuth 1998), so that no expert is forgotten
)
RATES = (0.5, 1.0, 2.0)  # tracking experts, in units of the stable step
EXPERTS = ("static", *(f"track x{rate:g}" for rate in RATES), "last year", "shared drift")
_STATIC, _LAST, _SHARED = 0, len(RATES) + 1, len(RATES) + 2


def stable_step(horizon: int) -> float:
    """A quarter of the largest step at which an integrator with delay `horizon` does not oscillate (Levin and May 1976), at density one:
    k / 4 with k = 2 sin(pi / (2 (2 h + 1))). A factor of two is left for outcomes that come a year late or scores twice as dense."""
    return math.sin(math.pi / (2 * (2 * horizon + 1))) / 2


def error_bound(horizon: int, position: int) -> float:
    """The most by which the weighted misses of a cell can ever differ from what was promised, summed over years, whatever happens.

    `position` counts the level among the levels, ascending, from 0: levels are kept nested, which costs the higher ones.
    """
    return (MAX_THRESHOLD + LEASH + 2 * position * (LEASH + MAX_THRESHOLD / 2)) / stable_step(
        horizon
    ) + horizon * (1 + position)


@dataclass(frozen=True, eq=False)
class ExcessCounts:
    """What became of the promises of one cell and one outcome year: persons by excess, `counts` (L, BINS), and `missed` (L,) of the
    sets that were issued, for the L levels."""

    counts: Counts
    missed: Counts

    @classmethod
    def empty(cls, levels: int) -> ExcessCounts:
        """Nothing settled yet."""
        return cls(np.zeros((levels, BINS), dtype=np.int64), np.zeros(levels, dtype=np.int64))

    @classmethod
    def of(cls, score: Array, base: Array, issued: Array) -> ExcessCounts:
        """Count `score` (n,) against the split thresholds `base` (n, L) and the `issued` ones (n, L); NaN where none was given."""
        given = ~np.isnan(base)
        excess = np.minimum(score, MAX_THRESHOLD)[:, None] - np.where(given, base, 0.0)
        place = (
            np.ceil((excess + MAX_THRESHOLD) * (BINS / (2 * MAX_THRESHOLD))).astype(np.int64) - 1
        )
        columns = zip(np.clip(place, 0, BINS - 1).T, given.T, strict=True)
        counts = np.stack([np.bincount(column[own], minlength=BINS) for column, own in columns])
        return cls(counts, ((score[:, None] > issued) & given).sum(axis=0))

    def __add__(self, other: ExcessCounts) -> ExcessCounts:
        return ExcessCounts(self.counts + other.counts, self.missed + other.missed)

    @property
    def persons(self) -> Counts:
        """How many promises were settled, (L,)."""
        return np.asarray(self.counts.sum(axis=1))


@dataclass(frozen=True)
class CellState:
    """State of one (horizon, level): the offset to use next, and how it came about.

    `integral`: weighted sum over years of (share missed - promised share); `weight`: sum of the years' weights; `experts`: the weight of
    each expert, in the order of EXPERTS (those asleep have none).
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
    """All cells of one bundle, keyed (group, horizon, level), and which state it is.

    `version` counts the deliveries of outcomes that changed it, `through` is the last year with an outcome.
    """

    version: int
    through: int | None
    cells: Mapping[tuple[str, int, float], CellState]

    @property
    def digest(self) -> str:
        """SHA-256 over the exact values: names the state in provenance."""
        rows = [f"{key!r} {astuple(cell)!r}" for key, cell in sorted(self.cells.items())]
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def offset(self, group: str, horizon: int, level: float) -> float:
        """What to add to the split thresholds of a cell; 0 where nothing is known."""
        cell = self.cells.get((group, horizon, level))
        return 0.0 if cell is None else cell.offset


def adapt(calibrator: Calibrator, state: AdaptiveState) -> Calibrator:
    """The calibrator with its thresholds moved by the state's offsets, nested over levels; everything else is as it was.

    A threshold that reaches MAX_THRESHOLD becomes infinite. A state without cells gives the calibrator back, the same object.
    """
    if not state.cells:
        return calibrator
    cells = {}
    for (horizon, group), cell in calibrator.cells.items():
        moved: dict[tuple[int, float], float | None] = {}
        floor: dict[int, float] = {}
        for count, level in sorted(cell.thresholds):
            q = cell.thresholds[count, level]
            if q is None:
                moved[count, level] = None
                continue
            floor[count] = max(q + state.offset(group, horizon, level), floor.get(count, -math.inf))
            moved[count, level] = floor[count] if floor[count] < MAX_THRESHOLD else math.inf
        cells[horizon, group] = replace(cell, thresholds=moved)
    return replace(calibrator, cells=cells)


class StateUpdater:
    """The state of one group while its years are taken in, one after the other, for horizons 1 to `horizons`."""

    def __init__(self, levels: Sequence[float], horizons: int = MAX_HORIZON) -> None:
        self._levels = tuple(levels)
        self._cells = {h: _CellUpdater(h, np.asarray(levels)) for h in range(1, horizons + 1)}

    def update(self, year: int, tallies: Mapping[int, ExcessCounts]) -> None:
        """Take in the outcomes of `year`, by horizon; every year once, in order, empty ones too.

        A promise for year Y at horizon h was made in Y - h, so experts are judged by what they said then.
        """
        told: list[tuple[Array, Array]] = []
        for h, tally in sorted(tallies.items()):
            weight, needed = self._cells[h].learn(year, tally)
            if h <= SHORT and np.isfinite(needed).all():
                told.append((weight, needed))
        shared = _shared(told)
        for cell in self._cells.values():
            cell.close(year, shared)

    def states(self) -> dict[tuple[int, float], CellState]:
        """(horizon, level) -> state, to be used for promises made from now on."""
        return {
            (h, level): cell.state(j)
            for h, cell in self._cells.items()
            for j, level in enumerate(self._levels)
        }


def compute_states(
    levels: Sequence[float], tallies: Mapping[tuple[int, int], ExcessCounts]
) -> dict[tuple[int, float], CellState]:
    """The state of one group after all its `tallies`, keyed (horizon, outcome year); nothing without any."""
    if not tallies:
        return {}
    years = sorted({year for _, year in tallies})
    updater = StateUpdater(levels)
    for year in range(years[0], years[-1] + 1):
        updater.update(year, {h: tally for (h, y), tally in tallies.items() if y == year})
    return updater.states()


def _shared(told: list[tuple[Array, Array]]) -> Array | None:
    """What short horizons say of all: the mean of the offsets they needed, shrunk to nothing where they disagree (positive-part
    shrinkage, Morris 1983). None where fewer than two speak."""
    if len(told) < 2:
        return None
    weight = np.stack([w for w, _ in told])
    needed = np.stack([offset for _, offset in told])
    mean = (weight * needed).sum(axis=0) / weight.sum(axis=0)
    error = (weight * (needed - mean) ** 2).sum(axis=0) / weight.sum(axis=0) / (len(told) - 1)
    return np.asarray(mean * np.maximum(0.0, 1 - error / np.maximum(mean**2, 1e-300)))


class _CellUpdater:
    """One horizon while its years are folded; arrays are (experts, levels) or (levels,)."""

    def __init__(self, horizon: int, levels: Array) -> None:
        self.horizon, self.levels, self.promised = horizon, levels, 1 - levels
        self.step = stable_step(horizon)
        self.said = np.zeros((len(EXPERTS), len(levels)))
        self.log_weight = np.zeros((len(EXPERTS), len(levels)))
        self.past: dict[int, Array] = {}
        self.integral = np.zeros(len(levels))
        self.weight = np.zeros(len(levels))
        self.persons: Counts = np.zeros(len(levels), dtype=np.int64)
        self.missed: Counts = np.zeros(len(levels), dtype=np.int64)
        self.last_year: list[int | None] = [None] * len(levels)

    def learn(self, year: int, tally: ExcessCounts) -> tuple[Array, Array]:
        """Take in a year: judge the experts, move them, and sum the misses. Gives the year's weight and the offsets that it needed (NaN
        where it has too few persons to say), each (L,)."""
        said_then = self.past.get(year - self.horizon, np.zeros_like(self.said))
        heard, persons = tally.persons > 0, np.maximum(tally.persons, 1)
        weight = np.minimum(1.0, tally.persons / FULL_WEIGHT_PERSONS)
        covered, loss = _judged(said_then, tally.counts / persons[:, None], self.levels)
        judged = np.log(_mixed(self.log_weight - weight * (loss - loss.min(axis=0)) / NAT))
        self.log_weight = np.where(heard, judged, self.log_weight)
        for k, rate in enumerate(RATES, start=1):
            self.said[k] += rate * self.step * weight * (1 - covered[k] - self.promised)
        needed = np.array(
            [_needed(row, level) for row, level in zip(tally.counts, self.levels, strict=True)]
        )
        self.said[_LAST] = np.where(np.isfinite(needed), weight * needed, self.said[_LAST])
        self.integral += weight * (tally.missed / persons - self.promised)
        self.weight += weight
        self.persons += tally.persons
        self.missed += tally.missed
        self.last_year = [
            year if own else before for own, before in zip(heard, self.last_year, strict=True)
        ]
        return weight, needed

    def close(self, year: int, shared: Array | None) -> None:
        """End a year: what the experts say now is what promises made this year rest on."""
        if shared is not None:
            self.said[_SHARED] = shared
        self.past[year] = self.said.copy()

    def weights(self) -> Array:
        """Weights of the experts (K, L); only the static one and the shared drift are awake before the cell has outcomes of its own."""
        awake = np.ones(self.said.shape, dtype=np.bool_)
        awake[1:_SHARED] = [year is not None for year in self.last_year]
        return _softmax(np.where(awake, self.log_weight, -np.inf))

    def state(self, j: int) -> CellState:
        weights = self.weights()[:, j]
        wanted = float(weights @ self.said[:, j])
        guarded = self.step * float(self.integral[j])
        offset = min(max(wanted, guarded - LEASH), guarded + LEASH)
        experts = tuple(float(w) for w in weights)
        counted = int(self.persons[j]), int(self.missed[j])
        return CellState(
            offset,
            float(self.integral[j]),
            float(self.weight[j]),
            *counted,
            self.last_year[j],
            experts,
        )


def _judged(said: Array, share: Array, levels: Array) -> tuple[Array, Array]:
    """For offsets `said` (K, L) and shares of persons by excess (L, BINS): the share covered and the mean pinball loss, each (K, L)."""
    start = np.zeros((len(levels), 1))
    covered = np.concatenate([start, np.cumsum(share, axis=1)], axis=1)
    moment = np.concatenate([start, np.cumsum(share * UPPER, axis=1)], axis=1)
    reached = np.searchsorted(UPPER, said, side="right")
    column = np.arange(len(levels))
    below, part = covered[column, reached], moment[column, reached]
    loss = levels * (moment[:, -1] - said) + said * below - part
    return below, loss


def _needed(counts: Counts, level: float) -> float:
    """The offset that the conformal rank of a year's excesses asks for, averaged over 10 neighbours as the split thresholds are; NaN where
    there are too few persons."""
    rank, reached = rank_needed(int(counts.sum()), level), np.cumsum(counts)
    if rank + NEIGHBOURS - 1 > reached[-1]:
        return math.nan
    return float(UPPER[np.searchsorted(reached, np.arange(rank, rank + NEIGHBOURS))].mean())


def _mixed(log_weight: Array) -> Array:
    """Weights with a share spread anew over all experts."""
    return (1 - SHARE) * _softmax(log_weight) + SHARE / len(EXPERTS)


def _softmax(logs: Array) -> Array:
    raised = np.exp(logs - logs.max(axis=0))
    return np.asarray(raised / raised.sum(axis=0))
