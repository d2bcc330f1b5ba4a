"""Spells of work have the shares that theory gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from saga.evaluation.economies.employment_spells import EmploymentSpells, Work
from saga.evaluation.economies.random_draws import random_stream

N, AGES = 20_000, np.arange(20, 50)
SPELLS = EmploymentSpells(
    leave=0.1,
    enter=0.4,
    duration=0.0,
    spread=0.0,
    by_wage=0.0,
    never=0.0,
    first_age=0.0,
    first_age_spread=0.0,
    last_age=70.0,
    breaks=0.0,
    part_time=0.0,
    partial=False,
    scar=0.0,
    fade=0.5,
)


def simulate(spells: EmploymentSpells) -> Work:
    """Work of women and men in turn, with wages that do not change."""
    rng = random_stream("spells", 0)
    wages = np.broadcast_to(rng.standard_normal((N, 1)), (N, len(AGES)))
    return spells.simulate(wages, np.arange(N) % 2 == 0, AGES, rng)


def test_the_share_of_zeros_is_that_of_a_two_state_chain() -> None:
    share = simulate(SPELLS).share
    # Stationary from the tenth year on; the years of a person are correlated.
    zeros = (share[:, 10:] == 0).mean(axis=1)
    assert zeros.mean() == pytest.approx(0.1 / 0.5, abs=4 * zeros.std() / np.sqrt(N))
    worked = share > 0
    leaves = (~worked[:, 1:])[worked[:, :-1]]
    assert leaves.mean() == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / len(leaves)))
    # The broken variant: twice the exits have another share of zeros.
    broken = (simulate(replace(SPELLS, leave=0.2)).share[:, 10:] == 0).mean()
    assert broken > 0.3


def test_return_becomes_rarer_with_duration_and_for_low_wages() -> None:
    works = simulate(replace(SPELLS, duration=0.6)).share > 0
    rates = []
    for years in (1, 4):  # exactly so many years without work, after a year of work
        start = works[:, : works.shape[1] - years - 1].copy()
        for k in range(1, years + 1):
            start &= ~works[:, k : works.shape[1] - years - 1 + k]
        returns = works[:, years + 1 :][start]
        rates.append((returns.mean(), 4 * np.sqrt(0.25 / len(returns))))
    for (rate, error), years in zip(rates, (1, 4), strict=True):
        odds = 0.4 / 0.6 * np.exp(-0.6 * (years - 1))
        assert rate == pytest.approx(odds / (1 + odds), abs=error)
    share = (simulate(replace(SPELLS, by_wage=1.0)).share > 0).mean(axis=1)
    wage = random_stream("spells", 0).standard_normal(N)
    assert share[wage < -1].mean() < share[wage > 1].mean() - 0.1


def test_years_without_work_lower_wages_and_the_loss_fades() -> None:
    work = simulate(replace(SPELLS, scar=0.1, fade=0.5))
    idle = work.share == 0
    assert (work.loss[idle] > 0).all()
    assert work.loss.max() == pytest.approx(0.4)
    returned = idle[:, :-1] & ~idle[:, 1:]
    assert work.loss[:, 1:][returned] == pytest.approx(0.5 * work.loss[:, :-1][returned])


def test_a_spell_begins_and_ends_with_a_part_of_the_year() -> None:
    work = simulate(replace(SPELLS, partial=True))
    partial = (work.share > 0) & (work.share < 1)
    changes = partial[:, 10:].mean(axis=1)
    # A year in which work begins or ends: the share without work times the rate of return, twice.
    assert changes.mean() == pytest.approx(2 * 0.2 * 0.4, abs=4 * changes.std() / np.sqrt(N))
