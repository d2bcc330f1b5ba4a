"""Files of a generated register: their digests, and hidden states read back from them."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl

from saga.register.simulation.life_state import MAX_BIRTHS, LifeState


def read_state(path: Path) -> LifeState:
    """The state in a file of `latent/` (one birth year); its persons can be simulated further."""
    frame = pl.read_parquet(path, hive_partitioning=False)
    births = frame.select([f"birth_{k + 1}" for k in range(MAX_BIRTHS)]).to_numpy()
    arrays = {
        f.name: frame[f.name].to_numpy(writable=True)
        for f in fields(LifeState)
        if f.name not in ("birth_year", "births")
    }
    return LifeState(
        birth_year=int(frame["birth_year"][0]), births=births.astype(np.int64), **arrays
    )


def digests(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of each file in `folder`."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
