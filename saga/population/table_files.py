"""Policy tables as files: CSV, Excel, Stata and HTML, with provenance and the internal log."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from saga.files.folders import new_folder, put_json
from saga.files.tables import excel_file, write_stata
from saga.pages.group import render_group
from saga.population.policy_tables import PolicyTables

LOG = "internal_suppression_log.csv"


def internal_folder(out: str) -> str:
    """The folder beside `out` for what is not for publication."""
    return f"{out.rstrip('/')}-internal"


def write_files(tables: PolicyTables, out: str, provenance: Mapping[str, Any]) -> None:
    """Write a new folder with all formats to a path or URL; `provenance.json` comes last.

    The log is in a folder of its own, so that whoever publishes `out` as a whole leaves it out.
    """
    page = render_group(
        tables.statistics,
        tables.transitions,
        provenance,
        tables.suppressed_until,
        tables.dynamics,
    )
    with new_folder(internal_folder(out)) as internal, new_folder(out) as folder:
        internal.put(LOG, tables.log.write_csv().encode())
        frames = {"statistics": tables.statistics, "transitions": tables.transitions}
        if tables.dynamics is not None:
            frames["dynamics"] = tables.dynamics
        for name, frame in frames.items():
            folder.put(f"{name}.csv", frame.write_csv().encode())
            folder.put(f"{name}.dta", stata_file(frame))
        folder.put("tables.xlsx", _excel_file(frames, provenance))
        folder.put("tables.html", page.encode())
        put_json(folder, "provenance.json", provenance)


def stata_file(frame: pl.DataFrame) -> bytes:
    """The content of a Stata file with a table; the library can only write it to a path."""
    with tempfile.TemporaryDirectory(prefix="saga-") as name:
        path = Path(name, "table.dta")
        write_stata(frame, path)
        return path.read_bytes()


def _excel_file(frames: Mapping[str, pl.DataFrame], provenance: Mapping[str, Any]) -> bytes:
    # Hidden rows can be most, and take minutes to write.
    has_number = pl.any_horizontal(pl.selectors.float().is_not_null())
    sheets = {name: frame.filter(has_number) for name, frame in frames.items()}
    values = [str(value) for value in provenance.values()]
    record = pl.DataFrame({"entry": list(provenance), "value": values})
    return excel_file({**sheets, "provenance": record}, autofit=True)
