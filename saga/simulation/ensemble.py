"""Forecasts of all members of a bundle together.

The marginal of an ensemble is the average of its members' marginals. In a rollout, path k follows
member k mod K, so an ensemble costs as much as one network. With one member, both are those of the
member, bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saga.distributions import Marginals
from saga.features.sequences import Sequences
from saga.simulation.marginals import DirectMarginals
from saga.simulation.rollout import Rollout

MemberSequences = tuple[Sequences, ...]  # the records of a panel, as each member receives them


class EnsembleMarginals:
    """Averages the marginals of the members, for one scenario."""

    def __init__(self, members: Sequence[DirectMarginals]) -> None:
        self.members = tuple(members)
        for member in self.members[1:]:  # macro nodes do not depend on the network
            member.nodes = self.members[0].nodes
        # The grids of all members move with the same wage index, so one table serves all persons.
        self.grid = np.mean([member.grid for member in members], axis=0)
        self._position = [_positions(self.grid, member.grid) for member in members]

    def marginals(
        self,
        sequences: MemberSequences,
        persons: NDArray[np.int64],
        groups: Mapping[str, NDArray[np.str_]],
    ) -> Marginals:
        """Raw marginals of `persons`; those of the members are in `members` if there are several.

        Args:
            sequences: Records of the panel, for each member.
            persons: Indices of persons (n,).
            groups: Group labels of the persons.
        """
        members = tuple(
            member.marginals(records, persons, groups)
            for member, records in zip(self.members, sequences, strict=True)
        )
        if len(members) == 1:
            return members[0]
        first = members[0]
        shift = first.grid[..., :1].astype(np.float64) - self.members[0].grid[0]
        cdf, p_zero = np.zeros(first.cdf.shape), np.zeros(first.p_zero.shape)
        for member, (index, weight) in zip(members, self._position, strict=True):
            cdf += (1 - weight) * member.cdf[..., index - 1] + weight * member.cdf[..., index]
            p_zero += member.p_zero
        cdf, p_zero = cdf / len(members), p_zero / len(members)
        cdf[..., 0], cdf[..., -1] = p_zero, np.where(np.isnan(p_zero), np.nan, 1.0)
        cdf = np.maximum.accumulate(cdf, axis=-1)
        grid = (self.grid + shift).astype(np.float32)
        return replace(
            first,
            grid=grid,
            cdf=cdf.astype(np.float32),
            p_zero=p_zero.astype(np.float32),
            members=members,
        )


def _positions(
    grid: NDArray[np.float64], member_grid: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Index of the member's grid point after each point of `grid`, and its weight."""
    index = np.clip(np.searchsorted(member_grid, grid, side="right"), 1, len(grid) - 1)
    low, high = member_grid[index - 1], member_grid[index]
    return index, np.clip((grid - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class EnsembleRollout:
    """Simulates each path with its member; see `Rollout`.

    `rollouts` has one rollout per member that has a path.
    """

    rollouts: tuple[Rollout, ...]

    @property
    def group_size(self) -> int:
        """Number of persons to simulate together."""
        return min(rollout.group_size for rollout in self.rollouts)

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
