"""Carry-forward: the last known earnings times what similar people's earnings were multiplied by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines.naive.donor_base import Borrowing, band, crossed, standing
from evaluation.baselines.origin_states import States


class CarryForward(Borrowing):
    """The last level carried forward, with the multi-year residuals of training persons of the same age and rank.

    The residual is the ratio of later to last earnings (last earnings below the score's floor count as the floor), so that a
    loss of all earnings is a residual of zero. People at zero borrow levels relative to the year's median instead.
    """

    name = "carry"
    version = 1  # raise it when its numbers may change (see `evaluation.cache`)

    def base(self, states: States) -> NDArray[Any]:
        """The last earnings, at least the floor; the year's median earnings for people at zero."""
        return np.where(
            states.earnings > 0,
            np.maximum(states.earnings, self.floor),
            self.reference.level(states.year),
        )

    def groups(self, states: States) -> list[NDArray[Any]]:
        """Standing at the origin by age, from 20 ranks in 3-year bands to all people in or out of work."""
        rank = self.reference.rank(states)
        spell = np.minimum(standing(states, rank, 1)[0], 3)
        return [
            crossed(standing(states, rank, 20), band(states, 3)),
            crossed(standing(states, rank, 10), band(states, 5)),
            crossed(standing(states, rank, 5), band(states, 10)),
            spell,
            np.zeros_like(spell),
        ]
