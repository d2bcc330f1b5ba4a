"""The tests for drift alarm at their stated rate without drift, and with it."""

from __future__ import annotations

import numpy as np
import pytest
from saga.calibration.yearly.drift_tests import (
    ALPHA,
    NOMINAL,
    DriftScale,
    DriftTest,
    YearTests,
    compare_groups,
    compare_levels,
    recommend,
    sequential_test,
)

GROUPS = [f"quintile={k}" for k in range(1, 6)]
PERSONS, YEARS, RUNS = 400, 10, 400
Outside = dict[str, tuple[float, int]]


def outside_shares(
    rng: np.random.Generator, deviation: float, shift: dict[str, float] | None = None
) -> Outside:
    """Shares outside in one year: a shock common to all, sampling, and the shifts of groups."""
    common = NOMINAL + deviation * rng.normal()
    shares = {
        group: rng.binomial(PERSONS, np.clip(common + (shift or {}).get(group, 0.0), 0, 1))
        / PERSONS
        for group in GROUPS
    }
    everybody = {"all": (float(np.mean(list(shares.values()))), PERSONS * len(GROUPS))}
    return {**{group: (float(share), PERSONS) for group, share in shares.items()}, **everybody}


@pytest.mark.parametrize("deviation", [0.0, 0.02])
def test_false_alarms_stay_at_their_rate(deviation: float) -> None:
    """Each family in a year, and the martingale ever in ten years; standard error 1.1 points."""
    rng = np.random.default_rng(1)
    levels = differences = sequential = ignored = 0
    for _ in range(RUNS):
        past = deviation * rng.normal(size=20)
        scale = DriftScale(float(np.sqrt(np.mean(past**2))), 20)
        years = [outside_shares(rng, deviation) for _ in range(YEARS)]
        levels += any(test.alarm for test in compare_levels(years[0], scale))
        differences += any(test.alarm for test in compare_groups(years[0], scale))
        martingale = sequential_test([year["all"] for year in years], scale)
        sequential += max(martingale) >= 1 / ALPHA
        ignored += any(test.alarm for test in compare_levels(years[0], DriftScale(0.0, 0)))
    bound = ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / RUNS)
    assert levels / RUNS <= bound
    assert differences / RUNS <= bound
    assert sequential / RUNS <= bound
    if deviation:
        assert ignored / RUNS > 0.2, "without the usual variation every shock is an alarm"


def test_thresholds_of_few_persons_alarm_as_often_as_the_page_says() -> None:
    """docs/how-to/retraining.md: 1,000 calibration persons, 2,000 outcomes a year, ten years."""
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(RUNS):
        threshold = np.sort(rng.random(1_000))[900:910].mean()  # ranks 901 to 910
        shares = rng.binomial(2_000, 1 - threshold, YEARS) / 2_000
        martingale = sequential_test([(share, 2_000) for share in shares], DriftScale(0.0, 0))
        alarms += max(martingale) >= 1 / ALPHA
    assert alarms / RUNS == pytest.approx(0.5, abs=0.1)


def test_drift_is_found_and_told_apart_from_drift_of_a_group() -> None:
    rng, scale = np.random.default_rng(2), DriftScale(0.01, 20)
    lasting = dict.fromkeys(GROUPS, 0.06)
    years = [outside_shares(rng, 0.01, lasting) for _ in range(3)]
    assert max(sequential_test([year["all"] for year in years], scale)) >= 1 / ALPHA
    assert any(test.alarm for test in compare_levels(years[0], scale))
    assert not any(test.alarm for test in compare_groups(years[0], scale))
    one = outside_shares(rng, 0.01, {"quintile=1": 0.2})
    assert [t.group for t in compare_groups(one, scale) if t.alarm] == ["quintile=1"]


@pytest.mark.parametrize("scale", [DriftScale(0.0, 0), DriftScale(0.005, 20)])
@pytest.mark.parametrize("share", [0.0, 0.45, 1.0])
def test_drift_beyond_all_numbers_is_an_alarm_too(share: float, scale: DriftScale) -> None:
    values = sequential_test([(share, 100_000)] * 40, scale)
    assert np.isfinite(values).all()
    assert values[-1] >= 1 / ALPHA


def test_few_persons_are_not_tested() -> None:
    assert compare_levels({"all": (0.5, 40)}, DriftScale(0.0, 0)) == ()
    assert compare_groups({"all": (0.5, 400), "quintile=1": (0.5, 400)}, DriftScale(0.0, 0)) == ()


def judged_year(
    year: int, *, level: bool = False, group: bool = False, value: float = 1.0
) -> YearTests:
    def one(kind: str, name: str, alarm: bool) -> DriftTest:
        return DriftTest(kind, name, 500, 0.05, 0.001 if alarm else 0.5, alarm)

    return YearTests(
        year, (one("level", "all", level),), (one("difference", "quintile=1", group),), value
    )


def test_each_rule_gives_its_recommendation() -> None:
    calm, drifted = judged_year(2024), judged_year(2025, level=True)
    assert recommend([])[0] == recommend([calm])[0] == "keep"
    assert recommend([YearTests(2025, (), (), 1.0)])[0] == "keep"
    assert recommend([calm, drifted])[0] == "recalibrate"
    assert recommend([calm, judged_year(2025, value=30.0)])[0] == "recalibrate"
    differs = [judged_year(year, level=True, group=True) for year in (2023, 2024, 2025)]
    assert recommend([calm, differs[-1]])[0] == "fine-tune"
    assert recommend([*differs[:2], calm, differs[2]])[0] == "fine-tune"
    assert recommend(differs)[0] == "retrain"
    assert "quintile=1" in recommend(differs[:1])[1]
