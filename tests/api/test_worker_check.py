"""The health check of a worker counts the living workers of its own machine."""

from __future__ import annotations

import os
from pathlib import Path

from saga.api.jobs.worker_locks import count_workers


def test_workers_of_other_machines_and_silent_ones_do_not_count(tmp_path: Path) -> None:
    for name in ("a.1", "a.2", "a.site.1", "b.1", ".a.3"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "a.2", (0, 0))
    assert count_workers(tmp_path, "a") == 1, "neither the silent one nor those of machine a.site"
    assert count_workers(tmp_path, "a.site") == 1
    assert count_workers(tmp_path) == 3
    assert count_workers(tmp_path / "missing", "a") == 0
