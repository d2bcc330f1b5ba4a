"""Spells of work: the share of each year that a person works, and the cost of years without work.

A person is in one of two states. The log odds of leaving work and of returning to it depend on the
person, on age, on the wage and on the length of the spell (Heckman 1981). In the years in which a
spell begins or ends only a part of the year is worked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.economies.random_draws import ParameterDraws
from scipy.special import expit, logit

from saga.arrays import Floats

_LONGEST_DURATION = 8  # years without work that change the odds of return
_LONG_SCAR = 4.0  # years without work beyond which the loss grows no more


class Work(NamedTuple):
    """Work of n persons: arrays (n, n_years).

    Attributes:
        share: Share of the year worked, 0 to 1.
        loss: Loss of log wages by years without work.
    """

    share: Floats
    loss: Floats


@dataclass(frozen=True)
class EmploymentSpells:
    """Parameters of spells of work.

    Attributes:
        leave: Yearly probability of leaving work, of a typical person.
        enter: Yearly probability of starting work after one year without it.
        duration: Fall of the log odds of starting work, for each further year without work.
        spread: Standard deviation over persons of their log odds of work.
        by_wage: Rise of the log odds of work with a standard deviation of log wages.
        never: Share of persons who never work.
        first_age: Mean age at which work can start.
        first_age_spread: Its standard deviation.
        last_age: Age after which leaving becomes more frequent.
        breaks: Yearly probability that a woman of 20 to 39 leaves work, in addition.
        part_time: Share of persons who work part time in some years.
        partial: Whether the first and the last year of a spell are worked in part.
        scar: Loss of log wages for each further year without work.
        fade: Share of the loss that remains after a year of work.
    """

    leave: float
    enter: float
    duration: float
    spread: float
    by_wage: float
    never: float
    first_age: float
    first_age_spread: float
    last_age: float
    breaks: float
    part_time: float
    partial: bool
    scar: float
    fade: float

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random economy."""
        return cls(
            leave=draws.log_uniform(0.005, 0.15),
            enter=draws.log_uniform(0.15, 0.9),
            duration=draws.spread(0.7, 0.05, 0.4),
            spread=draws.spread(0.9, 0.3, 2.5),
            by_wage=draws.uniform(0.0, 1.2) if draws.happens(0.7) else 0.0,
            never=draws.spread(0.4, 0.005, 0.15),
            first_age=draws.uniform(15.0, 24.0),
            first_age_spread=draws.uniform(0.5, 4.0),
            last_age=draws.uniform(50.0, 66.0),
            breaks=draws.spread(0.6, 0.02, 0.2),
            part_time=draws.spread(0.6, 0.05, 0.6),
            partial=draws.happens(0.8),
            scar=draws.spread(0.5, 0.02, 0.2),
            fade=draws.uniform(0.5, 0.95),
        )

    def simulate(
        self,
        wage: Floats,
        female: NDArray[np.bool_],
        ages: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Work:
        """Work of n persons.

        Args:
            wage: Log wages without their profile, shape (n, n_years).
            female: Whether a person is a woman, shape (n,).
            ages: Ages of the years, shape (n_years,).
            rng: Random stream.
        """
        n, n_years = wage.shape
        person_odds = self.spread * rng.standard_normal(n)
        never = rng.random(n) < self.never
        begins = self.first_age + self.first_age_spread * rng.standard_normal(n)
        relative = np.clip(wage / max(float(wage.std()), 1e-3), -3.0, 3.0)
        event, part = rng.random((n, n_years)), rng.random((n, n_years))
        share, loss = np.zeros((n, n_years)), np.zeros((n, n_years))
        works, idle, scar = np.zeros(n, bool), np.zeros(n), np.zeros(n)
        for k, age in enumerate(ages):
            odds = person_odds + self.by_wage * relative[:, k]
            late_exit = max(0.0, age - self.last_age) * 0.35
            leaves = expit(logit(self.leave) - odds + late_exit)
            leaves = leaves + self.breaks * female * (20 <= age < 40)
            years_idle = np.clip(idle - 1, 0, _LONGEST_DURATION)
            enters = expit(logit(self.enter) + odds - late_exit - self.duration * years_idle)
            enters = np.where((age >= begins) & ~never, enters, 0.0)
            worked = works
            works = np.where(works, event[:, k] >= leaves, event[:, k] < enters)
            share[:, k] = works
            if self.partial:
                share[:, k] = np.where(works == worked, share[:, k], part[:, k])
            idle = np.where(works, 0.0, idle + (age >= begins))
            scar = np.where(
                works, scar * self.fade, np.minimum(scar + self.scar, _LONG_SCAR * self.scar)
            )
            loss[:, k] = scar
        return Work(share * self._hours(n, n_years, rng), loss)

    def _hours(self, n: int, n_years: int, rng: np.random.Generator) -> Floats:
        """Hours relative to full time (n, n_years); part time is one spell of successive years."""
        start = rng.integers(0, n_years, n)[:, None]
        length = rng.integers(1, n_years + 1, n)[:, None]
        years = np.arange(n_years)
        part_time = (rng.random((n, 1)) < self.part_time) & (start <= years)
        part_time &= years < start + length
        return np.where(part_time, rng.uniform(0.2, 0.9, (n, 1)), 1.0)
