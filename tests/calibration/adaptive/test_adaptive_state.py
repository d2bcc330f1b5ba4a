"""The adaptive state: its bound holds on any stream, and it corrects a break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saga.calibration.adaptive import adaptive_state
from saga.calibration.adaptive.adaptive_state import (
    MAX_DEVIATION,
    MAX_THRESHOLD,
    CellState,
    ExcessCounts,
    StateUpdater,
    compute_states,
    stable_step,
)

from saga.arrays import Floats

COVERAGE = (0.5, 0.8, 0.9, 0.95)
BASE = np.array(COVERAGE)  # split thresholds of scores that are uniform on (0, 1)
FULL = adaptive_state.FULL_WEIGHT_PERSONS


def error_bound(horizon: int) -> float:
    """Largest |integral| of a cell, for any outcomes and coverage (docs/method/adaptive.md)."""
    return (MAX_THRESHOLD + MAX_DEVIATION) / stable_step(horizon) + horizon


@dataclass
class Service:
    """Issues intervals each year at `horizons` and receives their outcomes when they are due."""

    horizons: tuple[int, ...]
    updater: StateUpdater = field(init=False)
    issued: dict[tuple[int, int], Floats] = field(default_factory=dict)
    error: dict[int, Floats] = field(init=False)
    coverage: dict[int, list[Floats]] = field(init=False)

    def __post_init__(self) -> None:
        self.updater = StateUpdater(COVERAGE, max(self.horizons))
        self.error = {h: np.zeros(len(COVERAGE)) for h in self.horizons}
        self.coverage = {h: [] for h in self.horizons}

    def run_year(self, year: int, scores: Callable[[int, Floats], Floats | None]) -> None:
        """Settle and issue intervals for one year.

        `scores(h, thresholds)` are the scores (n, L) of the persons whose outcome is due, None if
        there are no such persons.
        """
        counts = {}
        for h in self.horizons:
            thresholds = self.issued.get((h, year - h))
            due = None if thresholds is None else scores(h, thresholds)
            if thresholds is None or due is None:
                continue
            rows = (len(due), 1)
            counts[h] = ExcessCounts.of(due, np.tile(BASE, rows), np.tile(thresholds, rows))
            missed = counts[h].missed / len(due)
            weight = min(1.0, len(due) / FULL)
            self.error[h] += weight * (missed - (1 - BASE))
            self.coverage[h].append(1 - missed)
        self._learn(year, counts)
        states = self.updater.states()
        for h in self.horizons:
            moved = BASE + [states[h, c].offset for c in COVERAGE]
            self.issued[h, year] = np.where(moved >= MAX_THRESHOLD, np.inf, moved)

    def _learn(self, year: int, counts: dict[int, ExcessCounts]) -> None:
        self.updater.update(year, counts)

    def within_bound(self) -> bool:
        return all(
            abs(self.error[h][j]) <= error_bound(h)
            for h in self.horizons
            for j in range(len(COVERAGE))
        )


@dataclass
class RescoringService(Service):
    """A service whose experts see other scores than the published ones, and others each year."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    history: list[tuple[int, dict[int, ExcessCounts]]] = field(default_factory=list)

    def _learn(self, year: int, counts: dict[int, ExcessCounts]) -> None:
        self.history.append((year, counts))
        self.updater = StateUpdater(COVERAGE, max(self.horizons))
        for earlier, published in self.history:
            shown = {h: self._rescored(of_horizon) for h, of_horizon in published.items()}
            self.updater.update(earlier, shown)

    def _rescored(self, published: ExcessCounts) -> ExcessCounts:
        persons, bins = published.persons, published.counts.shape[1]
        where = self.rng.integers(0, bins, len(persons))
        counts = np.zeros_like(published.counts)
        counts[np.arange(len(persons)), where] = persons
        return ExcessCounts(counts, published.missed)


ADVERSARIES = (
    "out of reach",
    "never",
    "just above",
    "just below",
    "either side",
    "against each other",
    "random",
    "hidden year",
)


def adversary(
    name: str, rng: np.random.Generator, persons: int, position: int
) -> Callable[[int, Floats], Floats | None]:
    def scores(_: int, thresholds: Floats) -> Floats | None:
        q = np.minimum(thresholds, 1.0)
        attacked = q[position]
        if name == "hidden year" and rng.random() < 0.3:
            return None
        score: Floats | float = {
            "out of reach": 1.0,
            "never": 0.0,
            "just above": attacked + 1e-3,
            "just below": attacked - 1e-3,
            "either side": attacked + (1e-3 if rng.random() < 0.5 else -0.75),
            "against each other": q + np.where(rng.random(len(q)) < 0.5, 1e-3, -0.75),
        }.get(name, rng.uniform(0, 1))
        return np.broadcast_to(np.clip(score, 0.0, 1.0), (persons, len(COVERAGE)))

    return scores


@pytest.mark.thorough
@pytest.mark.parametrize("service_of", [Service, RescoringService])
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    plan=st.lists(
        st.tuples(st.sampled_from(ADVERSARIES), st.integers(1, 20)), min_size=1, max_size=4
    ),
    seed=st.integers(0, 2**32 - 1),
    persons=st.sampled_from([1, 40, FULL]),
    position=st.integers(0, len(COVERAGE) - 1),
)
def test_the_bound_holds_on_any_stream_whatever_scores_the_experts_see(
    service_of: type[Service], plan: list[tuple[str, int]], seed: int, persons: int, position: int
) -> None:
    """It is a theorem, so there is no tolerance: adversaries see every threshold.

    Bands are scored again under later moves; the integral counts what was published.
    """
    rng, service, year = np.random.default_rng(seed), service_of((1, 3)), 0
    for name, years in plan:
        for _ in range(years):
            service.run_year(year, adversary(name, rng, persons, position))
            assert service.within_bound()
            year += 1


def test_coverage_holds_in_the_long_run_and_clipping_the_state_breaks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores of 1 for ever, in no finite set: the layer covers them; a threshold below 1 never."""

    def late_coverage(years: int) -> float:
        service = Service((1,))
        for year in range(years):
            service.run_year(year, lambda *_: np.ones((FULL, len(COVERAGE))))
        return float(np.mean(service.coverage[1][-50:])) if service.within_bound() else 0.0

    assert late_coverage(150) == pytest.approx(np.mean(COVERAGE), abs=0.02)
    unclipped_state = adaptive_state._CellUpdater.state

    def clipped(cell: adaptive_state._CellUpdater, j: int) -> CellState:
        state = unclipped_state(cell, j)
        return CellState(
            min(state.offset, 0.999 - BASE[j]),
            *(getattr(state, name) for name in list(CellState.__annotations__)[1:]),
        )

    monkeypatch.setattr(adaptive_state._CellUpdater, "state", clipped)
    assert late_coverage(150) == 0.0


@pytest.mark.parametrize("horizon", [1, 2, 5, 10, 15, 30])
def test_four_times_the_step_is_the_limit_of_stability(horizon: int) -> None:
    """Roots of x' = x - k x(delayed by h) lie in the unit circle below k (Levin and May 1976)."""

    def radius(k: float) -> float:
        polynomial = np.zeros(horizon + 2)
        polynomial[[0, 1]], polynomial[-1] = (1, -1), k
        return float(np.abs(np.roots(polynomial)).max())

    limit = 4 * stable_step(horizon)
    assert radius(0.999 * limit) < 1 < radius(1.001 * limit)


def each_coverage(scores: Floats) -> Floats:
    """Scores (n, L) that are the same for every coverage."""
    return np.tile(scores[:, None], len(COVERAGE))


def stream(
    years: int, break_year: int | None, seed: int, persons: int = 20_000
) -> tuple[list[Floats], list[Floats]]:
    """Coverage by year at h = 1 under adapted and under split thresholds.

    Scores are |2 Phi(z) - 1|; from the break on, z is wider and not centred.
    """
    from scipy.special import ndtr

    rng, service, split = np.random.default_rng(seed), Service((1,)), []
    for year in range(years):
        z = rng.normal(size=persons)
        if break_year is not None and year >= break_year:
            z = 1.3 * z - 0.5
        scores = np.abs(2 * ndtr(z) - 1)
        split.append((scores[:, None] <= BASE).mean(axis=0))
        due = each_coverage(scores)
        service.run_year(year, lambda *_, due=due: due)
    return service.coverage[1], split[1:]


def test_a_break_is_halved_after_three_updates_and_gone_after_six() -> None:
    start = 9  # the first outcomes are of year 1, so this is year 10, the year of the break
    for seed in range(5):
        adapted, split = (np.array(part) - COVERAGE for part in stream(20, start + 1, seed))
        assert (np.abs(split[start:]) > 0.04).all()
        assert adapted[start] == pytest.approx(split[start], abs=0.02)
        assert (np.abs(adapted[start + 3]) < np.abs(split[start + 3]) / 2).all()
        assert (np.abs(adapted[start + 6 :]) < 0.02).all()


def test_without_a_break_adapting_costs_less_than_the_sampling_error() -> None:
    """20,000 persons: the standard error of a year's coverage at 90 % is 0.2 points."""
    deviations = [
        np.array(part)[10:, 2] - 0.9 for seed in range(6) for part in stream(30, None, seed)
    ]
    adapted, split = np.concatenate(deviations[::2]), np.concatenate(deviations[1::2])
    assert np.sqrt(np.mean(adapted**2)) < np.sqrt(np.mean(split**2)) + 0.002


def test_horizons_without_outcomes_follow_short_horizons_that_agree() -> None:
    def shared(*shifts: float) -> float:
        rng, counts = np.random.default_rng(1), {}
        for h, shift in enumerate(shifts, start=1):
            scores = np.clip(rng.random(5_000) + shift, 0, 1)
            counts[h, 2020] = ExcessCounts.of(
                each_coverage(scores), np.tile(BASE, (5_000, 1)), np.tile(BASE, (5_000, 1))
            )
        return compute_states(COVERAGE, counts)[25, 0.9].offset

    assert shared(0.1, 0.1, 0.1) == pytest.approx(
        0.05, abs=0.01
    )  # half of it: the horizon has no outcomes of its own
    assert abs(shared(0.1, -0.1, 0.0)) < 0.01
    assert shared(0.1) == 0.0
