"""Synthetic intervals and outcomes for tests, and a process that settles them.

Run as a program: URL KEYFILE PERSONS PART... settles the outcomes of these parts (0 to 9) one by
one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from saga.calibration.adaptive.issued_intervals import IssuedIntervals, pack_marginals
from saga.calibration.adaptive.ledger import Ledger
from saga.calibration.adaptive.marginal_moves import LEVELS
from saga.calibration.adaptive.pseudonyms import PseudonymKey

from saga.distributions import Marginals

BUNDLE = "a" * 64
PERSONS, HORIZONS, ORIGIN = 40, 3, 2015


def make_intervals(
    persons: int = PERSONS, horizons: int = HORIZONS, origin: int = ORIGIN, seed: int = 0
) -> IssuedIntervals:
    """Intervals for persons P0, P1, ... from 30 samples each; every fifth has mostly zeros."""
    rng = np.random.default_rng(seed)
    rows = persons * horizons
    samples = np.exp(rng.normal(12.5, 0.5, (rows, 30)))
    samples[np.arange(rows) % 5 == 0, :20] = 0
    base = np.tile(LEVELS, (rows, 1))
    names = np.array([f"P{i}" for i in range(persons)])
    return IssuedIntervals(
        LEVELS,
        np.tile(names, horizons),
        np.full(rows, origin),
        np.repeat(np.arange(1, horizons + 1), persons),
        np.where(np.tile(np.arange(persons), horizons) % 2, "quintile=1", "all"),
        base,
        base + 0.02,
        tuple(pack_marginals(Marginals.from_samples(samples[:, None]))),
    )


def make_outcomes(
    persons: int = PERSONS, horizons: int = HORIZONS, origin: int = ORIGIN, seed: int = 1
) -> list[tuple[str, int, float]]:
    """An outcome for each of these intervals; a fifth of the outcomes are zero."""
    rng = np.random.default_rng(seed)
    amounts = np.where(
        rng.random((horizons, persons)) < 0.2,
        0.0,
        np.exp(rng.normal(12.4, 0.6, (horizons, persons))),
    )
    return [
        (f"P{i}", origin + h, float(amounts[h - 1, i]))
        for h in range(1, horizons + 1)
        for i in range(persons)
    ]


def main(url: str, key: str, persons: str, *parts: str) -> None:
    """Settle the outcomes whose number ends in one of `parts`, each in a call of its own."""
    ledger = Ledger(url, PseudonymKey.read(Path(key), create=False))
    for number, outcome in enumerate(make_outcomes(int(persons))):
        if str(number % 10) in parts:
            ledger.settle([outcome])
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
