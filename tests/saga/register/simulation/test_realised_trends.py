"""Resampled trends: what countries lived through, and nothing else."""

from __future__ import annotations

import numpy as np

from saga.register.simulation.realised_trends import (
    COUNTRIES,
    PAST_YEARS,
    GroupChanges,
    draw_group_trends,
    draw_growth,
    draw_ratio,
)

PAST = np.full(PAST_YEARS, 0.013)
KEYS = [(7, key) for key in range(400)]


def test_first_years_do_not_depend_on_the_number_of_years() -> None:
    for key in KEYS[:20]:
        assert draw_growth(PAST, 40, key)[:15].tolist() == draw_growth(PAST, 15, key).tolist()
        assert draw_ratio(40, key)[:15].tolist() == draw_ratio(15, key).tolist()
        short, long = (
            draw_group_trends(range(2023, end), GroupChanges(), key) for end in (2030, 2060)
        )
        assert short == {year: long[year] for year in short}


def test_growth_has_the_persistence_of_countries_and_no_yearly_noise() -> None:
    """A mean of 10 years varies several times more than independent years would let it."""
    growth = np.array([draw_growth(PAST, 20, key) for key in KEYS])
    independent = growth.std() / np.sqrt(10)
    assert growth[:, :10].mean(axis=1).std() > 1.5 * independent
    assert 0.004 < growth.mean() < 0.02


def test_a_like_past_is_likelier() -> None:
    """Countries that grew fast went on faster than those that stood still."""
    fast, slow = (
        np.array([draw_growth(past, 10, key).mean() for key in KEYS])
        for past in (PAST + 0.03, PAST - 0.013)
    )
    error = np.hypot(fast.std(), slow.std()) / np.sqrt(len(KEYS))
    assert fast.mean() - slow.mean() > 3 * error


def test_trends_of_groups_go_on_stop_and_turn_and_only_the_gap_has_a_direction() -> None:
    last = [draw_group_trends(range(2023, 2043), GroupChanges(), key)[2042] for key in KEYS]
    women, tertiary, young = (
        np.array([getattr(each, name) for each in last]) for name in ("women", "tertiary", "young")
    )
    assert (women > 0.0042 * 20).mean() > 0.2  # goes on as in the register's own past
    assert (women < 0.0042 * 10).mean() > 0.05  # less than half as fast
    assert women.mean() > 0.05
    for signed in (tertiary, young):
        assert abs(signed.mean()) < 3 * signed.std() / np.sqrt(len(KEYS))


def test_sweden_feeds_no_future() -> None:
    assert "SWE" not in COUNTRIES
