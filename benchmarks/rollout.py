"""How many milliseconds does a person cost for 500 Monte-Carlo paths of 20 years?

    python benchmarks/rollout.py [--bundle bundles/small] [--persons 64] [--workers 2] [--memory]
        [--deepar]

Every row does the same work: persons with records of 10 to 25 years, 500 joint paths of 20 years;
heads and macro futures are included.
--memory simulates 10,000 persons and prints the peak memory. --deepar adds a GluonTS DeepAR of
similar size (untrained, which costs the same) if GluonTS is installed.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import torch

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.features.sequences import Sequences, encode
from saga.forecaster import Forecaster
from saga.requests import Draws
from saga.simulation.ensemble import simulation_pool
from saga.simulation.rollout import Rollout, RolloutOptions

PATHS, YEARS = 500, 20
PUBLISHED = 43.0  # milliseconds per person on one A100, arXiv 2605.19014
REPEATS = 5


def generated_persons(n_persons: int) -> Panel:
    """Persons aged 35 to 43 in 2022 with 10 to 25 yearly records."""
    rows = [
        {
            "person_id": f"{i:05d}",
            "year": year,
            "birth_year": 1979 + i % 9,
            "sex": ("female", "male")[i % 2],
            "earnings": 3e5 + 1e3 * (i % 90),
        }
        for i in range(n_persons)
        for year in range(2022 - 9 - i % 16, 2023)
        if year - (1979 + i % 9) >= 16
    ]
    return read_panel(pl.DataFrame(rows), prices=2022)


def fastest(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of several runs after a warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def rollout_cost(rollout: Rollout, sequences: Sequences, workers: int) -> float:
    """Milliseconds per person with so many processes; their start is not counted."""
    steps = np.full(len(sequences), YEARS)
    with simulation_pool([rollout], (sequences,), steps, threads=1, processes=workers) as simulate:
        seconds = fastest(lambda: [None for _ in simulate(np.arange(len(sequences)))])
    return 1_000 * seconds / len(sequences)


def deepar_cost(width: int = 96) -> float:
    """Milliseconds per person of a GluonTS DeepAR with two LSTM layers, on all cores."""
    from gluonts.torch.model.deepar.module import DeepARModel

    persons, record_years, lags = 8, 25, [1, 2, 3]
    model = DeepARModel(
        freq="Y",
        context_length=record_years,
        prediction_length=YEARS,
        num_feat_dynamic_real=5,
        num_feat_static_real=1,
        num_feat_static_cat=1,
        cardinality=[2],
        num_layers=2,
        hidden_size=width,
        lags_seq=lags,
        num_parallel_samples=PATHS,
    ).eval()
    length = record_years + max(lags)
    inputs = (
        torch.zeros(persons, 1, dtype=torch.long),
        torch.zeros(persons, 1),
        torch.randn(persons, length, 5),
        torch.rand(persons, length),
        torch.ones(persons, length),
        torch.randn(persons, YEARS, 5),
    )
    with torch.inference_mode():
        return 1_000 * fastest(lambda: model(*inputs), 2) / persons


def processor() -> str:
    """The processor's name, or the machine type if the system does not give it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--persons", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--deepar", action="store_true")
    args = parser.parse_args()
    forecaster = Forecaster.load(args.bundle)
    panel = generated_persons(args.persons)
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    kinds = ["exact", "light"] if forecaster.network.light is not None else ["exact"]
    print(
        f"{args.bundle} ({forecaster.bundle.parameters:,} parameters), {PATHS} paths x {YEARS} "
        f"years,\n{args.workers} processes of one thread, {processor()} "
        f"({torch.backends.cpu.get_cpu_capability()}), torch {torch.__version__}\n"
    )
    print("| rollout | ms per person | against exact |\n|---|---|---|")
    exact = 0.0
    for kind in kinds:
        rollout = Rollout(
            forecaster.network,
            forecaster.calendar,
            forecaster.process,
            RolloutOptions(PATHS, 1, light=kind == "light"),
        )
        milliseconds = rollout_cost(rollout, sequences, args.workers)
        exact = exact or milliseconds
        print(f"| {kind} | {milliseconds:.1f} | {milliseconds / exact:.2f} |", flush=True)
    if args.deepar:
        deepar = deepar_cost()
        print(f"| GluonTS DeepAR 2 x 96 | {deepar:.0f} | {deepar / exact:.1f} |")
    print(f"| published: the paper, one A100 | {PUBLISHED:g} | {PUBLISHED / exact:.2f} |")
    if args.memory:
        panel = generated_persons(10_000)
        for _ in forecaster.blocks(panel, Draws(PATHS, seed=1), to_horizon=YEARS):
            pass
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"\n10,000 persons with {PATHS} paths: peak memory {memory:.2f} GiB.")


if __name__ == "__main__":
    main()
