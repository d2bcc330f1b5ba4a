"""Person-years as matrices: age, work, and residuals of log earnings from the profile.

The econometric baselines model a year's earnings in two parts: whether the person worked (earnings
of at least the panel's floor, `hurdle`), and the log residual of a year of work (`ar1`, `abb`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.evaluation.baselines.econometric.profile import Profile
from saga.evaluation.baselines.origin_states import states_at
from saga.evaluation.baselines.person_states import States, as_states, known_states

from saga.arrays import Array, Floats
from saga.data.origins import Origins
from saga.data.panel import Panel

UNKNOWN, ZERO, LOW, WORK = -1, 0, 1, 2


def status_of(earnings: Floats, floor: float) -> NDArray[np.int8]:
    """UNKNOWN, ZERO, LOW (positive, below the floor) or WORK for each amount; same shape."""
    status = np.where(earnings == 0, ZERO, np.where(earnings < floor, LOW, WORK))
    return np.where(np.isnan(earnings), UNKNOWN, status).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Histories:
    """n persons over T consecutive years; the first calendar year may differ between persons.

    Args:
        age: (n, T), in years.
        status: (n, T), see `status_of`.
        residual: (n, T), log earnings less the profile in years of WORK, otherwise NaN.
        sex: (n,), 1 + the index of the last known code, 0 if none is known.
        education: (n,), 1 + the index of the last known code, 0 if none is known.
    """

    age: NDArray[np.int64]
    status: NDArray[np.int8]
    residual: Floats
    sex: Array
    education: Array

    @property
    def years(self) -> int:
        """T, the number of columns."""
        return int(self.age.shape[1])

    def take(self, rows: Any) -> Histories:
        """The histories of the persons in `rows`."""
        return Histories(**{name: values[rows] for name, values in vars(self).items()})


def rows_of(panel: Panel) -> tuple[NDArray[np.int64], list[str], States]:
    """The panel's person-years with known earnings.

    Returns the number of the person in each, the ids of the persons by number, and the states.
    Persons are numbered from 0 in their order in the panel.
    """
    rows = known_states(panel)
    persons = rows["person_id"].unique(maintain_order=True)
    number = rows["person_id"].replace_strict(
        persons, pl.arange(len(persons), eager=True), return_dtype=pl.Int64
    )
    return number.to_numpy(), persons.to_list(), as_states(rows)


def align_histories(
    person: NDArray[np.int64], n: int, states: States, profile: Profile, floor: float
) -> Histories:
    """Histories of n persons by calendar year; column 0 is the first year of the panel."""
    first = int(states.year.min())
    column = states.year - first
    born = np.zeros(n, dtype=np.int64)
    born[person] = states.year - states.age
    sex, education = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    # Rows are in the order of years, so the last known code is written last.
    sex[person], education[person] = states.sex, states.education_level
    age = first + np.arange(int(column.max()) + 1) - born[:, None]
    return _fill_histories(person, column, age, states, profile, floor, sex, education)


def histories_at(
    history: Panel, origins: Origins, profile: Profile, floor: float
) -> tuple[Histories, States, Array]:
    """Histories up to each person's last known year at or before the origin.

    Returns the histories, in which the last column is that year, the states in that year, and birth
    years, all in the order of `origins`. A person without a known year is UNKNOWN in all columns.
    Raises InputError for a person without a row.
    """
    last, born = states_at(history, origins)
    origin_rows = origins.frame().with_row_index("row")
    before = (
        known_states(history.only(origin_rows["person_id"]))
        .join(origin_rows, on="person_id")
        .filter(pl.col("year") <= pl.col("origin"))
    )
    person, states = before["row"].to_numpy().astype(np.int64), as_states(before)
    back = last.year[person] - states.year
    width = int(back.max(initial=0)) + 1
    age = last.age[:, None] - np.arange(width)[::-1]
    past = _fill_histories(
        person, width - 1 - back, age, states, profile, floor, last.sex, last.education_level
    )
    return past, last, born


def _fill_histories(
    person: Array,
    column: Array,
    age: Array,
    states: States,
    profile: Profile,
    floor: float,
    sex: Array,
    education: Array,
) -> Histories:
    """Histories with the ages (n, T); each of the `states` belongs to a `person` and `column`."""
    status = np.full(age.shape, UNKNOWN, dtype=np.int8)
    status[person, column] = status_of(states.earnings, floor)
    residual = np.full(age.shape, np.nan)
    working = status[person, column] == WORK
    mean_log = profile.mean_log(states.age, states.sex, states.education_level)
    mean_log = mean_log + profile.year_effect(states.year)
    residual[person[working], column[working]] = (
        np.log(states.earnings[working]) - mean_log[working]
    )
    return Histories(age, status, residual, sex, education)
