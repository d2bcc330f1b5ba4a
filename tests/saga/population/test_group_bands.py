"""Statistics of groups equal textbook formulas; their bands contain 90 % of outcomes.

In a world of known variances the parts of a band are the truth. Earnings are 100 + person + economy
+ own future, all normal. The outcome of these persons is their mean in one more future; that of the
population has neither persons nor own futures in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga.arrays import Bools, Floats
from saga.group_statistics import GROUP_STATISTICS
from saga.population.cell_statistics import (
    QUANTILES,
    RANDOM_GROUPS,
    PathStatistic,
    PersonPaths,
    earnings_classes,
)
from saga.population.group_bands import (
    GroupBand,
    band,
    central_range,
    chance_below_zero,
    error_of_persons,
)


def _statistics(
    earnings: Floats, weights: Floats | None = None, inside: Bools | None = None
) -> dict[str, PathStatistic]:
    """Statistics of the persons `inside`, of persons in random groups."""
    n = len(earnings)
    inside = np.ones(n, dtype=np.bool_) if inside is None else inside
    weights, groups = np.ones(n) if weights is None else weights, np.arange(n) % RANDOM_GROUPS
    everybody = PersonPaths(earnings, weights, groups)
    cell = PersonPaths(earnings[inside], weights[inside], groups[inside])
    return cell.statistics(everybody.quantile(0.5), groups)


def test_weights_count_as_so_many_persons_and_formulas_are_those_of_textbooks() -> None:
    rng = np.random.default_rng(1)
    earnings = np.where(rng.random((40, 3)) < 0.2, 0, rng.lognormal(10, 1, (40, 3)))
    weights = rng.integers(1, 4, 40)
    expanded = np.repeat(earnings, weights, axis=0)
    values = {name: s.values for name, s in _statistics(earnings, weights.astype(float)).items()}
    assert values.keys() == GROUP_STATISTICS.keys()
    of_amounts = PersonPaths(earnings, weights.astype(float), np.arange(40))
    further = of_amounts.statistics(None, np.arange(40))
    assert further.keys() == {"persons", "total", "mean"}  # of amounts beside the earnings
    assert all((further[name].values == values[name]).all() for name in further)
    n = len(expanded)
    assert values["persons"] == pytest.approx([n] * 3)
    assert values["total"] == pytest.approx(expanded.sum(0))
    assert values["mean"] == pytest.approx(expanded.mean(0))
    assert values["zero_share"] == pytest.approx((expanded == 0).mean(0))
    medians = np.quantile(expanded, 0.5, axis=0, method="inverted_cdf")
    assert values["p50"] == pytest.approx(medians)
    assert values["poverty_share"] == pytest.approx((expanded < 0.6 * medians).mean(0))
    differences = np.abs(expanded[:, None] - expanded[None]).sum((0, 1))
    assert values["gini"] == pytest.approx(differences / (2 * n**2 * expanded.mean(0)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_groups_add_up_to_the_whole_on_every_path(seed: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    earnings = rng.lognormal(10, 1, (30, 4)) * (rng.random((30, 4)) < 0.8)
    weights, groups = rng.random(30) + 0.1, np.arange(30) % n_groups
    whole = _statistics(earnings, weights)
    parts = [_statistics(earnings, weights, groups == group) for group in range(n_groups)]
    for name in ("persons", "total"):
        assert sum(part[name].values for part in parts) == pytest.approx(whole[name].values)
        # The influences too, so that an error of the whole is that of its groups together.
        together = sum(part[name].influence for part in parts)
        assert together == pytest.approx(whole[name].influence, abs=1e-6 * whole[name].values.max())


def test_the_variance_of_influences_is_that_over_samples_of_persons() -> None:
    """Of all statistics of a group, and of the ratio and the gap of two groups."""
    n, repetitions = 1000, 200
    rng = np.random.default_rng(3)
    values, variances = [], []
    for _ in range(repetitions):
        earnings = rng.lognormal(10, 0.6, (n, 1)) * (rng.random((n, 1)) < 0.95)
        is_first = rng.random(n) < 0.5
        one, other = (_statistics(earnings, None, part) for part in (is_first, ~is_first))
        found = {name: s for name, s in one.items() if name != "persons"}
        found |= {"ratio": one["mean"].ratio(other["mean"])}
        found |= {"gap": one["p50"].difference(other["p50"])}
        values.append([float(s.values[0]) for s in found.values()])
        variances.append([float((s.influence**2).sum()) for s in found.values()])
    stated = np.sqrt(np.mean(variances, axis=0))
    true = np.std(values, axis=0, ddof=1)
    # The spread of 200 values has the relative error 1 / sqrt(400); a tenth is for densities.
    ratio = dict(zip(found, stated / true, strict=True))
    assert ratio == pytest.approx(dict.fromkeys(found, 1), abs=4 / np.sqrt(400) + 0.1), ratio


def test_classes_are_zero_and_fifths_of_the_positive() -> None:
    earnings = np.array([0.0, 5, 4, 3, 2, 1, np.nan])[:, None]
    equal = np.full(7, 0.1)
    assert earnings_classes(earnings, equal)[:, 0].tolist() == [0, 5, 4, 3, 2, 1, -1]
    weights = np.array([9.0, 2, 1, 1, 2, 4, 9])  # the lowest stands for two fifths
    assert earnings_classes(earnings, weights)[:, 0].tolist() == [0, 5, 4, 4, 3, 1, -1]


PERSONS, PATHS, WORLDS = 200, 99, 300
OF_PERSON, OF_ECONOMY, OF_OWN = 4.0, 1.0, 6.0
LARGE = 1e6  # persons of the population for each one


def _world(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Paths (n_person, n_path + 1), the last one is the outcome; and the economy of each path."""
    economy = OF_ECONOMY * rng.standard_normal(PATHS + 1)
    persons = OF_PERSON * rng.standard_normal((PERSONS, 1))
    own = OF_OWN * rng.standard_normal((PERSONS, PATHS + 1))
    return 100 + persons + economy + own, economy


def _band_of_mean(paths: Floats, population: float | None) -> GroupBand:
    n = len(paths)
    groups = np.arange(n) % RANDOM_GROUPS
    cell = PersonPaths(paths, np.full(n, population or 1.0), groups)
    statistic = cell.statistics(cell.quantile(0.5), groups)["mean"]
    return band(statistic, sampled=population is not None)


def _covered(population: float | None) -> tuple[float, list[GroupBand]]:
    """The share of worlds whose outcome lies in the band, and the bands."""
    rng = np.random.default_rng(5)
    bands, inside = [], []
    for _ in range(WORLDS):
        paths, economy = _world(rng)
        found = _band_of_mean(paths[:, :-1], population)
        outcome = paths[:, -1].mean() if population is None else 100 + economy[-1]
        assert found.lower_90 is not None
        assert found.upper_90 is not None
        bands.append(found)
        inside.append(found.lower_90 <= outcome <= found.upper_90)
    return float(np.mean(inside)), bands


_ERROR = 3.5 * (0.9 * 0.1 / WORLDS) ** 0.5  # of a coverage


@pytest.mark.parametrize("population", [None, LARGE])
def test_bands_contain_90_percent_of_outcomes_and_parts_are_the_truth(
    population: float | None,
) -> None:
    coverage, bands = _covered(population)
    assert coverage == pytest.approx(0.9, abs=_ERROR)
    parts = [[b.sd_persons, b.sd_paths, b.sd_economy] for b in bands]
    variances = (np.array(parts, dtype=float) ** 2).mean(0)
    truth = [
        0.0 if population is None else OF_PERSON**2 / PERSONS,
        OF_OWN**2 / PERSONS / (1.0 if population is None else population),
        OF_ECONOMY**2,
    ]
    # A variance from 98 or 99 degrees of freedom has the relative error sqrt(2 / 98) in one world.
    # That of the economy is what is left of a larger one.
    rises = [1, 1, 1 + OF_OWN**2 / PERSONS / OF_ECONOMY**2]
    for found, true, rise in zip(variances, truth, rises, strict=True):
        assert found == pytest.approx(true, rel=4 * rise * np.sqrt(2 / 98 / WORLDS) + 0.01)
    assert {b.sd_model for b in bands} == {None}


def test_what_persons_differ_in_is_the_same_with_few_paths() -> None:
    rng = np.random.default_rng(6)
    few = [_band_of_mean(_world(rng)[0][:, :9], LARGE).sd_persons for _ in range(WORLDS)]
    found, true = float(np.mean(np.array(few, dtype=float) ** 2)), OF_PERSON**2 / PERSONS
    assert found == pytest.approx(true, rel=5 * np.sqrt(2 / 98 / WORLDS) + 0.01)


def test_the_range_and_the_variance_are_unbiased_for_small_numbers() -> None:
    """One more value has 20 places among 19, of which 18 are inside; of two groups n - 1 is 1."""
    assert central_range(np.arange(1.0, 20)) == (1.0, 19.0)
    assert error_of_persons(PathStatistic(np.zeros(1), np.array([[1.0], [-1.0]]))) == 2


def test_the_chance_of_an_event_is_that_of_the_known_normal() -> None:
    """The mean is 100 with the standard deviation 1; 99 is the quantile of .159."""
    rng = np.random.default_rng(9)
    paths = 100 + OF_ECONOMY * rng.standard_normal(4000) + np.zeros((20, 1))
    cell = PersonPaths(paths, np.ones(20), np.arange(20))
    mean = cell.statistics(cell.quantile(0.5), np.arange(20))["mean"]
    error = 4 * (0.159 * 0.841 / 4000) ** 0.5
    assert chance_below_zero(mean.difference(99.0)) == pytest.approx(0.159, abs=error)
    assert chance_below_zero(mean.difference(mean)) == 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(2, 15),
    weight=st.sampled_from([None, 1.0, 300.0]),
    error=st.sampled_from([None, 0.0, 0.4]),
)
def test_a_quantile_of_few_persons_lies_in_its_band_and_means_still_add_up(
    seed: int, n: int, weight: float | None, error: float | None
) -> None:
    """Most paths have few earnings and some have very many, so quantiles are skewed over paths."""
    rng = np.random.default_rng(seed)
    earnings = rng.lognormal(3, 4, (n, PATHS)) * (rng.random((n, PATHS)) < 0.4)
    statistics = _statistics(earnings, np.full(n, weight or 1.0))
    quantiles = {name: s for name, s in statistics.items() if s.is_quantile}
    assert quantiles.keys() >= QUANTILES.keys()
    median, other = quantiles["p50"], quantiles["p25"]
    quantiles |= {"gap": median.difference(other), "event": other.difference(5.0)}
    quantiles |= {"ratio": quantiles["p90"].ratio(replace(median, values=median.values + 1))}
    for name, statistic in quantiles.items():
        model = None if error is None else error * abs(statistic.point)
        found = band(statistic, model, sampled=weight is not None)
        assert found.lower_90 is not None
        assert found.upper_90 is not None
        assert found.lower_90 <= found.value <= found.upper_90, name
        assert found.value == np.median(statistic.values), name
    one, two = (_statistics(earnings, None, part) for part in np.arange(n) % 2 == [[0], [1]])
    together = band(one["total"]).value + band(two["total"]).value
    assert together == pytest.approx(band(_statistics(earnings)["total"]).value)


def test_the_error_of_a_median_because_paths_are_few_is_its_spread_over_repetitions() -> None:
    """Of a normal distribution it is sqrt(pi / 2) times that of the mean."""
    rng = np.random.default_rng(12)
    nobody = np.zeros((2, 400))
    quantiles = (
        PathStatistic(rng.standard_normal(400), nobody, is_quantile=True) for _ in range(200)
    )
    stated = [band(each).mc_error or np.nan for each in quantiles]
    assert np.mean(stated) == pytest.approx((np.pi / 2 / 400) ** 0.5, rel=0.05)


@pytest.mark.parametrize("kind", ["alike", "uneven"])
def test_the_band_of_a_number_that_is_the_same_on_all_paths_is_that_of_a_normal(kind: str) -> None:
    """Rounding errors of sums of weights are no spread over paths."""
    rng, n = np.random.default_rng(3), 3_000
    weights = np.full(n, 100 / 3) if kind == "alike" else 50 * rng.exponential(size=n) + 5
    inside = rng.random(n) < 0.5
    two = [
        _statistics(rng.lognormal(10, 1, (n, 200)), weights, inside)["persons"] for _ in range(2)
    ]
    found = band(two[0], sampled=True)
    assert found.sd_persons
    reach = 1.645 * found.sd_persons
    assert found.lower_90 == pytest.approx(found.value - reach, abs=0.05 * reach)
    assert found.upper_90 == pytest.approx(found.value + reach, abs=0.05 * reach)
    for change in (two[0].difference(two[1]), two[1].difference(two[0])):
        assert chance_below_zero(change, sampled=True) == 0, "they are as many as before"


def test_one_path_has_a_value_and_no_band() -> None:
    found = _band_of_mean(np.arange(20.0)[:, None], None)
    assert found.value == pytest.approx(9.5)
    assert found[1:] == (None,) * 7
