"""The output folder of a finished run of paths, written without a bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.batch.run_folder import MANIFEST
from saga.data.facts import shipped_facts
from saga.files.atomic import commit_json, digest_file


def write_scored(
    folder: Path,
    rows: pl.DataFrame,
    *,
    product: str = "paths",
    stated: Mapping[str, object] = MappingProxyType({}),
    source: object = "",
    warnings: Sequence[Mapping[str, object]] = (),
) -> Path:
    """A complete run in two parts with these rows: person_id, path, year, earnings.

    `stated` is added to the provenance of its parts; `source` stands for what describes the input,
    `warnings` are those of the run.
    """
    folder.mkdir(parents=True)
    ids = rows["person_id"].unique().sort()
    first = ids.head(max(1, len(ids) // 2))
    facts = shipped_facts().provenance()
    provenance = {"product": product, "seed": 0, "scenario": "baseline", "facts": facts}
    provenance |= {**stated, "currency": "SEK", "price_year": 2022}
    metadata = {"saga": json.dumps({**provenance, "warnings": []})}
    parts = []
    for number, is_first in enumerate((True, False)):
        frame = rows.filter(pl.col("person_id").is_in(first.implode()) == is_first)
        path = folder / f"part-{number:05d}.parquet"
        frame.sort("person_id", "path", "year").write_parquet(path, metadata=metadata)
        parts.append({"file": path.name, "sha256": digest_file(path), "rows": frame.height})
    run = {"recipe": {"product": product}, "input": source}
    totals = {
        "partitions": 2,
        "persons_in": len(ids),
        "persons_out": len(ids),
        "warnings": list(warnings),
    }
    commit_json(folder / MANIFEST, {"run": run, "totals": totals, "parts": parts})
    return folder


def path_rows(earnings: Floats, first_year: int = 2023) -> pl.DataFrame:
    """Rows of earnings (n_person, n_year, n_path) of persons "0000", "0001", ..."""
    person, year, path = (grid.ravel() for grid in np.indices(earnings.shape))
    frame = pl.DataFrame(
        {
            "person_id": [f"{number:04d}" for number in person],
            "path": path.astype(np.int32),
            "year": (first_year + year).astype(np.int32),
            "earnings": earnings.ravel(),
        }
    )
    return frame.drop_nans()
