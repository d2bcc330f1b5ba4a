"""Carry-forward: the last known earnings times the growth factor of similar persons."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.naive.donor_base import DonorBaseline, band, crossed, standing
from evaluation.baselines.origin_states import States


class CarryForward(DonorBaseline):
    """The last earnings carried forward, with residuals of persons of like age and rank.

    The residual is the ratio of later to last earnings. Last earnings below the floor of the scores
    count as the floor, so that a loss of all earnings is a residual of zero. Persons with zero
    earnings draw amounts relative to the year's median instead.
    """

    name = "carry"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)

    def base(self, states: States) -> NDArray[Any]:
        """The last earnings, at least the floor; the year's median for persons at zero."""
        return np.where(
            states.earnings > 0,
            np.maximum(states.earnings, self.floor),
            self.reference.level(states.year),
        )

    def groups(self, states: States) -> list[NDArray[Any]]:
        """Standing by age: from 20 ranks in 3-year bands to all persons in or out of work."""
        rank = self.reference.rank(states)
        spell = np.minimum(standing(states, rank, 1)[0], 3)
        return [
            crossed(standing(states, rank, 20), band(states, 3)),
            crossed(standing(states, rank, 10), band(states, 5)),
            crossed(standing(states, rank, 5), band(states, 10)),
            spell,
            np.zeros_like(spell),
        ]
