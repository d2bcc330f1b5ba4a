"""What a panel records of an economy: which years, which persons, with which errors.

Registers record every year of everybody; surveys have waves every year or second year, lose
persons, lack answers, round amounts and cut off the highest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from saga.evaluation.economies.random_draws import ParameterDraws, draw_mixture
from saga.evaluation.textbook.gkos_process import Mixture

from saga.arrays import Bools, Floats, Ints

LAST_YEAR = 2022  # of every economy: years have no meaning but their distance
MAX_YEARS = 50  # length of a panel


@dataclass(frozen=True)
class Observation:
    """How a panel observes its persons.

    Attributes:
        first_year: First year of the panel; the last is `LAST_YEAR`.
        ages: First and last age with records.
        waves: The years with records, ascending.
        attrition: Yearly probability that a person leaves the panel for good.
        late: Share of the persons who join the panel in a random later year.
        longest: Largest number of years between a person's first and last record.
        missed: Probability that a person has no record in a wave.
        unknown: Probability that a record has no earnings.
        zeros: Whether years without earnings are recorded as zero; otherwise they are missing.
        error: Distribution of the log error of measurement.
        digits: Significant digits of amounts; 0: exact.
        top: Share of the amounts that are cut off at the top.
        floor: Share of the positive amounts, from below, that are not recorded.
        hidden: Columns that the panel lacks.
    """

    first_year: int
    ages: tuple[int, int]
    waves: tuple[int, ...]
    attrition: float
    late: float
    longest: int
    missed: float
    unknown: float
    zeros: bool
    error: Mixture
    digits: int
    top: float
    floor: float
    hidden: tuple[str, ...]

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random panel."""
        register = draws.happens(0.3)
        n_years = int(
            draws.uniform(4, MAX_YEARS + 1) if draws.happens(0.4) else draws.uniform(20, 46)
        )
        first_year = LAST_YEAR - n_years + 1
        hidden = [name for name, p in (("sex", 0.1), ("education_level", 0.3)) if draws.happens(p)]
        return cls(
            first_year=first_year,
            ages=(int(draws.rng.choice([16, 18, 20, 25])), int(draws.rng.choice([55, 60, 64]))),
            waves=_draw_waves(first_year, draws),
            attrition=0.0 if register else draws.spread(0.6, 0.005, 0.1),
            late=draws.uniform(0.0, 0.6) if draws.happens(0.3) else 0.0,
            longest=int(draws.log_uniform(3, 12)) if draws.happens(0.1) else MAX_YEARS,
            missed=0.0 if register else draws.spread(0.6, 0.01, 0.3),
            unknown=draws.spread(0.4, 0.002, 0.1),
            zeros=draws.happens(0.7),
            error=draws.shocks(0.0 if register else draws.spread(0.6, 0.02, 0.3)),
            digits=0 if register else int(draws.rng.choice([0, 0, 1, 2, 3])),
            top=draws.spread(0.2, 0.002, 0.05),
            floor=draws.spread(0.15, 0.005, 0.1),
            hidden=tuple(hidden),
        )

    def observe(self, frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        """The panel's rows of `frame`, which has one row per person and year, sorted.

        Of the columns, earnings are changed, those of `hidden` become null, all others stay.
        """
        age = pl.col("year") - pl.col("birth_year")
        in_years = pl.col("year").is_between(self.first_year, LAST_YEAR)
        frame = frame.filter(in_years & age.is_between(*self.ages))
        if frame.is_empty():  # cohorts that are too young or too old for the ages of the panel
            return frame
        person = frame["person_id"].rle_id().to_numpy().astype(np.int64)
        year = frame["year"].to_numpy().astype(np.int64)
        earnings = frame["earnings"].to_numpy().astype(np.float64)
        recorded = self._recorded(person, year, rng)
        amounts = self._measured(earnings, rng)
        unknown = rng.random(len(year)) < self.unknown
        if not self.zeros:
            # Some panels without zeros have a row for such a year, but no amount.
            recorded &= (amounts > 0) | (rng.random() < 0.25)
            unknown |= ~(amounts > 0)
        amounts = np.where(unknown, np.nan, amounts)
        columns = [
            pl.Series("earnings", amounts).fill_nan(None),
            *(pl.lit(None, frame.schema[name]).alias(name) for name in self.hidden),
        ]
        return frame.with_columns(columns).filter(pl.Series(recorded))

    def _recorded(self, person: Ints, year: Ints, rng: np.random.Generator) -> Bools:
        """Whether each person-year has a record."""
        n = int(person[-1]) + 1
        starts = np.searchsorted(person, np.arange(n))
        first, last = year[starts], year[np.append(starts[1:], len(year)) - 1]
        joins = np.where(
            rng.random(n) < self.late, first + (rng.random(n) * (last - first + 1)), first
        ).astype(np.int64)
        stays = rng.geometric(self.attrition, n) if self.attrition else np.full(n, MAX_YEARS)
        leaves = joins + np.minimum(stays, self.longest)
        in_panel = (year >= joins[person]) & (year < leaves[person])
        answered = rng.random(len(year)) >= self.missed
        return np.asarray(in_panel & answered & np.isin(year, self.waves))

    def _measured(self, earnings: Floats, rng: np.random.Generator) -> Floats:
        """Recorded amounts: zero stays zero, and amounts that are not recorded become NaN."""
        amounts = earnings * np.exp(draw_mixture(self.error, earnings.shape, rng))
        positive = amounts[amounts > 0]
        if not len(positive):
            return amounts
        if self.top:
            amounts = np.minimum(amounts, np.quantile(positive, 1.0 - self.top))
        if self.digits:
            with np.errstate(divide="ignore", invalid="ignore"):
                unit = 10.0 ** (np.floor(np.log10(amounts)) - self.digits + 1)
                amounts = np.where(amounts > 0, np.round(amounts / unit) * unit, 0.0)
        if self.floor:
            low = np.quantile(positive, self.floor)
            amounts = np.where((amounts > 0) & (amounts < low), np.nan, amounts)
        return amounts


def _draw_waves(first_year: int, draws: ParameterDraws) -> tuple[int, ...]:
    """Years with records: every year, every second or third, or first every and then every second.

    The last year is always one of them.
    """
    years = range(first_year, LAST_YEAR + 1)
    kind = draws.rng.choice(4, p=[0.55, 0.2, 0.22, 0.03])
    if kind == 0:
        return tuple(years)
    if kind == 2:
        change = int(draws.uniform(first_year, LAST_YEAR))
        return tuple(y for y in years if y <= change or (LAST_YEAR - y) % 2 == 0)
    step = 2 if kind == 1 else 3
    return tuple(y for y in years if (LAST_YEAR - y) % step == 0)
