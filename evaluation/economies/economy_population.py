"""The population of an economy: birth years, sex, education, and its profile of log wages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.economies.random_draws import ParameterDraws

from saga.arrays import Floats, Ints
from saga.schema import MAX_AGE, MIN_AGE

_N_LEVELS = 4  # of education
_MIN_YEARS = 12  # in which a person has the ages of a panel
_OLDEST_START = 35  # largest age of a panel of cohorts in its first year


@dataclass(frozen=True, eq=False)
class Population:
    """Persons of an economy, arrays (n,); education is a level from 0 to 3."""

    birth_year: Ints
    female: NDArray[np.bool_]
    education: Ints

    @classmethod
    def draw(
        cls, n: int, first_year: int, last_year: int, cohorts: int | None, draws: ParameterDraws
    ) -> Self:
        """Persons who can have a record between `first_year` and `last_year`.

        Args:
            n: Number of persons.
            first_year: First year of the panel.
            last_year: Last year of the panel.
            cohorts: Number of birth years if the panel follows cohorts; None: all ages.
            draws: Random parameters.
        """
        rng = draws.rng
        # Every person is 16 to 64 in many years of the panel, so that records can be long.
        overlap = min(_MIN_YEARS, (last_year - first_year) // 2)
        oldest, youngest = first_year - MAX_AGE + overlap, last_year - MIN_AGE - overlap
        if cohorts is not None:
            youngest = int(rng.integers(max(oldest, first_year - _OLDEST_START), youngest + 1))
            oldest = max(oldest, youngest - cohorts)
        share_female = draws.uniform(0.35, 0.65) if draws.happens(0.85) else draws.uniform(0.0, 1.0)
        shares = rng.dirichlet(np.full(_N_LEVELS, 2.0))
        return cls(
            birth_year=rng.integers(oldest, youngest + 1, n),
            female=rng.random(n) < share_female,
            education=rng.choice(_N_LEVELS, n, p=shares),
        )


@dataclass(frozen=True)
class WageProfile:
    """Mean log wages by age, education, sex, cohort and year.

    Attributes:
        base: Log wage of a reference person.
        growth: Gain in the first ten years after `MIN_AGE` of each level of education.
        curvature: Change of that gain in ten years.
        premium: Log wage of each level of education.
        gap: Log wage of women.
        gap_growth: Its change in ten years of age.
        cohort: Growth of log wages between cohorts in ten years.
        trend: Yearly growth of log wages.
        cycle: Standard deviation of yearly changes of log wages.
    """

    base: float
    growth: tuple[float, ...]
    curvature: float
    premium: tuple[float, ...]
    gap: float
    gap_growth: float
    cohort: float
    trend: float
    cycle: float

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random economy."""
        growth = draws.uniform(0.1, 0.9)
        steps = [draws.uniform(-0.05, 0.35) for _ in range(_N_LEVELS)]
        return cls(
            base=draws.uniform(1.0, 14.0),
            growth=tuple(growth + draws.uniform(-0.05, 0.15) * k for k in range(_N_LEVELS)),
            curvature=-growth * draws.uniform(0.1, 0.35),
            premium=tuple(np.cumsum(steps).tolist()),
            gap=draws.uniform(-0.5, 0.1),
            gap_growth=draws.uniform(-0.1, 0.1),
            cohort=draws.uniform(-0.05, 0.1),
            trend=draws.uniform(-0.01, 0.04),
            cycle=draws.log_uniform(0.003, 0.05),
        )

    def logs(self, population: Population, ages: Ints, rng: np.random.Generator) -> Floats:
        """Mean log wages (n, n_age) of the persons at `ages`."""
        birth_year, level = population.birth_year, population.education
        t = (ages - MIN_AGE) / 10.0
        growth, premium = np.array(self.growth)[level], np.array(self.premium)[level]
        fixed = self.base + premium + self.cohort * (birth_year - birth_year.mean()) / 10.0
        profile = fixed[:, None] + growth[:, None] * t + self.curvature * t * t
        gap = np.where(population.female[:, None], self.gap + self.gap_growth * t, 0.0)
        year = birth_year[:, None] + ages - birth_year.min() - MIN_AGE
        changes = self.trend + self.cycle * rng.standard_normal(int(year.max()) + 1)
        logs: Floats = profile + gap + np.cumsum(changes)[year]
        return logs
