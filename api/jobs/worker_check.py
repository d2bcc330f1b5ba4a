"""The health check of a worker: `python -m saga.api.jobs.worker_check FOLDER`, exit code 0 or 1.

A worker that reaches the queue touches its file in the folder of jobs every two seconds.
"""

from __future__ import annotations

import socket
import sys
import time
import uuid
from pathlib import Path

_MAX_SECONDS = 60.0  # after a longer silence a worker counts as ended


def worker_name() -> str:
    """A new name for a worker on this machine."""
    return f"{socket.gethostname()}.{uuid.uuid4().hex}"


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
