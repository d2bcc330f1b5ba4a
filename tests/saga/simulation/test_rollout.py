"""Rollouts equal the network without a cache and depend on no other person or later macro."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from saga.data.panel import Panel, PanelMeta
from saga.features.calendar import Calendar, macro_features
from saga.features.sequences import Sequences, encode, pad
from saga.features.transforms import Transforms
from saga.macro.history import sweden
from saga.macro.process import MacroProcess
from saga.model import ModelConfig, Saga
from saga.model.config import HeadName
from saga.schema import CATEGORICAL
from saga.simulation import rollout as rollout_module
from saga.simulation.path_numbers import path_orders, path_uniforms
from saga.simulation.rollout import Rollout, RolloutOptions
from tests.panels import panel_of

CALENDAR = Calendar(sweden())
PROCESS = MacroProcess.fit(sweden())
PATHS = 40
ATOL = 1.0  # SEK: in a deep lower tail rounding is a larger share of the amount


@pytest.fixture(scope="module")
def people() -> Panel:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(80):
        for year in range(2022 - i % 20, 2023):
            if rng.random() < 0.85 or year == 2022:
                earnings = 0.0 if rng.random() < 0.1 else float(rng.lognormal(12.4, 0.6))
                # Education is missing for all persons in 2022, and for some persons in all years.
                education = (
                    None
                    if year == 2022 or i % 5 == 0
                    else ("upper_secondary", "long_tertiary")[(year + i) % 3 > 0]
                )
                rows.append(
                    (f"p{i:02d}", year, 1975, earnings, ("female", "male")[i % 2], 1e4, education)
                )
    return panel_of(rows, "sex", "transfers", "education_level", meta=PanelMeta("p"))


def with_large_weights(network: Saga) -> Saga:
    """Weights so large that attention is far from uniform and distributions differ."""
    for weight in network.parameters():
        weight.data.mul_(1.5).add_(torch.randn_like(weight), alpha=0.2)
    return network.eval()


@pytest.fixture(scope="module")
def network(people: Panel) -> Saga:
    torch.manual_seed(1)
    config = ModelConfig(width=32, layers=3, heads=2, bins=32, head_width=32, light=24)
    return with_large_weights(Saga(config, Transforms.fit(people, CALENDAR, config.bins)))


# Backbone, and whether the fast cell advances the paths.
KINDS = [("decoder", False), ("decoder", True), ("lstm", False), ("feedforward", False)]
each_kind = pytest.mark.parametrize(("kind", "light"), KINDS)


@pytest.fixture(scope="module")
def networks(network: Saga, people: Panel) -> dict[str, Saga]:
    """A network of every backbone, "mixture" and "quantiles" decoders with those heads.

    "short" is a decoder with a span of five years; most records and all paths here are longer.
    """
    transforms = Transforms.fit(people, CALENDAR, 32)
    result = {"decoder": network, "short": Saga(network.config, replace(transforms, span=5)).eval()}
    result["short"].load_state_dict(network.state_dict())
    for name in ("lstm", "feedforward", "mixture", "quantiles"):
        torch.manual_seed(3)
        part = {"head": name} if name in get_args(HeadName) else {"backbone": name}
        config = ModelConfig(width=32, layers=2, heads=2, bins=32, head_width=32, **part)  # type: ignore[arg-type]
        result[name] = with_large_weights(Saga(config, transforms))
    return result


@pytest.fixture(scope="module")
def sequences(people: Panel) -> Sequences:
    return encode(people, Transforms.fit(people, CALENDAR, 32), CALENDAR)


def build_rollout(
    network: Saga,
    n_paths: int = PATHS,
    seed: int = 5,
    light: bool = False,
    rhythm: int = 1,
) -> Rollout:
    options = RolloutOptions(n_paths, seed, rhythm=rhythm, light=light)
    return Rollout(network, CALENDAR, PROCESS, options)


def simulate_person(
    rollout: Rollout, sequences: Sequences, person: int, steps: int
) -> NDArray[np.float32]:
    return rollout.simulate(sequences, np.array([person]), np.array([steps]))[0]


def teacher_forced(
    network: Saga,
    sequences: Sequences,
    person: int,
    earnings: np.ndarray,
    *,
    light: bool = False,
    rhythm: int = 1,
) -> np.ndarray:
    """Paths (years, paths) by teacher forcing, independent of `saga.simulation.rollout`.

    Whole sequences go through the network in one pass, without a cache.
    """
    record = pad(sequences, np.array([person]))
    column = CATEGORICAL.index("education_level")
    observed = [code for code in record.codes[0, :, column] if code]
    origin, last = int(record.year[0, -1]), record.year.shape[1] - 1
    macro = PROCESS.draw(5, PATHS, origin, origin + 48)
    growth = np.cumsum(np.log1p(macro[..., 1]), axis=1)
    wage = (CALENDAR.wage_index(np.array([origin]))[0] + growth).T
    features = torch.from_numpy(
        macro_features(macro, PROCESS.unemployment(origin)).astype(np.float32)
    )
    static = [name in ("sex", "birth_region") for name in CATEGORICAL]
    codes = np.where(static, record.codes[0, -1], 0)
    codes[column] = observed[-1] if observed else 0
    # Years after the origin that are inputs of later years.
    years = np.arange(rhythm, len(earnings), rhythm)
    inputs, t = earnings[years - 1].astype(np.float64), len(years)
    with np.errstate(divide="ignore"):
        z = np.where(inputs > 0, np.log(inputs) - wage[years - 1], 0.0)

    def joined(record_part: np.ndarray, later: np.ndarray, dtype: type) -> torch.Tensor:
        rows = [np.broadcast_to(part, (PATHS, *part.shape[1:])) for part in (record_part, later)]
        return torch.from_numpy(np.concatenate(rows, axis=1).astype(dtype))

    states = joined(record.state, np.where(inputs > 0, 2, 1).T, np.int64)
    logs = joined(record.z, z.T, np.float32)
    other = joined(record.other, np.full((1, t, 14), np.nan), np.float32)
    all_codes = joined(record.codes, np.tile(codes, (1, t, 1)), np.int64)
    age = joined(record.age, record.age[:, -1:] + years, np.int64)
    with torch.no_grad():
        hidden, _ = network.hidden(network.tokens(states, logs, other, all_codes, age), age)
        if light:
            hidden = network.fast_hidden(hidden, torch.full((PATHS,), last), states, logs, age)
    result = []
    for year in range(len(earnings)):
        # Years of one step share one state and one random number.
        step, within = divmod(year, rhythm)
        name, end = [str(sequences.person_id[person])], np.array([origin + (step + 1) * rhythm])
        u = path_uniforms(path_orders(PATHS, 5, name), step, 5, name, end)[0].astype(np.float32)
        with torch.no_grad():
            distribution = network.head(
                hidden[:, last + step], torch.tensor([within + 1]), features[:, year]
            )
            dead, positive, log = network.head.sample(distribution, torch.from_numpy(u))
        assert not dead.any()  # no death in this panel, so the hazard is switched off
        result.append(np.where(positive, np.exp(log.numpy() + wage[year]), 0.0))
    return np.array(result)


def equals_teacher_forcing(
    network: Saga, sequences: Sequences, *, light: bool, rhythm: int
) -> bool:
    """Whether the paths of some persons do, to float32 precision, in which heads compute."""
    persons, steps = np.array([0, 7, 33, 78]), np.array([3, 16, 15, 16])
    simulated = build_rollout(network, light=light, rhythm=rhythm).simulate(
        sequences, persons, steps
    )
    expected = [
        teacher_forced(network, sequences, person, earnings, light=light, rhythm=rhythm)
        for person, earnings in zip(persons.tolist(), simulated, strict=True)
    ]
    return all(
        np.allclose(earnings, paths, rtol=5e-3, atol=ATOL)
        for earnings, paths in zip(simulated, expected, strict=True)
    )


each_rhythm = pytest.mark.parametrize("rhythm", [1, 2])


@each_rhythm
@pytest.mark.parametrize(
    ("kind", "light"),
    [*KINDS, ("mixture", False), ("quantiles", False), ("short", False), ("short", True)],
)
def test_paths_equal_teacher_forcing(
    networks: dict[str, Saga], sequences: Sequences, kind: str, light: bool, rhythm: int
) -> None:
    assert equals_teacher_forcing(networks[kind], sequences, light=light, rhythm=rhythm)


def test_lasting_columns_keep_the_code_last_known_and_another_one_is_detected(
    network: Saga, sequences: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = deepcopy(network)
    # Education must change a path by more than rounding does.
    network.tokens.category.weight.data *= 20
    assert equals_teacher_forcing(network, sequences, light=False, rhythm=1)
    monkeypatch.setattr(
        rollout_module,
        "future_codes",
        lambda codes, continued: np.where(continued.static_codes, codes[-1], 0),
    )
    assert not equals_teacher_forcing(network, sequences, light=False, rhythm=1)


@each_kind
def test_numbers_do_not_depend_on_order_or_horizon(
    networks: dict[str, Saga], sequences: Sequences, kind: str, light: bool
) -> None:
    rollout = build_rollout(networks[kind], light=light)
    longer = [simulate_person(rollout, sequences, i, 10) for i in range(6)]
    shorter = [simulate_person(rollout, sequences, i, 3) for i in reversed(range(6))][::-1]
    np.testing.assert_array_equal(np.stack(shorter), np.stack(longer)[:, :3])


@pytest.mark.parametrize(("kind", "light"), [*KINDS, ("short", False)])
def test_numbers_are_bitwise_the_same_in_any_group(
    networks: dict[str, Saga], sequences: Sequences, kind: str, light: bool
) -> None:
    """45 paths do not fill whole vectors, so a person's last ones are inside the array."""
    rollout = build_rollout(networks[kind], 45, light=light)
    assert rollout.group_size(1_000) > 1
    steps = np.array([12, 3, 17, 1, 7, 12])
    persons = np.array([5, 0, 33, 61, 7, 78])
    together = rollout.simulate(sequences, persons, steps)
    for person, n_steps, earnings in zip(persons, steps, together, strict=True):
        alone = simulate_person(rollout, sequences, int(person), int(n_steps))
        np.testing.assert_array_equal(earnings, alone)


def test_products_whose_rows_depend_on_other_rows_are_detected(
    network: Saga, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct = torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, w, b: correct(x, w, b) + 1e-7 * x.numel()
    )
    monkeypatch.setattr(rollout_module, "_independent", {})
    assert build_rollout(network).group_size(1_000) == 1


def test_persons_who_come_in_small_pieces_are_computed_together_after_the_first(
    network: Saga, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service computes a panel in pieces of some persons, a new rollout for each."""
    monkeypatch.setattr(rollout_module, "_independent", {})
    monkeypatch.setattr(rollout_module, "_untested", Counter())
    sizes = [build_rollout(network).group_size(20) for _ in range(3)]
    assert sizes[0] == 1 < sizes[1] == sizes[2]
