"""How long computations tell their progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with the number that is done, and the number in all
