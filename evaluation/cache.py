"""Stored results of a contest, named by their inputs, so that an interrupted contest continues.

A file's name contains a digest of its inputs (panel, options, bundle) and of declared versions.
Every contestant and every step of scoring declares a `version`. **Rule: raise a version when the
same inputs may give other numbers.** Other changes of the code do not change names of files.
Only tables are stored, so that reading a folder of somebody else runs no code.

Files of scores have a row per person: store them only where the panel may be stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from saga.files.atomic import commit, digest_json
from saga.files.tables import KEY


def store(
    path: Path,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    record: Callable[[], Mapping[str, Any]],
) -> Path:
    """Write `tables` to `path`, completely or not at all, unless the file exists.

    `record` is called after the last table; its result is the provenance of the file.
    """

    def write(part: Path) -> None:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table.cast(schema))
            writer.add_key_value_metadata({KEY: json.dumps(record(), sort_keys=True)})

    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        commit(path, write)
    return path


def file_name(name: str, kind: str, inputs: Mapping[str, Any]) -> str:
    """The name of a stored file: `name`, `kind` and the digest of `inputs`."""
    return f"{name.replace(':', '-').replace('/', '-')}-{kind}-{digest_json(inputs)[:20]}.parquet"
