"""Limits, bands and present values cover as stated with any sampler; raw intervals do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from calibration.fit.split_conformal import fit_calibration, in_map_fold, rank_needed
from calibration.fit.thresholds import fit_thresholds
from saga.conformal.calibration_table import THRESHOLD_KINDS
from saga.conformal.calibrator import Calibrator
from saga.conformal.one_sided import forecast_probability, forecast_quantile, one_sided_limits
from saga.conformal.path_bands import band_intervals, band_scores, from_band_scale, to_band_scale
from saga.conformal.prediction_sets import grow
from saga.conformal.present_value import ValueIntervals, value_intervals, value_scores
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE, RATE
from tests.calibration.fit.hits import P, is_plausible

Array = NDArray[np.float64]
Judged = tuple[Paths, Array]
YEARS = 4
NINETY = COVERAGE.index(0.9)


def draw_careers(n: int, seed: int, count: int = 60, rho: float = 0.9) -> tuple[Paths, Array]:
    """Outcomes that persist from year to year, and a sampler without persistence."""
    rng = np.random.default_rng(seed)
    centre, zero = rng.normal(12.3, 0.4, n), rng.uniform(0.02, 0.2, n)

    def autoregression(shape: tuple[int, int], rho: float) -> Array:
        e = rng.normal(size=shape)
        for h in range(1, shape[1]):
            e[:, h] = rho * e[:, h - 1] + (1 - rho**2) ** 0.5 * e[:, h]
        return e

    residual = autoregression((n, YEARS), rho)
    work = stats.norm.cdf(autoregression((n, YEARS), 0.3))
    outcomes = np.where(work < zero[:, None], 0, np.exp(centre[:, None] + 0.5 * residual))
    earnings = np.exp(centre[:, None, None] + 0.6 * rng.normal(size=(n, YEARS, count)))
    earnings = np.where(rng.random((n, YEARS, count)) < zero[:, None, None], 0, earnings).astype(
        np.float32
    )
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    return Paths(ids, np.full(n, 1970), np.full(n, 2000), earnings), outcomes


@pytest.fixture(scope="module")
def fitted() -> Calibrator:
    paths, outcomes = draw_careers(4_000, 1)
    return fit_thresholds(fit_calibration(paths, outcomes, seed=0), paths, outcomes, seed=0)


@pytest.fixture(scope="module")
def judged(fitted: Calibrator) -> Judged:
    """Fresh persons: recalibrated paths and outcomes."""
    paths, outcomes = draw_careers(8_000, 2)
    return fitted.recalibrate(paths), outcomes


def holds(hits: int, trials: int, n: int, coverage: float) -> bool:
    return is_plausible(hits, trials, n, coverage, P / 120)


def all_hold(hits: Array, trials: int, n: int) -> bool:
    pairs = zip(hits, COVERAGE, strict=True)
    return all(holds(int(n_hits), trials, n, coverage) for n_hits, coverage in pairs)


def test_earnings_lie_above_and_below_their_limits_as_stated(
    fitted: Calibrator, judged: Judged
) -> None:
    paths, outcomes = judged
    published = one_sided_limits(fitted, paths, COVERAGE)
    for h in range(YEARS):
        for j, coverage in enumerate(COVERAGE):
            y = outcomes[:, h]
            assert holds(
                int((y >= published.at_least[:, h, j]).sum()),
                len(y),
                fitted.thresholds_of_kind["at_least", h + 1].n,
                coverage,
            )
            assert holds(
                int((y <= published.at_most[:, h, j]).sum()),
                len(y),
                fitted.thresholds_of_kind["at_most", h + 1].n,
                coverage,
            )
    assert (np.diff(published.at_least, axis=2) <= 0).all()
    assert (np.diff(published.at_most, axis=2) >= 0).all()
    # The upper end of an interval is no one-sided limit: the check distinguishes them.
    sets = fitted.intervals(paths, COVERAGE)
    wrong = int((outcomes[:, 0] <= sets.upper[:, 0, 0]).sum())
    assert not holds(wrong, len(outcomes), fitted.thresholds_of_kind["at_most", 1].n, COVERAGE[0])


def test_positive_earnings_lie_in_their_interval(fitted: Calibrator, judged: Judged) -> None:
    paths, outcomes = judged
    published = one_sided_limits(fitted, paths, COVERAGE)
    for h in range(YEARS):
        earned = outcomes[:, h] > 0
        y = outcomes[earned, h, None]
        hits = (
            (published.positive_lower[earned, h] <= y) & (y <= published.positive_upper[earned, h])
        ).sum(axis=0)
        n = fitted.thresholds_of_kind["positive", h + 1].n
        assert all_hold(hits, int(earned.sum()), n)
    # With zeros included it covers less: the condition is part of the guarantee.
    y = outcomes[:, 0, None]
    hits = ((published.positive_lower[:, 0] <= y) & (y <= published.positive_upper[:, 0])).sum(
        axis=0
    )
    assert not holds(int(hits[NINETY]), len(y), fitted.thresholds_of_kind["positive", 1].n, 0.9)


@pytest.mark.parametrize("years", [1, 2, YEARS])
def test_bands_cover_whole_paths_and_yearly_sets_do_not(
    fitted: Calibrator, judged: Judged, years: int
) -> None:
    paths, outcomes = judged
    published = band_intervals(fitted, paths, years, COVERAGE)
    hits = published.covered(outcomes[:, :years]).all(axis=1).sum(axis=0)
    n = fitted.thresholds_of_kind["band", years].n
    assert all_hold(hits, len(outcomes), n)
    assert (published.guarantee == "assumption").all()
    yearly = fitted.intervals(paths, COVERAGE).covered(outcomes)[:, :years].all(axis=1).sum(axis=0)
    assert all_hold(yearly, len(outcomes), n) == (years == 1)


def test_an_outcome_is_in_the_band_exactly_if_its_score_is_at_most_the_threshold(
    fitted: Calibrator, judged: Judged
) -> None:
    paths, outcomes = judged
    few, y = paths.take(slice(0, 500)), outcomes[:500]
    scores = band_scores(fitted, few, y)
    for years in (1, 3):
        covered = band_intervals(fitted, few, years, (0.9,)).covered(y[:, :years])
        inside = np.asarray(covered.all(axis=1))[:, 0]
        q = fitted.nested_thresholds("band", years, few.n_paths)[0][NINETY]
        clear = np.abs(scores[:, years - 1] - q) > 1e-9
        assert np.array_equal(inside[clear] == 1, (scores[:, years - 1] <= q)[clear])


def test_the_common_scale_of_years_has_an_inverse(fitted: Calibrator) -> None:
    q = np.linspace(0, 1.7, 400)
    for h in range(1, YEARS + 2):
        np.testing.assert_allclose(
            to_band_scale(fitted, h, from_band_scale(fitted, h, q)), q, atol=1e-12
        )


@pytest.mark.parametrize("years", [1, 2, YEARS])
def test_present_values_are_covered_although_the_sampler_has_no_persistence(
    fitted: Calibrator, judged: Judged, years: int
) -> None:
    paths, outcomes = judged
    short = replace(paths, earnings=paths.earnings[:, :years])
    values = present_value(short, to_age=30 + years, rate=RATE)
    truth = realised_value(outcomes, rate=RATE, years=years)
    published = value_intervals(fitted, values, np.full(len(values), years), COVERAGE, RATE)
    hits = ((published.lower <= truth[:, None]) & (truth[:, None] <= published.upper)).sum(axis=0)
    n = fitted.thresholds_of_kind["present_value", years].n
    assert all_hold(hits, len(truth), n)
    assert (published.guarantee == "assumption").all()
    assert (np.diff(published.lower, axis=1) <= 0).all()
    assert (np.diff(published.upper, axis=1) >= 0).all()
    central = ValueIntervals.central(values, COVERAGE)
    raw = ((central.lower <= truth[:, None]) & (truth[:, None] <= central.upper)).sum(axis=0)
    if years > 1:
        assert not all_hold(raw, len(truth), n)


def test_the_theorem_holds_for_any_number_of_paths() -> None:
    # Also with few and wrong paths, because those of all persons are drawn in the same way.
    for count in (3, 10):
        (paths, outcomes), (fresh, truth) = (
            draw_careers(3_000, 5, count=count),
            draw_careers(4_000, 6, count=count),
        )
        plain = Calibrator.identity()
        scores, new = (
            value_scores(plain, plain.recalibrate(p), y)[:, YEARS - 1]
            for p, y in ((paths, outcomes), (fresh, truth))
        )
        k = rank_needed(len(scores), 0.9)
        hits = int((new <= np.sort(scores)[k - 1]).sum())
        law = stats.betabinom(len(new), k, len(scores) + 1 - k)
        assert law.ppf(P) <= hits <= law.isf(P)


def test_the_value_of_more_years_than_observed_and_of_another_rate_is_extrapolated(
    fitted: Calibrator, judged: Judged
) -> None:
    values = judged[0].earnings[:50, 0].astype(float)
    for years, rate in ((YEARS + 3, RATE), (2, 0.05)):
        published = value_intervals(fitted, values, np.full(50, years), (0.9,), rate)
        assert (published.guarantee == "extrapolated").all()
        assert np.isfinite(published.upper).all()


def test_only_the_threshold_fold_decides_thresholds_of_limits() -> None:
    paths, outcomes = draw_careers(600, 7)
    fitted = fit_thresholds(fit_calibration(paths, outcomes, seed=0), paths, outcomes, seed=0)
    n = int((~in_map_fold(paths.person_id, 0)).sum())
    assert {
        cuts.n for (kind, _), cuts in fitted.thresholds_of_kind.items() if kind != "positive"
    } == {n}
    assert {kind for kind, _ in fitted.thresholds_of_kind} == set(THRESHOLD_KINDS)
    again = Calibrator.from_table(fitted.to_table())
    assert again.digest == fitted.digest
    assert again.thresholds_of_kind == fitted.thresholds_of_kind


def test_missing_years_are_left_out_of_bands_and_sums(fitted: Calibrator, judged: Judged) -> None:
    paths, outcomes = judged
    few, y = paths.take(slice(0, 6)), outcomes[:6].copy()
    y[2, 1] = np.nan
    for scores in (band_scores(fitted, few, y), value_scores(fitted, few, y)):
        assert np.isnan(scores[2]).tolist() == [False, True, True, True]
        assert not np.isnan(np.delete(scores, 2, axis=0)).any()
    old = few.earnings.copy()
    old[3, 2:] = np.nan
    published = band_intervals(fitted, few.with_earnings(old), YEARS, (0.9,))
    assert np.isnan(published.lower[3, 2:]).all()
    assert np.array_equal(
        published.upper[3, :2], band_intervals(fitted, few.take(np.array([3])), 2, (0.9,)).upper[0]
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1.5), st.integers(2, 40))
def test_hulls_and_limits_agree_with_their_scores(seed: int, q: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    samples = np.sort(
        np.where(
            rng.random((30, count)) < rng.random((30, 1)), 0, rng.lognormal(12, 0.8, (30, count))
        ).astype(np.float32),
        axis=1,
    )
    y = np.where(rng.random(30) < 0.3, 0, rng.lognormal(12, 1.2, 30))
    family = grow(samples, 24_150.0).with_atom(0.5)
    lower, upper = family.hull_at(q)
    scores = family.hull_score(y)
    clear = np.abs(scores - q) > 1e-7
    assert np.array_equal(
        ((lower <= y) & (y <= upper))[clear & (y > 0.01)], (scores <= q)[clear & (y > 0.01)]
    )
    assert ((lower <= y) | (scores > q))[y == 0].all()
    at = forecast_probability(samples, y, 24_150.0)
    np.testing.assert_allclose(
        forecast_probability(samples, forecast_quantile(samples, q, 24_150.0), 24_150.0)
        >= q - 1e-9,
        True,
    )
    np.testing.assert_array_less(-1e-12, at)


@pytest.mark.parametrize("scale", [1.0, 24_150.0, 810_000.0, 920_000.0])
def test_a_limit_at_zero_is_zero_to_the_last_bit_whatever_the_scale(scale: float) -> None:
    none, mixed = (
        np.zeros((1, 50), np.float32),
        np.sort(np.tile(np.array([0, 5e4], np.float32), (1, 25)), axis=1),
    )
    assert (
        forecast_quantile(none, 0.5, scale).tolist()
        == forecast_quantile(mixed, 0.3, scale).tolist()
        == [0.0]
    )
    np.testing.assert_allclose(forecast_quantile(mixed, 0.8, scale), 5e4)
