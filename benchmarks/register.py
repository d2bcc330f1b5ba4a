"""What a register costs: time, memory and bytes per row, and whether two workers write the bytes of one.

    python benchmarks/register.py [--persons 100000] [--workers 2] [--seed 1] [--out DIR]

61.3 million person-years, the size of the register that the SAGA paper used, are 3,400,000 persons. The memory is an upper bound:
the peak of this process and, for each worker, the peak of the largest of them, pages that they share counted each time.
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
    """Writes the register to `out` and prints the figures."""
    same = len({digest(out.parent / f"small-{k}", seed, k) for k in (1, 2)}) == 1
    print(f"{SMALL} persons, 1 and 2 workers: {'the same bytes' if same else 'DIFFERENT BYTES'}")
    before, start = cpu_seconds(), time.perf_counter()
    rows = int(
        str(
            generate_register(out, RegisterSettings(persons=persons, seed=seed), workers=workers)[
                "rows"
            ]
        )
    )
    wall, cpu = time.perf_counter() - start, cpu_seconds() - before
    own, largest = (
        resource.getrusage(who).ru_maxrss * UNIT / 1e6
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    memory = own + (workers * largest if workers > 1 else 0.0)
    panel, everything = (
        sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        for folder in (out / "panel", out)
    )
    print(f"{persons:,} persons, {rows:,} person-years, seed {seed}, {workers} worker(s)")
    print(
        f"{wall:.1f} s: {rows / wall:,.0f} person-years/s; {cpu:.1f} s of processor time: {rows / cpu:,.0f} person-years/s a core"
    )
    print(
        f"peak memory at most {memory:,.0f} MB: {own:,.0f} MB here"
        + (f", {largest:,.0f} MB a worker" if workers > 1 else "")
    )
    print(
        f"{panel / rows:.2f} bytes per row of the panel, {everything / 1e9:.2f} GB with the hidden state"
    )
    if not same:
        sys.exit(1)


def digest(folder: Path, seed: int, workers: int) -> str:
    """sha256 over the names and bytes of a small register's files."""
    generate_register(folder, RegisterSettings(persons=SMALL, seed=seed), workers=workers)
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return total.hexdigest()


def cpu_seconds() -> float:
    """Processor time of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out",
        type=Path,
        help="keep the register in this new directory (otherwise it is thrown away)",
    )
    given = parser.parse_args()
    if (
        given.out and given.out.exists() and (not given.out.is_dir() or any(given.out.iterdir()))
    ):  # said before hours of work, not after
        parser.error(f"{given.out} exists already: give a new directory to --out, or remove it")
    with tempfile.TemporaryDirectory(
        dir=given.out.absolute().parent if given.out else None
    ) as scratch:
        main(given.persons, given.workers, given.seed, Path(scratch) / "register")
        if given.out:
            (Path(scratch) / "register").rename(given.out)
