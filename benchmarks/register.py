"""What does a register cost, and do two workers write the same bytes as one?

    python benchmarks/register.py [--persons 100000] [--workers 2] [--seed 1]

Prints time, memory and bytes per row. The register of the SAGA paper has 61.3 million person-years;
that is 3,400,000 persons here. The memory is an upper bound: the peak of this process and, for each
worker, the peak of the largest worker; shared pages are counted each time.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import tempfile
import time
from pathlib import Path

from saga.register import RegisterSettings, generate_register

SMALL = 500  # persons of the register that is written twice
UNIT = 1 if sys.platform == "darwin" else 1_024  # of ru_maxrss, in bytes


def main(persons: int, workers: int, seed: int, out: Path) -> None:
    """Write the register to `out` and print the figures."""
    same = len({digest(out.parent / f"small-{k}", seed, k) for k in (1, 2)}) == 1
    print(f"{SMALL} persons, 1 and 2 workers: {'the same bytes' if same else 'DIFFERENT BYTES'}")
    cpu_before, start = cpu_seconds(), time.perf_counter()
    settings = RegisterSettings(persons=persons, seed=seed)
    rows = int(str(generate_register(out, settings, workers=workers)["rows"]))
    wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu_before
    parent, worker = (
        resource.getrusage(process).ru_maxrss * UNIT / 1e6
        for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    memory = parent + (workers * worker if workers > 1 else 0.0)
    panel_bytes, all_bytes = (
        sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        for folder in (out / "panel", out)
    )
    print(f"{persons:,} persons, {rows:,} person-years, seed {seed}, {workers} worker(s)")
    print(
        f"{wall:.1f} s: {rows / wall:,.0f} person-years/s; "
        f"{cpu:.1f} s of processor time: {rows / cpu:,.0f} person-years/s per core"
    )
    print(
        f"peak memory at most {memory:,.0f} MB: {parent:,.0f} MB in this process"
        + (f", {worker:,.0f} MB per worker" if workers > 1 else "")
    )
    print(
        f"{panel_bytes / rows:.2f} bytes per row of the panel, "
        f"{all_bytes / 1e9:.2f} GB with the hidden state"
    )
    if not same:
        sys.exit(1)


def digest(folder: Path, seed: int, workers: int) -> str:
    """sha256 of the names and bytes of a small register's files."""
    generate_register(folder, RegisterSettings(persons=SMALL, seed=seed), workers=workers)
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return total.hexdigest()


def cpu_seconds() -> float:
    """Processor time of this process and of the workers that have ended."""
    usage = [
        resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(part.ru_utime + part.ru_stime for part in usage)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        main(args.persons, args.workers, args.seed, Path(scratch) / "register")
