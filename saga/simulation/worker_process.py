"""Worker processes end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess


def end_with_parent() -> None:
    """End this process when its parent ends.

    A parent that is killed cannot end its workers, and they would wait forever. A thread of the
    worker therefore waits for the end of the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
