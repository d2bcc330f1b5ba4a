"""Issued intervals of every family, their outcomes, and a process that settles them.

Run as a program: URL KEYFILE PART... settles the outcomes of these parts (0 to 9) one by one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from saga.calibration.adaptive.adaptive_state import BAND, PRESENT_VALUE, YEAR, AdaptiveState
from saga.calibration.adaptive.issuance import INITIAL_STATE, AdaptedForecaster
from saga.calibration.adaptive.issued_intervals import (
    IssuedInterval,
    collect_bands,
    collect_intervals,
    collect_values,
)
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.marginal_moves import adapt
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from sqlalchemy import Connection

from saga.arrays import Floats
from saga.conformal.calibration_table import ALL
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.set_family import KindThresholds
from saga.conformal.recalibration import Cell, map_paths
from saga.data.panel import Panel
from saga.distributions import Marginals
from saga.forecast_results import Result
from saga.paths import Paths
from saga.requests import COVERAGE, Draws, Request

ROOT = Path(__file__).parents[3]
KEY = PseudonymKey(b"k" * 32)
BUNDLE, FAMILIES = "a" * 64, (YEAR, BAND, PRESENT_VALUE)
N, K, ORIGIN, N_PATHS = 40, 3, 2015, 60  # persons, years, origin, paths
Outcomes = list[tuple[str, int, float]]


def run_and_record(
    adapted: AdaptedForecaster, request: Request, panel: Panel, draws: Draws, ledger: Ledger
) -> tuple[Result, RecordCounts]:
    """The result of a request under the thresholds in force, entered in the ledger."""
    result = adapted.unadapted.run(request, panel, draws, adapted, record=True)
    return result, ledger.record(adapted.unadapted.bundle.digest, result.issued)


def make_calibrator() -> Calibrator:
    """Thresholds of all families, stretched band scales of K years, and cells of one quintile."""
    thresholds = KindThresholds({0.5: 0.6, 0.8: 0.85, 0.9: 0.93, 0.95: None}, 1_000, N_PATHS)
    half = np.array([0.0, 0.5, 1.0])
    scales = {h: (half, np.array([0.0, 0.5 + 0.05 * h, 1.0])) for h in range(1, K + 1)}
    own = Cell(np.empty(0), np.empty(0), 0, {share: share for share in COVERAGE}, 1_000)
    cells = {(h, group): own for h in range(1, K + 1) for group in (ALL, "quintile=1")}
    kinds = {(kind, K): thresholds for kind in (BAND, PRESENT_VALUE)}
    return Calibrator(
        cells,
        thresholds_of_kind=kinds,
        band_scales=scales,
        origin_years=dict.fromkeys(cells, 2),
    )


def make_paths(n: int = N, origin: int = ORIGIN, seed: int = 0) -> Paths:
    """Raw paths of persons P0, P1, ...; half of those of every fifth person are zeros."""
    rng = np.random.default_rng(seed)
    earnings = np.exp(rng.normal(12.0, 0.4, (n, K, N_PATHS)))
    earnings[::5, :, : N_PATHS // 2] = 0.0
    names, years = np.array([f"P{i}" for i in range(n)]), np.full(n, origin)
    groups = {"quintile": np.where(np.arange(n) % 2, "1", "2")}
    return Paths(names, years - 40, years, earnings.astype(np.float32), groups=groups)


def marginals_of(paths: Paths) -> Marginals:
    """The raw marginals of raw paths."""
    return replace(
        Marginals.from_samples(paths.earnings),
        person_id=paths.person_id,
        birth_year=paths.birth_year,
        origin_year=paths.origin_year,
        groups=paths.groups,
    )


def issue(
    family: str, paths: Paths | None = None, state: AdaptiveState = INITIAL_STATE
) -> list[IssuedInterval]:
    """What a family issues under a state; the default is 40 persons from 2015."""
    paths, split = paths or make_paths(), make_calibrator()
    marginals = adapt(split, state).recalibrate(marginals_of(paths))
    if family == YEAR:
        return collect_intervals(marginals, split, state, range(1, K + 1))
    if family == BAND:
        return collect_bands(marginals, split, state, K)
    return collect_values(map_paths(paths, marginals), split, state, K)


def make_amounts(n: int = N, seed: int = 1) -> Floats:
    """Outcomes (n, K) above the forecasts; a tenth are zeros."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, K)) < 0.1, 0.0, np.exp(rng.normal(12.3, 0.4, (n, K))))


def outcomes_of(amounts: Floats, origin: int = ORIGIN) -> Outcomes:
    """The outcomes with their persons and years, year by year."""
    return [
        (f"P{i}", origin + 1 + h, float(amount))
        for h, of_year in enumerate(amounts.T)
        for i, amount in enumerate(of_year)
    ]


def current_state(ledger: Ledger) -> AdaptiveState:
    """The state of the ledger, which is also that of its log."""
    state = ledger.state(BUNDLE)
    assert state is not None
    assert ledger.replay(BUNDLE) == state
    return state


def state_of(folder: Path, *issued: tuple[list[IssuedInterval], Outcomes]) -> AdaptiveState:
    """The state of a new ledger with another key, after one delivery of all outcomes."""
    fresh = Ledger(f"sqlite:///{folder / 'fresh.sqlite'}", PseudonymKey(b"other" * 8))
    for entries, outcomes in issued:
        fresh.record(BUNDLE, entries)
        fresh.settle(outcomes)
    state = current_state(fresh)
    fresh.close()
    return state


@contextmanager
def connect(ledger: Ledger) -> Iterator[Connection]:
    """A connection to the database, past the ledger."""
    with ledger._database.engine.begin() as connection:
        yield connection


def start_settling(url: str, folder: Path, parts: str) -> subprocess.Popen[bytes]:
    """A process that settles the outcomes of these parts."""
    (folder / "key").write_bytes(KEY.key)
    program = [sys.executable, "-m", "tests.calibration.adaptive.ledgers"]
    return subprocess.Popen([*program, url, str(folder / "key"), *parts], cwd=ROOT)


def main(url: str, key: str, *parts: str) -> None:
    """Settle the outcomes whose number ends in one of `parts`, each in a call of its own."""
    ledger = Ledger(url, PseudonymKey.read(Path(key), create=False))
    for number, outcome in enumerate(outcomes_of(make_amounts())):
        if str(number % 10) in parts:
            ledger.settle([outcome])
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
