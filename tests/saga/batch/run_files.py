"""The input of a batch run, the files that it writes, and a run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from saga.files.atomic import LOCK

SCRIPT = """
import sys
from carry import Carry
from saga.batch.engine import BatchInterruptedError, compute_locally, score
from saga.batch.ray_engine import RayEngine
from saga.batch.shards import Shard

if __name__ == "__main__":
    source, out, seconds, size, workers, shard, address = sys.argv[1:]
    try:
        score(
            source,
            out,
            Carry(seconds=float(seconds)),
            persons_per_partition=int(size),
            workers=int(workers),
            shard=Shard.parse(shard),
            engine=RayEngine(address) if address else compute_locally,
            progress=lambda n, _: print(n, file=sys.__stdout__, flush=True),
        )
    except BatchInterruptedError as stop:
        sys.exit(stop.exit_code)
"""


def worker_path() -> str:
    """The PYTHONPATH of processes that import the product `Carry`."""
    recipes = Path(sys.modules["carry"].__file__ or "").parent
    return f"{recipes}:{Path(__file__).parents[3]}"


def start_score(
    source: Path | str,
    out: Path | str,
    *,
    size: int,
    seconds: float = 0.0,
    workers: int = 1,
    shard: str = "0/1",
    address: str = "",
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """A run of `Carry` in a process, which prints how many persons are done."""
    script = Path(tempfile.mkdtemp()) / "batch.py"
    script.write_text(SCRIPT)
    options = map(str, (seconds, size, workers, shard, address))
    return subprocess.Popen(
        [sys.executable, str(script), str(source), str(out), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": worker_path(),
            **(environment or {}),
        },
    )


def await_persons(process: subprocess.Popen[str], persons: int) -> None:
    """Wait until so many persons are done."""
    assert process.stdout is not None
    if not any(line.strip().isdigit() and int(line) >= persons for line in process.stdout):
        pytest.fail("the run ended before it could be killed")


def end_of(process: subprocess.Popen[str]) -> int:
    """The exit code, after reading what the run still prints."""
    process.communicate(timeout=120)
    return process.returncode


def write_years(
    folder: Path,
    years: Sequence[int],
    *,
    n_persons: int,
    seed: int,
    suffix: str = ".csv",
    broken: bool = False,
) -> Path:
    """One file per year, persons in random order; `broken`: an amount of the last is negative."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for year in years:
        persons = [f"{i:03d}" for i in rng.permutation(n_persons)]
        earnings = rng.lognormal(12, 1, n_persons)
        if broken and year == years[-1]:
            earnings[0] = -1
        rows = {"person_id": persons, "year": year, "birth_year": 1970, "earnings": earnings}
        frame, file = pl.DataFrame(rows), folder / f"{year}{suffix}"
        frame.write_csv(file) if suffix == ".csv" else frame.write_parquet(file)
    return folder


def files_of(out: Path, *, lock: bool = True) -> dict[str, bytes]:
    """The files of a run by path; `lock`: also the one that other processes lock."""
    files = [file for file in sorted(out.rglob("*")) if file.is_file()]
    return {
        str(file.relative_to(out)): file.read_bytes() for file in files if lock or file.name != LOCK
    }
