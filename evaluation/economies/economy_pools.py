"""Pools: the records of many economies together, each in units of its fitted level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.economies.economy_panels import POOL_ECONOMIES, draw_panel

from saga.data.panel import SIMULATED_ID, Panel
from saga.errors import InputError
from saga.features.calendar import Calendar
from saga.features.sequences import Sequences, encode
from saga.features.transforms import Transforms

NO_CALENDAR = Calendar(None)  # economies have no macro series
_OF_PERSONS = ("person_id", "birth_year", "dead_year")  # fields of `Sequences`
_OF_ROWS = ("year", "state", "z", "other", "codes")
PANEL_ID = f"{SIMULATED_ID}economies"
VALIDATION = -1  # number of the pool of validation persons
_MIN_SCALE = 0.02  # logs; without differences between persons there are no units
_TYPICAL = 100_000.0  # amount at the level of an economy in the panel of `fit_reference`


@dataclass(frozen=True)
class Economies:
    """The source of all pools.

    Attributes:
        seed: Seed of the economies.
        persons: Persons of an economy.
        pool_size: Economies of a pool.
    """

    seed: int
    persons: int
    pool_size: int = POOL_ECONOMIES

    def panels(self, pool: int) -> list[Panel]:
        """The panels of pool number `pool`; the pools have different economies."""
        first = pool * self.pool_size
        numbers = range(first, first + self.pool_size)
        return [draw_panel(self.seed, number, self.persons) for number in numbers]

    def reference(self, bins: int) -> Transforms:
        """Transforms of all economies: the knots and codes that they share.

        They are fitted on one pool, whose earnings are first divided by the level of their economy,
        so that the bins follow the distribution of relative earnings over economies.
        """
        relative = []
        for panel in self.panels(0):
            try:
                fitted = Transforms.fit(panel, NO_CALENDAR, bins, scale_free=True)
            except InputError:
                continue
            if fitted.units.scale > _MIN_SCALE:
                relative.append(_relative_rows(panel, fitted))
        meta = replace(panel.meta, panel_id=PANEL_ID)
        joined = Panel(pl.concat(relative).sort("person_id", "year"), meta)
        return Transforms.fit(joined, NO_CALENDAR, bins, scale_free=True)

    def pool(self, number: int, reference: Transforms) -> Sequences:
        """The records of a pool.

        Economies with too few positive earnings, or where all earn the same, are left out.
        """
        parts = []
        for panel in self.panels(number):
            try:
                fitted = Transforms.fit(panel, NO_CALENDAR, 0, like=reference)
            except InputError:
                continue
            if fitted.units.scale > _MIN_SCALE:
                parts.append(encode(panel, fitted, NO_CALENDAR))
        return concatenate(parts)


def concatenate(parts: Sequence[Sequences]) -> Sequences:
    """The records of all parts, whose inputs have the same meaning; units are those of each."""
    starts = np.cumsum([0, *(len(part.year) for part in parts)])
    offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (*_OF_PERSONS, *_OF_ROWS)
    }
    return Sequences(
        offsets=np.append(np.concatenate(offsets), starts[-1]),
        continued=parts[0].continued,
        **joined,
    )


def take(sequences: Sequences, persons: NDArray[np.int64]) -> Sequences:
    """The records of these persons, by position."""
    starts, lengths = sequences.offsets[persons], sequences.lengths[persons]
    offsets = np.append(0, lengths.cumsum())
    rows = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(
        sequences,
        offsets=offsets,
        **{name: getattr(sequences, name)[persons] for name in _OF_PERSONS},
        **{name: getattr(sequences, name)[rows] for name in _OF_ROWS},
    )


def _relative_rows(panel: Panel, fitted: Transforms) -> pl.DataFrame:
    """The panel's rows, with earnings relative to its level and persons named by the panel."""
    frame = panel.frame
    year = frame["year"].to_numpy().astype(np.int64)
    age = year - frame["birth_year"].to_numpy()
    earnings = frame["earnings"].to_numpy().astype(np.float64)
    with np.errstate(divide="ignore"):
        z = fitted.units.relative(np.log(earnings), age, year)
    amounts = pl.Series("earnings", _TYPICAL * np.exp(z)).fill_nan(None)
    return frame.with_columns(
        amounts, pl.concat_str(pl.lit(panel.meta.panel_id), "person_id").alias("person_id")
    )
