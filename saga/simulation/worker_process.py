"""Worker processes have one thread each, leave Ctrl-C to their parent, and end with it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

# Libraries read these when they are loaded. Without them each worker would start as many threads
# as the machine has cores.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")

_task: Callable[..., Any]  # in a worker process


@contextmanager
def worker_pool(workers: int, task: Callable[..., Any]) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, to which arguments of `task` are sent as `submit(run_task, ...)`.

    Each process receives the task once. At the end, work that has not begun is not done.

    The environment of this process is not changed: threads of other libraries read it while they
    look up the address of a store, and a change at that moment can crash the process.
    """
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(pickle.dumps(task),),
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def run_task(*arguments: Any) -> Any:
    """The result of the task of this process, with these arguments."""
    return _task(*arguments)


def _start(task: bytes) -> None:
    """Ignore Ctrl-C, which the parent handles, end when the parent ends, and load the task.

    A parent that is killed cannot end its workers, and they would wait forever. A thread of the
    worker therefore waits for the end of the parent.
    """
    global _task
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(ONE_THREAD)  # before the libraries of the task are loaded
    _task = pickle.loads(task)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
