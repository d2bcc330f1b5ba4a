"""The state of the persons of a cohort at the end of a year.

The next year depends on nothing else. The state is written to `latent/`, one column a field, and
can be simulated further from there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WEEKS = 52.0  # in a year
# Labour states at the end of a year. Parental leave and sickness are spells within employment.
EMPLOYED, UNEMPLOYED, STUDENT, OUTSIDE, DISABLED, RETIRED = range(6)
# Presence in the country on 31 December.
NOT_ARRIVED, RESIDENT, ABROAD, GONE = range(4)
DEAD, EMIGRATED = 1, 2
SINGLE, MARRIED, COHABITING, DIVORCED, WIDOWED = range(5)
# Regions of birth in the order of schema.BIRTH_REGIONS: later ones lie farther from Sweden.
SWEDEN, NORDIC, EU, EUROPE_OTHER = range(4)
MAX_BIRTHS = 4
ADULT_CHILD = 19  # age in years from which a child does not count as living at home
NO_CHILD = 99  # age of the youngest child of a person without children
COHORT_IDS = 10_000_000  # register numbers of a cohort: birth year and seven digits


@dataclass
class LifeState:
    """State of a chunk of one birth cohort, `n` persons; all arrays are (n,) but `births`.

    Args:
        birth_year: birth year of all.
        person: running number in the cohort.
        female: sex.
        region: region of birth, index of `schema.BIRTH_REGIONS`.
        entry: first year in the country.
        ability: lasting level of pay, standard normal.
        slope: log growth of pay a year of experience.
        attachment: attachment to work, standard normal.
        health: bad health, standard normal.
        wants_children: whether the person ever has children.
        plan_level: final level of education.
        plan_field: final field of education.
        study_age: age at which tertiary study starts.
        presence: presence in the country.
        exit_year: year of death or final emigration; 0 if there is none.
        exit_reason: DEAD or EMIGRATED; 0 if neither.
        county: index of `schema.COUNTIES`.
        marital: marital status.
        births: birth years of the children (n, 4), 0 if there is none.
        custody: whether the children live with the person.
        partner_level: the partner's lasting log pay.
        partner_shock: the partner's persistent shock.
        partner_works: whether the partner works.
        level: level of education.
        field: field of education.
        study_goal: level at the end of the present study.
        study_left: years until then.
        state: labour state.
        duration: years in that state, of those without work.
        experience: years of work.
        tenure: years with the employer.
        employer: index of the employer, -1 before the first job.
        industry: index of the industry, -1 before the first job.
        occupation: index of the occupation, -1 before the first job.
        hours: hours relative to full time.
        own: whether the person runs a firm.
        profit: persistent log yield of the firm.
        shock: persistent shock of log pay.
        scar: loss of log pay after unemployment.
        care: loss of log pay after births.
        leave: weeks of parental leave carried into the next year.
        sick: weeks of sickness carried into the next year.
        disability: degree of disability of those at work and in disability pension.
        insured: member of an unemployment insurance fund.
        pay: log full-time yearly pay of the last year relative to the wage level; 0 before any.
        wealth: SEK at the wage level of 2022.
        mortgage: SEK at the wage level of 2022.
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

    @property
    def partnered(self) -> Bools:
        """Living with a spouse or cohabitant."""
        return np.asarray((self.marital == MARRIED) | (self.marital == COHABITING))

    def parity(self) -> Ints:
        """Children born so far (at most 4)."""
        return np.asarray((self.births > 0).sum(axis=1), dtype=np.int64)

    def youngest_age(self, year: int) -> Ints:
        """Age of the youngest child in `year`, 99 without children."""
        last = self.births.max(axis=1)
        return np.where(last > 0, year - last, NO_CHILD)

    def children_at_home(self, year: int) -> Ints:
        """Children under 19 living with the person."""
        young = (self.births > 0) & (self.births > year - ADULT_CHILD)
        return np.where(self.custody, young.sum(axis=1), 0)

    def to_frame(self) -> pl.DataFrame:
        """The state as a table: person_id, birth_year, one column a field, birth_1 to birth_4."""
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
    return pl.Series("person_id", life.birth_year * COHORT_IDS + life.person).cast(pl.String)
