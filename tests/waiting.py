"""Waiting for what another thread or process does, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def awaited(ask: Callable[[], Answer | None], seconds: float = 60) -> Answer:
    """The first answer that counts as true; the test fails if there is none in time."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"not within {seconds:g} seconds: {answer}"
        time.sleep(0.05)
    return answer
