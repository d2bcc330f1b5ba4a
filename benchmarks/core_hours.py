"""How many core-hours and how much memory do the forecasts of a large register need?

    python benchmarks/core_hours.py [--persons 2000 20000] [--of 10000000] [--horizons 1-30]
        [--rollout exact|light]

Generated registers of two sizes are scored by one process each, with the shipped bundle. The time
of its processor (which other work on the machine changes less than the clock) is that before the
first part, of which two sizes give the share that grows with the register, and that of each part,
whose spread gives the error. `--of` is the number of persons to which both are extrapolated.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

PERSONS_A_PART = 500


@dataclass(frozen=True)
class Moment:
    """Persons done, processor seconds and largest memory (MB) of a run until now."""

    persons: int
    seconds: float
    memory: float


def score_register(folder: Path, persons: int, horizons: str, rollout: str | None) -> list[Moment]:
    """The moments of a run: before the first part and after each."""
    from saga.batch.engine import score
    from saga.batch.products import Recipe
    from saga.bundle import default_bundle
    from saga.cli.options import read_whole_numbers
    from saga.requests import ForecastRequest

    request = ForecastRequest(horizons=read_whole_numbers(horizons))
    recipe = Recipe(default_bundle(), request, rollout=rollout)  # type: ignore[arg-type]
    moments = []

    def note(done: int, _persons: int) -> None:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        moments.append(Moment(done, time.process_time(), memory))

    source, out = folder / f"{persons}", folder / f"out-{persons}"
    score(source, out, recipe, persons_per_partition=PERSONS_A_PART, progress=note)
    return moments


def generate(folder: Path, persons: int) -> None:
    """Write a register."""
    from saga.register.simulation.cohort_simulation import RegisterSettings
    from saga.register.simulation.generation import generate_register

    generate_register(folder / f"{persons}", RegisterSettings(persons=persons, seed=7))


def main() -> None:
    """Print a row for each size and the extrapolation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, nargs=2, default=[2_000, 20_000])
    parser.add_argument("--of", type=int, default=10_000_000)
    parser.add_argument("--horizons", default="1-30")
    parser.add_argument("--rollout", choices=["exact", "light"])
    args = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")
    runs = []
    with tempfile.TemporaryDirectory() as name:
        for persons in sorted(args.persons):
            # Processes of their own, whose memory and time are of nothing else.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                fresh.submit(generate, Path(name), persons).result()
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                scored = fresh.submit(
                    score_register, Path(name), persons, args.horizons, args.rollout
                )
                result = scored.result()
            first, last = result[0], result[-1]
            runs.append(result)
            print(
                f"{last.persons:,} persons: {first.seconds:.1f} s and {first.memory:.0f} MB before "
                f"the first part, {last.seconds:.1f} s and {last.memory:.0f} MB in all",
                flush=True,
            )
    (small, *_), (large, *_) = runs
    n_more = runs[1][-1].persons - runs[0][-1].persons
    reading = (large.seconds - small.seconds) / n_more
    memory = (large.memory - small.memory) / n_more
    # The first part loads the bundle, and the last may have fewer persons.
    whole = np.diff([moment.seconds for moment in runs[1][1:-1]]) / PERSONS_A_PART
    error = whole.std(ddof=1) / len(whole) ** 0.5
    print(
        f"a person: {1000 * reading:.3f} ms of reading and staging, {1000 * whole.mean():.2f} ms "
        f"(standard error {1000 * error:.2f}, {len(whole)} parts) of forecasts"
    )
    hours = (reading + whole.mean()) * args.of / 3600
    print(
        f"{args.of:,} persons: {hours:.1f} core-hours, +- {2 * error * args.of / 3600:.1f} (two "
        f"standard errors of parts), {memory * args.of / 1024:.1f} GB more before the first part"
    )
    load = os.getloadavg()[0]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, horizons {args.horizons}"
    )


if __name__ == "__main__":
    main()
