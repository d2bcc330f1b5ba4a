"""Steppers: a path advanced year by year gives the head what the network gives without a cache.

In float64 rounding is about 1e-13, and the weights are large, so attention is far from uniform: a
wrong mask, position or state is visible. Records and paths both exceed the span.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from saga.features.sequences import POSITIVE
from saga.features.transforms import Transforms
from saga.model import ModelConfig, Saga
from saga.model.config import BackboneName
from saga.schema import CATEGORICAL
from saga.simulation import steppers
from saga.simulation.steppers import CellStepper, DecoderStepper, Records, choose_stepper

SPAN, PATHS = 7, 3
# Of four persons: tokens of the record, and simulated years.
LENGTHS, STEPS = (14, 9, 3, 1), (12, 12, 8, 2)
ROUNDING, BROKEN = 1e-9, 1e-2
KINDS: list[tuple[BackboneName, bool]] = [
    ("decoder", False),
    ("decoder", True),
    ("lstm", False),
    ("feedforward", False),
]
each_rhythm = pytest.mark.parametrize("rhythm", [1, 2])


def build_network(backbone: BackboneName = "decoder") -> Saga:
    codes: dict[str, tuple[str, ...]] = dict.fromkeys(CATEGORICAL, ("a", "b"))
    transforms = Transforms(
        np.linspace(10, 14, 25),
        12.0,
        0.6,
        {},
        {},
        codes,
        "SEK",
        2022,
        24_150.0,
        True,
        True,
        span=SPAN,
    )
    torch.manual_seed(0)
    light = 16 if backbone == "decoder" else 0
    network = Saga(
        ModelConfig(
            width=32, layers=3, heads=2, bins=24, head_width=8, light=light, backbone=backbone
        ),
        transforms,
    )
    for weight in network.parameters():
        weight.data.mul_(1.5).add_(torch.randn_like(weight), alpha=0.2)
    return network.double().eval()


@torch.no_grad()
def largest_error(network: Saga, rhythm: int, *, light: bool = False) -> float:
    """Largest difference between a stepper and the network, over persons, paths and years."""
    generator = torch.Generator().manual_seed(1)
    n, longest, years = len(LENGTHS), LENGTHS[0] + 2, STEPS[0]  # all records are padded
    token, constant = (
        torch.randn((n, t, 32), dtype=torch.float64, generator=generator) for t in (longest, 1)
    )
    age = 16 + torch.randint(1, 3, (n, longest), generator=generator).cumsum(1)
    state = torch.randint(1, 3, (n, PATHS, years), generator=generator)
    z = 12 + 0.6 * torch.randn(state.shape, dtype=torch.float64, generator=generator)
    z = z * (state == POSITIVE)
    origin = torch.stack([ages[t - 1] for ages, t in zip(age, LENGTHS, strict=True)])
    later = origin[:, None] + rhythm * torch.arange(1, years + 1)

    expected = []
    for i, t in enumerate(LENGTHS):  # one person at a time, without padding
        simulated = (
            network.tokens.embed_earnings(state[i], z[i])
            + network.tokens.embed_age(later[i])
            + constant[i]
        )
        tokens = torch.cat([token[i, :t].expand(PATHS, -1, -1), simulated], 1)
        ages = torch.cat([age[i, :t], later[i]]).expand(PATHS, -1)
        hidden, _ = network.hidden(tokens, ages)
        if light:
            states, logs = (torch.nn.functional.pad(x, (t, 0)) for x in (state[i], z[i]))
            hidden = network.fast_hidden(hidden, torch.full((PATHS,), t - 1), states, logs, ages)
        expected.append(hidden[:, t - 1 :])

    start, _ = choose_stepper(network, light=light, precision="float64")  # type: ignore[arg-type]
    records = Records(token, age, LENGTHS, lambda: list(constant))
    stepper = start(records, PATHS, years + 1, rhythm)
    results = [stepper.hidden.expand(-1, PATHS, -1)]
    for year in range(years):
        n_next = sum(steps > year for steps in STEPS)
        earnings = state[:n_next, :, year], z[:n_next, :, year]
        results.append(stepper.step(*earnings, later[:n_next, year]))
    differences = [
        person - expected[i][:, year]
        for year, result in enumerate(results)
        for i, person in enumerate(result)
    ]
    return max(float(difference.abs().max()) for difference in differences)


@each_rhythm
@pytest.mark.parametrize(("backbone", "light"), KINDS)
def test_a_stepper_equals_the_network_without_a_cache(
    backbone: BackboneName, light: bool, rhythm: int
) -> None:
    assert largest_error(build_network(backbone), rhythm, light=light) < ROUNDING


# Changes of (first visible token of the record, first visible year of the path), given steps done.
MASKS: dict[str, Callable[[int, int, int], tuple[int, int]]] = {
    "the record two years beyond the span": lambda record, path, _: (max(0, record - 2), path),
    "the path two years beyond the span": lambda record, path, _: (record, max(0, path - 2)),
    "the record's oldest visible year hidden": lambda record, path, _: (record + 1, path),
    "the first simulated year hidden": lambda record, path, steps: (
        record,
        max(path, min(1, steps)),
    ),
}


@each_rhythm
@pytest.mark.parametrize("mask", MASKS)
def test_a_broken_mask_is_detected(mask: str, rhythm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = DecoderStepper._attend

    def attend(
        stepper: DecoderStepper,
        layer: int,
        person: int,
        projected: Tensor,
        first_in_record: int,
        first_in_path: int,
        out: Tensor,
    ) -> None:
        visible = MASKS[mask](first_in_record, first_in_path, stepper.steps_done)
        correct(stepper, layer, person, projected, *visible, out)

    monkeypatch.setattr(DecoderStepper, "_attend", attend)
    assert largest_error(build_network(), rhythm) > BROKEN


@each_rhythm
def test_simulated_years_rotated_by_a_wrong_age_are_detected(
    rhythm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct = steppers._projections_by_age
    monkeypatch.setattr(
        steppers, "_projections_by_age", lambda *block: (maps := correct(*block))[1:] + maps[-1:]
    )
    assert largest_error(build_network(), rhythm) > BROKEN


def one_year_late(_stepper: Any, age: Tensor) -> Tensor:
    return age + 1


def without_memory(stepper: Any, age: Tensor) -> Tensor:
    stepper.state = stepper.summary.state.expand(-1, PATHS, -1)
    return age


def wrong_gap(stepper: Any, age: Tensor) -> Tensor:
    cell = stepper.maps.cell
    stepper.bias = stepper.summary.bias + cell.gap.weight[0] + cell.up.bias
    return age


@each_rhythm
@pytest.mark.parametrize("mistake", [one_year_late, without_memory, wrong_gap])
def test_a_broken_cell_is_detected(
    mistake: Callable[[Any, Tensor], Tensor], rhythm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct = CellStepper.step
    monkeypatch.setattr(
        CellStepper,
        "step",
        lambda stepper, state, z, age: correct(stepper, state, z, mistake(stepper, age)),
    )
    assert largest_error(build_network(), rhythm, light=True) > BROKEN
