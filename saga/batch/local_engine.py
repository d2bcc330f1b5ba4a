"""The local engine: partitions are written by this process or by worker processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from saga.batch.partition_writer import BatchRun, PartitionWriter, WorkersLostError
from saga.batch.partitions import Partitions
from saga.simulation.worker_process import follow_parent


def compute_locally(
    run: BatchRun, partitions: Partitions, pending: Sequence[int], *, workers: int
) -> Iterator[dict[str, Any]]:
    """Compute partitions in this process or in worker processes; receipts as they finish."""
    if not pending:
        return
    if min(workers, len(pending)) == 1:
        yield from map(PartitionWriter(run, partitions).write, pending)
        return
    other_processes = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with _one_thread_a_process():
        pool = ProcessPoolExecutor(
            min(workers, len(pending)),
            mp_context=context,
            initializer=_start_worker,
            initargs=(run, partitions),
        )
        try:
            for future in as_completed([pool.submit(_write_in_worker, index) for index in pending]):
                yield future.result()
        except BrokenProcessPool:
            raise WorkersLostError(
                "A worker process was killed (perhaps there is not enough memory for them)"
            ) from None
        except BaseException:
            # Each partition is either committed or not, so killing loses only seconds of work.
            for process in set(multiprocessing.active_children()) - other_processes:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


# Set in a worker process. The writer opens the recipe with its first partition, not before, so
# that an error in opening reaches the parent.
_assigned: tuple[BatchRun, Partitions] | None = None
_writer: PartitionWriter | None = None


def _start_worker(run: BatchRun, partitions: Partitions) -> None:
    global _assigned
    follow_parent()
    _assigned = run, partitions


def _write_in_worker(index: int) -> dict[str, Any]:
    global _writer
    if _assigned is None:
        raise RuntimeError("the process was not initialised")
    _writer = _writer or PartitionWriter(*_assigned)
    return _writer.write(index)


@contextmanager
def _one_thread_a_process() -> Iterator[None]:
    """Child processes that start inside this context use one thread each."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
