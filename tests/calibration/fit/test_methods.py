"""Families of sets times methods that find their thresholds: what holds for every pair.

Forecasts are too high, ignore that outcomes spread more in one group of persons, and know nothing
of the persistence of earnings. Horizon 3 has few outcomes and horizon 4 has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.cross_fitting import fit_cross_fitted
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold

from saga.arrays import Floats, Ints
from saga.conformal.calibration_table import calibration_method
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import BAND, FAMILIES, PRESENT_VALUE
from saga.conformal.families.present_value import SimulatedValues
from saga.conformal.intervals import Intervals
from saga.conformal.published_sets import (
    ValueIntervals,
    band_intervals,
    one_sided_limits,
    value_intervals,
)
from saga.conformal.recalibration import map_paths
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.lifetime import present_value, realised_value
from saga.paths import Paths
from saga.requests import COVERAGE, RATE
from saga.scores import pit_uniforms
from tests.calibration.worlds import (
    P,
    draw_paths,
    draw_world,
    is_plausible,
    lognormal_marginals,
    split_quantile,
    without_year,
)

N, FRESH, HORIZONS, FOLDS, YEARS = 3_000, 6_000, 4, 3, 2
GUARANTEES = ("none", "extrapolated", "assumption")  # the better, the later
WILD = {"calibration": 0.15, "target": 0.75}  # share of persons whose earnings spread more


@dataclass(frozen=True, eq=False)
class Sample:
    """Persons with raw forecasts, which have members, outcomes (n, H) and weights (n, H)."""

    raw: Marginals
    outcomes: Floats
    weights: Floats

    def take(self, rows: Ints) -> Sample:
        return Sample(self.raw.take(rows), self.outcomes[rows], self.weights[rows])

    def paths(self, seed: int = 0, count: int = 60) -> Paths:
        """Paths without persistence; a person's do not depend on the order of persons."""
        order = np.argsort(self.raw.person_id, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return draw_paths(self.raw.take(order), count, seed).take(back)

    def in_threshold_fold(self) -> Sample:
        return self.take(np.flatnonzero(~in_map_fold(self.raw.person_id, 0)))


def draw(n: int, seed: int, wild_share: float = WILD["calibration"]) -> Sample:
    rng = np.random.default_rng(seed)
    centre, zero = rng.normal(12.3, 0.4, (n, 1)), rng.uniform(0.02, 0.2, (n, 1))
    wild, same = rng.random((n, 1)) < wild_share, np.ones((n, HORIZONS))
    normal = rng.normal(size=(n, HORIZONS))
    for h in range(1, HORIZONS):
        normal[:, h] = 0.5 * normal[:, h - 1] + 0.75**0.5 * normal[:, h]
    amounts = np.exp(centre - 0.8 + np.where(wild, 0.9, 0.3) * normal)
    outcomes = np.where(rng.random((n, HORIZONS)) < zero, 0, amounts)
    raw = lognormal_marginals(zero * same, centre * same, 0.6 * same, str(seed))
    target, here = WILD["target"], WILD["calibration"]
    weights = np.where(wild, target / here, (1 - target) / (1 - here)) * same
    return Sample(replace(raw, members=(raw,) * FOLDS), outcomes, weights)


def calibration_sample(n: int = N) -> Sample:
    sample = draw(n, 1)
    sample.outcomes[15:, 2], sample.outcomes[:, 3] = np.nan, np.nan
    return sample


def fit_sets(sample: Sample, weights: Floats | None = None) -> Calibrator:
    paths = sample.in_threshold_fold().paths()
    return fit_calibration(sample.raw, sample.outcomes, seed=0, paths=paths, weights=weights)


def fit_several(sample: Sample) -> Calibrator:
    """Two origins of each person, whose outcomes are nearly the same."""
    later = replace(sample.raw, origin_year=sample.raw.origin_year + 1)
    both = Sample(
        Marginals.joined([sample.raw, later]),
        np.concatenate([sample.outcomes, 1.01 * sample.outcomes]),
        np.concatenate([sample.weights] * 2),
    )
    return fit_sets(both)


def fit_folds(sample: Sample) -> Calibrator:
    number = np.array([int(name.split("-")[1]) for name in sample.raw.person_id])
    return fit_cross_fitted(sample.raw, sample.outcomes, number % FOLDS)


METHODS: dict[str, Callable[[Sample], Calibrator]] = {
    "sets": fit_sets,
    "several": fit_several,
    "weighted": lambda sample: fit_sets(sample, weights=sample.weights),
    "cqr": lambda sample: fit_cqr(sample.raw, sample.outcomes),
    "cv+": fit_folds,
}
# Ranks by which a threshold may be above the needed one: of ten neighbours; with weights, and with
# counts by fold that are raised, more.
SLACK = {"sets": 9, "several": 9, "weighted": 40, "cqr": N, "cv+": 60}
FAMILY_OF = {k: f for k, f in FAMILIES.items() if f not in (BAND, PRESENT_VALUE)}
QUICK = {("sets", "set"), ("sets", "band"), ("weighted", "set"), ("cqr", "set")}
EVERY = pytest.mark.parametrize("method", METHODS)
FAMILY = pytest.mark.parametrize("kind", ["set", *FAMILY_OF, "band"])


@cache
def calibrated(method: str) -> Calibrator:
    return METHODS[method](calibration_sample())


@cache
def fresh(method: str) -> Sample:
    return draw(FRESH, 2, WILD["target" if method == "weighted" else "calibration"])


def sets_of(kind: str, calibrator: Calibrator, marginals: Marginals) -> Intervals:
    if kind == "band":
        return band_intervals(calibrator, marginals, YEARS, COVERAGE)
    return calibrator.sets(FAMILY_OF.get(kind, calibrator.year), marginals, COVERAGE)


def some(method: str, n: int = 40) -> Marginals:
    return calibrated(method).recalibrate(draw(n, 3).raw)


def value_of(paths: Paths) -> Floats:
    return present_value(paths, years=YEARS)


# --- coverage ---


def is_inside(kind: str, calibrator: Calibrator, sample: Sample, fitted: bool = True) -> Floats:
    """Whether outcomes of two years are covered, (n, L); NaN where the set says nothing.

    If not `fitted`, by the sets that hold under the forecasts.
    """
    applied = calibrator if fitted else Calibrator()
    mapped, y = applied.recalibrate(sample.raw), sample.outcomes[:, :YEARS]
    if kind == "present_value":
        values = SimulatedValues.of(map_paths(sample.paths(1), mapped), value_of)
        years = np.full(len(y), YEARS)
        published = value_intervals(calibrator, values, years, COVERAGE, RATE)
        ends = published if fitted else ValueIntervals.central(calibrator, values, COVERAGE)
        truth = realised_value(y, rate=RATE)[:, None]
        return ((ends.lower <= truth) & (truth <= ends.upper)).astype(float)
    marginals = mapped.first(YEARS)
    sets = sets_of(kind, calibrator, marginals)
    if not fitted:
        family = calibrator.band if kind == "band" else FAMILY_OF.get(kind, calibrator.year)
        stated = np.zeros(4) if family.kind == "cqr" else np.array(COVERAGE)
        q = np.broadcast_to(stated, (*y.shape, 4))
        lower, upper, zero = family.ends(marginals, q, COVERAGE)
        sets = replace(sets, lower=lower, upper=upper, includes_zero=zero)
    inside = sets.covered(y)
    if kind == "band":
        return np.asarray(inside.min(axis=1))
    return np.where(y[:, 1:] > 0, inside[:, 1], np.nan) if kind == "positive" else inside[:, 1]


def persons_behind(method: str, kind: str) -> int:
    calibrator = calibrated(method)
    if method == "cv+":
        share = 0.9 if kind == "set" else 0.0
        return calibrator.fold_counts[kind, YEARS, share].n_persons
    if kind == "set":
        return calibrator.cells[YEARS, "all"].n_threshold
    return calibrator.thresholds_of_kind[kind, YEARS].n


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param(method, kind, marks=[pytest.mark.thorough] * ((method, kind) not in QUICK))
        for method in METHODS
        for kind in ("set", *FAMILIES)
        if kind == "set" or not (method == "cqr" or (method, kind) == ("cv+", "present_value"))
    ],
)
def test_fresh_persons_are_covered_as_stated_and_without_calibration_they_are_not(
    method: str, kind: str
) -> None:
    # A lower limit of zero holds for certain, so that more may be covered, but not less.
    slack = N if kind == "at_least" else SLACK[method]
    n = persons_behind(method, kind)

    def hold(inside: Floats) -> bool:
        known = ~np.isnan(inside[:, 0])
        hits = inside[known].sum(axis=0)
        return all(
            is_plausible(int(hits[j]), int(known.sum()), n, share, P / 240, slack=slack)
            for j, share in enumerate(COVERAGE)
        )

    assert hold(is_inside(kind, calibrated(method), fresh(method)))
    assert not hold(is_inside(kind, calibrated(method), fresh(method), fitted=False))


def draw_atoms(n: int, seed: int) -> tuple[Marginals, Floats]:
    """Exact forecasts of persons without earnings with a probability of .05 to .95."""
    rng = np.random.default_rng(seed)
    zero, one = rng.uniform(0.05, 0.95, (n, 1)), np.ones((n, 1))
    outcomes = np.where(rng.random((n, 1)) < zero, 0, np.exp(12 + 0.5 * rng.normal(size=(n, 1))))
    return lognormal_marginals(zero, 12 * one, 0.5 * one, str(seed)), outcomes


def test_a_large_atom_does_not_make_the_sets_of_other_persons_too_small() -> None:
    """The set {0} covers more than stated; thresholds do not make up for it at other persons."""
    raw, outcomes = draw_atoms(8_000, 60)
    fitted = fit_calibration(raw, outcomes, seed=0, coverage=(0.5,))
    fresh_raw, y = draw_atoms(12_000, 61)
    others = fresh_raw.p_zero[:, 0] < 0.45
    threshold_fold = ~in_map_fold(raw.person_id, 0)
    scores = fitted.year.scores(fitted.recalibrate(raw), outcomes, 0.5)[threshold_fold, 0]
    too_small = split_quantile(scores, 0.5)  # without the random part of zero
    broken = Calibrator({(1, "all"): replace(fitted.cells[1, "all"], thresholds={0.5: too_small})})
    mapped = fitted.recalibrate(fresh_raw)
    inside, broken_inside = (
        c.sets(c.year, mapped, (0.5,)).covered(y)[:, 0, 0] for c in (fitted, broken)
    )
    error = 0.5 * (1 / others.sum() + 1 / threshold_fold.sum()) ** 0.5
    assert abs(inside[others].mean() - 0.5) < 5 * error
    assert broken_inside[others].mean() < 0.5 - 8 * error, "the broken version"
    assert inside[~others].mean() > 0.6


def test_coverage_of_sets_but_not_of_central_ones_is_the_same_at_any_probability_of_zero() -> None:
    fitted = fit_calibration(*draw_world(20_000, 18, horizons=1, wrong=False), seed=0)
    raw, outcomes = draw_world(20_000, 19, horizons=1, wrong=False)
    mapped = fitted.recalibrate(raw)
    sets = fitted.intervals(mapped, COVERAGE)
    ends = BAND.ends(mapped, np.broadcast_to(np.array(COVERAGE), (20_000, 1, 4)), COVERAGE)
    central = replace(sets, lower=ends[0], upper=ends[1], includes_zero=ends[2])
    bins = np.digitize(raw.p_zero[:, 0], [0.15, 0.25, 0.35])

    def largest_gap(found: Intervals, j: int) -> float:
        inside = found.covered(outcomes)[:, 0, j]
        return max(abs(float(inside[bins == k].mean()) - COVERAGE[j]) for k in range(4))

    for j, coverage in enumerate(COVERAGE):
        error = (coverage * (1 - coverage) * (1 / 5_000 + 1 / 10_000)) ** 0.5
        assert largest_gap(sets, j) < 5 * error
        assert largest_gap(central, j) > 6 * error or coverage == 0.5


# --- thresholds ---


@pytest.mark.parametrize("kind", ["set", *FAMILIES])
def test_a_threshold_is_the_mean_of_ten_order_statistics_of_the_threshold_fold(kind: str) -> None:
    sample = draw(600, 4)
    fold, paths = sample.in_threshold_fold(), sample.in_threshold_fold().paths()
    fitted = fit_calibration(sample.raw, sample.outcomes, seed=0, coverage=(0.9,), paths=paths)
    mapped = fitted.recalibrate(fold.raw)
    if kind == "present_value":
        by_coverage = PRESENT_VALUE.scores_by_coverage(
            map_paths(paths, mapped), fold.outcomes, [0.9]
        )
    else:
        families = {**FAMILIES, "set": fitted.year, "band": fitted.band}
        by_coverage = families[kind].scores_by_coverage(
            mapped, fold.outcomes, [0.9], pit_uniforms(fold.raw)
        )
    scores = np.sort(by_coverage[0.9][:, 1])
    scores = scores[~np.isnan(scores)]
    k = math.ceil((len(scores) + 1) * Fraction(9, 10))
    thresholds = (
        fitted.cells[2, "all"].thresholds
        if kind == "set"
        else fitted.thresholds_of_kind[kind, 2].thresholds
    )
    assert thresholds[0.9] == pytest.approx(scores[k - 1 : k + 9].mean(), rel=1e-12)
    published = [value for value in thresholds.values() if value is not None]
    assert not np.isin(published, scores).any(), "no person's score is published"


@EVERY
def test_the_order_of_persons_does_not_matter(method: str) -> None:
    sample = calibration_sample(600)
    fitted = METHODS[method](sample)
    order = np.random.default_rng(0).permutation(600)
    assert METHODS[method](sample.take(order)).digest == fitted.digest
    other = replace(sample, outcomes=sample.outcomes[order])
    assert METHODS[method](other).digest != fitted.digest


def test_weights_of_one_are_split_conformal_prediction_to_the_last_bit() -> None:
    sample = calibration_sample(1_200)
    sample.outcomes[::7, 1] = np.nan
    ones = np.ones_like(sample.outcomes)
    assert fit_sets(sample, weights=ones).digest == fit_sets(sample).digest
    assert fit_sets(sample, weights=sample.weights).digest != fit_sets(sample).digest


def test_a_horizon_that_no_finite_set_covers_and_longer_ones_have_no_interval() -> None:
    fitted = calibrated("sets")
    cell = fitted.cells[1, "all"]
    unreachable = replace(cell, thresholds={**cell.thresholds, 0.9: 1.0})
    fitted = replace(fitted, cells={**fitted.cells, (1, "all"): unreachable})
    sets = fitted.intervals(some("sets"), (0.5, 0.9))
    assert set(sets.guarantee[..., 1].ravel()) == {"none"}
    assert set(sets.guarantee[:, :2, 0].ravel()) == {"assumption"}
    assert (fitted.tested_horizons[0.9], fitted.tested_horizons[0.5]) == ([], [1, 2])


# --- published sets ---


@EVERY
@FAMILY
def test_sets_are_nested_and_missing_exactly_without_a_guarantee(method: str, kind: str) -> None:
    sets = sets_of(kind, calibrated(method), some(method))
    missing = sets.guarantee == "none"
    assert np.array_equal(missing, np.isnan(sets.lower))
    assert np.array_equal(missing, np.isnan(sets.upper))
    assert missing.all() == (method == "cqr" and kind != "set")
    lower, upper, zero = (
        np.where(missing, empty, ends)
        for empty, ends in ((np.inf, sets.lower), (-np.inf, sets.upper), (0, sets.includes_zero))
    )
    known = ~missing[..., 1:] & (sets.upper[..., :-1] > 0)
    assert (lower[..., 1:] <= lower[..., :-1])[known].all()
    assert (upper[..., 1:] >= upper[..., :-1])[known].all()
    assert (zero[..., 1:] >= zero[..., :-1])[~missing[..., 1:]].all()


@EVERY
@FAMILY
def test_a_longer_horizon_and_a_higher_coverage_have_no_better_guarantee(
    method: str, kind: str
) -> None:
    calibrator = calibrated(method)
    guarantee = sets_of(kind, calibrator, some(method)).guarantee
    rank = np.select([guarantee == word for word in GUARANTEES], [0, 1, 2])
    assert (np.diff(rank, axis=1) <= 0).all()
    assert (np.diff(rank, axis=2) <= 0).all()
    extrapolated = sets_of(kind, replace(calibrator, extrapolated=True), some(method))
    assert not (extrapolated.guarantee == "assumption").any()


@EVERY
def test_few_outcomes_give_no_interval_there_and_beyond(method: str) -> None:
    calibrator = calibrated(method)
    guarantee = calibrator.intervals(some(method), (0.9,)).guarantee[0, :, 0].tolist()
    assert guarantee == ["assumption", "assumption", "none", "none"]
    assert calibrator.tested_horizons[0.9] == [1, 2]
    for family in FAMILIES.values() if method == "sets" else ():
        guarantees = [calibrator.fitted.nested_thresholds(family, h)[1][2] for h in range(1, 6)]
        beyond = "extrapolated" if family.always_given else "none"
        assert guarantees == ["assumption", "assumption", beyond, beyond, beyond]


@EVERY
def test_horizons_without_outcomes_are_extrapolated(method: str) -> None:
    sample = calibration_sample(1_500)
    sample.outcomes[:, 2] = np.nan
    calibrator = METHODS[method](sample)
    sets = calibrator.intervals(calibrator.recalibrate(sample.raw), (0.9,))
    beyond = "none" if method == "cqr" else "extrapolated"
    assert [set(sets.guarantee[:, h, 0]) for h in range(4)] == [{"assumption"}] * 2 + [{beyond}] * 2
    assert calibrator.tested_horizons[0.9] == [1, 2]


@EVERY
@FAMILY
def test_a_persons_sets_depend_neither_on_the_batch_nor_on_its_order(
    method: str, kind: str
) -> None:
    calibrator, raw = calibrated(method), draw(40, 3).raw
    together = sets_of(kind, calibrator, calibrator.recalibrate(raw))
    for rows in (np.arange(40)[::-1], np.array([7])):
        part = sets_of(kind, calibrator, calibrator.recalibrate(raw.take(rows)))
        for name in ("lower", "upper", "includes_zero", "guarantee", "cell"):
            np.testing.assert_array_equal(getattr(part, name), getattr(together, name)[rows])


@EVERY
def test_beyond_age_64_there_is_no_set(method: str) -> None:
    raw = without_year(draw(40, 3).raw, 1, 2)
    raw = replace(raw, members=tuple(without_year(member, 1, 2) for member in raw.members))
    sets = calibrated(method).intervals(calibrated(method).recalibrate(raw), (0.9,))
    assert sets.guarantee[1, :2, 0].tolist() == ["assumption", "none"]
    assert np.isnan(sets.lower[1, 1, 0])
    assert sets.cell[1, 1] == ""


@EVERY
def test_the_table_gives_back_the_same_calibrator(method: str, tmp_path: Path) -> None:
    calibrator = calibrated(method)
    calibrator.to_table().write_parquet(tmp_path / "calibration.parquet")
    table = pl.read_parquet(tmp_path / "calibration.parquet")
    again = Calibrator.from_table(table)
    assert again.digest == calibrator.digest
    assert calibration_method(table) == again.method == calibrator.method
    assert again.coverage == COVERAGE
    marginals = some(method)
    assert np.array_equal(again.recalibrate(draw(40, 3).raw).cdf, marginals.cdf)
    expected = calibrator.intervals(marginals, COVERAGE)
    np.testing.assert_array_equal(again.intervals(marginals, COVERAGE).upper, expected.upper)


@EVERY
def test_a_coverage_that_was_not_calibrated_is_refused_and_the_others_listed(method: str) -> None:
    calibrator = calibrated(method)
    for ask in (calibrator.intervals, lambda m, c: one_sided_limits(calibrator, m, c)):
        with pytest.raises(UsageError, match=r"0\.5, 0\.8, 0\.9, 0\.95"):
            ask(some(method), (0.85,))


def test_without_calibration_every_interval_is_none() -> None:
    plain = Calibrator()
    sets = plain.intervals(plain.recalibrate(draw(3, 5).raw), (0.9, 0.123))
    assert (sets.guarantee == "none").all()
    assert np.isnan(sets.lower).all()


# --- bands and present values ---


def test_the_band_of_somebody_who_reaches_age_64_is_that_of_fewer_years() -> None:
    calibrator = calibrated("sets")
    mapped = calibrator.recalibrate(draw(50, 6).raw).first(YEARS)
    shorter = band_intervals(calibrator, without_year(mapped, 3, 2), YEARS, (0.9,))
    alone = band_intervals(calibrator, mapped.take(np.array([3])), 1, (0.9,))
    assert np.isnan(shorter.lower[3, 1])
    assert shorter.upper[3, 0] == alone.upper[0, 0]


@pytest.mark.parametrize(
    ("years", "rate", "count", "guarantee"),
    [
        (YEARS, RATE, 60, "assumption"),
        (YEARS, RATE, 90, "assumption"),
        (YEARS, RATE, 10, "extrapolated"),
        (YEARS, 0.05, 60, "extrapolated"),
        (YEARS + 4, RATE, 60, "extrapolated"),
    ],
)
def test_present_values_have_a_guarantee_under_the_conditions_of_the_calibration_only(
    years: int, rate: float, count: int, guarantee: str
) -> None:
    calibrator, sample = calibrated("sets"), draw(50, 7)
    assert calibrator.value_paths == 60
    mapped = map_paths(sample.paths(count=count), calibrator.recalibrate(sample.raw))
    values = SimulatedValues.of(mapped, value_of)
    sets = value_intervals(calibrator, values, np.full(50, years), (0.9, 0.95), rate)
    assert set(sets.guarantee.ravel()) == {guarantee}
    assert np.isfinite(sets.upper).all()
    assert (np.diff(sets.upper, axis=1) >= 0).all()


# --- what is refused ---


def test_wrong_persons_shapes_and_coverages_are_refused() -> None:
    sample = draw(20, 10)
    raw, outcomes, rows = sample.raw, sample.outcomes, np.array([0, 1, 0])
    for fit in (METHODS["sets"], METHODS["cqr"], METHODS["cv+"]):
        with pytest.raises(UsageError, match=r"origins? (for each|per) person"):
            fit(sample.take(rows))
        with pytest.raises(UsageError, match="disagree"):
            fit(replace(sample, outcomes=outcomes[:, :1]))
    with pytest.raises(UsageError, match="one origin per person"):
        fit_sets(replace(sample, raw=raw.take(np.arange(20) % 10)), weights=sample.weights)
    with pytest.raises(UsageError, match="coverage"):
        fit_calibration(raw, outcomes, seed=0, coverage=(1.0,))
    with pytest.raises(UsageError, match="raw"):
        fit_calibration(Calibrator().recalibrate(raw), outcomes, seed=0)
