"""Monte-Carlo paths: milliseconds per person for 500 paths x 20 years, and what they are measured against, in one run.

Usage: python benchmarks/rollout.py [--bundle bundles/small] [--persons 64] [--workers 2] [--memory] [--deepar]

Same work in every row: persons with 10 to 25 years of record, 500 joint paths over 20 years, all heads and macro futures counted.
"naive" runs the decoder over the whole sequence of every path each year. "roofline" is the time that the matrix products of the rollout
would take at the speed of one large product of that precision on this machine. bfloat16 is left out where the processor has no units for
it. --memory simulates 10,000 persons and prints the highest memory in use; --deepar adds a GluonTS DeepAR of like size (untrained: it
costs the same), where GluonTS is installed.
"""

from __future__ import annotations

import argparse
import math
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch.utils.flop_counter import FlopCounterMode

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.features.sequences import POSITIVE, ZERO, Sequences, encode, pad
from saga.forecaster import Forecaster
from saga.keyed_random import uniforms
from saga.requests import Draws, Precision
from saga.simulation.matmul import has_bfloat16, has_wide_vectors, product
from saga.simulation.pool import simulation_pool
from saga.simulation.rollout import Rollout, RolloutOptions

PATHS, YEARS = 500, 20
PUBLISHED = 43.0  # milliseconds per person on one A100, arXiv 2605.19014
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
    with simulation_pool(rollout, sequences, steps, threads=1, processes=workers) as draw:
        seconds = best(lambda: [None for _ in draw(np.arange(len(sequences)))])
    return 1_000 * seconds / len(sequences)


@torch.inference_mode()
def naive(rollout: Rollout, sequences: Sequences, index: int) -> float:
    """Milliseconds for one person by the decoder over every path's whole sequence, each year anew, on all cores."""
    net, record = rollout.network, pad(sequences, np.array([index]))
    futures, born = rollout.macro_futures(int(record.year[0, -1])), int(sequences.birth_year[index])
    start = time.perf_counter()
    names = ("state", "z", "other", "codes", "age")
    parts = {
        name: torch.from_numpy(np.repeat(getattr(record, name), PATHS, axis=0)) for name in names
    }
    parts |= {name: parts[name].long() for name in ("state", "codes")}
    for year in range(YEARS):
        hidden, _ = net.hidden(net.tokens(**parts), parts["age"])
        macro = futures.features[year, :PATHS]
        u = torch.from_numpy(
            uniforms(PATHS, "path", 1, str(sequences.person_id[index]), year).astype(np.float32)
        )
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
    some = np.arange(min(len(sequences), rollout.group_size))
    known = (
        {
            torch.ops.mkldnn._linear_pointwise: lambda x, weight, *_, **__: (
                2 * math.prod(x) * weight[0]
            )
        }
        if has_wide_vectors()
        else {}
    )
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        rollout.simulate(sequences, some, np.full(len(some), YEARS))
    return float(counter.get_total_flops()) / len(some)


def peak(precision: Precision) -> float:
    """Operations a second of one large matrix product on all cores."""
    a, b = (torch.randn(rows, 1_024).to(getattr(torch, precision)) for rows in (4_096, 1_024))
    with torch.inference_mode():
        return 2 * a.numel() * len(b) / best(lambda: product(a, b))


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


def processor() -> str:
    """Its name, where the system tells."""
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
    given = parser.parse_args()
    forecaster = Forecaster.load(given.bundle)
    panel = people(given.persons)
    sequences = encode(panel, forecaster.transforms, forecaster.calendar)
    kinds = ["exact"] + ["light"] * (forecaster.network.light is not None)
    precisions: list[Precision] = ["float32"] + ["bfloat16"] * has_bfloat16()
    print(
        f"{given.bundle} ({forecaster.bundle.parameters:,} parameters), {PATHS} paths x {YEARS} years,"
    )
    print(
        f"{given.workers} processes of one thread, {processor()} ({torch.backends.cpu.get_cpu_capability()}), torch {torch.__version__}\n"
    )
    print(
        "| rollout | ms per person | against exact | matrix products, GFLOP | at the roofline, ms |\n|"
        + "---|" * 5
    )
    exact, work, drawn = 0.0, dict[str, float](), dict[str, Rollout]()
    for precision in precisions:
        speed = peak(precision)
        for kind in kinds:
            rollout = Rollout(
                forecaster.network,
                forecaster.calendar,
                forecaster.process,
                RolloutOptions(PATHS, 1, light=kind == "light", precision=precision),
            )
            milliseconds = simulated(rollout, sequences, given.workers)
            drawn.setdefault(kind, rollout)
            if kind not in work:
                work[kind] = flops(rollout, sequences)
            exact = exact or milliseconds
            shares = f"{milliseconds / exact:.2f} | {work[kind] / 1e9:.2f} | {1_000 * work[kind] / speed:.1f}"
            print(f"| {kind}, {precision} | {milliseconds:.1f} | {shares} |", flush=True)
    slow = naive(drawn["exact"], sequences, 0)
    print(f"| naive, float32 | {slow:.0f} | {slow / exact:.1f} | | |")
    if given.deepar:
        other = deepar()
        print(f"| GluonTS DeepAR 2 x 96 | {other:.0f} | {other / exact:.1f} | | |")
    print(f"| published: the paper, one A100 | {PUBLISHED:g} | {PUBLISHED / exact:.2f} | | |")
    if given.memory:
        many = people(10_000)
        for _ in forecaster.blocks(many, Draws(PATHS, seed=1), to_horizon=YEARS):
            pass
        print(
            f"\n10,000 persons with {PATHS} paths: at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB in use."
        )


if __name__ == "__main__":
    main()
