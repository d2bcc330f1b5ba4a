"""Forecasts of all members of a bundle together.

The marginal of an ensemble is the average of its members' marginals. In a rollout, path k follows
member k mod K, so an ensemble costs as much as one network. With one member, both are those of the
member, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from saga.distributions import Marginals
from saga.features.sequences import Sequences
from saga.simulation.pool import single_threaded, split_persons, thread_pool
from saga.simulation.rollout import Rollout
from saga.simulation.worker_process import run_task, worker_pool

Simulate = Callable[[NDArray[np.int64]], Iterator[NDArray[np.float32]]]
# Earnings of persons, from their indices and numbers of years.
Task = Callable[[NDArray[np.int64], NDArray[np.int64]], list[NDArray[np.float32]]]
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


@contextmanager
def simulation_pool(
    rollouts: Sequence[Rollout],
    sequences: MemberSequences,
    steps: NDArray[np.int64],
    *,
    threads: int,
    processes: int,
) -> Iterator[Simulate]:
    """A function from person indices to their earnings (steps, n_paths), in order.

    Each path is simulated by the rollout of its member (`simulate_members`), in `processes` worker
    processes, or in `threads` threads if `processes` is 1. Threads start at once but share Python's
    interpreter lock; processes take seconds to start and use every core.
    """
    task: Task = partial(simulate_members, rollouts, sequences)
    pool = worker_pool(processes, task) if processes > 1 else thread_pool(threads)
    run: Task = run_task if processes > 1 else task
    workers = threads if processes == 1 else processes

    with single_threaded(), pool as executor:

        def simulate(persons: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
            size = min(rollout.group_size(len(persons)) for rollout in rollouts)
            groups = split_persons(persons, workers, size)
            return chain.from_iterable(
                executor.map(run, groups, [steps[group] for group in groups])
            )

        yield simulate


def simulate_members(
    rollouts: Sequence[Rollout],
    sequences: MemberSequences,
    persons: NDArray[np.int64],
    steps: NDArray[np.int64],
) -> list[NDArray[np.float32]]:
    """Earnings of all paths, as `Rollout.simulate` returns those of one member.

    `rollouts` has one rollout per member that has a path.
    """
    if len(rollouts) == 1:
        return rollouts[0].simulate(sequences[0], persons, steps)
    n_paths = rollouts[0].options.n_paths
    earnings = [np.empty((int(n), n_paths), dtype=np.float32) for n in steps]
    for rollout, records in zip(rollouts, sequences, strict=False):
        for paths, simulated in zip(
            earnings, rollout.simulate(records, persons, steps), strict=True
        ):
            paths[:, rollout.options.path_numbers] = simulated
    return earnings
