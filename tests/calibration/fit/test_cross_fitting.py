"""Cross-fitted sets: coverage with few persons, ends, and the stored counts.

Members are ridge regressions of log earnings, refitted without a fold, with lognormal
distributions. They have as many features as a panel of 100 persons can fit perfectly, so a member
that has seen a person is far too sure about the person.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from saga.calibration.fit.cross_fitting import fit_cross_fitted, smooth_counts
from scipy.stats import norm

from saga.arrays import Floats, Ints
from saga.conformal.calibrator import Calibrator
from saga.conformal.cross_fitted import CrossFittedCounts
from saga.conformal.families import AT_LEAST, AT_MOST, POSITIVE, YEAR
from saga.distributions import Marginals

COVERAGE = (0.5, 0.8, 0.9)
FOLDS, FEATURES, HORIZONS, NEW = 5, 60, 2, 100
LEVEL = 12.0  # log SEK
GRID = np.linspace(LEVEL - 9.0, LEVEL + 9.0, 121)


@dataclass(frozen=True, eq=False)
class Population:
    """Persons with features x (n, d) and earnings y (n, H)."""

    x: Floats
    y: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator, n: int) -> Population:
        x = rng.normal(size=(n, FEATURES))
        noise = rng.normal(size=(n, HORIZONS)) * 0.6
        p_zero = norm.cdf(-1.3 + 0.6 * x[:, :1])
        positive = rng.random((n, HORIZONS)) >= p_zero
        level = LEVEL + 0.5 * x[:, 1] + 0.3 * x[:, 2]
        return cls(x, np.where(positive, np.exp(level[:, None] + noise), 0.0))

    def take(self, rows: NDArray[np.generic]) -> Population:
        return Population(self.x[rows], self.y[rows])


def fit_member(seen: Population, persons: Population) -> Marginals:
    """Lognormal marginals of `persons`, fitted on the persons `seen`."""
    n = len(persons.x)
    p_zero = norm.cdf(-1.3 + 0.6 * persons.x[:, :1]) * np.ones((1, HORIZONS))
    known = seen.y[:, 0] > 0
    gram = seen.x[known].T @ seen.x[known] + 0.1 * np.eye(FEATURES)
    slope = np.linalg.solve(gram, seen.x[known].T @ (np.log(seen.y[known, 0]) - LEVEL))
    z = (GRID - LEVEL - (persons.x @ slope)[:, None, None]) / 0.6
    cdf = p_zero[..., None] + (1 - p_zero[..., None]) * norm.cdf(z) * np.ones((1, HORIZONS, 1))
    cdf[..., 0], cdf[..., -1] = p_zero, 1.0
    years = 2000 + np.arange(n) % 2
    names = np.char.add("p", np.arange(n).astype(str))
    return Marginals(names, years - 40, years, np.broadcast_to(GRID, cdf.shape), cdf, p_zero)


def ensemble(seen: Population, folds: Ints, persons: Population) -> Marginals:
    """The average of the members; member k has not seen fold k of `seen`."""
    members = tuple(fit_member(seen.take(folds != k), persons) for k in range(FOLDS))
    cdf, p_zero = (
        np.mean([getattr(member, name) for member in members], axis=0) for name in ("cdf", "p_zero")
    )
    first = members[0]
    return Marginals(
        first.person_id,
        first.birth_year,
        first.origin_year,
        first.grid,
        cdf,
        p_zero,
        members=members,
    )


def draw_folds(rng: np.random.Generator, n: int) -> Ints:
    return rng.integers(0, FOLDS, n)


def calibrate(rng: np.random.Generator, n: int) -> tuple[Calibrator, Population, Ints]:
    """A calibrator on n persons, their records and their folds."""
    persons, folds = Population.draw(rng, n), draw_folds(rng, n)
    marginals = ensemble(persons, folds, persons)
    return fit_cross_fitted(marginals, persons.y, folds, COVERAGE), persons, folds


def simulate_coverage(n: int, repeats: int) -> dict[str, Floats]:
    """Share of new persons covered (repeat, coverage), by kind of set; NaN without sets."""
    shares: dict[str, list[Floats]] = {}
    for repeat in range(repeats):
        rng = np.random.default_rng([1, n, repeat])
        calibrator, persons, folds = calibrate(rng, n)
        new = Population.draw(rng, NEW)
        forecast = calibrator.recalibrate(ensemble(persons, folds, new))
        for family in (YEAR, AT_LEAST, AT_MOST, POSITIVE, calibrator.band):
            years = HORIZONS if family is calibrator.band else 1
            horizons = np.full((NEW, years), years)
            sets = calibrator.sets(family, forecast.first(years), COVERAGE, horizons)
            inside = sets.covered(new.y[:, :years]).min(axis=1)
            known = ~np.isnan(inside) & ((new.y[:, :1] > 0) | (family is not POSITIVE))
            n_known = known.sum(axis=0)
            share = np.where(known, inside, 0.0).sum(axis=0) / np.maximum(n_known, 1)
            shares.setdefault(family.kind, []).append(np.where(n_known > 0, share, np.nan))
    return {kind: np.array(values) for kind, values in shares.items()}


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "repeats"), [(150, 8), (450, 5)])
def test_new_persons_are_covered_at_least_as_stated(n: int, repeats: int) -> None:
    for kind, shares in simulate_coverage(n, repeats).items():
        known = np.asarray(~np.isnan(shares).any(axis=0))
        assert known[:2].all(), kind
        # Persons of a repeat share a calibration, so repeats are the sampling unit; the error of
        # the new persons alone is a floor for the estimate from few repeats.
        share = np.array(COVERAGE)
        error = np.maximum(
            shares.std(axis=0, ddof=1) / np.sqrt(repeats),
            np.sqrt(share * (1 - share) / (NEW * repeats)),
        )
        assert (shares.mean(axis=0) >= share - 4 * error)[known].all(), (kind, shares.mean(axis=0))
        assert n == 150 or kind != "set" or known.all()  # 90 % sets exist


def test_the_ends_are_where_the_p_value_crosses() -> None:
    """With one coverage, so that no set of lower coverage widens the set."""
    rng = np.random.default_rng(5)
    persons, folds = Population.draw(rng, 300), draw_folds(rng, 300)
    marginals = ensemble(persons, folds, persons)
    calibrator = fit_cross_fitted(marginals, persons.y, folds, (0.9,))
    forecast = calibrator.recalibrate(marginals)
    sets = calibrator.intervals(forecast, (0.9,))
    assert isinstance(calibrator.thresholds, CrossFittedCounts)
    counts, _ = calibrator.thresholds.counts_at(YEAR, 1, 0.9)
    assert counts is not None
    for end in (sets.upper[:, 0], np.where(sets.lower[:, 0] > 1, sets.lower[:, 0], np.nan)):
        amounts = np.tile(end, (1, HORIZONS))
        scores = np.stack([YEAR.scores(m, amounts, 0.9)[:, 0] for m in forecast.members])
        p = counts.p_values(scores)
        assert np.nanmax(np.abs(p - 0.1)) < 2e-3


def test_counts_are_conservative_averages_over_ten_persons() -> None:
    rng = np.random.default_rng(2)
    scores = [np.append(rng.random(n), [0.0, 1.0, 1.0]) for n in (60, 95, 41, 70, 83)]
    fitted = smooth_counts(scores)
    pooled = np.concatenate(scores)
    at = np.linspace(1e-6, 1.0, 4_001)
    exact = (1 + (pooled[:, None] >= at).sum(axis=0)) / (len(pooled) + 1)
    p = fitted.p_values(np.tile(at, (5, 1)))
    assert (p >= exact - 1e-12).all()
    assert (p - exact).mean() < 0.03
    for of_fold, knots in zip(scores, fitted.knots, strict=True):
        inner = knots[(knots > 0) & (knots < 1)]
        assert len(inner) <= len(of_fold) / 10
        assert np.abs(inner[:, None] - of_fold).min() > 0
    assert not smooth_counts([s[:8] for s in scores]).has_sets(0.5)
