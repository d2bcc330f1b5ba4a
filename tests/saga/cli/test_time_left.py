"""The time left is within a factor of two after the first tenth of a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from saga.cli import console, time_left

Reports = Sequence[tuple[float, int]]  # time and what is done then
TOTAL = 400


def steady(_: np.random.Generator) -> Reports:
    return [(float(k), k) for k in range(TOTAL + 1)]


def unequal(rng: np.random.Generator) -> Reports:
    ends = np.cumsum(rng.gamma(0.5, 20.0, TOTAL))
    return [(0.0, 0), *zip(ends.tolist(), range(1, TOTAL + 1), strict=True)]


def slow_first(_: np.random.Generator) -> Reports:
    return [(0.0, 0), *((40.0 + k, k) for k in range(1, TOTAL + 1))]


def slow_before_the_first_report(_: np.random.Generator) -> Reports:
    return [(5_000.0 + k, k) for k in range(1, TOTAL + 1)]


def resumed_at_half(_: np.random.Generator) -> Reports:
    return [(10.0 * k, TOTAL // 2 + k) for k in range(TOTAL // 2 + 1)]


def by_sixteen_workers(rng: np.random.Generator) -> Reports:
    """All workers end their pieces at almost the same time."""
    ends = np.sort([100.0 * (k // 16 + 1) + rng.random() for k in range(TOTAL)])
    return [(0.0, 0), *zip(ends.tolist(), range(1, TOTAL + 1), strict=True)]


def in_large_blocks(_: np.random.Generator) -> Reports:
    return [(100.0 * k, 8 * k) for k in range(1, TOTAL // 8 + 1)]


def in_two_passes(_: np.random.Generator) -> Reports:
    first = [(float(k), k) for k in range(TOTAL + 1)]
    return [*first, *((1_000.0 + 5.0 * k, k) for k in range(1, TOTAL + 1))]


def told(text: str) -> float | None:
    found = re.search(r"about (?:(\d+) days?, )?(\d+):(\d+):(\d+) left", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the two modules. That of all would stop the services of other tests."""
    now = [0.0]
    for module in (console, time_left):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.mark.parametrize(
    "course",
    [
        steady,
        unequal,
        slow_first,
        slow_before_the_first_report,
        resumed_at_half,
        by_sixteen_workers,
        in_large_blocks,
        in_two_passes,
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_time_left_is_within_a_factor_of_two_after_the_first_tenth(
    course: Callable[[np.random.Generator], Reports],
    seed: int,
    clock: list[float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "_LINE_SECONDS", 0.0)
    reports = course(np.random.default_rng(seed))
    begins = [0] + [i for i in range(1, len(reports)) if reports[i][1] < reports[i - 1][1]]
    compared = 0
    with console.progress("Working") as advance:
        assert advance is not None
        for begin, stop in zip(begins, [*begins[1:], len(reports)], strict=True):
            (start, first), (end, _) = reports[begin], reports[stop - 1]
            for clock[0], done in reports[begin:stop]:
                capsys.readouterr()
                advance(done, TOTAL)
                done_share = (done - first) / (TOTAL - first)
                time_share = (clock[0] - start) / (end - start)
                # The last pieces of unequal cost cannot be foreseen.
                if min(done_share, time_share) >= 0.1 and time_share <= 0.9:
                    left = told(capsys.readouterr().err)
                    assert left is not None, "nothing is told"
                    assert 0.5 <= (left + 1) / (end - clock[0]) <= 2, (done, left, end - clock[0])
                    compared += 1
    assert compared > 30


@pytest.mark.parametrize("course", [steady, by_sixteen_workers, in_large_blocks])
def test_the_time_left_holds_between_two_reports_too(
    course: Callable[[np.random.Generator], Reports], clock: list[float]
) -> None:
    reports = list(course(np.random.default_rng(0)))
    left, (start, _), (end, _) = time_left.TimeLeft(), reports[0], reports[-1]
    asked = np.linspace(start + 0.1 * (end - start), start + 0.9 * (end - start), 499)
    for moment in asked.tolist():
        while reports[0][0] <= moment:
            clock[0], done = reports.pop(0)
            left.report(done, TOTAL)
        clock[0] = moment
        seconds = told(str(left))
        assert seconds is not None, "nothing is told"
        assert 0.5 <= (seconds + 1) / (end - moment) <= 2, (moment, seconds)


def test_a_late_report_counts_as_if_it_came_now(clock: list[float]) -> None:
    """The first piece cost nothing, as that of persons who are too old."""
    late, arrived = time_left.TimeLeft(), time_left.TimeLeft()
    for clock[0], done in ((0.0, 0), (1.0, 20)):
        late.report(done, TOTAL)
        arrived.report(done, TOTAL)
    clock[0] = 300.0
    arrived.report(40, TOTAL)
    assert told(str(late)) == told(str(arrived)) == (TOTAL - 40) / 20 * 200.0


def test_nothing_is_told_before_a_piece_of_the_step_is_done(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_LINE_SECONDS", 0.0)
    with console.progress("Scoring") as advance:
        assert advance is not None
        for clock[0], done, step in ((1.0, 50, "one"), (9.0, 0, "two"), (9.0, 60, "two")):
            advance(done, 100, step)
    assert "left" not in capsys.readouterr().err.splitlines()[0]


def test_a_log_file_gets_a_line_a_minute_with_the_time_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with console.progress("Scoring") as advance:
        assert advance is not None
        for clock[0], done in ((0.0, 0), (30.0, 10), (70.0, 20), (71.0, 21), (140.0, 40)):
            advance(done, 100)
        clock[0] = 210.0
        advance(1, 3, "Averaging")
    lines = [line.split(", about ") for line in capsys.readouterr().err.splitlines()]
    assert [line[0] for line in lines] == [
        "Scoring: 20 of 100", "Scoring: 40 of 100", "Averaging: 1 of 3"
    ]  # fmt: skip
    hours, minutes, seconds = map(int, lines[1][1].removesuffix(" left").split(":"))
    assert 150 < 3_600 * hours + 60 * minutes + seconds < 260, "60 more at about 0.3 a second"
