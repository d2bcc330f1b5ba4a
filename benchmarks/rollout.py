"""Monte-Carlo paths: milliseconds a person for 500 paths x 20 years, and what they are measured against, in one run.

Usage: python benchmarks/rollout.py [--bundle bundles/small] [--persons 64] [--workers 2] [--memory] [--deepar]

Same work in every row: persons with 10 to 25 years of record, 500 joint paths over 20 years, all heads and macro futures counted, float32.
"naive" runs the decoder over the whole sequence of every path each year. "roofline" is the time that the matrix products of the rollout
would take at the speed of one large product on this machine. --memory simulates 10,000 persons and prints the highest memory in use;
--deepar adds a GluonTS DeepAR of like size (untrained: it costs the same), where GluonTS is installed.
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
from torch.utils.flop_counter import FlopCounterMode

from saga.forecaster import Forecaster
from saga.ingest import read_panel
from saga.keyed import uniforms
from saga.panel import Panel
from saga.rollout import Rollout
from saga.sequences import POSITIVE, ZERO, Sequences, encode, pad
from saga.workers import crew

PATHS, YEARS = 500, 20
PUBLISHED = 43.0  # milliseconds a person on one A100, arXiv 2605.19014
REPEATS = 5


def people(persons: int) -> Panel:
    """Persons aged 35 to 43 in 2022 with 10 to 25 yearly records."""
    rows = [
        {
            "person_id": f"{i:05d}",
            "year": year,
            "birth_year": 1979 + i % 9,
            "sex": ("female", "male")[i % 2],
            "earnings": 3e5 + 1e3 * (i % 90),
        }
        for i in range(persons)
        for year in range(2022 - 9 - i % 16, 2023)
        if year - (1979 + i % 9) >= 16
    ]
    return read_panel(pl.DataFrame(rows), prices=2022)


def best(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some runs after a warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def simulated(rollout: Rollout, sequences: Sequences, workers: int) -> float:
    """Milliseconds a person with so many processes, which are started before the clock is."""
    steps = np.full(len(sequences), YEARS)
    with crew(rollout, sequences, steps, threads=1, processes=workers) as draw:
        seconds = best(lambda: [None for _ in draw(np.arange(len(sequences)))])
    return 1_000 * seconds / len(sequences)


@torch.inference_mode()
def naive(rollout: Rollout, sequences: Sequences, index: int) -> float:
    """Milliseconds for one person by the decoder over every path's whole sequence, each year anew, on all cores."""
    net, record = rollout.network, pad(sequences, np.array([index]))
    futures, born = rollout.futures(int(record.year[0, -1])), int(sequences.birth_year[index])
    start = time.perf_counter()
    names = ("state", "z", "other", "codes", "age")
    parts = {name: torch.from_numpy(np.repeat(getattr(record, name), PATHS, axis=0)) for name in names}
    parts |= {name: parts[name].long() for name in ("state", "codes")}
    for year in range(YEARS):
        hidden, _ = net.hidden(net.tokens(**parts), parts["age"])
        macro = futures.macro[year, :PATHS]
        u = torch.from_numpy(uniforms(PATHS, "path", 1, str(sequences.person_id[index]), year).astype(np.float32))
        _, positive, z = net.head.sample(net.head(hidden[:, -1], torch.tensor([1]), macro), u)
        told = {
            "state": torch.where(positive, POSITIVE, ZERO),
            "z": z * positive,
            "other": torch.full_like(parts["other"][:, 0], float("nan")),
            "codes": parts["codes"][:, -1],
            "age": torch.full_like(parts["age"][:, 0], int(record.year[0, -1]) + year + 1 - born),
        }
        parts = {name: torch.cat([old, told[name][:, None]], 1) for name, old in parts.items()}
    return 1_000 * (time.perf_counter() - start)


def flops(rollout: Rollout, sequences: Sequences) -> float:
    """Floating-point operations a person inside matrix products, the record's encoding counted."""
    some = np.arange(min(len(sequences), rollout.group))
    with FlopCounterMode(display=False) as counter:
        rollout.people(sequences, some, np.full(len(some), YEARS))
    return float(counter.get_total_flops()) / len(some)


def peak() -> float:
    """Operations a second of one large float32 matrix product on all cores."""
    a, b = torch.randn(4_096, 1_024), torch.randn(1_024, 1_024)
    return 2 * a.numel() * b.shape[1] / best(lambda: a @ b)


def deepar(width: int = 96) -> float:
    """Milliseconds a person of a GluonTS DeepAR with two LSTM layers, 500 sample paths over 20 years, on all cores."""
    from gluonts.torch.model.deepar.module import DeepARModel  # type: ignore[import-not-found]

    persons, past = 8, 25
    lags = [1, 2, 3]
    model = DeepARModel(
        freq="Y", context_length=past, prediction_length=YEARS, num_feat_dynamic_real=5, num_feat_static_real=1, num_feat_static_cat=1,
        cardinality=[2], num_layers=2, hidden_size=width, lags_seq=lags, num_parallel_samples=PATHS,
    ).eval()  # fmt: skip
    length = past + max(lags)
    given = (
        torch.zeros(persons, 1, dtype=torch.long), torch.zeros(persons, 1), torch.randn(persons, length, 5), torch.rand(persons, length),
        torch.ones(persons, length), torch.randn(persons, YEARS, 5),
    )  # fmt: skip
    with torch.inference_mode():
        return 1_000 * best(lambda: model(*given), 2) / persons


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=Path("bundles/small"))
    parser.add_argument("--persons", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--deepar", action="store_true")
    given = parser.parse_args()
    forecaster = Forecaster.load(given.bundle)
    panel = people(given.persons)
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    kinds = ["exact"] + ["light"] * (forecaster.network.light is not None)
    drawn = {
        kind: Rollout(forecaster.network, forecaster.calendar, forecaster.process, paths=PATHS, seed=1, light=kind == "light")
        for kind in kinds
    }
    print(f"{given.bundle} ({forecaster.bundle.parameters:,} parameters), {PATHS} paths x {YEARS} years, float32,")
    print(f"{given.workers} processes of one thread, {platform.processor() or platform.machine()}, torch {torch.__version__}\n")
    print("| rollout | ms a person | against exact | matrix products, GFLOP | at the roofline, ms |\n|" + "---|" * 5)
    speed, exact = peak(), 0.0
    for kind in kinds:
        milliseconds, work = simulated(drawn[kind], sequences, given.workers), flops(drawn[kind], sequences)
        exact = exact or milliseconds
        print(f"| {kind} | {milliseconds:.1f} | {milliseconds / exact:.2f} | {work / 1e9:.2f} | {1_000 * work / speed:.1f} |", flush=True)
    slow = naive(drawn["exact"], sequences, 0)
    print(f"| naive | {slow:.0f} | {slow / exact:.1f} | | |")
    if given.deepar:
        other = deepar()
        print(f"| GluonTS DeepAR 2 x 96 | {other:.0f} | {other / exact:.1f} | | |")
    print(f"| published: the paper, one A100 | {PUBLISHED:g} | {PUBLISHED / exact:.2f} | | |")
    if given.memory:
        many = people(10_000)
        for _ in forecaster.blocks(many, to_horizon=YEARS, paths=PATHS, seed=1):
            pass
        print(f"\n10,000 persons with {PATHS} paths: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB in use.")


if __name__ == "__main__":
    main()
