"""Limits, bands and present values cover as stated with any sampler; raw intervals do not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from saga.calibration.fit.person_scores import rank_needed
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from saga.calibration.fit.thresholds import fit_thresholds
from scipy import stats

from saga.conformal.calibrator import Calibrator
from saga.conformal.families import AT_LEAST, AT_MOST, FAMILIES, POSITIVE, PRESENT_VALUE
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.families.set_family import KindThresholds
from saga.conformal.published_sets import (
    ValueIntervals,
    band_intervals,
    one_sided_limits,
    value_intervals,
)
from saga.conformal.recalibration import map_paths
from saga.distributions import Marginals
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE, RATE
from saga.scores import pit_uniforms
from tests.calibration.fit.hits import P, is_plausible
from tests.calibration.worlds import draw_paths, draw_world, lognormal_marginals, without_year

Array = NDArray[np.float64]
Judged = tuple[Marginals, Paths, Array]
YEARS = 3
NINETY = COVERAGE.index(0.9)


def draw_careers(n: int, seed: int, rho: float = 0.9) -> tuple[Marginals, Array]:
    """Outcomes that persist from year to year, and forecasts that are too wide."""
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
    same = np.ones((n, YEARS))
    marginals = lognormal_marginals(
        zero[:, None] * same, centre[:, None] * same, 0.6 * same, str(seed)
    )
    return marginals, outcomes


def fit_everything(marginals: Marginals, outcomes: Array, count: int = 200) -> Calibrator:
    """Calibration with present values from `count` paths without persistence."""
    calibrator = fit_calibration(marginals, outcomes, seed=0)
    paths = draw_paths(marginals.take(~in_map_fold(marginals.person_id, 0)), count)
    return fit_thresholds(calibrator, marginals, outcomes, seed=0, paths=paths)


@pytest.fixture(scope="module")
def fitted() -> Calibrator:
    return fit_everything(*draw_careers(4_000, 1))


@pytest.fixture(scope="module")
def judged(fitted: Calibrator) -> Judged:
    """Fresh persons: recalibrated marginals and paths, and outcomes."""
    raw, outcomes = draw_careers(8_000, 2)
    marginals = fitted.recalibrate(raw)
    return marginals, map_paths(draw_paths(raw, 200, seed=1), marginals), outcomes


def holds(hits: int, trials: int, n: int, coverage: float) -> bool:
    return is_plausible(hits, trials, n, coverage, P / 120)


def all_hold(hits: Array, trials: int, n: int) -> bool:
    pairs = zip(hits, COVERAGE, strict=True)
    return all(holds(int(n_hits), trials, n, coverage) for n_hits, coverage in pairs)


def test_earnings_lie_above_and_below_their_limits_as_stated(
    fitted: Calibrator, judged: Judged
) -> None:
    marginals, _, outcomes = judged
    published = one_sided_limits(fitted, marginals, COVERAGE)
    scores = AT_LEAST.scores(marginals, outcomes, 0.9, pit_uniforms(marginals))
    for h in range(YEARS):
        y, at_least = outcomes[:, h], fitted.thresholds_of_kind["at_least", h + 1]
        n = fitted.thresholds_of_kind["at_most", h + 1].n
        for j, coverage in enumerate(COVERAGE):
            assert holds(int((y <= published.at_most[:, h, j]).sum()), len(y), n, coverage)
            # A limit of zero holds for certain, so that more may be covered, but not less. With
            # the random part of zero, it is as many as stated.
            q = at_least.thresholds[coverage]
            assert q is not None
            randomised = int((scores[:, h] <= q).sum())
            assert holds(randomised, len(y), at_least.n, coverage)
            inside = y >= published.at_least[:, h, j]
            assert inside.sum() >= randomised
            assert inside[published.at_least[:, h, j] == 0].all()
    assert (np.diff(published.at_least, axis=2) <= 0).all()
    assert (np.diff(published.at_most, axis=2) >= 0).all()
    # The upper end of an interval is no one-sided limit: the check distinguishes them.
    sets = fitted.intervals(marginals, COVERAGE)
    wrong = int((outcomes[:, 0] <= sets.upper[:, 0, 0]).sum())
    assert not holds(wrong, len(outcomes), fitted.thresholds_of_kind["at_most", 1].n, COVERAGE[0])


def test_positive_earnings_lie_in_their_interval(fitted: Calibrator, judged: Judged) -> None:
    marginals, _, outcomes = judged
    published = one_sided_limits(fitted, marginals, COVERAGE)
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
    marginals, _, outcomes = judged
    published = band_intervals(fitted, marginals, years, COVERAGE)
    hits = published.covered(outcomes[:, :years]).all(axis=1).sum(axis=0)
    n = fitted.thresholds_of_kind["band", years].n
    assert all_hold(hits, len(outcomes), n)
    assert (published.guarantee == "assumption").all()
    yearly = fitted.intervals(marginals, COVERAGE).covered(outcomes)[:, :years]
    yearly = yearly.all(axis=1).sum(axis=0)
    assert all_hold(yearly, len(outcomes), n) == (years == 1)


def test_an_outcome_is_in_the_band_exactly_if_its_score_is_at_most_the_threshold(
    fitted: Calibrator, judged: Judged
) -> None:
    marginals, _, outcomes = judged
    few, y = marginals.take(slice(0, 500)), outcomes[:500]
    scores = fitted.band.joined(fitted.band.scores(few, y, 0.9))
    for years in (1, 3):
        covered = band_intervals(fitted, few, years, (0.9,)).covered(y[:, :years])
        inside = np.asarray(covered.all(axis=1))[:, 0]
        q = fitted.nested_thresholds(fitted.band, years)[0][NINETY]
        clear = np.abs(scores[:, years - 1] - q) > 1e-9
        assert np.array_equal(inside[clear] == 1, (scores[:, years - 1] <= q)[clear])


def test_the_common_scale_of_years_has_an_inverse(fitted: Calibrator) -> None:
    q = np.linspace(0, 1, 400)
    for h in range(1, YEARS + 2):
        knots, values = fitted.band.scale(h)
        np.testing.assert_allclose(
            np.interp(np.interp(q, values, knots), knots, values), q, atol=1e-12
        )


@pytest.mark.parametrize("years", [1, 2, YEARS])
def test_present_values_are_covered_although_paths_have_no_persistence(
    fitted: Calibrator, judged: Judged, years: int
) -> None:
    _, paths, outcomes = judged
    short = replace(paths, earnings=paths.earnings[:, :years])
    values = SimulatedValues.of(short, partial(present_value, to_age=30 + years, rate=RATE))
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


@pytest.mark.thorough
def test_present_values_depend_on_the_number_of_paths_as_stated(
    fitted: Calibrator, judged: Judged
) -> None:
    """More paths than in calibration cover as much; fewer are not guaranteed to."""
    assert fitted.value_paths == 200
    outcomes = judged[2]
    raw, _ = draw_careers(8_000, 2)
    marginals, truth = fitted.recalibrate(raw), realised_value(outcomes, rate=RATE)
    n = fitted.thresholds_of_kind["present_value", YEARS].n
    for count, guarantee in ((10, "extrapolated"), (200, "assumption"), (300, "assumption")):
        mapped = map_paths(draw_paths(raw, count, seed=2), marginals)
        values = SimulatedValues.of(mapped, partial(present_value, to_age=30 + YEARS, rate=RATE))
        sets = value_intervals(fitted, values, np.full(len(values), YEARS), COVERAGE, RATE)
        assert set(sets.guarantee.ravel()) == {guarantee}
        hits = ((sets.lower <= truth[:, None]) & (truth[:, None] <= sets.upper)).sum(axis=0)
        assert all_hold(hits, len(truth), n) == (count >= 200), "too few paths fail"


def test_the_theorem_holds_for_any_number_of_paths() -> None:
    # Also with few and wrong paths, because those of all persons are drawn in the same way.
    plain = Calibrator.identity()
    for count in (3, 10):

        def scores_of(n: int, seed: int, count: int = count) -> Array:
            raw, outcomes = draw_careers(n, seed)
            mapped = map_paths(draw_paths(raw, count, seed), plain.recalibrate(raw))
            scores = PRESENT_VALUE.scores(mapped, outcomes, 0.5)[:, YEARS - 1]
            return scores + 1e-9 * np.random.default_rng(seed).random(n)  # no ties

        scores, new = scores_of(3_000, 5), scores_of(4_000, 6)
        k = rank_needed(len(scores), 0.5)
        hits = int((new <= np.sort(scores)[k - 1]).sum())
        law = stats.betabinom(len(new), k, len(scores) + 1 - k)
        assert law.ppf(P) <= hits <= law.isf(P)


def test_the_value_of_more_years_than_observed_and_of_another_rate_is_extrapolated(
    fitted: Calibrator, judged: Judged
) -> None:
    values = SimulatedValues.of(judged[1].take(slice(50)), lambda p: p.earnings[:, 0].astype(float))
    for years, rate in ((YEARS + 3, RATE), (2, 0.05)):
        published = value_intervals(fitted, values, np.full(50, years), (0.9,), rate)
        assert (published.guarantee == "extrapolated").all()
        assert np.isfinite(published.upper).all()


def test_only_the_threshold_fold_decides_thresholds_of_limits() -> None:
    raw, outcomes = draw_careers(600, 7)
    fitted = fit_everything(raw, outcomes)
    in_map = in_map_fold(raw.person_id, 0)
    n = int((~in_map).sum())
    assert {
        cuts.n for (kind, _), cuts in fitted.thresholds_of_kind.items() if kind != "positive"
    } == {n}
    assert {kind for kind, _ in fitted.thresholds_of_kind} == set(FAMILIES)
    again = Calibrator.from_table(fitted.to_table())
    assert again.digest == fitted.digest
    assert again.thresholds_of_kind == fitted.thresholds_of_kind
    # Limits are order statistics of the threshold fold's scores, averaged over ten.
    scores = AT_MOST.scores(fitted.recalibrate(raw), outcomes, 0.9, pit_uniforms(raw))[~in_map, 0]
    k = rank_needed(n, 0.9)
    expected = np.sort(scores)[k - 1 : k + 9].mean()
    at_most = fitted.thresholds_of_kind["at_most", 1].thresholds[0.9]
    assert at_most == pytest.approx(expected, rel=1e-12)


def test_missing_years_are_left_out_of_bands_and_sums(fitted: Calibrator, judged: Judged) -> None:
    marginals, paths, outcomes = judged
    few, few_paths, y = marginals.take(slice(0, 6)), paths.take(slice(0, 6)), outcomes[:6].copy()
    y[2, 1] = np.nan
    for scores in (
        fitted.band.joined(fitted.band.scores(few, y, 0.9)),
        PRESENT_VALUE.scores(few_paths, y, 0.9),
    ):
        assert np.isnan(scores[2]).tolist() == [False, True, True]
        assert not np.isnan(np.delete(scores, 2, axis=0)).any()
    old = without_year(few, 3, 3)
    published = band_intervals(fitted, old, YEARS, (0.9,))
    assert np.isnan(published.lower[3, 2:]).all()
    assert np.array_equal(
        published.upper[3, :2], band_intervals(fitted, few.take(np.array([3])), 2, (0.9,)).upper[0]
    )


def test_the_threshold_of_a_horizon_is_its_own_and_not_the_largest_of_shorter_ones(
    fitted: Calibrator,
) -> None:
    kinds = dict(fitted.thresholds_of_kind)
    kinds["at_most", 1] = KindThresholds(dict.fromkeys(COVERAGE, 0.99), 2_000)
    other = replace(fitted, thresholds_of_kind=kinds)
    for h in (2, YEARS):
        expected = fitted.nested_thresholds(AT_MOST, h)
        assert other.nested_thresholds(AT_MOST, h)[0].tolist() == expected[0].tolist()
    # Beyond the horizons with outcomes, the last one serves.
    q, guarantees = fitted.nested_thresholds(AT_MOST, YEARS + 5)
    assert q.tolist() == fitted.nested_thresholds(AT_MOST, YEARS)[0].tolist()
    assert guarantees == ["extrapolated"] * len(COVERAGE)


def test_a_kind_with_few_outcomes_has_no_limits_from_there_on_but_present_values_have() -> None:
    raw, outcomes = draw_careers(600, 8)
    outcomes[40:, 1:] = np.nan
    fitted = fit_everything(raw, outcomes)
    for kind, family in FAMILIES.items():
        guarantees = [fitted.nested_thresholds(family, h)[1][NINETY] for h in range(1, 7)]
        beyond = "extrapolated" if kind == "present_value" else "none"
        assert guarantees == ["assumption", *[beyond] * 5]
    limits = one_sided_limits(fitted, fitted.recalibrate(raw), (0.9,))
    for values in (limits.at_least, limits.at_most, limits.positive_lower, limits.positive_upper):
        assert np.isnan(values[:, 1:]).all()
        assert not np.isnan(values[:, 0]).any()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.001, 0.999))
def test_limits_agree_with_their_scores(seed: int, q: float) -> None:
    """An outcome is inside its limits exactly if its score is at most q."""
    raw, _ = draw_world(30, seed, horizons=1)
    marginals = Calibrator.identity().recalibrate(raw)
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((30, 1)) < 0.3, 0, rng.lognormal(12, 1.2, (30, 1)))
    fitted = fit_calibration(*draw_world(60, 1, horizons=1), seed=0, coverage=(0.5,))
    kinds = {
        (kind, 1): KindThresholds({0.5: q}, 100) for kind in ("at_least", "at_most", "positive")
    }
    limits = one_sided_limits(replace(fitted, thresholds_of_kind=kinds), marginals, (0.5,))
    scores = {f.kind: f.scores(marginals, y, 0.5) for f in (AT_LEAST, AT_MOST, POSITIVE)}
    inside = {
        "at_least": y >= limits.at_least[..., 0],
        "at_most": y <= limits.at_most[..., 0],
        "positive": (limits.positive_lower[..., 0] <= y) & (y <= limits.positive_upper[..., 0]),
    }
    for kind, is_inside in inside.items():
        decided = np.abs(scores[kind] - q) > 1e-6
        decided &= ~np.isnan(scores[kind])
        assert np.array_equal(is_inside[decided], (scores[kind] <= q)[decided])


def test_a_limit_in_the_atom_is_zero_to_the_last_bit() -> None:
    zero = np.array([[1.0], [0.5], [0.0]])
    raw = lognormal_marginals(zero, np.full((3, 1), 12.0), np.full((3, 1), 0.5))
    quantiles = Calibrator.identity().recalibrate(raw).quantiles([0.3, 0.5, 0.8])[:, 0]
    assert quantiles[0].tolist() == [0.0, 0.0, 0.0]
    assert quantiles[1, :2].tolist() == [0.0, 0.0]
    assert (quantiles[1, 2], quantiles[2, 0]) > (0.0, 0.0)
    np.testing.assert_allclose(quantiles[1, 2], np.exp(12.0 + 0.5 * stats.norm.ppf(0.6)), rtol=1e-3)
