"""The adaptive layer keeps its bound on any stream, does not ring, mends a break, costs nothing without one, and only ever counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import calibration.adaptive.adaptive_state as online
from calibration.adaptive.adaptive_state import (
    MAX_THRESHOLD,
    AdaptiveState,
    CellState,
    ExcessCounts,
    StateUpdater,
    adapt,
    compute_states,
    error_bound,
    stable_step,
)
from calibration.fit.split_conformal import fit_calibration
from saga.conformal.calibrator import ALL, Calibrator

Array = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.9, 0.95)
BASE = np.array(LEVELS)  # split thresholds of scores that are uniform on (0, 1)
FULL = online.FULL_WEIGHT_PERSONS


@dataclass
class Life:
    """A service that issues promises each year at some horizons and hears of them later; adversaries see every threshold."""

    horizons: tuple[int, ...]
    updater: StateUpdater = field(init=False)
    issued: dict[tuple[int, int], Array] = field(default_factory=dict)
    error: dict[int, Array] = field(init=False)
    weight: dict[int, float] = field(init=False)
    coverage: dict[int, list[Array]] = field(init=False)

    def __post_init__(self) -> None:
        self.updater = StateUpdater(LEVELS, max(self.horizons))
        self.error = {h: np.zeros(len(LEVELS)) for h in self.horizons}
        self.weight = dict.fromkeys(self.horizons, 0.0)
        self.coverage = {h: [] for h in self.horizons}

    def year(self, year: int, scores: Callable[[int, Array], Array | None]) -> None:
        """One year passes: `scores(h, thresholds)` are the scores of the persons whose outcome is due, None where nobody's is."""
        tallies = {}
        for h in self.horizons:
            thresholds = self.issued.get((h, year - h))
            found = None if thresholds is None else scores(h, thresholds)
            if thresholds is None or found is None:
                continue
            rows = (len(found), 1)
            tallies[h] = ExcessCounts.of(found, np.tile(BASE, rows), np.tile(thresholds, rows))
            missed = tallies[h].missed / len(found)
            weight = min(1.0, len(found) / FULL)
            self.error[h] += weight * (missed - (1 - BASE))
            self.weight[h] += weight
            self.coverage[h].append(1 - missed)
        self.updater.update(year, tallies)
        states = self.updater.states()
        for h in self.horizons:
            moved = np.maximum.accumulate(BASE + [states[h, level].offset for level in LEVELS])
            self.issued[h, year] = np.where(moved >= MAX_THRESHOLD, np.inf, moved)

    def within_bound(self) -> bool:
        return all(
            abs(self.error[h][j]) <= error_bound(h, j)
            for h in self.horizons
            for j in range(len(LEVELS))
        )


ADVERSARIES = (
    "out of reach",
    "never",
    "just above",
    "just below",
    "spiteful",
    "random",
    "hidden year",
)


def adversary(
    name: str, rng: np.random.Generator, persons: int, level: int
) -> Callable[[int, Array], Array | None]:
    def scores(_: int, thresholds: Array) -> Array | None:
        q = thresholds[level]
        if name == "hidden year" and rng.random() < 0.3:
            return None
        at = {
            "out of reach": 1.9,
            "never": 0.0,
            "just above": min(q, 9.0) + 1e-3,
            "just below": min(q, 9.0) - 1e-3,
            "spiteful": min(q, 9.0) + (1e-3 if rng.random() < 0.5 else -1.5),
        }.get(name, rng.uniform(0, 2.5))
        return np.full(persons, max(at, 0.0))

    return scores


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    plan=st.lists(
        st.tuples(st.sampled_from(ADVERSARIES), st.integers(1, 40)), min_size=1, max_size=4
    ),
    seed=st.integers(0, 2**32 - 1),
    persons=st.sampled_from([1, 40, FULL]),
    level=st.integers(0, len(LEVELS) - 1),
)
def test_the_bound_holds_on_any_stream(
    plan: list[tuple[str, int]], seed: int, persons: int, level: int
) -> None:
    """A theorem, so no tolerance: whoever chooses the scores, knowing every threshold and whatever the delay."""
    rng, life, year = np.random.default_rng(seed), Life((1, 3)), 0
    for name, years in plan:
        for _ in range(years):
            life.year(year, adversary(name, rng, persons, level))
            assert life.within_bound()
            year += 1


def test_the_bound_is_a_guarantee_in_the_long_run_and_clipping_the_state_breaks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores beyond all samples for ever: the layer learns to cover them; one kept inside [0, 1] misses everybody."""

    def after(years: int) -> float:
        life = Life((1,))
        for year in range(years):
            life.year(year, lambda *_: np.full(FULL, 1.9))
        return float(np.mean(life.coverage[1][-50:])) if life.within_bound() else 0.0

    assert after(150) == pytest.approx(np.mean(LEVELS), abs=0.02)
    honest = online._CellUpdater.state

    def clipped(cell: online._CellUpdater, j: int) -> CellState:
        state = honest(cell, j)
        return CellState(
            min(state.offset, 1 - BASE[j]),
            *(getattr(state, name) for name in list(CellState.__annotations__)[1:]),
        )

    monkeypatch.setattr(online._CellUpdater, "state", clipped)
    assert after(150) == 0.0


@pytest.mark.parametrize("horizon", [1, 2, 5, 10, 15, 30])
def test_four_times_the_step_is_the_edge_of_stability(horizon: int) -> None:
    """Levin and May (1976): x' = x - k x(delayed by h) has all roots inside the unit circle below k, and not above."""

    def radius(k: float) -> float:
        polynomial = np.zeros(horizon + 2)
        polynomial[[0, 1]], polynomial[-1] = (1, -1), k
        return float(np.abs(np.roots(polynomial)).max())

    edge = 4 * stable_step(horizon)
    assert radius(0.999 * edge) < 1 < radius(1.001 * edge)


def stream(
    years: int, break_year: int | None, seed: int, persons: int = 20_000
) -> tuple[list[Array], list[Array]]:
    """Coverage by year (thresholds adapted, split) at h = 1 of |2 Phi(z) - 1| scores; from the break on, z is wider and off centre."""
    from scipy.special import ndtr

    rng, life, split = np.random.default_rng(seed), Life((1,)), []
    for year in range(years):
        z = rng.normal(size=persons)
        if break_year is not None and year >= break_year:
            z = 1.3 * z - 0.5
        found = np.abs(2 * ndtr(z) - 1)
        split.append((found[:, None] <= BASE).mean(axis=0))
        life.year(year, lambda *_, found=found: found)
    return life.coverage[1], split[1:]


def test_a_break_is_halved_after_three_updates_and_gone_after_six_while_the_split_thresholds_stay_wrong() -> (
    None
):
    start = 9  # the first outcomes are of year 1, so this is year 10, which nobody could foresee
    for seed in range(5):
        adapted, split = (np.array(part) - LEVELS for part in stream(20, start + 1, seed))
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


def test_short_horizons_speak_for_those_without_outcomes_where_they_agree() -> None:
    def shared(*shifts: float) -> float:
        rng, tallies = np.random.default_rng(1), {}
        for h, shift in enumerate(shifts, start=1):
            found = np.clip(rng.random(5_000) + shift, 0, None)
            tallies[h, 2020] = ExcessCounts.of(
                found, np.tile(BASE, (5_000, 1)), np.tile(BASE, (5_000, 1))
            )
        return compute_states(LEVELS, tallies)[25, 0.9].offset

    assert shared(0.1, 0.1, 0.1) == pytest.approx(
        0.05, abs=0.01
    )  # half way: nothing of its own has been seen
    assert abs(shared(0.1, -0.1, 0.0)) < 0.01
    assert shared(0.1) == 0.0


def test_counts_add_up_in_any_order_and_any_parts() -> None:
    rng = np.random.default_rng(2)
    found, issued = rng.uniform(0, 2.5, 1_000), np.tile(BASE + 0.1, (1_000, 1))
    whole = ExcessCounts.of(found, np.tile(BASE, (1_000, 1)), issued)
    parts = ExcessCounts.empty(len(LEVELS))
    for rows in np.array_split(rng.permutation(1_000), 7):
        parts += ExcessCounts.of(found[rows], np.tile(BASE, (len(rows), 1)), issued[rows])
    assert (whole.counts == parts.counts).all()
    assert (whole.missed == parts.missed).all()
    assert compute_states(LEVELS, {(2, 2020): whole, (1, 2019): parts}) == compute_states(
        LEVELS, {(1, 2019): whole, (2, 2020): parts}
    )


def test_an_excess_is_rounded_outward_by_less_than_a_thousandth() -> None:
    """The offset that a tally asks for covers the persons it should, and is at most one bin too wide."""
    found = np.random.default_rng(3).random(20_000)
    tally = ExcessCounts.of(found, np.zeros((20_000, 1)), np.zeros((20_000, 1)))
    needed = online._offset_needed(tally.counts[0], 0.9)
    exact = np.sort(found)[17_999 : 17_999 + 12].mean()
    assert 0 <= needed - exact + 1e-4 < 2 * MAX_THRESHOLD / online.N_BINS + 2e-4


def state_of(calibrator: Calibrator, offset: float) -> AdaptiveState:
    cell = CellState(offset, 0.0, 1.0, FULL, 0, 2020, (1.0,))
    return AdaptiveState(
        3,
        2020,
        {(ALL, h, level): cell for h, _ in calibrator.cells for level in calibrator.coverage},
    )


@pytest.fixture(scope="module")
def calibrated(world: Callable[..., tuple[object, Array]]) -> Calibrator:
    paths, outcomes = world(4_000, 11)
    return fit_calibration(paths, outcomes, seed=0)  # type: ignore[arg-type]


def test_no_state_changes_nothing_and_offsets_move_thresholds_keeping_sets_nested(
    calibrated: Calibrator, world
) -> None:  # type: ignore[no-untyped-def]
    assert adapt(calibrated, AdaptiveState(0, None, {})) is calibrated
    paths = calibrated.recalibrate(world(500, 12)[0])
    before = calibrated.intervals(paths, LEVELS)
    same = adapt(calibrated, state_of(calibrated, 0.0)).intervals(paths, LEVELS)
    assert all(
        np.array_equal(getattr(before, name), getattr(same, name), equal_nan=name != "guarantee")
        for name in ("lower", "upper", "guarantee")
    )
    wider = adapt(calibrated, state_of(calibrated, 0.04)).intervals(paths, LEVELS)
    some = before.upper > 0
    assert (wider.lower <= before.lower)[some].all()
    assert (wider.upper >= before.upper)[some].all()
    crossed = state_of(calibrated, 0.0)
    crossed.cells[ALL, 1, 0.9] = CellState(-0.8, 0, 1, FULL, 0, 2020, (1.0,))  # type: ignore[index]
    moved = adapt(calibrated, crossed).cells[1, ALL].thresholds
    for count in calibrated.path_counts:
        thresholds = [moved[count, level] for level in LEVELS]
        assert thresholds == sorted(thresholds)  # type: ignore[type-var]
    everything = adapt(calibrated, state_of(calibrated, 2.0)).intervals(paths, LEVELS)
    assert (everything.upper == np.inf).all()
    assert everything.includes_zero.all()
