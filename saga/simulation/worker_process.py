"""Worker processes leave Ctrl-C to the process that started them, and end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess


def follow_parent() -> None:
    """Make this process ignore Ctrl-C, which its parent handles, and end when the parent ends.

    A parent that is killed cannot end its workers, and they would wait forever. A thread of the
    worker therefore waits for the end of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
