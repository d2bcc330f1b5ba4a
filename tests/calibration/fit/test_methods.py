"""What sets of every family have in common, whatever the method that finds their thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from saga.calibration.fit.cqr import fit_cqr
from saga.calibration.fit.cross_fitting import fit_cross_fitted
from saga.calibration.fit.split_conformal import fit_calibration
from saga.calibration.fit.thresholds import fit_thresholds

from saga.conformal.calibration_table import calibration_method
from saga.conformal.calibrator import Calibrator
from saga.conformal.families import AT_LEAST, AT_MOST, POSITIVE
from saga.conformal.families.set_family import SetFamily
from saga.conformal.intervals import Intervals
from saga.conformal.published_sets import band_intervals, one_sided_limits
from saga.distributions import Marginals
from saga.errors import UsageError
from saga.requests import COVERAGE
from tests.calibration.worlds import draw_world, without_year

Array = NDArray[np.float64]
N, HORIZONS, FOLDS = 900, 4, 3
GUARANTEES = ("none", "extrapolated", "assumption")  # the better, the later


def draw(seed: int, n: int = N) -> tuple[Marginals, Array]:
    """Forecasts with members and groups; few outcomes at horizon 3, none at horizon 4."""
    raw, outcomes = draw_world(n, seed, horizons=HORIZONS)
    outcomes[15:, 2], outcomes[:, 3] = np.nan, np.nan
    return replace(raw, members=(raw,) * FOLDS, groups={"sex": groups_of(n)}), outcomes


def groups_of(n: int) -> NDArray[np.str_]:
    return np.where(np.arange(n) % 3 == 0, "female", "male")


def fit_sets(weights: Array | None = None) -> Calibrator:
    raw, outcomes = draw(1)
    fitted = fit_calibration(raw, outcomes, seed=0, weights=weights)
    return fit_thresholds(fitted, raw, outcomes, seed=0, weights=weights)


def fit_folds() -> Calibrator:
    raw, outcomes = draw(1)
    return fit_cross_fitted(raw, outcomes, np.arange(N) % FOLDS)


METHODS: dict[str, Callable[[], Calibrator]] = {
    "sets": fit_sets,
    "weighted": lambda: fit_sets(np.random.default_rng(0).uniform(0.5, 1.5, (N, HORIZONS))),
    "cqr": lambda: fit_cqr(*draw(1)),
    "cv+": fit_folds,
}


@cache
def calibrated(method: str) -> Calibrator:
    return METHODS[method]()


def sets_of(kind: str, calibrator: Calibrator, marginals: Marginals) -> Intervals:
    if kind == "band":
        return band_intervals(calibrator, marginals, 2, COVERAGE)
    families: dict[str, SetFamily] = {f.kind: f for f in (AT_LEAST, AT_MOST, POSITIVE)}
    return calibrator.sets(families.get(kind, calibrator.year), marginals, COVERAGE)


def fresh(calibrator: Calibrator, n: int = 40) -> Marginals:
    return calibrator.recalibrate(draw(2, n)[0])


EVERY = pytest.mark.parametrize("method", METHODS)
FAMILY = pytest.mark.parametrize("kind", ["set", "at_least", "at_most", "positive", "band"])


@EVERY
@FAMILY
def test_sets_are_nested_and_missing_exactly_without_a_guarantee(method: str, kind: str) -> None:
    calibrator = calibrated(method)
    sets = sets_of(kind, calibrator, fresh(calibrator))
    missing = sets.guarantee == "none"
    assert np.array_equal(missing, np.isnan(sets.lower))
    assert np.array_equal(missing, np.isnan(sets.upper))
    assert missing.all() == (method == "cqr" and kind != "set")
    lower, upper, zero = (
        np.where(missing, empty, ends)
        for empty, ends in ((np.inf, sets.lower), (-np.inf, sets.upper), (0, sets.includes_zero))
    )
    some = ~missing[..., 1:] & (sets.upper[..., :-1] > 0)
    assert (lower[..., 1:] <= lower[..., :-1])[some].all()
    assert (upper[..., 1:] >= upper[..., :-1])[some].all()
    assert (zero[..., 1:] >= zero[..., :-1])[~missing[..., 1:]].all()


@EVERY
@FAMILY
def test_a_longer_horizon_and_a_higher_coverage_have_no_better_guarantee(
    method: str, kind: str
) -> None:
    calibrator = calibrated(method)
    guarantee = sets_of(kind, calibrator, fresh(calibrator)).guarantee
    rank = np.select([guarantee == word for word in GUARANTEES], [0, 1, 2])
    assert (np.diff(rank, axis=1) <= 0).all()
    assert (np.diff(rank, axis=2) <= 0).all()
    extrapolated = sets_of(kind, replace(calibrator, extrapolated=True), fresh(calibrator))
    assert not (extrapolated.guarantee == "assumption").any()


@EVERY
def test_few_outcomes_give_no_interval_there_and_beyond(method: str) -> None:
    calibrator = calibrated(method)
    guarantee = calibrator.intervals(fresh(calibrator), (0.9,)).guarantee[0, :, 0].tolist()
    assert guarantee == ["assumption", "assumption", "none", "none"]
    assert calibrator.furthest_horizons[0.9] == 2


@EVERY
@FAMILY
def test_a_persons_sets_depend_neither_on_the_batch_nor_on_its_order(
    method: str, kind: str
) -> None:
    calibrator = calibrated(method)
    raw, _ = draw(2, 40)
    together = sets_of(kind, calibrator, calibrator.recalibrate(raw))
    for rows in (np.arange(40)[::-1], np.array([7])):
        part = sets_of(kind, calibrator, calibrator.recalibrate(raw.take(rows)))
        for name in ("lower", "upper", "includes_zero", "guarantee", "cell"):
            np.testing.assert_array_equal(getattr(part, name), getattr(together, name)[rows])


@EVERY
def test_beyond_age_64_there_is_no_set(method: str) -> None:
    calibrator = calibrated(method)
    raw = without_year(draw(2, 40)[0], 1, 2)
    raw = replace(raw, members=tuple(without_year(member, 1, 2) for member in raw.members))
    sets = calibrator.intervals(calibrator.recalibrate(raw), (0.9,))
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
    marginals = fresh(calibrator)
    assert np.array_equal(fresh(again).cdf, marginals.cdf)
    expected = calibrator.intervals(marginals, COVERAGE)
    found = again.intervals(marginals, COVERAGE)
    np.testing.assert_array_equal(found.upper, expected.upper)


@EVERY
def test_a_coverage_that_was_not_calibrated_is_refused_and_the_others_listed(method: str) -> None:
    calibrator = calibrated(method)
    for ask in (calibrator.intervals, lambda m, c: one_sided_limits(calibrator, m, c)):
        with pytest.raises(UsageError, match=r"0\.5, 0\.8, 0\.9, 0\.95"):
            ask(fresh(calibrator), (0.85,))
