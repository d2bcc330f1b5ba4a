"""How long does a person's forecast take from marginals, and how long from 500 paths?

    python benchmarks/marginals.py [--bundle bundles/small] [--persons 256] [--repeats 5]

Persons of a generated register with the panel's last year as origin, aged at most 34 then, so that
all 30 horizons exist. One core. The forecast table comes from marginals and has no sampling noise;
earlier versions made the same table from paths. The fastest of --repeats alternating runs counts.
The forecast for one person alone shows the fixed cost, with checks and table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import torch

from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.requests import MAX_HORIZON, Draws


def young_persons(count: int) -> Panel:
    """Persons whose forecasts reach 30 years ahead."""
    with tempfile.TemporaryDirectory() as folder:
        generate_register(Path(folder) / "register", RegisterSettings(20 * count, 1))
        panel = read_panel(Path(folder) / "register")
    end = last_year(panel)
    recent = panel.frame.filter(pl.col("year") == end, end - pl.col("birth_year") <= 34)
    return panel.only(recent["person_id"].head(count).to_list())


def fastest(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of the fastest of alternating runs of each call."""
    seconds = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            seconds[i] = min(seconds[i], time.process_time() - start)
    return seconds


def main() -> None:
    """Print milliseconds a person and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--persons", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    forecaster = Forecaster.load(args.bundle, threads=1)
    panel = young_persons(args.persons)
    one, few = panel.only(panel.persons()[:1]), panel.only(panel.persons()[:32])
    table, paths, alone = fastest(
        [
            lambda: forecaster.forecast(panel),
            lambda: forecaster.simulate(few, Draws(500), to_horizon=MAX_HORIZON, recalibrate=False),
            lambda: forecaster.forecast(one),
        ],
        args.repeats,
    )
    marginal_ms = 1000 * table / len(panel.persons())
    path_ms = 1000 * paths / len(few.persons())
    print(f"forecast table from marginals, 30 horizons: {marginal_ms:.2f} ms a person")
    print(f"500 {forecaster.rollout} paths of 30 years: {path_ms:.2f} ms a person")
    print(f"ratio: {marginal_ms / path_ms:.3f}")
    print(f"one person alone: {1000 * alone:.1f} ms")


if __name__ == "__main__":
    main()
