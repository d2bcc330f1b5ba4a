"""Scale-free units: what a network sees does not depend on currency, dispersion or growth."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals
from saga.features.calendar import Calendar
from saga.features.sequences import POSITIVE, Sequences, encode
from saga.features.transforms import Transforms
from saga.features.units import IDENTITY, Units
from saga.macro.history import sweden
from saga.model import ModelConfig, Saga
from saga.simulation.ensemble import average_marginals
from saga.simulation.marginals import DirectMarginals
from saga.simulation.rollout import Rollout, RolloutOptions
from tests.panels import panel_of

CALENDAR = Calendar(None)
KRONOR, GROWTH = 11.3, 0.05


def make_panel(factor: float = 1.0, growth: float = 0.0, power: float = 1.0) -> Panel:
    """200 persons, 2001-2012; amounts are `factor * y**power` with more growth per year."""
    rng, rows = np.random.default_rng(0), []
    for i in range(200):
        effect, birth_year = rng.normal(0, 0.4), 1956 + i % 28
        for year in range(2001, 2013):
            amount = np.exp(10 + 0.02 * (year - birth_year) + effect + rng.normal(0, 0.3)) ** power
            amount *= factor * np.exp(growth * (year - 2012))
            earnings = 0.0 if rng.random() < 0.1 else float(amount)
            rows.append((f"p{i:03d}", year, birth_year, earnings, 0.3 * float(amount)))
    return panel_of(rows, "spouse_earnings")


def fitted(panel: Panel, like: Transforms | None = None) -> Transforms:
    return Transforms.fit(panel, CALENDAR, 24, scale_free=True, like=like)


@pytest.mark.parametrize(
    ("factor", "growth", "power"), [(KRONOR, 0.0, 1.0), (1.0, GROWTH, 1.0), (1.0, 0.0, 0.5)]
)
def test_inputs_do_not_depend_on_currency_growth_or_dispersion(
    factor: float, growth: float, power: float
) -> None:
    one, other = make_panel(), make_panel(factor, growth, power)
    first, second = (encode(panel, fitted(panel), CALENDAR) for panel in (one, other))
    # The fit shrinks growth towards zero, so growth is removed up to this prior.
    tolerance = 1e-5 if growth == 0 else 0.01
    np.testing.assert_allclose(first.z, second.z, atol=tolerance)
    if power == 1 and growth == 0:
        np.testing.assert_allclose(first.other, second.other, atol=1e-5)


def test_the_default_units_are_logs_relative_to_the_wage_index() -> None:
    panel, calendar = make_panel(), Calendar(sweden())
    transforms = Transforms.fit(panel, calendar, 24)
    sequences = encode(panel, transforms, calendar)
    logs = np.log(np.where(panel.frame["earnings"] > 0, panel.frame["earnings"], 1.0))
    expected = (logs - calendar.wage_index(sequences.year)).astype(np.float32)
    positive = sequences.state == POSITIVE
    np.testing.assert_array_equal(sequences.z[positive], expected[positive])
    assert transforms.units is IDENTITY
    assert "units" not in transforms.as_dict()


def test_the_fit_finds_the_level_and_the_spread() -> None:
    rng, n = np.random.default_rng(1), 60_000
    age, year = rng.integers(20, 60, n), rng.integers(1990, 2010, n)
    level = 9 - 2 * np.exp(-(age - 16) / 8) + 0.015 * (year - 2009) - 0.1 * (year == 1993)
    logs = level + rng.normal(0, 0.5, n)
    logs[rng.random(n) < 0.02] -= 6  # amounts of a few days' work move neither level nor spread
    units = Units.fit(logs, age, year, longest=10)
    error = units.level(age, year) - level
    assert abs(error.mean()) < 0.02
    assert error.std() < 0.02
    assert abs(units.scale - 0.5) < 0.02
    # The trend continues after the last year for as many years as a record lasts, unless the wage
    # index contains growth.
    ahead = units.level(np.full(3, 40), np.array([2009, 2019, 2039]))
    assert abs(ahead[1] - ahead[0] - 0.15) < 0.02
    assert ahead[2] == ahead[1]
    still = Units.fit(logs, age, year, longest=10, continues=False).level(
        np.full(2, 40), np.array([2009, 2019])
    )
    assert still[0] == still[1]
    # Ages that nobody has get the level of the nearest age.
    assert units.level(np.array(64), np.array(2000)) == units.level(np.array(59), np.array(2000))


def test_transforms_like_others_keep_knots_and_numbers_of_codes() -> None:
    people = make_panel().frame
    codes = pl.Series("sex", ["female"] * people.height)
    source = fitted(Panel.of(people.with_columns(codes), PanelMeta("p")))
    mixed = pl.Series("sex", (["female"] * 5 + ["male"] * 7) * (people.height // 12))
    other = fitted(Panel.of(make_panel(KRONOR).frame.with_columns(mixed), PanelMeta("q")), source)
    np.testing.assert_array_equal(other.knots, source.knots)
    assert (other.centre, other.scale) == (source.centre, source.scale)
    assert source.codes["sex"] == ("female",)
    assert other.codes["sex"] == ("female", "male")
    again = Transforms.from_dict(other.as_dict())
    assert again.as_dict() == other.as_dict()


def test_amounts_of_another_panel_get_the_quartiles_of_a_bundle_without_such_units() -> None:
    source = Transforms.fit(make_panel(), CALENDAR, 96)
    positive = make_panel().frame.filter(pl.col("earnings") > 0)["earnings"].log().to_numpy()
    np.testing.assert_allclose(
        source.quartiles, np.quantile(positive, [0.25, 0.5, 0.75]), atol=0.02
    )
    hourly = make_panel(1 / 2_000, power=0.7)
    sequences = encode(hourly, Transforms.fit(hourly, CALENDAR, 96, like=source), CALENDAR)
    z = sequences.z[sequences.state == POSITIVE]
    np.testing.assert_allclose(np.quantile(z, [0.25, 0.5, 0.75]), source.quartiles, atol=0.05)


def forecasts(panel: Panel, like: Transforms) -> tuple[Transforms, Saga, Sequences]:
    """A network with the same random weights for every panel."""
    transforms = fitted(panel, like)
    torch.manual_seed(1)
    network = Saga(ModelConfig(width=16, layers=1, heads=2, bins=24, head_width=16), transforms)
    for weight in network.parameters():
        weight.data.mul_(1.5).add_(torch.randn_like(weight), alpha=0.2)
    return transforms, network.eval(), encode(panel, transforms, CALENDAR)


def marginals(panel: Panel, like: Transforms) -> Marginals:
    transforms, network, sequences = forecasts(panel, like)
    direct = DirectMarginals(network, transforms, CALENDAR, None)
    return direct.marginals(sequences, np.arange(20), {})


def test_forecasts_are_in_the_currency_of_the_panel() -> None:
    """The same weights: laws and paths of amounts that are 11.3 times as large are so too."""
    like = fitted(make_panel())
    one, other = marginals(make_panel(), like), marginals(make_panel(KRONOR), like)
    np.testing.assert_allclose(one.cdf, other.cdf, atol=1e-5)
    np.testing.assert_allclose(other.grid - one.grid, np.log(KRONOR), atol=1e-5)
    paths = []
    for panel in (make_panel(), make_panel(KRONOR)):
        _, network, sequences = forecasts(panel, like)
        rollout = Rollout(network, CALENDAR, None, RolloutOptions(8, 0))
        paths.append(rollout.simulate(sequences, np.arange(5), np.full(5, 4)))
    for first, second in zip(*paths, strict=True):
        np.testing.assert_allclose(second, KRONOR * first, rtol=1e-3)


def test_paths_and_laws_agree_in_relative_units() -> None:
    """The first year of paths has the distribution of the marginal, so both undo the units."""
    panel = make_panel()
    like = fitted(panel)
    _, network, sequences = forecasts(panel, like)
    rollout = Rollout(network, CALENDAR, None, RolloutOptions(4_000, 0))
    law, n = marginals(panel, like), 4_000
    for person, path in enumerate(rollout.simulate(sequences, np.arange(3), np.ones(3, int))):
        below = np.log(np.maximum(path[0], 1e-9))[:, None] <= law.grid[person, 0]
        difference = np.abs(below.mean(0) - law.cdf[person, 0])
        assert difference[1:-1].max() < 4 * 0.5 / np.sqrt(n)


def test_members_with_units_of_their_own_are_averaged_in_amounts() -> None:
    """An ensemble of one network in two units of equal meaning forecasts as the network."""
    like = fitted(make_panel())
    single, other = (marginals(make_panel(factor), like) for factor in (1.0, 2.0))
    np.testing.assert_allclose(average_marginals([single, single]).cdf, single.cdf, atol=1e-6)
    average = average_marginals([single, other])
    np.testing.assert_allclose(average.grid - single.grid, np.log(2) / 2, atol=1e-5)
