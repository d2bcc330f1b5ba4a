"""From lives to register rows: nominal amounts, codes, what the register cannot see, and the cells that it lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from saga import schema
from saga.register.simulation.benefits import Benefits
from saga.register.simulation.careers import WEEKS, Activity
from saga.register.simulation.economy import MacroYear
from saga.register.simulation.education import COMPULSORY, LONG_TERTIARY, SHORT_TERTIARY
from saga.register.simulation.family import partnered
from saga.register.simulation.labour_market import (
    INDUSTRY_CODES,
    INDUSTRY_PREMIUM,
    OCCUPATION_CODES,
    Employers,
)
from saga.register.simulation.life_state import (
    COHABITING,
    DEAD,
    EMPLOYED,
    GONE,
    SINGLE,
    Bools,
    Floats,
    Ints,
    LifeState,
    person_ids,
)
from saga.register.simulation.parameters import Parameters

_LABELS: dict[str, tuple[str, ...]] = {
    "occupation": OCCUPATION_CODES,
    "industry": INDUSTRY_CODES,
    "county": schema.COUNTIES,
    "education_level": schema.EDUCATION_LEVELS,
    "education_field": tuple("0123456789"),
    "marital_status": schema.MARITAL_STATUSES,
    "children": tuple("0123"),
    "youngest_child": schema.YOUNGEST_CHILD,
}


@dataclass(frozen=True)
class YearResult:
    """Outcome of one year for a chunk of persons; amounts in nominal SEK.

    Args:
        macro: the economy of the year.
        activity: weeks by use.
        earnings: labour earnings.
        partner: the partner's labour earnings.
        benefits: benefits by kind.
    """

    macro: MacroYear
    activity: Activity
    earnings: Floats
    partner: Floats
    benefits: Benefits


class Ledger:
    """The rows of one chunk of persons, filled year by year: a number (NaN: missing) or a code (-1: missing) a cell, (n, years)."""

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
        self.base_pay = p.careers.base
        self.employers = employers
        shape = (len(life), len(years))
        self.present = np.zeros(shape, bool)
        self.numbers = {name: np.full(shape, np.nan) for name in schema.CONTINUOUS}
        self.codes = {name: np.full(shape, -1, np.int8) for name in _LABELS}
        self.school_unknown, self.school_understated = rng.random((2, len(life)))

    def write(self, life: LifeState, result: YearResult) -> None:
        """Enter the year of everybody who is resident on 31 December."""
        macro, activity = result.macro, result.activity
        earnings, partner, benefits = result.earnings, result.partner, result.benefits
        t = macro.year - self.years.start
        self.present[:, t] = life.resident
        job = (life.state == EMPLOYED) | ((activity.worked > 0) & ~activity.odd)
        job &= life.employer >= 0
        self._money(t, life, macro, earnings, partner, benefits)
        self._work(t, life, macro, activity, job, earnings)
        self._codes(t, life, macro.year, job)
        self._lose(t, life, macro.year)

    def to_frame(self, life: LifeState) -> pl.DataFrame:
        """The rows in the canonical columns, sorted by person and year; exit labels as known at the panel's end."""
        return self._rows(life, self.present.ravel())

    def _rows(self, life: LifeState, keep: Bools) -> pl.DataFrame:
        """The cells (n x years) at `keep` in the canonical columns."""
        count = len(self.years)
        who = np.repeat(np.arange(len(life)), count)[keep]
        columns: dict[str, pl.Series] = {
            "person_id": person_ids(life).gather(who),
            "year": pl.Series(np.tile(np.array(self.years, np.int32), len(life))[keep]),
            "birth_year": pl.Series(np.full(len(who), life.birth_year, np.int32)),
            "sex": pl.Series(["male", "female"]).gather(life.female.astype(np.int64)[who]),
            "birth_region": pl.Series(schema.BIRTH_REGIONS).gather(life.region[who]),
            "entry_year": pl.Series(np.maximum(life.entry, self.first_year).astype(np.int32)[who]),
            "exit_year": nullable_years(life.exit_year).gather(who),
            "exit_reason": exit_reasons(life).gather(who),
        }
        for name, values in self.numbers.items():
            columns[name] = pl.Series(values.ravel()[keep]).fill_nan(None)
        for name, codes in self.codes.items():
            labels = pl.Series([*_LABELS[name], None], dtype=pl.String)
            flat = codes.ravel()[keep].astype(np.int64)
            columns[name] = labels.gather(np.where(flat < 0, len(_LABELS[name]), flat))
        return pl.DataFrame({name: columns[name].alias(name) for name in schema.NAMES})

    def _money(
        self,
        t: int,
        life: LifeState,
        macro: MacroYear,
        earnings: Floats,
        partner: Floats,
        benefits: Benefits,
    ) -> None:
        put = self.numbers
        put["earnings"][:, t] = earnings
        put["capital_income"][:, t] = (
            benefits.capital if macro.year >= self.p.capital_from else np.nan
        )
        put["transfers"][:, t] = benefits.transfers
        put["sickness_benefit"][:, t] = benefits.sickness
        put["parental_benefit"][:, t] = benefits.parental
        put["unemployment_benefit"][:, t] = benefits.unemployment
        put["disability_pension"][:, t] = benefits.disability
        put["pension_income"][:, t] = benefits.pension
        put["housing_supplement"][:, t] = benefits.housing
        put["spouse_earnings"][:, t] = np.where(
            self._seen_partner(life, macro.year), partner, np.nan
        )

    def _work(
        self,
        t: int,
        life: LifeState,
        macro: MacroYear,
        activity: Activity,
        job: Bools,
        earnings: Floats,
    ) -> None:
        employers = self.employers
        put = self.numbers
        put["employment_rate"][:, t] = np.round(np.clip(activity.worked / WEEKS, 0.0, 1.0), 3)
        full = (life.hours * (1.0 - life.disability) > 0.95) & ~activity.odd
        put["full_time"][:, t] = np.where((activity.worked > 0) & ~life.own, full, np.nan)
        put["employers"][:, t] = np.where(earnings > 0, np.maximum(activity.employers, 1), 0)
        place = np.maximum(life.employer, 0)
        noise = self.rng.standard_normal((2, len(life)))
        mean = (
            employers.effect[place]
            + employers.mix[place]
            + INDUSTRY_PREMIUM[life.industry]
            + 0.04 * noise[0]
        )
        # Colleagues work part of the year and part time: mean earnings are below full-time pay.
        paid = np.round(0.80 * macro.wages * np.exp(self.base_pay + mean) / 100.0) * 100.0
        put["employer_mean_earnings"][:, t] = np.where(job & ~life.own, paid, np.nan)
        size = np.where(
            life.own,
            1.0,
            np.maximum(np.round(employers.size[place] * np.exp(0.06 * noise[1])), 1.0),
        )
        put["employer_size"][:, t] = np.where(job, size, np.nan)

    def _codes(self, t: int, life: LifeState, year: int, job: Bools) -> None:
        put = self.codes
        put["occupation"][:, t] = np.where(
            job & (year >= self.p.occupation_from), life.occupation, -1
        )
        put["industry"][:, t] = np.where(job, life.industry, -1)
        put["county"][:, t] = life.county
        unknown = np.where(
            life.region > 0, (year - life.entry < 4) & (life.entry > life.birth_year + 18), True
        )
        missing = np.where(
            life.region > 0, self.p.education_missing_new, self.p.education_missing_native
        )
        hidden = unknown & (self.school_unknown < missing)
        old = (
            (year < self.p.education_break)
            & (life.level == LONG_TERTIARY)
            & (self.school_understated < self.p.education_understated)
        )
        put["education_level"][:, t] = np.where(
            hidden, -1, np.where(old, SHORT_TERTIARY, life.level)
        )
        put["education_field"][:, t] = np.where(
            hidden | ((life.level > COMPULSORY) & (life.field == 9)), -1, life.field
        )
        seen = self._seen_partner(life, year)
        put["marital_status"][:, t] = np.where(
            (life.marital == COHABITING) & ~seen, SINGLE, life.marital
        )
        children = life.children_at_home(year)
        put["children"][:, t] = np.minimum(children, 3)
        age = life.youngest_age(year)
        bucket = np.where(age < 1, 1, np.where(age < 7, 2, np.where(age < 13, 3, 4)))
        put["youngest_child"][:, t] = np.where(children > 0, bucket, 0)

    def _seen_partner(self, life: LifeState, year: int) -> Bools:
        """Cohabitants without common children are seen only from the dwelling register on."""
        unseen = (
            (life.marital == COHABITING)
            & (life.births[:, 0] == 0)
            & (year < self.p.cohabitants_from)
        )
        return np.asarray(partnered(life) & ~unseen)

    def _lose(self, t: int, life: LifeState, year: int) -> None:
        """Cells that never came: statements not delivered, workplaces not found, the last year's late deliveries."""
        u = self.rng.random((5, len(life)))
        last = year == self.years[-1]
        number, code = self.numbers, self.codes
        number["earnings"][u[0] < self.p.earnings_missing, t] = np.nan
        place = u[1] < self.p.workplace_missing + self.p.late_last_year * last
        number["employer_size"][place, t] = number["employer_mean_earnings"][place, t] = np.nan
        code["industry"][u[1] < self.p.workplace_missing, t] = -1
        hours = u[2] < self.p.hours_missing
        number["employment_rate"][hours, t] = number["full_time"][hours, t] = np.nan
        # Occupations come from samples among small employers: half of the missing cells are theirs.
        small = np.where(number["employer_size"][:, t] < 20, 2.0, 0.85)
        code["occupation"][u[3] < self.p.occupation_missing * small, t] = -1
        if last:
            number["capital_income"][u[4] < self.p.late_last_year, t] = np.nan


class FutureLedger:
    """The true later earnings of one chunk under one macro draw, in real SEK of the price year."""

    COLUMNS = ("person_id", "year", "birth_year", "earnings", "exit_year", "exit_reason")

    def __init__(self, life: LifeState, years: range) -> None:
        self.years = years
        self.earnings = np.full((len(life), len(years)), np.nan)
        self.dead = np.zeros((len(life), len(years)), bool)

    def write(self, life: LifeState, result: YearResult) -> None:
        """Enter one year: real earnings of residents, 0 for the dead, nothing (NaN) abroad."""
        macro, earnings = result.macro, result.earnings
        t = macro.year - self.years.start
        self.earnings[:, t] = np.where(life.resident, earnings / macro.prices, np.nan)
        self.dead[:, t] = (life.presence == GONE) & (life.exit_reason == DEAD)

    def to_frame(self, life: LifeState) -> pl.DataFrame:
        """One row a person and year, to age 64: earnings 0 from the year of death on and null abroad."""
        count = len(self.years)
        who = np.repeat(np.arange(len(life)), count)
        values = np.where(self.dead, 0.0, self.earnings).ravel()
        return pl.DataFrame(
            {
                "person_id": person_ids(life).gather(who),
                "year": np.tile(np.array(self.years, np.int32), len(life)),
                "birth_year": np.full(len(who), life.birth_year, np.int32),
                "earnings": pl.Series(values).fill_nan(None),
                "exit_year": nullable_years(life.exit_year).gather(who),
                "exit_reason": exit_reasons(life).gather(who),
            }
        )


class FutureRecords(Ledger):
    """What the register would come to hold of the years of a `FutureLedger`, but for its columns: money in real SEK of the price year.

    Codes and lost cells are as in the panel, except that no cell is late in the last year: futures end where they were told to, at no
    delivery of the register. `first_year` is the panel's, `school_unknown` (n,) its uniforms of schooling that it does not know.
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
        super().__init__(life, years, rng, p, employers)
        self.p = replace(p.records, late_last_year=0.0)
        self.first_year = first_year
        self.school_unknown = (
            school_unknown  # schooling unknown in the panel does not become known on its last day
        )

    def write(self, life: LifeState, result: YearResult) -> None:
        """Enter the year in real money; nothing of those who are dead or abroad."""
        super().write(life, result)
        macro = result.macro
        t = macro.year - self.years.start
        for name, numbers in self.numbers.items():
            numbers[~life.resident, t] = np.nan
            if name in schema.MONEY:
                numbers[:, t] /= macro.prices
        for codes in self.codes.values():
            codes[~life.resident, t] = -1

    def to_frame(self, life: LifeState) -> pl.DataFrame:
        """The columns that `FutureLedger.frame` has not, beside its rows; sex, region of birth and entry year stand in all of them."""
        return self._rows(life, np.ones(self.present.size, bool)).drop(FutureLedger.COLUMNS)


def nullable_years(years: Ints) -> pl.Series:
    """Years as Int32, 0 as null."""
    series = pl.Series(years.astype(np.int32))
    return series.set(series == 0, None)


def exit_reasons(life: LifeState) -> pl.Series:
    """dead, emigrated or null, one a person."""
    return pl.Series([None, "dead", "emigrated"], dtype=pl.String).gather(life.exit_reason)
