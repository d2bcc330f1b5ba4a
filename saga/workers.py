"""Who draws the paths of many persons: threads of this process, or processes of their own.

A person's paths are one unit of work with one thread inside each matrix product, so sums keep their order and the numbers are the same
whoever draws them. Threads start at once but share Python's interpreter lock; processes start in seconds and use every core.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saga.rollout import Rollout
from saga.sequences import Sequences

Draw = Callable[[NDArray[np.int64]], Iterator[NDArray[np.float32]]]


@contextmanager
def crew(rollout: Rollout, sequences: Sequences, steps: NDArray[np.int64], *, threads: int, processes: int) -> Iterator[Draw]:
    """A function from person indices to their earnings (steps, paths), in order; drawn by `processes`, or by `threads` if that is 1."""
    if processes > 1:
        job = (rollout.settings, sequences)
        pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start, initargs=job)
        try:
            yield lambda persons: pool.map(_draw, persons.tolist(), steps[persons].tolist(), chunksize=8)
        finally:  # whoever is interrupted need not wait for persons not yet begun
            pool.shutdown(cancel_futures=True)
    else:
        with single_threaded():
            team = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
            try:
                yield lambda persons: team.map(lambda i: rollout.person(sequences, i, int(steps[i])), persons.tolist())
            finally:
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
    torch.set_num_threads(1)
    _job = Rollout(**settings), sequences


def _draw(person: int, steps: int) -> NDArray[np.float32]:
    rollout, sequences = _job
    return rollout.person(sequences, person, steps)
