"""Groups known at the origin are covered alike; without group effects and cells the checks fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from saga.calibration.fit.group_shifts import design, fit_shifts, group_quantile
from saga.calibration.fit.split_conformal import fit_calibration, in_map_fold
from scipy import stats
from sklearn.linear_model import QuantileRegressor

from saga.arrays import Floats
from saga.conformal.calibrator import Calibrator
from saga.data import groups as known_groups
from saga.data.groups import Labels
from saga.distributions import Marginals
from saga.requests import COVERAGE
from tests.calibration.worlds import P, is_plausible, lognormal_marginals


def overlapping(n: int, seed: int) -> tuple[Floats, dict[str, NDArray[np.str_]]]:
    """Scores in [0, 1] whose distribution differs by two overlapping groupings, and the labels."""
    rng = np.random.default_rng(seed)
    labels = {
        "sex": rng.choice(["female", "male"], n),
        "region": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]),
    }
    labels["region"][labels["sex"] == "male"] = rng.choice(
        ["a", "c"], (labels["sex"] == "male").sum()
    )
    power = 1 + 0.8 * (labels["sex"] == "female") + 1.5 * (labels["region"] == "c")
    return rng.random(n) ** (1 / power), labels


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_effects_equal_linear_programming(coverage: float) -> None:
    scores, labels = overlapping(400, 0)
    _, indicators = design(labels, min_persons=1)
    features = np.delete(
        indicators, [0, 2], axis=1
    )  # one indicator of each grouping is what the others leave
    oracle = QuantileRegressor(quantile=coverage, alpha=0, solver="highs").fit(features, scores)
    intercept, effects = group_quantile(scores, features, coverage, bandwidth=1e-4, shrinkage=1e-6)
    # A minimum need not be unique: its value is.
    loss, exact_loss = (
        np.maximum(coverage * u, (coverage - 1) * u).sum()
        for u in (scores - intercept - features @ effects, scores - oracle.predict(features))
    )
    assert loss == pytest.approx(exact_loss, abs=1e-3)
    assert np.abs(intercept + features @ effects - oracle.predict(features)).max() < 0.02


def test_the_smoothed_equations_hold_exactly_with_shrinkage() -> None:
    scores, labels = overlapping(3_000, 2)
    _, indicators = design(labels)
    intercept, effects = group_quantile(scores, indicators, 0.9, bandwidth=0.02, shrinkage=100.0)
    missing = (
        indicators.T @ (stats.norm.cdf((intercept + indicators @ effects - scores) / 0.02) - 0.9)
        + 100.0 * effects
    )
    assert np.abs(missing).max() < 1e-3


def test_effects_average_to_zero_small_groups_have_none_and_order_does_not_matter() -> None:
    scores, labels = overlapping(2_000, 3)
    labels["region"] = np.where(np.arange(2_000) < 50, "tiny", labels["region"])
    effects = fit_shifts(scores, labels, 0.9)
    assert "region=tiny" not in effects
    for name, values in labels.items():
        average = sum(
            effect * (values == group.split("=")[1]).mean()
            for group, effect in effects.items()
            if group.startswith(name)
        )
        assert average == pytest.approx(0, abs=1e-12)
    order = np.random.default_rng(0).permutation(2_000)
    again = fit_shifts(scores[order], {name: values[order] for name, values in labels.items()}, 0.9)
    assert again == pytest.approx(effects, abs=1e-6)
    assert fit_shifts(scores, {"sex": np.full(2_000, "female")}, 0.9) == {}


def share_below(scores: Floats, labels: Labels, effects: Mapping[str, float]) -> Floats:
    """Share of scores below the 90 % threshold, by quintile and sex."""
    groups = known_groups.pair_groupings(labels)
    total = sum(
        np.array([effects.get(f"{name}={label}", 0.0) for label in values])
        for name, values in groups.items()
    )
    below = scores <= np.quantile(scores - total, 0.9) + total
    pair = groups["quintile*sex"]
    return np.array([below[pair == label].mean() for label in np.unique(pair)])


def test_pairs_of_groups_that_differ_from_the_sum_of_both_are_covered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores are low for men in the lowest quintile alone: effects of single groups are wrong."""
    rng = np.random.default_rng(6)
    n = 40_000
    labels = {
        "quintile": rng.integers(1, 6, n).astype(str),
        "sex": rng.choice(["female", "male"], n),
    }
    both = (labels["quintile"] == "1") & (labels["sex"] == "male")
    scores = rng.random(n) ** np.where(both, 3.0, 1.0)
    bound = (
        3 * np.sqrt(0.9 * 0.1 / (n / 10)) + 0.005
    )  # sampling error of a tenth of all, and the smoothing of the loss
    assert np.abs(share_below(scores, labels, fit_shifts(scores, labels, 0.9)) - 0.9).max() < bound
    monkeypatch.setattr("saga.calibration.fit.group_shifts.pair_groupings", lambda labels: labels)
    assert (
        np.abs(share_below(scores, labels, fit_shifts(scores, labels, 0.9)) - 0.9).max() > 2 * bound
    )


def draw_groups(n: int, seed: int) -> tuple[Marginals, Floats]:
    """Forecasts too narrow for the lowest quintile and for women, too wide for the highest."""
    rng = np.random.default_rng(seed)
    quintile, female = rng.integers(1, 6, n), rng.random(n) < 0.5
    zero, centre, sd = 0.25 - 0.04 * quintile, rng.normal(12.3, 0.3, n), 0.5
    spread = np.where(female, 0.7, 0.4)
    outcomes = np.where(rng.random(n) < zero, 0, np.exp(centre + spread * rng.normal(size=n)))[
        :, None
    ]
    squeeze = 0.45 + 0.2 * quintile
    groups = {
        "quintile": quintile.astype(str),
        "sex": np.where(female, "female", "male"),
        "profile": np.full(n, "register"),
    }
    marginals = lognormal_marginals(
        zero[:, None], centre[:, None], (squeeze * sd)[:, None], str(seed)
    )
    return replace(marginals, groups=groups), outcomes


@pytest.fixture(scope="module")
def grouped() -> Calibrator:
    marginals, outcomes = draw_groups(13_000, 11)
    return fit_calibration(marginals, outcomes, seed=0)


@pytest.fixture(scope="module")
def fresh() -> tuple[Marginals, Floats]:
    return draw_groups(25_000, 12)


def worst(calibrator: Calibrator, marginals: Marginals, outcomes: Floats, name: str) -> float:
    """Largest deviation of coverage in a group, in standard errors of test and calibration."""
    hits = calibrator.intervals(calibrator.recalibrate(marginals), COVERAGE).covered(outcomes)[:, 0]
    size = calibrator.cells[1, "all"].n_threshold
    largest = 0.0
    for label in np.unique(marginals.groups[name]):
        members = marginals.groups[name] == label
        for j, coverage in enumerate(COVERAGE):
            variance = coverage * (1 - coverage)
            error = (variance * (1 / members.sum() + 2 / (size * members.mean()))) ** 0.5
            largest = max(largest, abs(float(hits[members, j].mean()) - coverage) / error)
    return largest


def test_cells_of_quintiles_follow_the_law_of_coverage(
    grouped: Calibrator, fresh: tuple[Marginals, Floats]
) -> None:
    marginals, outcomes = fresh
    mapped = grouped.recalibrate(marginals)
    intervals = grouped.intervals(mapped, COVERAGE)
    assert set(intervals.cell.ravel()) == {f"quintile={q}" for q in range(1, 6)}
    hits = intervals.covered(outcomes)[:, 0]
    for label in "12345":
        members, n = (
            marginals.groups["quintile"] == label,
            grouped.cells[1, f"quintile={label}"].n_threshold,
        )
        for j, coverage in enumerate(COVERAGE):
            n_hits = int(hits[members, j].sum())
            assert is_plausible(n_hits, int(members.sum()), n, coverage, P / 40)


def test_overlapping_groups_are_covered_and_without_their_effects_are_not(
    grouped: Calibrator, fresh: tuple[Marginals, Floats]
) -> None:
    marginals, outcomes = fresh
    assert worst(grouped, marginals, outcomes, "sex") < 5
    pooled = replace(
        grouped,
        shifts={},
        cells={key: cell for key, cell in grouped.cells.items() if key[1] == "all"},
    )
    assert worst(pooled, marginals, outcomes, "sex") > 6
    assert worst(pooled, marginals, outcomes, "quintile") > 6


def draw_unforeseen_zeros(n: int, seed: int) -> tuple[Marginals, Floats]:
    """Women often earn nothing, which no forecast knows: their sets would need all amounts."""
    rng = np.random.default_rng(seed)
    female, centre = rng.random(n) < 0.1, rng.normal(12.3, 0.3, n)
    outcomes = np.where(
        female & (rng.random(n) < 0.3), 0, np.exp(centre + 0.5 * rng.normal(size=n))
    )
    zero, sd = np.full((n, 1), 0.01), np.full((n, 1), 0.5)
    marginals = lognormal_marginals(zero, centre[:, None], sd, str(seed))
    groups = {"sex": np.where(female, "female", "male")}
    return replace(marginals, groups=groups), outcomes[:, None]


@pytest.mark.parametrize("world", [draw_groups, draw_unforeseen_zeros])
def test_the_stated_share_of_the_threshold_fold_is_inside_whatever_the_shifts_are(
    world: Callable[[int, int], tuple[Marginals, Floats]],
) -> None:
    """Exactly so, because thresholds are order statistics of what the published sets contain."""
    marginals, outcomes = world(6_000, 5)
    calibrator = fit_calibration(marginals, outcomes, seed=0)
    fold = ~in_map_fold(marginals.person_id, 0)
    sets = calibrator.intervals(calibrator.recalibrate(marginals.take(fold)), COVERAGE)
    assert (sets.covered(outcomes[fold])[:, 0].mean(axis=0) >= COVERAGE).all()


def test_group_shifts_apply_to_each_person_and_unknown_groups_use_the_cell_of_all(
    grouped: Calibrator, fresh: tuple[Marginals, Floats]
) -> None:
    marginals, _ = fresh
    few = marginals.take(slice(0, 40))
    whole = grouped.intervals(grouped.recalibrate(few), COVERAGE)
    for row in (0, 7, 39):
        alone = few.take(np.array([row]))
        single = grouped.intervals(grouped.recalibrate(alone), COVERAGE)
        assert np.array_equal(single.upper[0], whole.upper[row])
    lost = replace(few, groups={name: np.full(40, "unknown") for name in few.groups})
    nobody = replace(few, groups={})
    for somebody in (lost, nobody):
        sets = grouped.intervals(grouped.recalibrate(somebody), COVERAGE)
        assert set(sets.cell.ravel()) == {"all"}
        assert (sets.guarantee == "assumption").all()
    upper, expected = (
        grouped.intervals(grouped.recalibrate(p), COVERAGE).upper for p in (lost, nobody)
    )
    assert np.array_equal(upper, expected)


def test_several_rows_of_a_person_count_as_one_person() -> None:
    """Ten equal rows of everybody change no effect, and a group is as small as its persons."""
    scores, labels = overlapping(2_000, 3)
    labels["region"] = np.where(np.arange(2_000) < 50, "tiny", labels["region"])
    once = fit_shifts(scores, labels, 0.9)
    persons = np.repeat(np.arange(2_000), 10)
    tenfold = {name: np.repeat(values, 10) for name, values in labels.items()}
    assert fit_shifts(np.repeat(scores, 10), tenfold, 0.9, persons) == pytest.approx(once, abs=1e-6)
    # Counted as persons, the rows would shrink less and make a group of fifty persons.
    as_persons = fit_shifts(np.repeat(scores, 10), tenfold, 0.9)
    assert "region=tiny" in as_persons
    assert as_persons != pytest.approx(once, abs=1e-3)
