"""Economies of textbook processes: a process of log wages, work, and a population.

Every part is optional, and its parameters are drawn: the process of wages is linear, nonlinear or
that of Guvenen, Karahan, Ozkan and Song (2021), work is permanent or in spells, and wages adjust
every year or seldom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl
from saga.evaluation.economies.economy_population import Population, WageProfile
from saga.evaluation.economies.employment_spells import EmploymentSpells, Work
from saga.evaluation.economies.linear_process import LinearProcess
from saga.evaluation.economies.nonlinear_process import NonlinearProcess
from saga.evaluation.economies.observation import LAST_YEAR
from saga.evaluation.economies.random_draws import ParameterDraws
from saga.evaluation.economies.wage_adjustment import hold_wages
from saga.evaluation.textbook.gkos_process import GkosProcess

from saga.arrays import Floats, Ints
from saga.schema import EDUCATION_LEVELS, MAX_AGE, MIN_AGE

WageProcess = LinearProcess | NonlinearProcess | GkosProcess
_LARGEST_LOG = 8.0  # distance of log wages from their profile; heavy tails end there
_MIN_SHARE = 0.02  # of a year: who works less has no earnings


@dataclass(frozen=True)
class TextbookEconomy:
    """Parameters of an economy.

    Attributes:
        wages: The process of log wages.
        spells: Spells of work; None: everybody works in every year.
        profile: Mean log wages.
        adjustment: Yearly probability that a wage adjusts, 1 in most economies.
        unequal_education: Change of the log spread of wages with a level of education.
        cohorts: Number of birth years if the panel follows cohorts, None if it has all ages.
        shows_work: Whether the panel has the share of the year worked.
    """

    wages: WageProcess
    spells: EmploymentSpells | None
    profile: WageProfile
    adjustment: float
    unequal_education: float
    cohorts: int | None
    shows_work: bool

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random economy."""
        kind = draws.rng.choice(3, p=[0.5, 0.3, 0.2])
        wages: WageProcess = (
            LinearProcess.draw(draws)
            if kind == 0
            else NonlinearProcess.draw(draws)
            if kind == 1
            else draw_gkos(draws)
        )
        spells = EmploymentSpells.draw(draws) if draws.happens(0.75) else None
        return cls(
            wages=wages,
            spells=spells,
            profile=WageProfile.draw(draws),
            adjustment=draws.uniform(0.3, 0.95) if draws.happens(0.2) else 1.0,
            unequal_education=draws.uniform(-0.25, 0.25) if draws.happens(0.5) else 0.0,
            cohorts=int(draws.log_uniform(1, 15)) if draws.happens(0.3) else None,
            shows_work=spells is not None and draws.happens(0.3),
        )

    def simulate(self, n: int, first_year: int, draws: ParameterDraws) -> pl.DataFrame:
        """Rows of n persons aged 16 to 64, from `first_year` to `LAST_YEAR`, sorted.

        Columns are `person_id`, `year`, `birth_year`, `earnings`, `sex`, `education_level` and
        perhaps `employment_rate`.
        """
        rng = draws.rng
        persons = Population.draw(n, first_year, LAST_YEAR, self.cohorts, draws)
        birth_year = persons.birth_year
        ages = np.arange(MIN_AGE, min(MAX_AGE, LAST_YEAR - int(birth_year.min())) + 1)
        wages, share = self._careers(persons, ages, rng)
        earnings = np.where(share > _MIN_SHARE, share * np.exp(wages), 0.0)
        year = birth_year[:, None] + ages
        covered = (year >= first_year) & (year <= LAST_YEAR)
        person, _ = covered.nonzero()
        sex = np.where(persons.female, "female", "male")
        level = np.array(EDUCATION_LEVELS)[persons.education]
        columns = {
            "person_id": pl.Series(np.arange(n)).cast(pl.String).str.zfill(7).gather(person),
            "year": pl.Series(year[covered], dtype=pl.Int32),
            "birth_year": pl.Series(birth_year[person], dtype=pl.Int32),
            "earnings": earnings[covered],
            "sex": pl.Series(sex).gather(person),
            "education_level": pl.Series(level).gather(person),
        }
        if self.shows_work:
            columns["employment_rate"] = share[covered]
        return pl.DataFrame(columns)

    def _careers(
        self, persons: Population, ages: Ints, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Log wages and the share of each year worked, (n, n_age)."""
        n, n_years = len(persons.birth_year), len(ages)
        if isinstance(self.wages, GkosProcess):
            residual, share = simulate_gkos(self.wages, n, ages, rng)
        else:
            residual, share = self.wages.simulate(n, n_years, rng), np.ones((n, n_years))
        residual = residual * np.exp(self.unequal_education * (persons.education - 1.5))[:, None]
        residual = np.clip(residual, -_LARGEST_LOG, _LARGEST_LOG)
        loss: Floats | float = 0.0
        if self.spells is not None:
            work: Work = self.spells.simulate(residual, persons.female, ages, rng)
            share, loss = share * work.share, work.loss
        logs = self.profile.logs(persons, ages, rng) + residual - loss
        if self.adjustment < 1.0:
            logs = hold_wages(logs, self.adjustment, rng)
        return logs, share


def draw_gkos(draws: ParameterDraws) -> GkosProcess:
    """A process of Guvenen, Karahan, Ozkan and Song with random parameters; no own profile."""
    a, b, c, d = GkosProcess().nonemployment
    return replace(
        GkosProcess(),
        profile=(0.0, 0.0, 0.0),
        unit=1.0,
        sd_alpha=draws.spread(0.8, 0.1, 0.7),
        sd_beta=draws.spread(0.7, 0.05, 0.35),
        correlation=draws.uniform(-0.5, 0.9),
        rho=1.0 - draws.log_uniform(0.002, 0.3),
        sd_z0=draws.log_uniform(0.2, 0.9),
        eta=draws.shocks(draws.log_uniform(0.08, 0.4)),
        eps=draws.shocks(draws.log_uniform(0.05, 0.4)),
        nonemployment=(
            a + draws.uniform(-6.0, 1.0),
            b * draws.uniform(0.0, 1.5),
            c * draws.uniform(0.2, 1.2),
            d * draws.uniform(0.0, 1.2),
        ),
        rate=draws.log_uniform(1e-4, 8.0),
        first_age=MIN_AGE,
    )


def simulate_gkos(
    process: GkosProcess, n: int, ages: Ints, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Log potential earnings of n persons and the share of each year worked, (n, n_age)."""
    state = process.start(np.maximum(rng.random((process.start_uniforms, n)), 1e-12))
    logs, share = np.empty((n, len(ages))), np.empty((n, len(ages)))
    for k, age in enumerate(ages):
        u = np.maximum(rng.random((process.step_uniforms, n)), 1e-12)
        alpha, beta = state[0], state[1]
        state, earnings = process.step(state, age, u)
        potential = alpha + beta * process.time(age) + state[2] + process.eps.draw(u[2], u[3])
        logs[:, k], share[:, k] = potential, earnings / np.exp(potential)
    return logs, share
