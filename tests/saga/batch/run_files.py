"""The input of a batch run, and the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from saga.files.atomic import LOCK


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
