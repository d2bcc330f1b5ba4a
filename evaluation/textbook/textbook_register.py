"""Registers of a textbook process, in the columns of the full register.

Every person is observed every year from `first_age` to `last_age`, as far as the panel's years
reach. No person dies or emigrates, all covariates are null, and macro has no effect. The cohorts
are of equal size. Earnings are not rounded, so that they follow the process exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from saga import schema
from saga.arrays import Floats
from saga.data.deflation import real_factors
from saga.data.facts import shipped_facts
from saga.register.simulation.cohort_simulation import CHUNK, RegisterSettings, random_stream

SERIALS = 10_000_000  # a person's number is birth year * SERIALS + serial number


class RegisterProcess(ABC):
    """A process of earnings, and the register that it fills instead of the full simulation.

    Attributes:
        name: Its name in `register.json`.
        state_names: Names of the hidden state (S,).
        start_uniforms: Uniforms that `start` needs per person.
        step_uniforms: Uniforms that `step` needs per person.
        first_age: Age of the first earnings.
        last_age: Age of the last earnings in a register.
    """

    name: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]]
    start_uniforms: ClassVar[int]
    step_uniforms: ClassVar[int]
    first_age: int
    last_age: int

    @abstractmethod
    def start(self, u: Floats) -> Floats:
        """Hidden state (S, n) in the year before `first_age`, from uniforms."""

    @abstractmethod
    def step(self, state: Floats, age: int, u: Floats) -> tuple[Floats, Floats]:
        """Hidden state (S, n) and earnings (n,) at `age`, from the state before and uniforms."""

    def cohort_sizes(self, persons: int, first_year: int, last_year: int) -> dict[int, int]:
        """Persons of each birth cohort with a row in the panel, as equal as possible.

        They sum to `persons`.
        """
        cohorts = range(first_year - self.last_age, last_year - self.first_age + 1)
        edges = np.round(np.linspace(0, persons, len(cohorts) + 1)).astype(int)
        return {b: int(n) for b, n in zip(cohorts, np.diff(edges), strict=True) if n > 0}

    def simulate_chunk(
        self, settings: RegisterSettings, birth_year: int, chunk: int, persons: int
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        """Names and rows of the register's folders: hidden states, the panel, the futures."""
        seed, last_year = settings.seed, settings.last_year
        rng = random_stream(seed, 0, birth_year, chunk)
        serials = np.arange(chunk * CHUNK, chunk * CHUNK + persons)
        cohort = Cohort.at_start(self, birth_year, serials, rng)
        last_age_year = birth_year + self.last_age
        yearly_rows = []
        for year in range(cohort.year + 1, min(last_year, last_age_year) + 1):
            yearly_rows.append(cohort.simulate(year, rng))
            if year in settings.latent_years and year < last_age_year:
                yield f"latent/year={year}", cohort.latent()
        rows = pl.concat(yearly_rows).filter(pl.col("year") >= settings.first_year)
        yield "panel", panel_rows(rows.sort("person_id", "year"))
        if last_year < last_age_year:
            for draw in range(settings.future_draws):
                future_rng = random_stream(seed, 2 + draw, birth_year, chunk)
                later_rows = cohort.copy().simulate(settings.future_end, future_rng)
                yield f"future/draw={draw}", future_rows(later_rows)


@dataclass
class Cohort:
    """Persons of one birth year, simulated in place.

    Attributes:
        process: The process of their earnings.
        birth_year: Their birth year.
        serials: Their serial numbers (n,).
        state: Hidden state after `year` (S, n).
        year: Last simulated year.
    """

    process: RegisterProcess
    birth_year: int
    serials: NDArray[np.int64]
    state: Floats
    year: int

    @classmethod
    def at_start(
        cls,
        process: RegisterProcess,
        birth_year: int,
        serials: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Cohort:
        """The persons at the end of the year before `first_age`."""
        state = process.start(_open_uniforms(rng, process.start_uniforms, len(serials)))
        return cls(process, birth_year, serials, state, birth_year + process.first_age - 1)

    def copy(self) -> Cohort:
        """A copy that is simulated independently of this one."""
        return Cohort(self.process, self.birth_year, self.serials, self.state.copy(), self.year)

    def simulate(self, to_year: int, rng: np.random.Generator) -> pl.DataFrame:
        """Simulate the years up to `to_year`, but not beyond `last_age`.

        Returns `person_id`, `year`, `birth_year` and real `earnings`, sorted.
        """
        years = range(self.year + 1, min(to_year, self.birth_year + self.process.last_age) + 1)
        earnings = np.empty((len(self.serials), len(years)))
        for t, year in enumerate(years):
            u = _open_uniforms(rng, self.process.step_uniforms, len(self.serials))
            self.state, earnings[:, t] = self.process.step(self.state, year - self.birth_year, u)
        self.year = max(self.year, years.stop - 1)
        row = np.repeat(np.arange(len(self.serials)), len(years))
        return pl.DataFrame(
            {
                "person_id": self._ids().gather(row),
                "year": np.tile(np.array(years, np.int32), len(self.serials)),
                "birth_year": pl.Series(np.full(earnings.size, self.birth_year, np.int32)),
                "earnings": earnings.ravel(),
            }
        )

    def latent(self) -> pl.DataFrame:
        """`person_id`, `birth_year` and the hidden state after `year`, one row per person."""
        states = dict(zip(self.process.state_names, self.state, strict=True))
        return pl.DataFrame(
            {
                "person_id": self._ids(),
                "birth_year": np.full(len(self.serials), self.birth_year, np.int32),
                **states,
            }
        )

    def _ids(self) -> pl.Series:
        return pl.Series("person_id", self.birth_year * SERIALS + self.serials).cast(pl.String)


def panel_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `Cohort.simulate` in all columns of the panel, earnings nominal."""
    factors = real_factors(rows["year"].unique(), shipped_facts().price_index, schema.PRICE_YEAR)
    factor = pl.col("year").replace_strict(
        list(factors), list(factors.values()), return_dtype=pl.Float64
    )
    nominal = rows.with_columns(pl.col("earnings") / factor)
    columns = schema.polars_schema().items()
    return nominal.select(
        pl.col(name) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in columns
    )


def future_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `Cohort.simulate` in the columns of the full register's futures."""
    return rows.with_columns(
        pl.lit(None, pl.Int32).alias("exit_year"), pl.lit(None, pl.String).alias("exit_reason")
    )


def _open_uniforms(rng: np.random.Generator, count: int, n: int) -> Floats:
    """Uniforms (count, n) above 0, which has no normal quantile."""
    return np.maximum(rng.random((count, n)), 2.0**-54)
