"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cpu_count() -> int:
    """The cores of the process's affinity, at most the quota of its container; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, math.ceil(min(_quota(), 2**20))))


def _quota() -> float:
    """Cores that the container may use, by cgroups of version 2 or 1; infinite without a limit."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((_CGROUP / name).read_text() for name in names).split()
        except OSError:
            continue
        quota, period = words
        return int(quota) / int(period) if quota.isdecimal() else math.inf
    return math.inf
