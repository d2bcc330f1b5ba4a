"""The time left to a step, from reports of what is done of it."""

from __future__ import annotations

import time
from datetime import timedelta

_SHARE_LEFT_OUT = 1 / 3  # of the time since the first report, at its beginning
_GROWTH = 1.05  # of the time since the first report, between two marks


class TimeLeft:
    """The time left to a step. As text: `about 0:02:30 left`, or empty if it is not known.

    The pace is the mean of the latest two thirds of the time since the first report. So a resumed
    step counts only what it does itself, and a slow start soon no longer counts. If pieces take
    ever longer, as those of persons in the order of birth may, more time is left than it says.
    """

    def __init__(self) -> None:
        self._total = -1
        self._marks: list[tuple[float, int]] = []  # times and what was done, ever farther apart
        self._end: float | None = None

    def report(self, done: int, total: int) -> None:
        """Note that `done` of `total` are done. Another total, or less done, begins a step."""
        now = time.monotonic()
        if total != self._total or done < self._marks[-1][1]:
            self._total, self._marks, self._end = total, [(now, done)], None
            return
        began, last = self._marks[0][0], self._marks[-1][0]
        since = began + _SHARE_LEFT_OUT * (now - began)
        before = max(marked for at, marked in self._marks if at <= since)
        if before < done:
            self._end = now + (total - done) / (done - before) * (now - since)
        if now - began >= _GROWTH * (last - began):
            self._marks.append((now, done))

    def __str__(self) -> str:
        if self._end is None:
            return ""
        return f"about {timedelta(seconds=int(max(0.0, self._end - time.monotonic())))} left"
