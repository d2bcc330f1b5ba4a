"""The time left to a step, from reports of what is done of it."""

from __future__ import annotations

import time
from datetime import timedelta

_SHARE_LEFT_OUT = 1 / 3  # of the time since the first report, at its beginning
_GROWTH = 1.05  # of the time since the first report, between two marks


class TimeLeft:
    """The time left to a step. As text: `about 0:02:30 left`, or empty if it is not known.

    The pace is the mean of the latest two thirds of the time since the first report. So a resumed
    step counts only what it does itself, and a slow start soon no longer counts. A report that is
    late slows the pace as if it came now. If pieces take ever longer, more time is left than it
    says.
    """

    def __init__(self) -> None:
        self._total = -1
        self._marks: list[tuple[float, int]] = []  # times and what was done, ever farther apart
        self._done = self._piece = 0  # by the latest report, and how much of it was new
        self._end: float | None = None

    def report(self, done: int, total: int) -> None:
        """Note that `done` of `total` are done. Another total, or less done, begins a step."""
        now = time.monotonic()
        if total != self._total or done < self._done:
            self._total, self._marks, self._done, self._end = total, [(now, done)], done, None
            return
        self._piece, self._done = done - self._done, done
        if (left := self._left(done, now)) is not None:
            self._end = now + left
        began, last = self._marks[0][0], self._marks[-1][0]
        if now - began >= _GROWTH * (last - began):
            self._marks.append((now, done))

    def _left(self, done: int, now: float) -> float | None:
        """Seconds left if `done` are done now; None before the pace is known."""
        began = self._marks[0][0]
        since = began + _SHARE_LEFT_OUT * (now - began)
        before = max(marked for at, marked in self._marks if at <= since)
        return (self._total - done) / (done - before) * (now - since) if before < done else None

    def __str__(self) -> str:
        if self._end is None:
            return ""
        now = time.monotonic()
        late = self._left(self._done + self._piece, now) or 0.0
        left = max(self._end - now, late)
        return f"about {timedelta(seconds=int(left))} left" if left > 0 else ""
