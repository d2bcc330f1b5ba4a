"""What the C library does with freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)


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
