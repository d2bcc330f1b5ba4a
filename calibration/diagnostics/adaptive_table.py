"""The adaptive state as a table: how outcomes have moved the thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from saga.calibration.adaptive.adaptive_state import AdaptiveState

from saga.diagnostics_tables import TABLES, Diagnostics
from saga.small_groups import MIN_PERSONS


def with_state(
    diagnostics: Diagnostics, state: AdaptiveState | None, counts: Mapping[str, int]
) -> Diagnostics:
    """The diagnostics with the table "adaptive", one row per group, horizon and coverage.

    `size` is the cell's offset. A cell of fewer persons than `min_cell` has no other figure, and no
    row if its offset is 0. Without a state the table is empty. The provenance receives the version
    of the state and `counts`, those of the ledger.
    """
    min_persons = int(diagnostics.provenance.get("min_cell", MIN_PERSONS))
    rows: list[dict[str, Any]] = []
    for (group, horizon, coverage), cell in sorted(state.cells.items() if state else ()):
        row: dict[str, Any] = {
            "horizon": horizon,
            "group": group,
            "level": coverage,
            "last_year": cell.last_year,
            "size": cell.offset,
        }
        if cell.persons >= min_persons:
            row |= {"n": cell.persons, "inside": 1 - cell.missed / cell.persons}
        if cell.persons >= min_persons or cell.offset != 0:
            rows.append(row)
    values = {
        "adaptive_version": state.version if state else 0,
        "adaptive_through": state.through if state else None,
    }
    values |= {f"adaptive_{name}": count for name, count in counts.items()}
    adaptive_values = [
        {"name": name, "text": str(value)} for name, value in values.items() if value is not None
    ]
    other_values = diagnostics["provenance"].filter(~pl.col("name").str.starts_with("adaptive_"))
    provenance = pl.DataFrame(adaptive_values, schema=TABLES["provenance"].schema, orient="row")
    return Diagnostics(
        {
            **diagnostics.tables,
            "adaptive": pl.DataFrame(rows, schema=TABLES["adaptive"].schema, orient="row"),
            "provenance": pl.concat([other_values, provenance]),
        }
    )
