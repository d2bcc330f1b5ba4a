"""Group quantiles: later earnings of persons of the same age, sex, education and rank."""

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
from saga.evaluation.baselines.person_states import CODES, States


class GroupQuantiles(DonorBaseline):
    """Later earnings in the person's group, relative to the origin year's median.

    The person's earnings determine the group only. Amounts are relative because real wages grow
    between the donors' years and the origin. If a panel lacks sex or education, groups do not
    depend on it.
    """

    name = "groupq"
    version = 1

    def base(self, states: States) -> NDArray[Any]:
        """The median earnings of the origin year."""
        return np.broadcast_to(self.reference.level(states.year), np.shape(states.earnings))

    def groups(self, states: States) -> list[NDArray[Any]]:
        """Groups, finest first: employment and rank, age, sex and education; fewer; all persons."""
        rank = self.reference.rank(states.year, states.age, states.earnings)
        sex = states.sex, len(CODES["sex"]) + 1
        education = states.education_level, len(CODES["education_level"]) + 1
        coarse = employment_codes(states, rank, 5)
        return [
            cross(employment_codes(states, rank, 20), age_band(states, 3), sex, education),
            cross(employment_codes(states, rank, 10), age_band(states, 5), sex, education),
            cross(coarse, age_band(states, 10), sex, education),
            cross(coarse, age_band(states, 10), sex),
            cross(coarse),
            np.zeros_like(rank),
        ]
