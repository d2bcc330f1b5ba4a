"""Threads that compute groups of persons.

A unit of work is a few persons, and each matrix product uses one thread. Sums therefore have a
fixed order, and the numbers do not depend on the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _ThisThread(Executor):
    """Computes a unit of work when its result is asked for."""

    def map(
        self,
        fn: Callable[..., _Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,  # noqa: ARG002 # nobody waits
        chunksize: int = 1,  # noqa: ARG002
    ) -> Iterator[_Result]:
        """The results of `fn`, in order."""
        return map(fn, *iterables)


@contextmanager
def thread_pool(threads: int) -> Iterator[Executor]:
    """A pool of threads, each with one thread inside matrix products.

    One thread is the caller's, because handing it small units of work would take longer than they
    do. At the end, as after an interrupt, work that has not begun is not done.
    """
    if threads == 1:
        with single_threaded():
            yield _ThisThread()
        return
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def as_finished(
    fn: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Iterator[_Result]:
    """The results of `fn` by `threads` threads of a pool, in the order in which they finish."""
    with thread_pool(threads) as pool:
        if threads == 1:
            yield from pool.map(fn, items)
            return
        for future in as_completed([pool.submit(fn, item) for item in items]):
            yield future.result()


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
