"""The adaptive state as a table of the diagnostics: what outcomes have added to the thresholds, for the page about drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from calibration.adaptive.adaptive_state import AdaptiveState
from calibration.diagnostics.diagnosis import MIN_CELL, SCHEMAS, Diagnostics


def with_state(
    diagnostics: Diagnostics, state: AdaptiveState | None, counts: Mapping[str, int]
) -> Diagnostics:
    """The diagnostics with the table "adaptive", one row a group, horizon and level: `size` the offset in force, `n` settled promises,
    `inside` the share of them that held, `last_year` of an outcome; figures of few promises are null. `counts` are those of the ledger.

    The provenance names the state. Without a state, one that nobody has promised under yet, the table is empty.
    """
    least = int(diagnostics.provenance.get("min_cell", MIN_CELL))
    rows: list[dict[str, Any]] = []
    for (group, horizon, level), cell in sorted(state.cells.items() if state else ()):
        row: dict[str, Any] = {
            "horizon": horizon,
            "group": group,
            "level": level,
            "last_year": cell.last_year,
            "size": cell.offset,
        }
        if cell.persons >= least:
            row |= {"n": cell.persons, "inside": 1 - cell.missed / cell.persons}
        if cell.persons >= least or cell.offset != 0:
            rows.append(row)
    facts = {
        "adaptive_version": state.version if state else 0,
        "adaptive_through": state.through if state else None,
    }
    facts |= {f"adaptive_{name}": number for name, number in counts.items()}
    named = [
        {"name": name, "text": str(value)} for name, value in facts.items() if value is not None
    ]
    kept = diagnostics["provenance"].filter(~pl.col("name").str.starts_with("adaptive_"))
    tables = {
        **diagnostics.tables,
        "adaptive": pl.DataFrame(rows, schema=SCHEMAS["adaptive"], orient="row"),
    }
    return Diagnostics(
        tables
        | {
            "provenance": pl.concat(
                [kept, pl.DataFrame(named, schema=SCHEMAS["provenance"], orient="row")]
            )
        }
    )
