"""Pools that simulate many persons: threads of this process, or worker processes.

A unit of work is a few persons, and each matrix product uses one thread. Sums therefore have a
fixed order, and the numbers do not depend on the pool. Threads start at once but share Python's
interpreter lock; processes take seconds to start and use every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from saga.simulation.worker_process import run_task, worker_pool

if TYPE_CHECKING:
    from saga.simulation.ensemble import EnsembleRollout, MemberSequences

Simulate = Callable[[NDArray[np.int64]], Iterator[NDArray[np.float32]]]


@contextmanager
def simulation_pool(
    rollout: EnsembleRollout,
    sequences: MemberSequences,
    steps: NDArray[np.int64],
    *,
    threads: int,
    processes: int,
) -> Iterator[Simulate]:
    """A function from person indices to their earnings (steps, n_paths), in order.

    It uses `processes` worker processes, or `threads` threads if `processes` is 1.
    """
    task: Callable[..., list[NDArray[np.float32]]] = partial(rollout.simulate, sequences)
    pool = worker_pool(processes, task) if processes > 1 else thread_pool(threads)
    run = run_task if processes > 1 else task
    workers = threads if processes == 1 else processes

    with single_threaded(), pool as executor:

        def simulate(persons: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
            groups = split_persons(persons, workers, rollout.group_size(len(persons)))
            return chain.from_iterable(
                executor.map(run, groups, [steps[group] for group in groups])
            )

        yield simulate


@contextmanager
def thread_pool(threads: int) -> Iterator[Executor]:
    """A pool of threads, each with one thread inside matrix products.

    At the end, as after an interrupt, work that has not begun is not done.
    """
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def split_persons(
    persons: NDArray[np.int64], workers: int, group_size: int
) -> list[NDArray[np.int64]]:
    """Persons in groups of at most `group_size`, at least one per worker if possible."""
    groups = np.array_split(persons, max(workers, -(-len(persons) // group_size)))
    return [group for group in groups if len(group)]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Use one thread inside each matrix product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
