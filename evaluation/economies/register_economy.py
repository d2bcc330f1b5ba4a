"""Economies of the synthetic register with other parameters and without some of its mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from saga.evaluation.economies.observation import LAST_YEAR
from saga.evaluation.economies.random_draws import ParameterDraws

from saga import schema
from saga.register.simulation.cohort_simulation import RegisterSettings, simulate_chunk
from saga.register.simulation.parameters import MECHANISMS, Parameters, switch_off

_FIRST_YEAR = 1990  # the register has no earlier years
_COHORT_PERSONS = 250  # few cohorts: each costs as much time as a hundred persons
# Parameters of careers that are multiplied by random factors, each with its own.
VARIED = (
    "loss_long_tenure", "loss_new_job", "loss_cycle", "loss_ability", "loss_attachment",
    "finding_ability", "finding_attachment", "duration_dependence", "to_outside", "outside_finding",
    "outside_duration", "quit_outside", "quit_attachment", "disability_at_45", "job_change_sd",
    "job_change_gain", "job_change_at_25", "promotion", "part_time_mother", "experience_years",
    "women", "slope_sd", "job_premia", "top_stretch", "small_shock_sd", "large_shock_sd",
    "large_shock_share", "quiet_sd", "loud_sd", "loud_share", "scar_loss", "scar_per_year",
    "care_first", "care_later",
)  # fmt: skip
_SPREAD = 0.4  # standard deviation of the log of a factor
_LOCAL = ("occupation", "industry", "county", "education_field", "birth_region")


@dataclass(frozen=True)
class RegisterEconomy:
    """A register with varied parameters.

    Attributes:
        seed: Seed of the register.
        parameters: Parameters of its mechanisms.
    """

    seed: int
    parameters: Parameters

    @classmethod
    def draw(cls, draws: ParameterDraws) -> Self:
        """Parameters of a random economy."""
        rng, standard = draws.rng, Parameters()
        factors = np.exp(_SPREAD * rng.standard_normal(len(VARIED) + 2))
        varied: dict[str, Any] = {
            f"careers.{name}": getattr(standard.careers, name) * float(multiplier)
            for name, multiplier in zip(VARIED, factors, strict=False)
        }
        men, women = standard.careers.ability_sd
        factor = float(factors[-2])
        persistence = 1.0 - draws.log_uniform(0.005, 0.15)
        varied |= {
            "careers.ability_sd": (factor * men, factor * women),
            "careers.persistence": persistence,
            "economy.loss_scale": standard.economy.loss_scale * float(factors[-1]),
        }
        share = draws.uniform(0.0, 0.4)
        without = [name for name in MECHANISMS if draws.happens(share)]
        parameters = standard.changed(varied)
        return cls(int(rng.integers(2**31)), switch_off(parameters, without))

    def simulate(self, n: int, first_year: int) -> pl.DataFrame:
        """Earnings and other columns of about n persons aged 16 to 64, sorted.

        Years before 1990 are missing. Amounts are nominal: the level of a year removes prices.
        Columns whose codes have a meaning in one country only are null. Exits are null too: no
        economy says why a record ends.
        """
        first_year = max(first_year, _FIRST_YEAR)
        settings = RegisterSettings(n, self.seed, first_year, LAST_YEAR, parameters=self.parameters)
        n_cohorts = max(1, round(n / _COHORT_PERSONS))
        oldest, youngest = first_year - schema.MAX_AGE + 3, LAST_YEAR - schema.MIN_AGE - 3
        births = np.unique(np.linspace(oldest, youngest, n_cohorts + 2).astype(int)[1:-1])
        frames = [simulate_chunk(settings, int(b), 0, n // len(births))[1] for b in births]
        frame = pl.concat(frames).sort("person_id", "year")
        return frame.with_columns(
            pl.lit(None, frame.schema[name]).alias(name) for name in (*_LOCAL, *schema.EXIT)
        )
