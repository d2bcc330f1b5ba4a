"""Small panels and their tokens, for tests of sequences and of masking."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from saga.data.panel import Panel, PanelMeta
from saga.features.calendar import Calendar
from saga.features.sequences import Sequences, Tokens, encode, pad
from saga.features.transforms import Transforms
from saga.macro.history import sweden

CALENDAR = Calendar(sweden())


def panel_of(rows: list[dict[str, Any]]) -> Panel:
    return Panel.of(pl.DataFrame(rows, infer_schema_length=None), PanelMeta("p"))


def person(name: str, earnings: dict[int, float | None], **extra: Any) -> list[dict[str, Any]]:
    return [
        {"person_id": name, "year": y, "birth_year": 1970, "earnings": e, **extra}
        for y, e in earnings.items()
    ]


def fit_transforms() -> Transforms:
    """Transforms of 60 women with ten years of lognormal earnings."""
    rng = np.random.default_rng(0)
    rows = [
        r
        for i in range(60)
        for r in person(
            f"t{i:02d}", {y: float(rng.lognormal(12, 0.5)) for y in range(2000, 2010)}, sex="female"
        )
    ]
    return Transforms.fit(panel_of(rows), CALENDAR, 16)


def tokens_of(rows: list[dict[str, Any]], transforms: Transforms) -> tuple[Sequences, Tokens]:
    sequences = encode(panel_of(rows), transforms, CALENDAR)
    return sequences, pad(sequences, np.arange(len(sequences)))
