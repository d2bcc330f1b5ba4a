"""Codes of the states that are simulated along with earnings, and their spells at a year's end.

Seven columns are simulated (`saga.states.state_network`): the state of the year (its main source of
income), industry and occupation, county, and three on the family. Death and emigration are
simulated too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import schema
from saga.features.transforms import Transforms

# State -> source of income. The largest sum of the year decides; of equal sums, the first one.
SOURCES = {
    "employed": "earnings",
    "unemployed": "unemployment_benefit",
    "parental_leave": "parental_benefit",
    "sick": "sickness_benefit",
    "disabled": "disability_pension",
    "retired": "pension_income",
}
STATES = (*SOURCES, "other")  # other: no income from these sources, for example students
DEAD, ABROAD = "dead", "abroad"
STATE, INDUSTRY, OCCUPATION = 0, 1, 2
COLUMNS = (
    "state",
    "industry",
    "occupation",
    "county",
    "marital_status",
    "children",
    "youngest_child",
)
CATEGORIES = COLUMNS[1:]  # columns of the panel; the state follows from sums of money
MAX_SPELL = 10  # longer durations, in years, are not distinguished

Codes = NDArray[np.int64]


def state_of(frame: pl.DataFrame) -> pl.Series:
    """The state of each row, one of STATES; null if a sum is missing, which may be the largest."""
    sums = list(SOURCES.values())
    largest = pl.max_horizontal(sums)
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in sums)
    state = pl.when(~complete).then(None).when(largest <= 0).then(pl.lit("other"))
    for name, column in SOURCES.items():
        state = state.when(pl.col(column) == largest).then(pl.lit(name))
    return frame.select(state.otherwise(None).cast(pl.Enum(STATES)).alias("state"))["state"]


def code_labels(transforms: Transforms) -> dict[str, tuple[str, ...]]:
    """The codes of each column in the order of their numbers, which start at 1."""
    return {"state": STATES, **{name: transforms.codes[name] for name in CATEGORIES}}


def code_sizes(transforms: Transforms) -> tuple[int, ...]:
    """Number of codes of each column, with 0 for a missing one."""
    return tuple(len(codes) + 1 for codes in code_labels(transforms).values())


def code_numbers(frame: pl.DataFrame, transforms: Transforms) -> NDArray[np.int16]:
    """Code numbers (n_row, 7) of a panel's rows; 0 if missing, or if there is no workplace."""
    codes = transforms.categorical(frame)
    state = state_of(frame).to_physical().cast(pl.Int16).fill_null(-1).to_numpy() + 1
    return np.column_stack(
        [state, *(codes[:, schema.CATEGORICAL.index(name)] for name in CATEGORIES)]
    ).astype(np.int16)


@dataclass(eq=False)
class Spells:
    """The current spells of n persons at the end of a year.

    Attributes:
        codes: Last known code number of each column (n, 7), 0 if none is known.
        workplace: Whether the last record has a workplace, (n,).
        since: First year of the spell in each code, and of that with or without workplace, (n, 8).
    """

    codes: Codes
    workplace: NDArray[np.bool_]
    since: Codes

    @classmethod
    def unknown(cls, year: NDArray[np.integer[Any]]) -> Spells:
        """The spells before the first record, which is of `year` (n,)."""
        n, columns = len(year), len(COLUMNS)
        since = np.repeat(year[:, None], columns + 1, axis=1).astype(np.int64)
        return cls(np.zeros((n, columns), np.int64), np.zeros(n, bool), since)

    def after(self, year: NDArray[np.integer[Any]], codes: NDArray[np.integer[Any]]) -> Spells:
        """The spells at the end of `year` (n,), whose record has `codes` (n, 7)."""
        observed, works = codes > 0, codes[:, INDUSTRY] > 0
        begins = np.column_stack([observed & (codes != self.codes), works != self.workplace])
        return Spells(
            np.where(observed, codes, self.codes),
            works,
            np.where(begins, year[:, None], self.since),
        )

    def durations(self, year: NDArray[np.integer[Any]]) -> Codes:
        """Whole years (n, 8) from `since` to `year` (n,), at most MAX_SPELL."""
        durations: Codes = np.clip(year[:, None] - self.since, 0, MAX_SPELL)
        return durations

    def take(self, rows: Any) -> Spells:
        """The spells of some persons: an index, mask or slice."""
        return Spells(self.codes[rows], self.workplace[rows], self.since[rows])
