"""Pools that simulate many persons: threads of this process, or worker processes.

A unit of work is a few persons, and each matrix product uses one thread. Sums therefore have a
fixed order, and the numbers do not depend on the pool. Threads start at once but share Python's
interpreter lock; processes take seconds to start and use every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from saga.simulation.worker_process import follow_parent

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
    executor: Executor
    if processes > 1:
        executor = ProcessPoolExecutor(
            processes,
            mp_context=get_context("spawn"),
            initializer=_start_worker,
            initargs=(rollout, sequences),
        )
        run = _simulate_in_worker
    else:
        executor = thread_pool(threads)
        run = partial(rollout.simulate, sequences)
    workers = threads if processes == 1 else processes

    def simulate(persons: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        groups = split_persons(persons, workers, rollout.group_size(len(persons)))
        return chain.from_iterable(executor.map(run, groups, [steps[group] for group in groups]))

    with single_threaded():
        try:
            yield simulate
        finally:  # after an interrupt, do not wait for persons whose simulation has not started
            executor.shutdown(cancel_futures=True)


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """A pool of threads, each with one thread inside matrix products."""
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))


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


_job: tuple[EnsembleRollout, MemberSequences]


def _start_worker(rollout: EnsembleRollout, sequences: MemberSequences) -> None:
    global _job
    follow_parent()
    torch.set_num_threads(1)
    _job = rollout, sequences


def _simulate_in_worker(
    persons: NDArray[np.int64], steps: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    rollout, sequences = _job
    return rollout.simulate(sequences, persons, steps)
