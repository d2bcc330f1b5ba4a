"""What all persons of a cohort share in one calendar year."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saga.register.simulation.economy import MacroYear
from saga.register.simulation.labour_market import Employers
from saga.register.simulation.life_state import Bools
from saga.register.simulation.parameters import Parameters


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
