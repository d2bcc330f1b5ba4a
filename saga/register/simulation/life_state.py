"""The state of the persons of a cohort at the end of a year, and what a year brings to all of them.

The next year depends on the past only through this state. It is written to `latent/`, one column
per field, and the simulation can continue from there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import polars as pl

from saga.arrays import Bools, Floats, Ints
from saga.register.simulation.economy import Employers, MacroYear
from saga.register.simulation.parameters import Parameters

WEEKS = 52.0  # in a year
# Labour state at the end of a year. Parental leave and sickness are spells within employment.
Labour = IntEnum("Labour", "EMPLOYED UNEMPLOYED STUDENT OUTSIDE DISABLED RETIRED", start=0)
# Presence in the country on 31 December.
Presence = IntEnum("Presence", "NOT_ARRIVED RESIDENT ABROAD GONE", start=0)
Exit = IntEnum("Exit", "NONE DEAD EMIGRATED", start=0)
# In the order of schema.MARITAL_STATUSES.
Marital = IntEnum("Marital", "SINGLE MARRIED COHABITING DIVORCED WIDOWED", start=0)
_MARRIED, _COHABITING = int(Marital.MARRIED), int(Marital.COHABITING)
# Regions of birth in the order of schema.BIRTH_REGIONS; later ones are farther from Sweden.
Region = IntEnum("Region", "SWEDEN NORDIC EU EUROPE_OTHER", start=0)
MAX_BIRTHS = 4
ADULT_CHILD = 19  # age in years from which a child is not counted as living at home
NO_CHILD = 99  # age of the youngest child of a person without children
COHORT_IDS = 10_000_000  # a register number is birth year * COHORT_IDS + running number


@dataclass
class LifeState:
    """State of `n` persons of one birth cohort; all arrays are (n,) except `births`.

    Attributes:
        birth_year: Birth year of all.
        person: Running number in the cohort.
        female: Sex.
        region: Region of birth, index of `schema.BIRTH_REGIONS`.
        entry: First year in the country.
        ability: Lasting level of pay, standard normal.
        slope: Individual growth of log pay per year of experience.
        attachment: Attachment to work, standard normal.
        health: Bad health, standard normal.
        wants_children: Whether the person ever has children.
        plan_level: Final level of education.
        plan_field: Final field of education.
        study_age: Age at which tertiary study starts.
        presence: Code of `Presence`.
        exit_year: Year of death or final emigration; 0 if there is none.
        exit_reason: Code of `Exit`.
        county: Index of `schema.COUNTIES`.
        marital: Code of `Marital`.
        births: Birth years of the children (n, 4), 0 if there is none.
        custody: Whether the children live with the person.
        partner_level: The partner's lasting log pay, relative to the mean.
        partner_shock: The partner's persistent shock.
        partner_works: Whether the partner works.
        level: Level of education.
        field: Field of education.
        study_goal: Level at the end of the present study.
        study_left: Years until the present study ends.
        state: Code of `Labour`.
        duration: Years in that state; used for persons without work only.
        experience: Years of work.
        tenure: Years with the employer.
        employer: Index of the employer, -1 before the first job.
        industry: Index of the industry, -1 before the first job.
        occupation: Index of the occupation, -1 before the first job.
        hours: Hours relative to full time.
        own: Whether the person is self-employed.
        profit: Persistent log profit of the person's firm.
        shock: Persistent shock of log pay.
        scar: Loss of log pay after unemployment.
        care: Loss of a mother's log pay by births, which fades.
        leave: Weeks of parental leave that remain for the next year.
        sick: Weeks of sickness that remain for the next year.
        disability: Degree of disability: 0, 0.5 (at work, partly disabled) or 1.
        insured: Member of an unemployment insurance fund.
        pay: Log full-time yearly pay of the last year relative to the wage level; 0 before any.
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
        return np.asarray(self.presence == Presence.RESIDENT)

    @property
    def partnered(self) -> Bools:
        """Living with a spouse or cohabitant."""
        return np.asarray((self.marital == _MARRIED) | (self.marital == _COHABITING))

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
        columns: dict[str, pl.Series | Ints] = {"person_id": person_ids(self)}
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
    """Register numbers as text, from the birth year and the running number."""
    return pl.Series("person_id", life.birth_year * COHORT_IDS + life.person).cast(pl.String)


@dataclass(frozen=True)
class CohortYear:
    """One calendar year of one birth cohort.

    Attributes:
        age: Age of the cohort at the end of the year.
        first_year: First year of the panel; deaths and emigration start in the year after it.
        macro: The economy of the year.
        employers: All employers.
        closing: Flags of employers that shed most of their jobs this year (employer,).
        rng: Random numbers of the part of the cohort that is simulated together.
        parameters: All parameters of the register.
    """

    age: int
    first_year: int
    macro: MacroYear
    employers: Employers
    closing: Bools
    rng: np.random.Generator
    parameters: Parameters

    @property
    def calendar_year(self) -> int:
        """The calendar year."""
        return self.macro.year
