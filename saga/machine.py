"""What this process takes of its machine: cores, and memory that it has freed."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)


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


def keep_freed_memory() -> None:
    """Let the C library reuse the memory of freed arrays.

    By default it returns large blocks to the system and asks for them again in each step of a
    training or block of persons, which takes a tenth of the time.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library has no mallopt
            library = ctypes.CDLL(None)
            library.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)
            library.mallopt(_M_TOP_PAD, 64 * 2**20)  # else heaps of other threads are returned
            library.mallopt(_M_TRIM_THRESHOLD, 2**30)
