"""Who draws the paths of many persons: threads of this process, or processes of their own.

A few persons are one unit of work with one thread inside each matrix product, so sums keep their order and the numbers are the same
whoever draws them. Threads start at once but share Python's interpreter lock; processes start in seconds and use every core.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saga.features.sequences import Sequences
from saga.simulation.rollout import Rollout
from saga.simulation.worker_process import end_with_parent

Draw = Callable[[NDArray[np.int64]], Iterator[NDArray[np.float32]]]


@contextmanager
def worker_pool(
    rollout: Rollout,
    sequences: Sequences,
    steps: NDArray[np.int64],
    *,
    threads: int,
    processes: int,
) -> Iterator[Draw]:
    """A function from person indices to their earnings (steps, paths), in order; drawn by `processes`, or by `threads` if that is 1."""
    team: Executor
    if processes > 1:
        job = (rollout.settings, sequences)
        team = ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_start, initargs=job
        )
    else:
        team = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def draw(persons: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        groups = np.array_split(
            persons,
            max(threads if processes == 1 else processes, -(-len(persons) // rollout.group_size)),
        )
        groups = [group for group in groups if len(group)]
        asked = [steps[group] for group in groups]
        found = (
            team.map(_draw, groups, asked)
            if processes > 1
            else team.map(partial(rollout.simulate, sequences), groups, asked)
        )
        return chain.from_iterable(found)

    with single_threaded():
        try:
            yield draw
        finally:  # whoever is interrupted need not wait for persons not yet begun
            team.shutdown(cancel_futures=True)


@contextmanager
def single_threaded() -> Iterator[None]:
    """One thread inside each matrix product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_job: tuple[Rollout, Sequences]


def _start(settings: dict[str, Any], sequences: Sequences) -> None:
    global _job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    end_with_parent()
    torch.set_num_threads(1)
    _job = Rollout(**settings), sequences


def _draw(persons: NDArray[np.int64], steps: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    rollout, sequences = _job
    return rollout.simulate(sequences, persons, steps)
