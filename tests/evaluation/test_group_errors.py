"""Errors of groups on a panel made by hand, and the rule that they are compared with."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.simple_rules import GrowthRule
from saga.evaluation.group_errors import judge_groups

from saga.data.panel import Panel
from saga.paths import Paths
from saga.population.scored_paths import last_known
from tests.panels import panel_of

GROWTH, LAST = 0.03, 2010
DIGITS = 1e-3  # figures have four digits
N = 40  # persons of each sex


def _panel() -> Panel:
    """Everybody is 40, earns 100 (women) or 200 (men) in 2010, and 3 % less a year earlier."""
    rows = [
        (f"{sex}{i:02d}", year, 1970, level * np.exp(GROWTH * (year - LAST)), sex)
        for sex, level in (("female", 100.0), ("male", 200.0))
        for i in range(N)
        for year in range(2001, LAST + 1)
    ]
    return panel_of(rows, "sex")


@pytest.fixture(scope="module")
def errors() -> pl.DataFrame:
    """Forecasts of 110 and 210 with a common step of 10 on half of the paths; outcomes 120, 180."""
    panel = _panel()
    female = np.repeat([True, False], N)
    economy = np.tile([-10.0, 10.0], 50)
    earnings = np.where(female, 110.0, 210.0)[:, None, None] + economy
    ids = np.array(panel.persons())
    born, origin = np.full(2 * N, 1970), np.full(2 * N, LAST)
    paths = Paths(ids, born, origin, earnings.astype(np.float32), recalibrated=True)
    outcomes = np.where(female, 120.0, 180.0)[:, None]
    outcomes[0] = np.nan
    return judge_groups(
        paths, outcomes, last_known(panel, ("sex",)), GrowthRule.fit(panel), [1], ("sex", "age")
    )


def _row(errors: pl.DataFrame, statistic: str, group: str) -> dict[str, float]:
    return errors.filter(statistic=statistic, group=group).row(0, named=True)


def test_an_error_is_outcome_less_forecast_of_the_same_persons(
    errors: pl.DataFrame,
) -> None:
    women, men = (_row(errors, "mean", sex) for sex in ("female", "male"))
    assert women["persons"] == N - 1
    assert women["forecast"] == pytest.approx(110)
    assert women["outcome"] == pytest.approx(120)
    assert women["error"] == pytest.approx(10 / 110, rel=DIGITS)
    assert men["error"] == pytest.approx(-30 / 210, rel=DIGITS)
    # All persons of a group have one error, and all of it on the paths is the economy.
    assert women["se"] == pytest.approx(0, abs=1e-9)
    assert women["sd_economy"] == pytest.approx(10 * (100 / 99) ** 0.5 / 110, rel=DIGITS)
    assert women["lower_90"] == pytest.approx(100)
    assert women["upper_90"] == pytest.approx(120)
    everybody = _row(errors, "mean", "total")
    assert everybody["outcome"] == pytest.approx((39 * 120 + 40 * 180) / 79, rel=DIGITS)
    ratio = _row(errors, "mean_ratio", "female/male")
    assert ratio["outcome"] == pytest.approx(120 / 180, rel=DIGITS)
    assert ratio["error"] == pytest.approx((120 / 180) / ratio["forecast"] - 1, rel=DIGITS)


def test_the_rule_has_recent_means_of_the_same_age_and_group_and_the_growth_of_the_past(
    errors: pl.DataFrame,
) -> None:
    rule = GrowthRule.fit(_panel())
    assert rule.growth == pytest.approx(GROWTH)
    assert _row(errors, "mean", "female")["rule"] == pytest.approx(100 * np.exp(GROWTH), rel=DIGITS)
    assert _row(errors, "mean_ratio", "female/male")["rule"] == pytest.approx(0.5)
    assert _row(errors, "zero_share", "female")["rule"] == 0
    assert _row(errors, "gini", "female")["rule"] is None


def test_groups_of_fewer_than_ten_persons_have_no_errors(errors: pl.DataFrame) -> None:
    assert errors["persons"].min() == N - 1
    panel = _panel()
    few = panel.persons()[:9]
    paths = Paths(np.array(few), np.full(9, 1970), np.full(9, LAST), np.ones((9, 1, 4), np.float32))
    rule = GrowthRule.fit(panel)
    assert judge_groups(paths, np.ones((9, 1)), last_known(panel, ()), rule, [1], ()).is_empty()
