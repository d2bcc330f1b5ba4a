"""The study of forward coverage: its formula is right, and its rule is that of the register."""

from __future__ import annotations

import numpy as np
import pytest

from saga.macro.history import sweden
from saga.macro.process import MacroProcess
from studies.macro_rule import RuleProcess, covered_share, rule_draws


def test_sets_with_the_right_spread_cover_as_often_as_stated() -> None:
    """Normal theory: persons vary by .4 and the wage index by .2; 100,000 futures."""
    missed = np.random.default_rng(0).normal(0, 0.2, 100_000)
    assert covered_share(missed, 0.2, 0.4).mean() == pytest.approx(0.9, abs=0.001)
    assert covered_share(missed, 0.1, 0.4).mean() < 0.89
    assert covered_share(missed, 0.3, 0.4).mean() > 0.91


def test_a_forecaster_who_knows_the_rule_draws_from_it_after_the_history_only() -> None:
    process = MacroProcess.fit(sweden())
    rule = RuleProcess(process.history, process.mean, process.transition, process.innovation)
    last = process.history.last_year
    np.testing.assert_array_equal(rule.draw(0, 30, last, last + 5), rule_draws(1_000, 30, last + 5))
    earlier = (0, 30, last - 10, last - 5)
    np.testing.assert_array_equal(rule.draw(*earlier), process.draw(*earlier))
    growth = rule_draws(1_000, 200, last + 10)[..., 1]
    assert growth.std() < sweden().values[:, 1].std(), "the register's later years are calmer"
