"""Marginals equal an average of the heads' distributions over macro futures, person by person."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from saga.arrays import Floats
from saga.data.panel import Panel, PanelMeta
from saga.distributions import Marginals
from saga.features.calendar import MACRO_FEATURES, Calendar, macro_features, path_features
from saga.features.sequences import Sequences, encode, pad
from saga.features.transforms import Transforms
from saga.macro.history import log_wage_index, sweden
from saga.macro.process import MacroProcess
from saga.macro.scenarios import Scenario
from saga.model import ModelConfig, Saga
from saga.requests import MAX_HORIZON
from saga.simulation.marginals import N_NODES, DirectMarginals, macro_nodes, marginal_grid
from saga.simulation.rollout import MAX_STEPS
from tests.panels import panel_of

CALENDAR = Calendar(sweden())
PROCESS = MacroProcess.fit(sweden())


@pytest.fixture(scope="module")
def people() -> Panel:
    """Forty persons with origins in 2018 to 2022; some turn 65 within the horizons."""
    rng, rows = np.random.default_rng(0), []
    for i in range(40):
        last = 2022 - i % 5
        for year in range(last - i % 12, last + 1):
            earnings = 0.0 if rng.random() < 0.15 else float(rng.lognormal(12.4, 0.6))
            rows.append((f"p{i:02d}", year, 1957 + i, earnings))
    return panel_of(rows, meta=PanelMeta("p"))


@pytest.fixture(scope="module")
def transforms(people: Panel) -> Transforms:
    return Transforms.fit(people, CALENDAR, 32)


@pytest.fixture(scope="module")
def network(transforms: Transforms) -> Saga:
    """Weights so large that distributions differ between persons, horizons and macro futures."""
    torch.manual_seed(1)
    network = Saga(ModelConfig(width=32, layers=2, heads=2, bins=32, head_width=32), transforms)
    for weight in network.parameters():
        weight.data.mul_(1.5).add_(torch.randn_like(weight), alpha=0.2)
    return network.eval()


@pytest.fixture(scope="module")
def sequences(people: Panel, transforms: Transforms) -> Sequences:
    return encode(people, transforms, CALENDAR)


def computed(
    network: Saga,
    transforms: Transforms,
    sequences: Sequences,
    *,
    process: MacroProcess | None = PROCESS,
    scenario: Scenario | None = None,
    persons: list[int] | None = None,
) -> Marginals:
    rows = np.arange(len(sequences)) if persons is None else np.array(persons)
    direct = DirectMarginals(network, transforms, CALENDAR, process, scenario, threads=1)
    return direct.marginals(sequences, rows, {})


def brute_force(
    network: Saga,
    transforms: Transforms,
    sequences: Sequences,
    row: int,
    horizon: int,
    features: Floats,
    wage: Floats,
) -> Floats:
    """CDF (G,) at the grid's earnings in one year: a loop over the macro futures.

    `features` (E, 7) and `wage` (E,) are those of the futures in that year.
    """
    padded = pad(sequences, np.array([row]), MAX_STEPS + 1)
    last = int(sequences.lengths[row]) - 1
    age = int(padded.age[0, last]) + horizon
    grid, cdfs = marginal_grid(transforms) + wage.mean(), []
    with torch.inference_mode():
        hidden, _ = network.hidden(network.embed(padded), torch.from_numpy(padded.age))
        for future, index in zip(features, wage, strict=True):
            macro = torch.from_numpy(future.astype(np.float32))
            if horizon <= transforms.rhythm:
                gap = torch.tensor(horizon)
                distribution = network.head(hidden[0, last], gap, macro[:MACRO_FEATURES])
                head = network.head
            else:
                target = (torch.tensor(horizon), torch.tensor(age))
                distribution = network.direct(hidden[0, last], *target, macro)
                head = network.direct.head
            z = torch.from_numpy((grid - index).astype(np.float32))
            _, cdf = head.cdf(distribution, z)
            dead = torch.sigmoid(distribution.death)
            cdfs.append((dead + (1 - dead) * cdf).numpy().astype(float))
    return np.asarray(np.mean(cdfs, axis=0))


@pytest.mark.parametrize("rhythm", [1, 2])
def test_marginals_are_the_mean_of_the_distributions_given_each_macro_node(
    network: Saga, transforms: Transforms, sequences: Sequences, rhythm: int
) -> None:
    transforms = replace(transforms, rhythm=rhythm)
    marginals = computed(network, transforms, sequences)
    for row in (1, 17, 39):
        origin = int(marginals.origin_year[row])
        features, wage = macro_nodes(CALENDAR, PROCESS, origin, None)
        for horizon in (1, 2, 9, 30):
            h = horizon - 1
            if not marginals.exists[row, h]:
                continue
            expected = brute_force(
                network, transforms, sequences, row, horizon, features[h], wage[h]
            )
            # The first and the last grid point have the probability of zero and 1.
            np.testing.assert_allclose(marginals.cdf[row, h, 1:-1], expected[1:-1], atol=2e-5)
            assert marginals.cdf[row, h, 0] == marginals.p_zero[row, h] <= expected[0] + 1e-6
            assert marginals.cdf[row, h, -1] == 1


def test_nodes_have_the_mean_of_the_macro_draws_and_nearly_their_spread() -> None:
    features, wage = macro_nodes(CALENDAR, PROCESS, 2022, None)
    assert features.shape == (MAX_HORIZON, N_NODES, 7)
    assert wage.shape == (MAX_HORIZON, N_NODES)
    series = PROCESS.draw(11, 4_096, 2022, 2022 + MAX_HORIZON, None)
    drawn_features = path_features(macro_features(series, PROCESS.unemployment(2022, None)))
    drawn = CALENDAR.wage_index(np.array([2022]))[0] + log_wage_index(series[..., 1])
    for h in (0, 4, 19, 29):
        error = drawn[:, h].std() / 64  # standard error of a mean of 4,096 draws
        assert abs(wage[h].mean() - drawn[:, h].mean()) < 6 * error
        assert 0.8 < wage[h].std() / drawn[:, h].std() < 1.02
        spread = drawn_features[:, h].std(axis=0)
        difference = np.abs(features[h].mean(axis=0) - drawn_features[:, h].mean(axis=0))
        assert (difference <= 6 * spread / 64 + 1e-9).all()
    again = macro_nodes(CALENDAR, PROCESS, 2022, None)
    assert np.array_equal(again[0], features)
    assert np.array_equal(again[1], wage)


def test_nodes_follow_a_scenario_exactly_in_its_years() -> None:
    rows = {2023: (0.11, -0.02, 0.02), 2024: (0.12, 0.01, 0.02)}
    features, wage = macro_nodes(CALENDAR, PROCESS, 2022, Scenario("hard", rows))
    before = CALENDAR.wage_index(np.array([2022]))[0]
    np.testing.assert_allclose(wage[0], before + np.log(0.98), rtol=1e-6)
    np.testing.assert_allclose(wage[1], before + np.log(0.98) + np.log(1.01), rtol=1e-6)
    assert np.ptp(features[:2], axis=1).max() < 1e-9
    assert np.ptp(wage[4]) > 0, "later years are drawn"


@pytest.mark.parametrize("process", [PROCESS, None], ids=["macro series", "no macro series"])
def test_persons_of_several_origins_have_bitwise_the_same_marginals_alone(
    network: Saga, transforms: Transforms, sequences: Sequences, process: MacroProcess | None
) -> None:
    together = computed(network, transforms, sequences, process=process)
    assert len(set(together.origin_year.tolist())) == 5
    for row in (0, 13, 38):
        alone = computed(network, transforms, sequences, persons=[row], process=process)
        for name in ("grid", "cdf", "p_zero"):
            expected = getattr(together, name)[row]
            assert np.array_equal(getattr(alone, name)[0], expected, equal_nan=True), name
    some = computed(network, transforms, sequences, persons=[30, 2, 7], process=process)
    assert np.array_equal(some.cdf, together.cdf[[30, 2, 7]], equal_nan=True)


@pytest.mark.parametrize("rhythm", [1, 2])
@pytest.mark.parametrize("n_horizons", [1, 2, 17, MAX_HORIZON])
def test_a_horizon_has_bitwise_the_same_marginals_whatever_follows_it(
    network: Saga, transforms: Transforms, sequences: Sequences, n_horizons: int, rhythm: int
) -> None:
    direct = DirectMarginals(network, replace(transforms, rhythm=rhythm), CALENDAR, PROCESS)
    persons = np.arange(3)
    every = direct.marginals(sequences, persons, {}).first(n_horizons)
    first = direct.marginals(sequences, persons, {}, n_horizons)
    for name in ("grid", "cdf", "p_zero"):
        assert np.array_equal(getattr(first, name), getattr(every, name), equal_nan=True), name
