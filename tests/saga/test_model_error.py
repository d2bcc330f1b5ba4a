"""The model's own error is found in worlds where it is known, and bands need it to cover.

Errors of vintages are drawn: a factor that all groups of a vintage share, the economy, and persons.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import polars as pl
import pytest

from saga.model_error import EVERYBODY, GROUPS, ModelError, separate
from saga.population.cell_statistics import PathStatistic
from saga.population.group_bands import band, chance_below_zero

ECONOMY, PERSONS, FACTOR = 0.03, 0.02, 0.08


def _vintages(
    rng: np.random.Generator, n: int, factor: float, horizons: tuple[int, ...] = (1,)
) -> pl.DataFrame:
    """Errors of n vintages whose error grows by independent steps of variance factor^2 a year."""
    rows = []
    for cutoff in range(n):
        for h in horizons:
            common = (factor * rng.standard_normal() + ECONOMY * rng.standard_normal()) * h**0.5
            for group in ("total", "a", "b", "c"):
                error = common + PERSONS * rng.standard_normal()
                grouping = "total" if group == "total" else "letter"
                rows.append((30 * cutoff, h, grouping, group, "mean", 500, error, PERSONS))
    names = ("cutoff", "horizon", "grouping", "group", "statistic", "persons", "error", "se")
    frame = pl.DataFrame(rows, names, orient="row")
    return frame.with_columns(sd_economy=ECONOMY * pl.col("horizon").sqrt())


@pytest.mark.parametrize("factor", [0.0, FACTOR])
def test_the_error_of_the_model_is_what_is_beyond_persons_and_the_economy(factor: float) -> None:
    n, h = 400, (1, 4)
    model = ModelError.fit(_vintages(np.random.default_rng(1), n, factor, h))
    for of in (EVERYBODY, GROUPS):
        for horizon in h:
            found = model.sd("mean", of, {horizon: 1.0}, 1.0)
            assert found is not None
            # A mean of n squares of a normal variable with the variance v has the error v sqrt(2/n)
            error = 4 * (2 / n) ** 0.5 * (horizon * (factor**2 + ECONOMY**2) + PERSONS**2)
            assert found**2 == pytest.approx(horizon * factor**2, abs=error)


def test_vintages_of_drawn_histories_never_overlap_and_their_futures_are_one_vintage() -> None:
    errors = _vintages(np.random.default_rng(3), 40, FACTOR, (1, 20))
    histories = errors.with_columns(history=pl.col("cutoff") // 30, cutoff=pl.lit(2022))
    model = ModelError.fit(histories)
    assert model.separate == {"1": 40, "20": 40}
    assert "of 40 drawn histories" in model.describe()
    for other in (ModelError.fit(errors), ModelError.fit(pl.concat([histories, histories]))):
        assert other.separate == model.separate
        for at in (1, 20):
            sd = [each.sd("mean", GROUPS, {at: 1.0}, 1.0) for each in (model, other)]
            assert sd[0] == pytest.approx(sd[1])


def test_bands_cover_with_the_error_of_the_model_and_miss_without_it() -> None:
    """Eight vintages and one more outcome, in 400 worlds."""
    rng, worlds, inside, inside_without = np.random.default_rng(2), 400, 0, 0
    for _ in range(worlds):
        model = ModelError.fit(_vintages(rng, 8, FACTOR))
        values = 1 + ECONOMY * rng.standard_normal(99)
        statistic = PathStatistic(values, np.zeros((100, 99)))
        outcome = 1 + ECONOMY * rng.standard_normal() + FACTOR * rng.standard_normal()
        for sd in (model.sd("mean", EVERYBODY, {1: 1.0}, 1.0), None):
            found = band(statistic, model=sd)
            assert found.lower_90 is not None
            assert found.upper_90 is not None
            covered = found.lower_90 <= outcome <= found.upper_90
            inside += covered and sd is not None
            inside_without += covered and sd is None
    error = 4 * (0.9 * 0.1 / worlds) ** 0.5
    assert inside / worlds == pytest.approx(0.9, abs=error)
    assert inside_without / worlds < 0.9 - 4 * error


def test_few_vintages_give_a_larger_deviation_than_many() -> None:
    """On average over worlds: Student's t is wider with fewer degrees of freedom."""
    rng = np.random.default_rng(3)
    few, many = (
        sum(
            ModelError.fit(_vintages(rng, n, FACTOR)).sd("mean", EVERYBODY, {1: 1.0}, 1.0) or 0.0
            for _ in range(40)
        )
        for n in (3, 30)
    )
    assert few > 1.1 * many


def test_totals_and_means_move_together_and_ratios_by_themselves() -> None:
    model = ModelError.fit(_vintages(np.random.default_rng(4), 9, FACTOR, (1, 4)))
    mean, total = (
        model.sd("mean", GROUPS, {3: 1.0}, 2.0),
        model.sd("total", GROUPS, {3: 1.0}, 600.0),
    )
    assert mean is not None
    assert total == pytest.approx(300 * mean)
    assert model.sd("persons", GROUPS, {3: 1.0}, 300.0) == 0
    assert model.sd("mean_ratio", GROUPS, {3: 1.0}, 1.0) is None  # no vintage had one
    # Beyond the last horizon the variance grows as from the origin to it.
    four, eight = (model.sd("mean", GROUPS, {h: 1.0}, 1.0) for h in (4, 8))
    assert eight == pytest.approx(2**0.5 * (four or 0))


def test_the_error_of_a_sum_is_that_of_independent_steps() -> None:
    """Errors of 40 years are drawn as random walks with the variances of single years."""
    model = ModelError.fit(_vintages(np.random.default_rng(7), 12, FACTOR, (1, 5, 20)))
    years = np.arange(1, 41)
    deviations = np.array([model.sd("mean", GROUPS, {int(h): 1.0}, 1.0) for h in years])
    steps = np.sqrt(np.diff(deviations**2, prepend=0.0))
    errors = np.cumsum(steps * np.random.default_rng(8).standard_normal((20_000, 40)), axis=1)
    # As many work in all years; half of them leave after ten; one year; nothing before the origin.
    for amounts in (years * 0 + 1.0, np.where(years <= 10, 1.0, 0.5), np.eye(40)[7]):
        sums = errors @ amounts / amounts.sum()
        added = dict(zip(years.tolist(), amounts.tolist(), strict=True))
        found = model.sd("lifetime_mean", GROUPS, added, 1.0)
        assert found == pytest.approx(sums.std(), rel=4 * (0.5 / len(sums)) ** 0.5)
        half = model.sd("lifetime_mean", GROUPS, {0: amounts.sum(), **added}, 1.0)
        assert half == pytest.approx((found or 0) / 2)


def test_a_gap_is_below_zero_as_often_as_its_ratio_is_below_one() -> None:
    """Bands of both, of years and of lifetimes: they tell one thing."""
    rng = np.random.default_rng(6)
    vintages = _vintages(rng, 12, 0.02, (1, 5, 20)).filter(pl.col("grouping") == "letter")
    model = ModelError.fit(vintages.with_columns(statistic=pl.lit("mean_ratio")))
    nobody = np.zeros((100, 4_000))
    women, men = (
        PathStatistic(level * np.exp(rng.normal(0, 0.02, 4_000)), nobody) for level in (9e6, 1e7)
    )
    for prefix, years in (("", {5: 1.0}), ("lifetime_", dict.fromkeys(range(1, 45), 1.0))):
        ratio, gap = men.ratio(women), men.difference(women)
        below_one, below_zero = (
            chance_below_zero(side, model.sd(f"{prefix}mean_{name}", GROUPS, years, of.size))
            for name, of, side in (("ratio", ratio, ratio.difference(1.0)), ("gap", gap, gap))
        )
        assert 0.02 < below_one < 0.4
        assert below_zero == pytest.approx(below_one, abs=0.04)


def test_provenance_keeps_the_error_of_the_model() -> None:
    model = ModelError.fit(_vintages(np.random.default_rng(5), 4, FACTOR, (1, 4, 10)))
    kept = ModelError.of(json.loads(json.dumps({"vintages": asdict(model)}, sort_keys=True)))
    assert kept == model
    assert kept is not None
    for h in range(1, 20):  # keys are texts, which sort as 1, 10, 4
        assert kept.sd("mean", GROUPS, {h: 1.0}, 1.0) == model.sd("mean", GROUPS, {h: 1.0}, 1.0)
    assert kept.describe() == model.describe()
    assert ModelError.of({}) is None
    assert model.describe().startswith("4 vintages (0-90)")


def test_vintages_count_as_separate_if_they_do_not_overlap() -> None:
    years = [1990, 1992, 1994, 1996, 1998, 2000]
    assert [separate(years, h) for h in (1, 2, 3, 5, 10, 20)] == [6, 6, 3, 2, 2, 1]
