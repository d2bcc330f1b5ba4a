"""Diagnostics against known truth.

A forecaster without fault is green as often as stated, and each fault has a red verdict of its own.
Bands and present values of several years are judged as they are published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest
from saga.calibration.diagnostics.coverage import join_years
from saga.calibration.diagnostics.diagnosis import Findings, summarise
from saga.calibration.diagnostics.person_results import judge_persons
from saga.calibration.diagnostics.several_years import Inside, judge_several_years
from saga.calibration.diagnostics.verdicts import (
    MISS,
    POWER,
    Verdict,
    coverage_band,
    coverage_sees_miss,
    curve_status,
    map_noise,
    publishable,
    sees_miss,
    simultaneous_band,
    status,
    worst_verdict,
)
from saga.calibration.diagnostics.whole_distribution import (
    mincer_zarnowitz,
)
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from scipy import stats

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.intervals import Intervals
from saga.conformal.published_sets import band_intervals, value_intervals
from saga.conformal.recalibration import map_paths
from saga.data.panel import FLOOR
from saga.diagnostics_tables import QUESTIONS, TABLES, Diagnostics
from saga.distributions import Marginals
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE, RATE
from saga.small_groups import MIN_PERSONS
from tests.calibration.worlds import draw_paths
from tests.encoded import encoded

Diagnosed = Callable[..., Diagnostics]
Fault = Callable[[Marginals], Marginals]
TrueWorld = Callable[..., tuple[Marginals, Floats]]


def statuses(diagnostics: Diagnostics, question: str) -> set[str]:
    return set(diagnostics["verdicts"].filter(question=question)["status"].to_list())


def alarmed(diagnostics: Diagnostics) -> bool:
    return bool(diagnostics["verdicts"]["status"].is_in(["watch", "fails"]).any())


def test_a_forecaster_without_fault_is_green(diagnosed: Diagnosed, faultless: Diagnostics) -> None:
    reports = [faultless, *(diagnosed(seed, 700) for seed in (4, 5))]
    # At most 5 % of reports are not: two of three would happen with probability below 1 %.
    assert sum(alarmed(diagnostics) for diagnostics in reports) <= 1
    # So few persons would show no miss of the sets, so nothing is green; enough persons do.
    assert all(statuses(few, "coverage") == {"unclear"} for few in reports)
    ninety = diagnosed(n=3_000, calibrated_on=6_000)["coverage"].filter(
        grouping="all", coverage=0.9
    )
    assert ninety["status"].to_list() == ["holds", "holds"]


@pytest.mark.thorough
def test_the_probability_of_an_all_green_report_is_as_stated(diagnosed: Diagnosed) -> None:
    alarms = sum(alarmed(diagnosed(seed, 700)) for seed in range(100, 160))
    assert alarms <= stats.binom.ppf(1 - 1e-4, 60, 0.05)


def spread(marginals: Marginals, factor: float) -> Marginals:
    """The logs of positive earnings, `factor` as far from the middle of the grid."""
    centre = marginals.grid.mean(axis=-1, keepdims=True)
    return replace(marginals, grid=centre + factor * (marginals.grid - centre))


def too_high(marginals: Marginals) -> Marginals:
    return replace(marginals, grid=marginals.grid + np.log(1.5))


def blind_to_zero(marginals: Marginals) -> Marginals:
    zero = marginals.p_zero[..., None]
    cdf = (marginals.cdf - zero) / (1 - zero)
    return replace(marginals, cdf=cdf, p_zero=np.zeros_like(marginals.p_zero))


@pytest.mark.parametrize(
    ("fault", "red", "not_red"),
    [
        (partial(spread, factor=0.5), {"coverage", "shape"}, {"zero"}),
        (too_high, {"mean_error"}, {"zero"}),
        (blind_to_zero, {"zero", "zero_bins"}, set()),
        (partial(spread, factor=3.0), {"efficiency"}, {"zero"}),
    ],
)
def test_each_fault_has_its_own_red_verdict(
    diagnosed: Diagnosed, fault: Fault, red: set[str], not_red: set[str]
) -> None:
    diagnostics = diagnosed(fault=fault)
    found = {question: statuses(diagnostics, question) for question in red | not_red}
    assert {question for question, seen in found.items() if seen == {"fails"}} == red
    assert not any("fails" in found[question] for question in not_red)


def test_the_regression_is_least_squares_and_finds_exaggerated_differences() -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    truth = rng.normal(12, 0.7, n)
    y = truth + rng.normal(0, 0.5, n)
    exact = mincer_zarnowitz(truth, y)
    assert exact is not None
    slope, intercept = np.polyfit(truth, y, 1)
    assert (exact.slope, exact.intercept) == pytest.approx((slope, intercept))
    assert abs(exact.slope - 1) < 4 * exact.slope_se
    noisy = mincer_zarnowitz(truth + rng.normal(0, 0.4, n), y)
    assert noisy is not None
    assert noisy.slope == pytest.approx(0.49 / (0.49 + 0.16), abs=4 * noisy.slope_se)
    assert mincer_zarnowitz(np.ones(n), y) is None


def test_a_simultaneous_band_has_its_probability() -> None:
    rng = np.random.default_rng(4)

    def curves(count: int) -> Floats:
        ranks = map_noise(20, 300, count, rng)
        return np.cumsum(rng.multinomial(400, np.diff(ranks, axis=1)), axis=1)[:, :-1] / 400

    inside = []
    for _ in range(40):
        lower, upper = simultaneous_band(curves(399), 0.9)
        fresh = curves(100)
        inside.append(((fresh >= lower) & (fresh <= upper)).all(axis=1).mean())
    # 40 bands of 399 replicates: each has 0.9 with sd 0.015, judged on 100 curves with sd 0.03.
    assert np.mean(inside) == pytest.approx(0.9, abs=4 * np.hypot(0.015, 0.03) / np.sqrt(40))
    with pytest.raises(ValueError, match="too few"):
        simultaneous_band(curves(50), 0.999)


@pytest.mark.parametrize(
    ("coverage", "n", "m", "probability"),
    [(0.9, 500, 300, 0.95), (0.5, 97, 1_000, 0.999), (0.95, 60, 250, 0.99)],
)
def test_coverage_bands_are_quantiles_of_the_beta_binomial_law(
    coverage: float, n: int, m: int, probability: float
) -> None:
    k = int(np.ceil((m + 1) * coverage - 1e-9))
    tails = (1 - probability) / 2, (1 + probability) / 2
    outer = min(k + 9, m)
    expected = (
        stats.betabinom.ppf(tails[0], n, k, m + 1 - k) / n,
        stats.betabinom.ppf(tails[1], n, outer, m + 1 - outer) / n,
    )
    assert coverage_band(coverage, n, m, probability=probability) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "lower", "upper", "n", "seen", "expected"),
    [
        (0.9, 0.88, 0.92, 1_000, True, "holds"),
        (0.885, 0.89, 0.91, 1_000, True, "watch"),
        (0.87, 0.89, 0.91, 1_000, True, "fails"),
        (0.97, 0.89, 0.91, 1_000, True, "watch"),  # too many covered
        (0.9, 0.75, 0.99, 1_000, False, "unclear"),
        (0.9, 0.88, 0.92, 99, True, "unclear"),
        (0.881, 0.87, 0.93, 1_000, True, "holds"),
        (0.879, 0.87, 0.93, 1_000, True, "unclear"),  # chance explains it, and so would a fault
    ],
)
def test_status_rules(
    share: float, lower: float, upper: float, n: int, seen: bool, expected: str
) -> None:
    found = status(share, lower, upper, n, target=0.9, tolerance=0.02, sees_miss=seen)
    assert found == expected
    if lower <= share <= upper:  # a curve is judged by the same rules
        size = abs(share - 0.9)
        assert curve_status(False, n, size=size, tolerance=0.02, sees_miss=seen) == expected


MISSED = 0.9 - MISS * QUESTIONS["coverage"]


def judge_coverage(share: float, n: int, m: int | None, alarm: float) -> str:
    """The status of a share of n persons inside sets of 90 %, fitted on m persons."""
    lower, upper = coverage_band(0.9, n, m, probability=1 - alarm)
    seen = coverage_sees_miss(lower, 0.9, n, m, QUESTIONS["coverage"])
    return status(
        share, lower, upper, n, target=0.9, tolerance=QUESTIONS["coverage"], sees_miss=seen
    )


@pytest.mark.parametrize("n", [100, 150, 400, 700, 1_000, 1_400, 2_500])
@pytest.mark.parametrize("alarm", [0.05, 0.00025, 0.00001])
def test_sets_that_miss_hold_in_at_most_one_sample_of_five(n: int, alarm: float) -> None:
    # Exact: the probabilities of all shares of n persons who are truly covered at 86 %.
    shares = np.arange(n + 1) / n
    statuses = np.array([judge_coverage(share, n, None, alarm) for share in shares])
    missed = stats.binom.pmf(np.arange(n + 1), n, MISSED)
    assert missed[statuses == "holds"].sum() <= 1 - POWER
    if "holds" in statuses:
        assert missed[np.isin(statuses, ["watch", "fails"])].sum() >= POWER
    # A verdict is not withheld for ever: enough persons tell what is right, and what is not.
    if n >= 2_500:
        right = stats.binom.pmf(np.arange(n + 1), n, 0.9)
        assert right[statuses == "holds"].sum() > 0.95
        assert missed[np.isin(statuses, ["watch", "fails"])].sum() >= POWER
    if n == 150:
        assert "holds" not in statuses


def test_a_curve_or_a_mean_that_misses_holds_in_at_most_one_sample_of_five() -> None:
    rng = np.random.default_rng(5)
    for z in (2.0, 3.5):
        for sd in np.linspace(0.002, 0.03, 15):
            seen = sees_miss(z * sd, sd, 0.02)
            figures = 0.04 + sd * rng.normal(size=4_000)
            of_figures = [
                curve_status(abs(x) > z * sd, 1_000, size=abs(x), tolerance=0.02, sees_miss=seen)
                for x in figures
            ]
            holds = np.array(of_figures) == "holds"
            assert np.mean(holds) <= 1 - POWER + 4 * np.sqrt(POWER * (1 - POWER) / 4_000)
            assert seen == (sd * (z + stats.norm.ppf(POWER)) <= 0.04)


def test_a_question_counts_the_figures_that_can_tell() -> None:
    clear, unclear = Verdict("groups", 1, "holds", 3_000, 0.01), Verdict("groups", 1)
    verdict = worst_verdict([unclear, clear, unclear])
    assert (verdict.status, verdict.judged, verdict.figures) == ("holds", 1, 3)
    assert worst_verdict([unclear]).judged == 0


def test_the_worst_verdict_is_the_largest_shortfall_in_tolerances() -> None:
    over, under = (Verdict("coverage", 1, "watch", 900, size) for size in (0.05, -0.019))
    assert worst_verdict([over, under]).size == under.size, (
        "intervals that cover too many are only wide"
    )
    fails = Verdict("coverage", 1, "fails", 900, 0.03)
    assert worst_verdict([over, under, fails]).size == fails.size
    error = Verdict("mean_error", 1, "watch", 900, 0.045)
    slope = replace(error, size=0.08, group="slope", tolerance=0.1)
    assert worst_verdict([slope, error]).size == error.size, "0.9 tolerances are more than 0.8"


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ({"a": 500, "b": 300}, {"a", "b"}),
        ({"a": 500, "b": 300, "c": 4}, {"a"}),  # the total less a and b is c
        ({"a": 500, "b": 300, "c": 4, "d": 7}, {"a", "b"}),
        ({"a": 500, "": 6}, set()),  # so do the unknown
        ({"a": 5}, set()),
    ],
)
def test_small_groups_and_groups_that_would_reveal_them_are_hidden(
    counts: dict[str, int], shown: set[str]
) -> None:
    assert publishable(counts, 10) == shown


def test_no_figure_rests_on_fewer_persons_than_the_minimum(faultless: Diagnostics) -> None:
    hidden = (pl.col("grouping") == "birth_region") & pl.col("group").is_in(["europe", "elsewhere"])
    for name in ("coverage", "widths"):
        rows = faultless[name].filter(hidden)
        assert rows.height > 0
        figures = [
            c
            for c in rows.columns
            if c not in ("horizon", "grouping", "group", "coverage", "status")
        ]
        assert rows.select(pl.all_horizontal(pl.col(c).is_null().all() for c in figures)).item()
    for name, table in faultless.tables.items():
        if "n" in table.columns:
            assert table.filter(pl.col("n") < MIN_PERSONS).is_empty(), name
        assert "person_id" not in table.columns
    counted = faultless["pit"].select((pl.col("share") * pl.col("n")).min()).item()
    assert counted >= MIN_PERSONS


def test_few_persons_give_no_figures_and_no_good_verdict(diagnosed: Diagnosed) -> None:
    few = diagnosed(n=9)
    assert set(few["verdicts"]["status"]) == {"unclear"}
    assert all(few[name].is_empty() for name in ("pit", "reliability", "mean_error", "periods"))
    assert few["coverage"]["n"].is_null().all()


def test_tables_are_stored_as_one_small_file(faultless: Diagnostics) -> None:
    stored = faultless.to_table()
    content = encoded(stored, compression="zstd")
    assert len(content) < 300_000
    again = Diagnostics.from_table(pl.read_parquet(content))
    assert all(again[name].equals(faultless[name]) for name in TABLES)


def test_years_are_joined_until_a_period_has_enough_persons() -> None:
    years = pl.Series([1993] * 150 + [1994] * 40 + [1995] * 70 + [1996] * 120 + [1997] * 5)
    assert join_years(years, 100) == [(1993, 1993), (1994, 1995), (1996, 1997)]
    assert join_years(years.head(30), 100) == [(1993, 1993)]


def judge(
    calibrator: Calibrator, marginals: Marginals, y: Floats, sets: Intervals | None = None
) -> pl.DataFrame:
    sets = sets or calibrator.intervals(marginals, calibrator.coverage)
    return judge_persons(marginals, sets, y, 1, floor=FLOOR, low_pay=150_000.0)


@pytest.fixture(scope="module")
def calibrator(true_world: TrueWorld) -> Calibrator:
    return fit_calibration(*true_world(800, 9), seed=1)


def test_persons_without_outcome_or_interval_are_not_counted(
    true_world: TrueWorld, calibrator: Calibrator
) -> None:
    marginals, outcomes = true_world(200, 6)
    outcomes[:50, 0] = np.nan
    marginals = calibrator.recalibrate(marginals)
    sets = calibrator.intervals(marginals, calibrator.coverage)
    sets = replace(sets, lower=np.where(np.arange(200)[:, None, None] < 60, np.nan, sets.lower))
    frame = judge(calibrator, marginals, outcomes[:, 0], sets)
    assert frame.height == 150
    assert frame["inside_90"].null_count() == frame["winkler_90"].null_count() == 10
    whole = frame.drop_nulls("inside_90").select(
        pl.sum_horizontal("inside_90", "under_90", "over_90")
    )
    assert (whole.to_series() == 1).all()
    nobody = judge(calibrator, marginals, np.full(200, np.nan))
    assert pl.concat([nobody, frame]).equals(frame)


def test_results_of_a_person_are_those_of_the_known_distribution(true_world: TrueWorld) -> None:
    marginals, outcomes = true_world(400, 12)
    exact = replace(marginals, recalibrated=True)
    frame = judge(Calibrator(), exact, outcomes[:, 0], Intervals.none(exact, (0.9,)))
    centre, zero = exact.grid[:, 0].mean(axis=-1), exact.p_zero[:, 0]
    sd = (exact.grid[:, 0, -1] - centre) / 5
    low_pay = zero + (1 - zero) * stats.norm.cdf((np.log(150_000.0) - centre) / sd)
    np.testing.assert_allclose(frame["p_low_pay"], low_pay, atol=1e-4)
    np.testing.assert_allclose(frame["p_zero"], zero)
    mean = (1 - zero) * np.exp(centre + sd**2 / 2)
    np.testing.assert_allclose(frame["mean"], mean, rtol=2e-3)
    positive = outcomes[:, 0] > 0
    ranks = zero + (1 - zero) * stats.norm.cdf((frame["log_y"].to_numpy() - centre) / sd)
    inner = positive & (outcomes[:, 0] > FLOOR)
    np.testing.assert_allclose(frame["pit"].to_numpy()[inner], ranks[inner], atol=1e-4)
    # An outcome of zero has a random rank inside the atom.
    at_zero = frame.filter("zero")
    assert ((at_zero["pit"] > 0) & (at_zero["pit"] < at_zero["p_zero"])).all()
    assert (at_zero["pit"] / at_zero["p_zero"]).mean() == pytest.approx(0.5, abs=0.1)


Judged = tuple[Calibrator, Marginals, Paths, Floats]


@pytest.fixture(scope="module")
def judged(true_world: Callable[..., tuple[Marginals, Floats]]) -> Judged:
    calibration, truth = true_world(1_200, 21)
    in_threshold_fold = np.flatnonzero(~in_map_fold(calibration.person_id, 0))
    paths = draw_paths(calibration.take(in_threshold_fold), seed=1)
    calibrator = fit_calibration(calibration, truth, seed=0, paths=paths)
    marginals, outcomes = true_world(900, 22)
    mapped = calibrator.recalibrate(marginals)
    return calibrator, mapped, map_paths(draw_paths(marginals, seed=2), mapped), outcomes


def test_several_years_are_judged_by_the_published_bands_and_sums(judged: Judged) -> None:
    calibrator, marginals, paths, outcomes = judged
    inside = judge_several_years(calibrator, marginals, paths, outcomes, [2])
    published = band_intervals(calibrator, marginals, 2, COVERAGE).covered(outcomes).min(axis=1)
    assert np.array_equal(inside["band", 2], published)
    values = SimulatedValues.of(paths, partial(present_value, years=2, to_age=34))
    sums = value_intervals(calibrator, values, np.full(len(values), 2), COVERAGE, RATE)
    truth = realised_value(outcomes, rate=RATE, years=2)[:, None]
    assert np.array_equal(inside["present_value", 2], (sums.lower <= truth) & (truth <= sums.upper))
    few = paths.with_earnings(paths.earnings[..., :30])  # than it was calibrated for
    not_judged = judge_several_years(calibrator, marginals, few, outcomes, [2])
    assert np.isnan(not_judged["present_value", 2]).all()


def test_several_years_are_green_if_covered_as_stated_and_red_if_not(
    judged: Judged, judged_years: Callable[..., dict[int, pl.DataFrame]]
) -> None:
    calibrator, marginals, paths, outcomes = judged
    results = judged_years(calibrator, marginals, outcomes)

    def diagnosed(inside: Inside) -> Diagnostics:
        findings = Findings(results, inside)
        return summarise(findings, None, calibrator, provenance={"bundle": "b"})

    good = diagnosed(judge_several_years(calibrator, marginals, paths, outcomes, [2]))
    assert set(good["together"].select("question", "horizon").rows()) == {
        ("band", 2),
        ("present_value", 2),
    }
    verdicts = good["verdicts"].filter(question="together")
    assert not verdicts["status"].is_in(["watch", "fails"]).any()
    too_low = (
        replace(marginals, grid=marginals.grid + np.log(0.4)),
        paths.with_earnings((0.4 * paths.earnings).astype("float32")),
    )
    bad = diagnosed(judge_several_years(calibrator, *too_low, outcomes, [2]))
    assert set(bad["together"].filter(coverage=0.9)["status"]) == {"fails"}
    assert bad["verdicts"].filter(question="together")["status"].to_list() == ["fails"]
