"""Threads that compute groups of persons.

A unit of work is a few persons, and each matrix product uses one thread. Sums therefore have a
fixed order, and the numbers do not depend on the pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray


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
