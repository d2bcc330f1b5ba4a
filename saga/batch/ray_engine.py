"""The Ray engine: partitions are written by the workers of a Ray cluster, one process each.

Workers read staged rows and write parts in an object store, or on a file system that all nodes
share under the paths of the driver, and send back receipts only. A worker that is lost is replaced,
and its partition is computed again; the receipts decide what is complete, never the cluster.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saga.batch.engine import BatchInterruptedError, BatchRun, PartitionWriter
from saga.errors import UsageError
from saga.simulation.worker_process import ONE_THREAD
from saga.version import current_version

_LOSSES = 3  # of workers at the same partition, or of each worker at its start
_PATIENCE = 600  # seconds until the first worker must have started


@dataclass(frozen=True)
class RayEngine:
    """An engine on the cluster at `address` ("auto", "HOST:6379"), or on this machine if None."""

    address: str | None = None

    def __call__(
        self, run: BatchRun, pending: Sequence[int], workers: int | None
    ) -> Iterator[dict[str, Any]]:
        """Write the pending partitions; receipts as they finish.

        At most `workers` processes of one CPU each, by default one. Raises UsageError if Ray is not
        installed or the cluster cannot be reached, BatchInterruptedError if workers are lost again
        and again.
        """
        workers = workers or 1
        with _connection(self.address, workers):
            yield from _write_all(run, pending, workers)


class _RayWorker:
    """Writes partitions in a process of the cluster."""

    def __init__(self, run: BatchRun, directory: str, version: str) -> None:
        self.writer, self.directory, self.version = PartitionWriter(run), directory, version

    def start(self) -> None:
        """Do nothing; an answer says that the process runs."""

    def write(self, index: int) -> dict[str, Any]:
        """Write a partition and return its receipt."""
        if current_version() != self.version:
            raise UsageError(
                f"A node of the cluster has SAGA {current_version()} and the driver has "
                f"{self.version}. Install the same version on all nodes."
            )
        with suppress(OSError):
            os.chdir(self.directory)  # relative paths mean the same as on the driver
        return self.writer.write(index)


@contextmanager
def _connection(address: str | None, workers: int) -> Iterator[None]:
    """A connection to a cluster, or a cluster on this machine, which ends with the context."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to Ray's makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UsageError(
            "The engine ray needs Ray, which is not installed. Run `pip install "
            "saga-forecast[ray]`, or use --engine local."
        ) from None
    size = {"num_cpus": workers, "include_dashboard": False} if address is None else {}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **size,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"There is no Ray cluster at {address or 'this machine'} ({reason}). Start one with "
            "`ray start --head`, or leave --address out."
        ) from None
    try:
        # Ray prints events of the cluster on standard output, which is for results.
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()  # ends the workers of this run; a cluster with an address goes on


def _write_all(run: BatchRun, pending: Sequence[int], workers: int) -> Iterator[dict[str, Any]]:
    """Receipts of pending partitions; each running worker has one partition at a time."""
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    worker_class: Any = ray.remote(_RayWorker).options(
        num_cpus=1, runtime_env={"env_vars": ONE_THREAD}
    )
    arguments = ray.put(run), str(Path.cwd()), current_version()
    queue, losses = deque(pending), Counter[int | None]()
    limits: dict[int | None, int] = {None: _LOSSES * workers}
    # Task -> its worker and its partition. A worker gets a partition when it has started, because
    # a cluster that is too small never starts some of them.
    tasks: dict[Any, tuple[Any, int | None]] = {}

    def start_worker() -> None:
        worker = worker_class.remote(*arguments)
        tasks[worker.start.remote()] = worker, None

    for _ in range(min(workers, len(pending))):
        start_worker()
    unwritten, started = len(pending), False
    while unwritten:
        ready, _ = ray.wait(list(tasks), num_returns=1, timeout=None if started else _PATIENCE)
        if not ready:
            raise BatchInterruptedError(
                f"No worker has started in {_PATIENCE} seconds (the cluster may have no free CPU)"
            )
        started, (task,) = True, ready
        worker, index = tasks.pop(task)
        try:
            receipt = ray.get(task)
        except RayTaskError as error:
            raise error.cause from None
        except RayActorError as error:
            losses[index] += 1
            if losses[index] >= limits.get(index, _LOSSES):
                place = "at their start" if index is None else f"at partition {index}"
                raise BatchInterruptedError(
                    f"Workers of the cluster were lost {losses[index]} times {place} (perhaps "
                    f"there is not enough memory for them; {type(error).__name__})"
                ) from None
            if index is not None:
                queue.appendleft(index)
            start_worker()
            continue
        if index is not None:
            unwritten -= 1
            yield receipt
        if queue:
            index = queue.popleft()
            tasks[worker.write.remote(index)] = worker, index
