"""The workers of a folder of jobs, each of which holds the lock of a file there while it runs.

`python -m saga.api.jobs.worker_locks FOLDER` is the health check of a worker: exit code 0 or 1. A
worker that reaches the queue touches its file every two seconds.
"""

from __future__ import annotations

import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saga.files.atomic import FolderInUseError, file_lock

_MAX_SECONDS = 60.0  # after a longer silence a worker counts as ended


@contextmanager
def hold_worker_lock(workers: Path) -> Iterator[Path]:
    """The locked file of a new worker, whose name it has; others test the lock."""
    path = workers / f"{socket.gethostname()}.{uuid.uuid4().hex}"
    unfinished = workers / f".{path.name}"
    with file_lock(unfinished):
        unfinished.rename(path)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def is_worker_alive(path: Path) -> bool:
    """Whether a worker holds the lock of this file, so that it still runs."""
    if not path.exists():
        return False
    try:
        with file_lock(path, shared=True):
            return False
    except FolderInUseError:
        return True


def count_workers(workers: Path, host: str | None = None) -> int:
    """Number of workers that reached the queue within the last minute, on a machine or on all."""
    n_workers = 0
    for path in workers.glob("*"):
        try:
            is_alive = time.time() - path.stat().st_mtime < _MAX_SECONDS
        except FileNotFoundError:  # it has just ended
            continue
        n_workers += is_alive and (path.stem == host if host else not path.name.startswith("."))
    return n_workers


def main() -> None:
    """Check the folder that the command line names."""
    sys.exit(0 if count_workers(Path(sys.argv[1]) / "workers", socket.gethostname()) else 1)


if __name__ == "__main__":
    main()
