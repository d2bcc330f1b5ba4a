"""The state of a cohort's lives at the end of a year: everything that the next year depends on.

All arrays have one entry a person. This is the hidden state written to `latent/`: a life can be continued from it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Labour states at the end of a year. Parental leave and sickness are spells within employment, counted in weeks.
EMPLOYED, UNEMPLOYED, STUDENT, OUTSIDE, DISABLED, RETIRED = range(6)
STATES = ("employed", "unemployed", "student", "outside", "disabled", "retired")
# Presence in the country on 31 December.
NOT_ARRIVED, RESIDENT, ABROAD, GONE = range(4)
DEAD, EMIGRATED = 1, 2
SINGLE, MARRIED, COHABITING, DIVORCED, WIDOWED = range(5)
MAX_BIRTHS = 4


@dataclass
class LifeState:
    """One chunk of one birth cohort, `n` persons.

    Pay terms are logs; `pay` is last year's log full-time pay relative to the wage level; `leave` and `sick` are weeks carried
    into the next year; `births` (n, 4) the children's birth years (0: none); years are 0 where the event has not come.
    """

    birth_year: int
    person: Ints
    female: Bools
    region: Ints
    entry: Ints
    ability: Floats
    slope: Floats
    attachment: Floats
    health: Floats
    wants_children: Bools
    plan_level: Ints
    plan_field: Ints
    study_age: Ints
    presence: Ints
    exit_year: Ints
    exit_reason: Ints
    county: Ints
    marital: Ints
    births: Ints
    custody: Bools
    partner_level: Floats
    partner_shock: Floats
    partner_works: Bools
    level: Ints
    field: Ints
    study_goal: Ints
    study_left: Ints
    state: Ints
    duration: Ints
    experience: Floats
    tenure: Floats
    employer: Ints
    industry: Ints
    occupation: Ints
    hours: Floats
    own: Bools
    profit: Floats
    shock: Floats
    scar: Floats
    care: Floats
    leave: Floats
    sick: Floats
    disability: Floats
    insured: Bools
    pay: Floats
    wealth: Floats
    mortgage: Floats

    def __len__(self) -> int:
        return len(self.person)

    def copy(self) -> LifeState:
        """An independent copy: two futures may start from one state."""
        return self.take(np.arange(len(self)))

    def take(self, index: Ints) -> LifeState:
        """The persons at `index`, copied."""
        arrays = {
            f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "birth_year"
        }
        return LifeState(birth_year=self.birth_year, **arrays)

    @property
    def resident(self) -> Bools:
        """Registered in the country on 31 December."""
        return np.asarray(self.presence == RESIDENT)

    def parity(self) -> Ints:
        """Children born so far (at most 4)."""
        return np.asarray((self.births > 0).sum(axis=1), dtype=np.int64)

    def youngest_age(self, year: int) -> Ints:
        """Age of the youngest child in `year`, 99 without children."""
        last = self.births.max(axis=1)
        return np.where(last > 0, year - last, 99)

    def children_at_home(self, year: int) -> Ints:
        """Children under 19 living with the person."""
        young = (self.births > 0) & (self.births > year - 19)
        return np.where(self.custody, young.sum(axis=1), 0)

    def to_frame(self) -> pl.DataFrame:
        """The state as a table: person_id, birth_year and one column a variable (`births` as birth_1..birth_4)."""
        columns: dict[str, pl.Series | NDArray[np.int64]] = {"person_id": person_ids(self)}
        columns["birth_year"] = np.full(len(self), self.birth_year, np.int32)
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "births":
                columns |= {
                    f"birth_{k + 1}": value[:, k].astype(np.int16) for k in range(MAX_BIRTHS)
                }
            elif f.name != "birth_year":
                columns[f.name] = value
        return pl.DataFrame(columns)


def person_ids(life: LifeState) -> pl.Series:
    """Register numbers: birth year and a running number, as text."""
    return pl.Series("person_id", life.birth_year * 10_000_000 + life.person).cast(pl.String)
