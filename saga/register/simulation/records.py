"""Rows of the register: amounts, codes and missing table cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from saga import schema
from saga.arrays import Bools, Floats, Ints
from saga.register.simulation.benefits import Benefits
from saga.register.simulation.earnings import ROUND, Activity
from saga.register.simulation.economy import (
    EDUCATION_FIELDS,
    INDUSTRY_CODES,
    INDUSTRY_PREMIUM,
    OCCUPATION_CODES,
    Employers,
    MacroYear,
)
from saga.register.simulation.life_state import (
    WEEKS,
    Exit,
    Labour,
    LifeState,
    Marital,
    Presence,
    Region,
    person_ids,
)
from saga.register.simulation.parameters import Parameters, step_values
from saga.register.simulation.population import COMPULSORY, LONG_TERTIARY, SHORT_TERTIARY

CHILDREN = ("0", "1", "2", "3")  # 3 stands for 3 or more
YOUNGEST_CHILD_AGES = ((0, 1.0), (1, 2.0), (7, 3.0), (13, 4.0))  # from age, code of the group
UNKNOWN_FIELD = 9  # code of a field of education that is not known
EMPLOYMENT_RATE_DIGITS = 3

_LABELS: dict[str, tuple[str, ...]] = {
    "occupation": OCCUPATION_CODES,
    "industry": INDUSTRY_CODES,
    "county": schema.COUNTIES,
    "education_level": schema.EDUCATION_LEVELS,
    "education_field": tuple(EDUCATION_FIELDS),
    "marital_status": schema.MARITAL_STATUSES,
    "children": CHILDREN,
    "youngest_child": schema.YOUNGEST_CHILD,
}


@dataclass(frozen=True)
class YearResult:
    """Outcome of one year for a chunk of persons; amounts in nominal SEK.

    Attributes:
        macro: The economy of the year.
        activity: Weeks by use.
        earnings: Labour earnings.
        partner: The partner's labour earnings.
        benefits: Benefits by kind.
    """

    macro: MacroYear
    activity: Activity
    earnings: Floats
    partner: Floats
    benefits: Benefits


class PanelRecords:
    """The rows of one chunk of persons, filled year by year.

    A table cell is a number (NaN if missing) or a code (-1 if missing); arrays are (n, years).
    """

    def __init__(
        self,
        life: LifeState,
        years: range,
        rng: np.random.Generator,
        p: Parameters,
        employers: Employers,
    ) -> None:
        self.years = years
        self.first_year = years.start
        self.rng = rng
        self.p = p.records
        self.late = self.p.late_last_year
        self.base_pay = p.careers.base
        self.employers = employers
        shape = (len(life), len(years))
        self.present = np.zeros(shape, bool)
        self.numbers = {name: np.full(shape, np.nan) for name in schema.CONTINUOUS}
        self.codes = {name: np.full(shape, -1, np.int8) for name in _LABELS}
        # One uniform a person: an education that is unknown or understated remains so.
        self.school_unknown, self.school_understated = rng.random((2, len(life)))

    def write(self, life: LifeState, result: YearResult) -> None:
        """Enter one year; only residents on 31 December get a row."""
        year = result.macro.year
        t = year - self.years.start
        self.present[:, t] = life.resident
        activity = result.activity
        has_job = (life.state == Labour.EMPLOYED) | ((activity.worked > 0) & ~activity.casual)
        has_job &= life.employer >= 0
        work = self._work(life, result, has_job)
        for name, numbers in (self._amounts(life, result) | work).items():
            self.numbers[name][:, t] = numbers
        for name, codes in self._codes(life, year, has_job).items():
            self.codes[name][:, t] = codes
        self._remove_cells(t, year)

    def to_frame(self, life: LifeState) -> pl.DataFrame:
        """The rows in the canonical columns, sorted by person and year.

        Exit labels are those known at the end of the panel.
        """
        return self._rows(life, self.present.ravel())

    def _rows(self, life: LifeState, selected: Bools) -> pl.DataFrame:
        """The `selected` (n x years) rows in the canonical columns."""
        person = np.repeat(np.arange(len(life)), len(self.years))[selected]
        year = np.tile(np.array(self.years, np.int32), len(life))[selected]
        entry = np.maximum(life.entry, self.first_year).astype(np.int32)
        columns: dict[str, pl.Series] = {
            "person_id": person_ids(life).gather(person),
            "year": pl.Series(year),
            "birth_year": pl.Series(np.full(len(person), life.birth_year, np.int32)),
            "sex": pl.Series(["male", "female"]).gather(life.female.astype(np.int64)[person]),
            "birth_region": pl.Series(schema.BIRTH_REGIONS).gather(life.region[person]),
            "entry_year": pl.Series(entry[person]),
            "exit_year": nullable_years(life.exit_year).gather(person),
            "exit_reason": exit_reasons(life).gather(person),
        }
        for name, values in self.numbers.items():
            columns[name] = pl.Series(values.ravel()[selected]).fill_nan(None)
        for name, codes in self.codes.items():
            labels = pl.Series([*_LABELS[name], None], dtype=pl.String)
            flat = codes.ravel()[selected].astype(np.int64)
            columns[name] = labels.gather(np.where(flat < 0, len(_LABELS[name]), flat))
        return pl.DataFrame({name: columns[name].alias(name) for name in schema.NAMES})

    def _amounts(self, life: LifeState, result: YearResult) -> dict[str, Floats]:
        year, benefits = result.macro.year, result.benefits
        missing = np.full(len(life), np.nan)
        return {
            "earnings": result.earnings,
            "capital_income": benefits.capital if year >= self.p.capital_from else missing,
            "transfers": benefits.transfers,
            "sickness_benefit": benefits.sickness,
            "parental_benefit": benefits.parental,
            "unemployment_benefit": benefits.unemployment,
            "disability_pension": benefits.disability,
            "pension_income": benefits.pension,
            "housing_supplement": benefits.housing,
            "spouse_earnings": np.where(self._recorded_partner(life, year), result.partner, np.nan),
        }

    def _work(self, life: LifeState, result: YearResult, has_job: Bools) -> dict[str, Floats]:
        p, activity, employers = self.p, result.activity, self.employers
        full = (life.hours * (1.0 - life.disability) > p.full_time_from) & ~activity.casual
        index = np.maximum(life.employer, 0)
        noise = self.rng.standard_normal((2, len(life)))
        log_pay = self.base_pay + (
            employers.effect[index]
            + employers.colleague_pay[index]
            + INDUSTRY_PREMIUM[life.industry]
            + p.colleague_noise * noise[0]
        )
        mean = p.colleague_earnings * result.macro.wages * np.exp(log_pay)
        size = np.round(employers.size[index] * np.exp(p.employer_size_noise * noise[1]))
        size = np.where(life.own, 1.0, np.maximum(size, 1.0))
        worked, employee = activity.worked, ~life.own
        return {
            "employment_rate": np.round(np.clip(worked / WEEKS, 0.0, 1.0), EMPLOYMENT_RATE_DIGITS),
            "full_time": np.where((worked > 0) & employee, full, np.nan),
            "employers": np.where(result.earnings > 0, np.maximum(activity.employers, 1), 0),
            "employer_mean_earnings": np.where(
                has_job & employee, np.round(mean / ROUND) * ROUND, np.nan
            ),
            "employer_size": np.where(has_job, size, np.nan),
        }

    def _codes(self, life: LifeState, year: int, has_job: Bools) -> dict[str, Ints]:
        p = self.p
        level, field = self._education(life, year)
        cohabiting_unseen = (life.marital == Marital.COHABITING) & ~self._recorded_partner(
            life, year
        )
        children = life.children_at_home(year)
        group = step_values(YOUNGEST_CHILD_AGES, life.youngest_age(year)).astype(np.int64)
        return {
            "occupation": np.where(has_job & (year >= p.occupation_from), life.occupation, -1),
            "industry": np.where(has_job, life.industry, -1),
            "county": life.county,
            "education_level": level,
            "education_field": field,
            "marital_status": np.where(cohabiting_unseen, Marital.SINGLE, life.marital),
            "children": np.minimum(children, len(CHILDREN) - 1),
            "youngest_child": np.where(children > 0, group, 0),
        }

    def _education(self, life: LifeState, year: int) -> tuple[Ints, Ints]:
        """Level and field as recorded: some unknown, some understated before the new register."""
        p, foreign = self.p, life.region > Region.SWEDEN
        newcomer = (year - life.entry < p.education_new_years) & (
            life.entry > life.birth_year + p.education_new_age
        )
        missing = np.where(foreign, p.education_missing_new, p.education_missing_native)
        hidden = np.where(foreign, newcomer, True) & (self.school_unknown < missing)
        understated = (
            (year < p.education_break)
            & (life.level == LONG_TERTIARY)
            & (self.school_understated < p.education_understated)
        )
        level = np.where(hidden, -1, np.where(understated, SHORT_TERTIARY, life.level))
        no_field = (life.level > COMPULSORY) & (life.field == UNKNOWN_FIELD)
        return level, np.where(hidden | no_field, -1, life.field)

    def _recorded_partner(self, life: LifeState, year: int) -> Bools:
        """Whether the partner is recorded: cohabitants without children only from 2011 on."""
        unseen = (
            (life.marital == Marital.COHABITING)
            & (life.births[:, 0] == 0)
            & (year < self.p.cohabitants_from)
        )
        return np.asarray(life.partnered & ~unseen)

    def _remove_cells(self, t: int, year: int) -> None:
        """Remove cells that were not delivered, or are late in the last year of the panel."""
        p, number, code = self.p, self.numbers, self.codes
        u = self.rng.random((5, len(self.present)))
        late = self.late if year == self.years[-1] else 0.0
        number["earnings"][u[0] < p.earnings_missing, t] = np.nan
        workplace = u[1] < p.workplace_missing + late
        number["employer_size"][workplace, t] = np.nan
        number["employer_mean_earnings"][workplace, t] = np.nan
        code["industry"][u[1] < p.workplace_missing, t] = -1
        hours = u[2] < p.hours_missing
        number["employment_rate"][hours, t] = number["full_time"][hours, t] = np.nan
        size = np.nan_to_num(number["employer_size"][:, t], nan=np.inf)
        factor = step_values(p.occupation_missing_by_size, size)
        code["occupation"][u[3] < p.occupation_missing * factor, t] = -1
        number["capital_income"][u[4] < late, t] = np.nan


class FutureEarnings:
    """The true later earnings of one chunk under one macro draw, in SEK of the price year."""

    COLUMNS = ("person_id", "year", "birth_year", "earnings", "exit_year", "exit_reason")

    def __init__(self, life: LifeState, years: range) -> None:
        self.years = years
        self.earnings = np.full((len(life), len(years)), np.nan)
        self.dead = np.zeros((len(life), len(years)), bool)

    def write(self, life: LifeState, result: YearResult) -> None:
        """Enter one year: real earnings of residents, NaN for all others."""
        t = result.macro.year - self.years.start
        real = result.earnings / result.macro.prices
        self.earnings[:, t] = np.where(life.resident, real, np.nan)
        self.dead[:, t] = (life.presence == Presence.GONE) & (life.exit_reason == Exit.DEAD)

    def to_frame(self, life: LifeState) -> pl.DataFrame:
        """One row per person and year up to age 64: 0 from the year of death on, null abroad."""
        person = np.repeat(np.arange(len(life)), len(self.years))
        earnings = np.where(self.dead, 0.0, self.earnings).ravel()
        return pl.DataFrame(
            {
                "person_id": person_ids(life).gather(person),
                "year": np.tile(np.array(self.years, np.int32), len(life)),
                "birth_year": np.full(len(person), life.birth_year, np.int32),
                "earnings": pl.Series(earnings).fill_nan(None),
                "exit_year": nullable_years(life.exit_year).gather(person),
                "exit_reason": exit_reasons(life).gather(person),
            }
        )


class FutureRecords(PanelRecords):
    """The columns that `FutureEarnings` does not have, as the register would record them.

    Amounts are in SEK of the price year. Codes and missing cells are as in the panel, except that
    no cell of the last year is missing because its delivery is late.
    """

    def __init__(
        self,
        life: LifeState,
        years: range,
        rng: np.random.Generator,
        p: Parameters,
        employers: Employers,
        *,
        first_year: int,
        school_unknown: Floats,
    ) -> None:
        """Prepare empty records.

        Args:
            life: State at the end of the panel.
            years: Years of the future.
            rng: Random numbers of the records.
            p: All parameters.
            employers: All employers.
            first_year: First year of the panel.
            school_unknown: The panel's uniforms for unknown education (n,), so that an education
                that is unknown in the panel stays unknown.
        """
        super().__init__(life, years, rng, p, employers)
        self.late = 0.0
        self.first_year = first_year
        self.school_unknown = school_unknown

    def write(self, life: LifeState, result: YearResult) -> None:
        """Enter one year in real money; cells of the dead and of persons abroad are missing."""
        super().write(life, result)
        t = result.macro.year - self.years.start
        for name, numbers in self.numbers.items():
            numbers[~life.resident, t] = np.nan
            if name in schema.MONEY:
                numbers[:, t] /= result.macro.prices
        for codes in self.codes.values():
            codes[~life.resident, t] = -1

    def to_frame(self, life: LifeState) -> pl.DataFrame:
        """The columns that `FutureEarnings.to_frame` does not have, in the same rows."""
        return self._rows(life, np.ones(self.present.size, bool)).drop(FutureEarnings.COLUMNS)


def nullable_years(years: Ints) -> pl.Series:
    """Years as Int32, 0 as null."""
    series = pl.Series(years.astype(np.int32))
    return series.set(series == 0, None)


def exit_reasons(life: LifeState) -> pl.Series:
    """Reason of exit of each person; null without exit."""
    return pl.Series([None, "dead", "emigrated"], dtype=pl.String).gather(life.exit_reason)
