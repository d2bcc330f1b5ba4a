"""One invented person, for the schema, the warm-up and the curl command of `saga serve`."""

from __future__ import annotations

import json
from typing import Any


def example_persons(scale: float = 1.0) -> list[Any]:
    """A woman born in 1985 with five observed years and a gap.

    Earnings are `scale` x SEK, rounded to three digits.
    """
    earnings = {2017: 286_000.0, 2018: 297_500.0, 2019: 312_000.0, 2021: 241_000.0, 2022: 334_000.0}
    history = [
        {"year": year, "earnings": float(f"{scale * amount:.3g}")}
        for year, amount in earnings.items()
    ]
    return [{"person_id": "A1", "birth_year": 1985, "sex": "female", "history": history}]


def example_csv(example: dict[str, Any]) -> str:
    """The example of a JSON body as CSV: its outcomes, or the rows of its persons."""
    rows = example.get("outcomes") or [
        {"person_id": person["person_id"], "birth_year": person["birth_year"], **row}
        for person in example["persons"]
        for row in person["history"]
    ]
    lines = [rows[0], *(row.values() for row in rows)]
    return "\n".join(",".join(map(str, cells)) for cells in lines) + "\n"


def curl(url: str, *, keyed: bool, scale: float = 1.0) -> str:
    """A curl command that requests a forecast; with keys it reads one from `$SAGA_KEY`."""
    body = json.dumps(
        {"persons": example_persons(scale), "horizons": [1, 5, 10]}, separators=(",", ":")
    )
    key = ' -H "Authorization: Bearer $SAGA_KEY"' if keyed else ""
    return f"curl -s {url}/v1/forecasts -H 'Content-Type: application/json'{key} -d '{body}'"
