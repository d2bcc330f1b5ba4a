"""Group quantiles: what became of people of the same age, sex, education and rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.naive.donor_base import DonorBaseline, band, crossed, standing
from evaluation.baselines.origin_states import CODES, States


class GroupQuantiles(DonorBaseline):
    """Later earnings in the person's group, relative to the origin year's median.

    The person's own earnings enter through the group only. Relative amounts let donors of earlier
    years serve if real wages have grown since. Sex or education that a panel lacks does not divide
    groups.
    """

    name = "groupq"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)

    def base(self, states: States) -> NDArray[Any]:
        """The median earnings of the origin year."""
        return np.broadcast_to(self.reference.level(states.year), np.shape(states.earnings))

    def groups(self, states: States) -> list[NDArray[Any]]:
        """Standing, age, sex and education in three steps, then fewer of them, then all persons."""
        rank = self.reference.rank(states)
        sex, education = (
            (states.sex, len(CODES["sex"]) + 1),
            (states.education_level, len(CODES["education_level"]) + 1),
        )
        coarse = standing(states, rank, 5)
        return [
            crossed(standing(states, rank, 20), band(states, 3), sex, education),
            crossed(standing(states, rank, 10), band(states, 5), sex, education),
            crossed(coarse, band(states, 10), sex, education),
            crossed(coarse, band(states, 10), sex),
            crossed(coarse),
            np.zeros_like(rank),
        ]
