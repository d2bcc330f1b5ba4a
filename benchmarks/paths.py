"""Milliseconds a person for 500 calibrated paths over 20 years, with the shipped bundle: `make bench`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import polars as pl

from saga.forecaster import Forecaster
from saga.ingest import read_panel

PERSONS, PATHS, YEARS = 40, 500, 20
THREADS = 2


def main(bundle: Path) -> None:
    """Ten observed years a person, each simulated once after a warm-up; the best of three runs, all heads counted."""
    years = range(2013, 2023)
    rows = [
        {"person_id": f"{i:03d}", "year": year, "birth_year": 1970 + i % 20, "earnings": 300_000.0 + 1_000 * i}
        for i in range(PERSONS)
        for year in years
    ]
    panel, forecaster = read_panel(pl.DataFrame(rows), prices=2022), Forecaster.load(bundle, threads=THREADS)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        forecaster.simulate(panel, to_horizon=YEARS, paths=PATHS, seed=1)
        seconds.append(time.perf_counter() - start)
    best = 1_000 * min(seconds[1:]) / PERSONS
    print(
        f"{bundle} {forecaster.bundle.parameters:,} parameters: {best:.1f} ms a person ({PATHS} paths x {YEARS} years, {THREADS} threads)"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("bundles/small"))
