"""Carry-forward: the last known earnings times the growth factor of similar persons."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from saga.evaluation.baselines.naive.donor_base import (
    DonorBaseline,
    age_band,
    cross,
    employment_codes,
)
from saga.evaluation.baselines.person_states import States


class CarryForward(DonorBaseline):
    """The last earnings times a growth factor of persons of similar age and rank.

    The growth factor is the ratio of later to last earnings; last earnings below the panel's floor
    count as the floor. The base of persons with zero earnings is the year's median instead.
    """

    name = "carry"
    version = 1

    def base(self, states: States) -> NDArray[Any]:
        """The last earnings, at least the floor; the year's median for persons at zero."""
        return np.where(
            states.earnings > 0,
            np.maximum(states.earnings, self.floor),
            self.reference.level(states.year),
        )

    def groups(self, states: States) -> list[NDArray[Any]]:
        """Groups, finest first: employment and rank by age, employment alone, all persons."""
        rank = self.reference.rank(states.year, states.age, states.earnings)
        spell = np.minimum(employment_codes(states, rank, 1)[0], 3)
        return [
            cross(employment_codes(states, rank, 20), age_band(states, 3)),
            cross(employment_codes(states, rank, 10), age_band(states, 5)),
            cross(employment_codes(states, rank, 5), age_band(states, 10)),
            spell,
            np.zeros_like(spell),
        ]
