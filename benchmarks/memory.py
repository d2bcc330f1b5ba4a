"""How much memory does each process of a run of `saga score` need?

    python benchmarks/memory.py [--persons 10000 50000] [--products forecasts,lifetimes,paths]
        [--engines local,shard,ray] [--paths 100] [--parts 2] [--workers 2] [--folder FOLDER]

Generated registers are scored with the shipped bundle, and each run is ended after `--parts` parts
a worker: the memory of a worker depends on its parts, not on their number. The largest memory of
each process is what the kernel has noted (VmHWM of /proc), libraries included, which processes
share. The process of the command plans and stages; with one worker it computes too. It is not
extrapolated: the block of rows that it stages grows with a small register only. `--largest-parts`
makes parts as large as those of a register of millions. Linux only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from engines import descendants, kill, processes  # type: ignore[import-not-found]

from saga.batch.products import Recipe
from saga.register.simulation.cohort_simulation import RegisterSettings
from saga.register.simulation.generation import generate_register
from saga.requests import Draws, ForecastRequest, LifetimeRequest, PathsRequest, Request

SAGA = str(Path(sys.executable).with_name("saga"))
REQUESTS: dict[str, Request] = {
    "forecasts": ForecastRequest(),
    "lifetimes": LifetimeRequest(),
    "paths": PathsRequest(),
}
_WORKERS = (b"spawn_main", b"_RayWorker", b"ray::")
_RAYS_OWN = (b"raylet", b"gcs_server", b"ray/", b"ray-", b"ray::IDLE")


@dataclass
class Peaks:
    """Largest memory (MB) by process, in three roles."""

    command: dict[int, float] = field(default_factory=dict)
    workers: dict[int, float] = field(default_factory=dict)
    others: dict[int, float] = field(default_factory=dict)

    def note(self, root: int) -> None:
        """Look at a process and all that it has started."""
        for pid in {root} | descendants(root, processes()):
            with suppress(OSError, StopIteration):
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                line = next(line for line in status if line.startswith("VmHWM"))
                self._role(root, pid)[pid] = int(line.split()[1]) / 1024

    def _role(self, root: int, pid: int) -> dict[int, float]:
        if pid == root:
            return self.command
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        is_worker = pid in self.workers or any(name in command for name in _WORKERS)
        return self.workers if is_worker and b"IDLE" not in command else self.others

    def text(self) -> str:
        """The peaks as cells of a table."""
        worker = f"{max(self.workers.values()):,.0f}" if self.workers else "-"
        others = f"{sum(self.others.values()):,.0f}" if self.others else "-"
        return f"{max(self.command.values()):,.0f} | {worker} | {others}"


def measure(line: list[str], out: Path, parts: int) -> Peaks:
    """The peaks of a run until it has so many parts, or ends."""
    peaks = Peaks()
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        # A part of persons who cannot be forecast has no file.
        while run.poll() is None and len(list(out.glob("part-*.parquet"))) < parts:
            peaks.note(run.pid)
            time.sleep(0.2)
        peaks.note(run.pid)
        tree = {run.pid} | descendants(run.pid, processes())
        if run.poll() not in (None, 0):
            errors = run.stderr.read() if run.stderr else b""
            raise SystemExit(f"{line} failed:\n{errors.decode()}")
        kill(tree)
    return peaks


def main() -> None:
    """Print a row for each register, product and engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--products", default=",".join(REQUESTS))
    parser.add_argument("--engines", default="local,shard,ray")
    parser.add_argument("--paths", type=int, default=100)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--largest-parts", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the outputs are written and removed")
    args = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")
    print("| persons | product | persons of a part | engine | command | a worker | Ray's own |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        for persons in sorted(args.persons):
            source = Path(name, f"in-{persons}")
            generate_register(source, RegisterSettings(persons=persons, seed=7))
            for product in args.products.split(","):
                recipe = Recipe("", REQUESTS[product], Draws(args.paths))
                size = recipe.largest_partition() if args.largest_parts else None
                for engine in args.engines.split(","):
                    out = Path(name, f"{persons}-{product}-{engine}")
                    line = [SAGA, "score", str(source), str(out), "--product", product]
                    line += ["--paths", str(args.paths)]
                    line += ["--persons-per-partition", str(size)] if size else []
                    line += ["--shard", "0/2"] if engine == "shard" else []
                    workers = 1 if engine == "shard" else args.workers
                    line += ["--workers", str(workers)]
                    line += ["--engine", "ray"] if engine == "ray" else []
                    peaks = measure(line, out, args.parts * workers)
                    shown = size or min(500, recipe.largest_partition())
                    row = f"{persons:,} | {product} | {shown} | {engine} | {peaks.text()}"
                    print(f"| {row} |", flush=True)
    print(f"MB. Load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {args.paths} paths")


if __name__ == "__main__":
    main()
