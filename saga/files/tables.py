"""Result tables on disk: complete or absent, and always with their provenance.

A Parquet file has the provenance as JSON in its metadata under the key `saga`; CSV, Stata and Excel
files have it in a file `NAME.csv.json` beside them.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from saga.errors import InputError, UsageError
from saga.files.atomic import commit, commit_json, digest_file, read_json
from saga.files.object_store import is_url, polars_options

KEY = "saga"
_DIGEST = "table_sha256"  # in the file beside a table
SUFFIXES = (".parquet", ".csv", ".dta", ".xlsx")
_EXCEL_ROWS = 1_048_575


def check_out(out: str | Path) -> Path:
    """The path of an output table, checked before the work on it starts.

    Raises `UsageError` if the suffix is unknown, the folder is not writable, or there is a file
    that SAGA did not write, such as a link, whose target would stay as it is.
    """
    out = Path(out)
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"The output {out} must end in {', '.join(SUFFIXES)}: the suffix chooses the format."
        )
    if out.is_dir():
        example = out / "forecast.parquet"
        raise UsageError(f"The output {out} is a directory. Name a file in it, such as {example}.")
    check_replaceable(out, _written_by_saga)
    if out.suffix.lower() != ".parquet":
        check_replaceable(_sidecar(out), _is_sidecar)
    check_writable(out)
    return out


def check_replaceable(out: Path, is_ours: Callable[[Path], bool]) -> None:
    """Raise UsageError for a link, and for a file that SAGA did not write."""
    if out.is_symlink() or (out.exists() and not is_ours(out)):
        raise UsageError(
            f"{out} exists and SAGA did not write it, so it is not replaced. Choose another --out, "
            "or remove it."
        )


def check_path(out: Path) -> None:
    """Raises UsageError if two folders of a user's path or more are missing: likely a slip."""
    above = out.absolute().parent.parent
    if not above.is_dir():
        raise UsageError(
            f"There is no directory {above}. Check the path of {out}, or make the directory first."
        )


def check_writable(out: Path) -> None:
    """Make the folder of `out`. Raises UsageError if it cannot be made or written to."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writable = os.access(out.parent, os.W_OK)
    except PermissionError:
        writable = False
    if not writable:
        raise UsageError(
            f"The directory {out.parent} is not writable. Choose another directory for {out.name}."
        )


def write_table(frame: pl.DataFrame, out: str | Path, provenance: Mapping[str, Any]) -> Path:
    """Write `frame` with its provenance to `out` and return the path.

    An existing file is replaced in one step; after a crash the old file or none remains.
    """
    out = check_out(out)
    if out.suffix.lower() == ".xlsx" and frame.height > _EXCEL_ROWS:
        raise UsageError(
            f"An Excel sheet has at most {_EXCEL_ROWS:,} rows, the table has {frame.height:,}. "
            "Choose .parquet, .csv or .dta."
        )
    record = json.dumps(provenance, sort_keys=True, ensure_ascii=False, default=str)
    if out.suffix.lower() == ".parquet":
        commit(
            out, lambda part: frame.write_parquet(part, compression="zstd", metadata={KEY: record})
        )
    else:
        commit(out, lambda part: _write_pair(frame, record, part, out))
    return out


def _write_pair(frame: pl.DataFrame, record: str, part: Path, out: Path) -> None:
    """Write the table to `part` and commit its provenance, which has the digest of the table.

    The table is synced before: then a full disk changes neither. If the process is killed before
    the table is renamed, the digest tells that the two do not belong together.
    """
    _write(frame, out.suffix.lower(), part)
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    commit_json(_sidecar(out), {**json.loads(record), _DIGEST: digest_file(part)})


def _write(frame: pl.DataFrame, suffix: str, part: Path) -> None:
    """Write a .csv, .dta or .xlsx file to `part`."""
    if suffix == ".csv":
        frame.write_csv(part)
    elif suffix == ".xlsx":
        part.write_bytes(excel_file({"Sheet1": frame}))
    else:
        stata = part.with_name(f"{part.name}.dta")  # the library wants the suffix
        try:
            write_stata(frame, stata)
            stata.replace(part)
        finally:
            stata.unlink(missing_ok=True)


def excel_file(frames: Mapping[str, pl.DataFrame], *, autofit: bool = False) -> bytes:
    """The content of an Excel file with a sheet for each frame; `autofit` takes long for many rows.

    A text is neither a formula nor a link, which would show another text: an id, a code of a panel
    or the name of a bundle may look like one.
    """
    import xlsxwriter

    content = io.BytesIO()
    as_texts = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(content, as_texts) as book:
        for name, frame in frames.items():
            frame.write_excel(book, worksheet=name, autofit=autofit)
    return content.getvalue()


def parquet_bytes(
    frame: pl.DataFrame,
    metadata: Mapping[str, str] | None = None,
    row_group_size: int | None = None,
) -> bytes:
    """The content of a Parquet file with the frame."""
    buffer = io.BytesIO()
    frame.write_parquet(
        buffer, metadata=dict(metadata or {}) or None, row_group_size=row_group_size
    )
    return buffer.getvalue()


def write_stata(frame: pl.DataFrame, path: Path) -> None:
    """Write a .dta file; Stata has no booleans, no column without a type, and no dots in names."""
    from polars_readstat import write_readstat

    flags = pl.selectors.boolean().cast(pl.Int8)
    unknown = pl.selectors.by_dtype(pl.Null).cast(pl.Float64)  # a column without any value
    names = {name: re.sub(r"\W", "_", name) for name in frame.columns}
    write_readstat(frame.with_columns(flags, unknown).rename(names), str(path), format="dta")


def _is_sidecar(path: Path) -> bool:
    return _DIGEST in (read_json(path) or {})


def _written_by_saga(path: Path) -> bool:
    try:
        read_provenance(path)
    except (InputError, OSError, ValueError, pl.exceptions.PolarsError):
        return False
    return True


def read_provenance(path: str | Path) -> dict[str, Any]:
    """The provenance that `write_table` stored with a table. Raises `InputError` without one."""
    record = None
    if is_url(path):
        record = pl.read_parquet_metadata(path, storage_options=polars_options()).get(KEY)
    elif (path := Path(path).absolute()).suffix.lower() == ".parquet":
        record = pl.read_parquet_metadata(path).get(KEY)
    elif (beside := read_json(_sidecar(path))) and beside.pop(_DIGEST, "") == digest_file(path):
        return beside
    if record is None:
        raise InputError(
            f"{path} has no provenance: SAGA did not write it, it was changed, or its .json file "
            "was lost."
        )
    provenance: dict[str, Any] = json.loads(record)
    return provenance


def _sidecar(out: Path) -> Path:
    return out.with_name(out.name + ".json")
