"""Circumstances: what else a person's years are made of beside earnings, and what is known of it at the end of a year.

Seven columns are simulated along with earnings (`saga.states.state_network`): the state, which is the main source of income of the year,
workplace and occupation, county, and the family; besides that people die and emigrate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import schema
from saga.features.transforms import Transforms

# The state that each source of income stands for; the largest sum of the year decides, of equal ones the first.
SOURCES = {
    "employed": "earnings",
    "unemployed": "unemployment_benefit",
    "parental_leave": "parental_benefit",
    "sick": "sickness_benefit",
    "disabled": "disability_pension",
    "retired": "pension_income",
}
STATES = (*SOURCES, "other")  # other: no income of these kinds, as students have
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
CATEGORIES = COLUMNS[1:]  # columns of the panel; the state is read off sums of money
MAX_SPELL = 10  # years in a circumstance that are told apart

Codes = NDArray[np.int64]


def state_of(frame: pl.DataFrame) -> pl.Series:
    """The state of each row, one of STATES; null where one of the sums is unknown, which may be the largest."""
    sums = list(SOURCES.values())
    most = pl.max_horizontal(sums)
    known = pl.all_horizontal(pl.col(name).is_not_null() for name in sums)
    state = pl.when(~known).then(None).when(most <= 0).then(pl.lit("other"))
    for name, column in SOURCES.items():
        state = state.when(pl.col(column) == most).then(pl.lit(name))
    return frame.select(state.otherwise(None).cast(pl.Enum(STATES)).alias("state"))["state"]


def code_labels(transforms: Transforms) -> dict[str, tuple[str, ...]]:
    """The codes that each column can take, in the order of their numbers, which begin at 1."""
    return {"state": STATES, **{name: transforms.codes[name] for name in CATEGORIES}}


def code_numbers(frame: pl.DataFrame, transforms: Transforms) -> NDArray[np.int16]:
    """(n_row, 7) numbers of the codes of a panel's rows; 0 where unknown, or where there is no workplace."""
    codes = transforms.categorical(frame)
    state = state_of(frame).to_physical().cast(pl.Int16).fill_null(-1).to_numpy() + 1
    return np.column_stack(
        [state, *(codes[:, schema.CATEGORICAL.index(name)] for name in CATEGORIES)]
    ).astype(np.int16)


@dataclass(eq=False)
class Spells:
    """What is known of n persons at the end of a year.

    `codes` (n, 7): numbers last known, 0 for none; `workplace` (n,): whether the last record names one; `since` (n, 8): the year in which
    each code became what it is, and last whether there is a workplace.
    """

    codes: Codes
    workplace: NDArray[np.bool_]
    since: Codes

    @classmethod
    def unknown(cls, n: int, year: NDArray[np.integer[Any]]) -> Spells:
        """Before the first record, which is of `year` (n,)."""
        shape = (n, len(COLUMNS) + 1)
        return cls(
            np.zeros((n, len(COLUMNS)), np.int64),
            np.zeros(n, bool),
            np.broadcast_to(year[:, None], shape).astype(np.int64),
        )

    def after(self, year: NDArray[np.integer[Any]], codes: NDArray[np.integer[Any]]) -> Spells:
        """At the end of a `year` (n,) that shows `codes` (n, 7)."""
        told, works = codes > 0, codes[:, INDUSTRY] > 0
        fresh = np.column_stack([told & (codes != self.codes), works != self.workplace])
        return Spells(
            np.where(told, codes, self.codes), works, np.where(fresh, year[:, None], self.since)
        )

    def years(self, year: NDArray[np.integer[Any]]) -> Codes:
        """(n, 8) whole years from `since` to `year` (n,), MAX_SPELL at most."""
        lasted: Codes = np.clip(year[:, None] - self.since, 0, MAX_SPELL)
        return lasted

    def take(self, rows: Any) -> Spells:
        """Of some persons."""
        return Spells(self.codes[rows], self.workplace[rows], self.since[rows])
