"""Forecasts of all members of a bundle together.

The marginal of an ensemble is the average of its members' marginals. In a rollout, path k follows
member k mod K, so an ensemble costs as much as one network. With one member, both are those of the
member, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from saga.distributions import Marginals
from saga.features.sequences import Sequences
from saga.simulation.rollout import Rollout

MemberSequences = tuple[Sequences, ...]  # the records of a panel, as each member receives them


def average_marginals(members: Sequence[Marginals]) -> Marginals:
    """The average of the members' raw marginals of the same persons, which are in `members`."""
    if len(members) == 1:
        return members[0]
    first = members[0]
    grid: NDArray[np.float64] = np.stack([member.grid for member in members]).mean(
        axis=0, dtype=np.float64
    )
    cdf, p_zero = np.zeros(first.cdf.shape), np.zeros(first.p_zero.shape)
    for member in members:
        cdf += _interpolated(grid, member.grid, member.cdf)
        p_zero += member.p_zero
    cdf, p_zero = cdf / len(members), p_zero / len(members)
    cdf[..., 0], cdf[..., -1] = p_zero, np.where(np.isnan(p_zero), np.nan, 1.0)
    cdf = np.maximum.accumulate(cdf, axis=-1)
    return replace(
        first,
        grid=grid.astype(np.float32),
        cdf=cdf.astype(np.float32),
        p_zero=p_zero.astype(np.float32),
        members=tuple(members),
    )


def _interpolated(
    grid: NDArray[np.float64], member_grid: NDArray[np.float32], cdf: NDArray[np.float32]
) -> NDArray[np.float64]:
    """A member's CDF (..., G) on its grid (..., G), interpolated linearly at `grid` (..., G)."""
    points = member_grid.astype(np.float64)
    index = torch.searchsorted(torch.from_numpy(points), torch.from_numpy(grid), right=True).numpy()
    index = np.clip(index, 1, grid.shape[-1] - 1)
    low, high = (np.take_along_axis(points, index - k, axis=-1) for k in (1, 0))
    below, above = (np.take_along_axis(cdf, index - k, axis=-1) for k in (1, 0))
    weight = np.clip((grid - low) / (high - low), 0.0, 1.0)
    interpolated: NDArray[np.float64] = (1 - weight) * below + weight * above
    return interpolated


@dataclass(frozen=True, eq=False)
class EnsembleRollout:
    """Simulates each path with its member; see `Rollout`.

    `rollouts` has one rollout per member that has a path.
    """

    rollouts: tuple[Rollout, ...]

    def group_size(self, n_persons: int) -> int:
        """Number of persons to simulate together, of `n_persons` in all."""
        return min(rollout.group_size(n_persons) for rollout in self.rollouts)

    def simulate(
        self, sequences: MemberSequences, persons: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Earnings of all paths, as `Rollout.simulate` returns those of one member."""
        if len(self.rollouts) == 1:
            return self.rollouts[0].simulate(sequences[0], persons, steps)
        n_paths = self.rollouts[0].options.n_paths
        earnings = [np.empty((int(n), n_paths), dtype=np.float32) for n in steps]
        for rollout, records in zip(self.rollouts, sequences, strict=False):
            for paths, simulated in zip(
                earnings, rollout.simulate(records, persons, steps), strict=True
            ):
                paths[:, rollout.options.path_numbers] = simulated
        return earnings
