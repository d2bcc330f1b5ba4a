"""Walks: carried from year to year, a path reads what the plain network reads in its whole sequence anew, without any cache.

In float64 rounding is some 1e-13, and the weights are large, so that attention is far from uniform: whatever a mask, a position or a
state gets wrong shows. Records and paths both go on beyond the span.
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
from saga.schema import CATEGORICAL
from saga.simulation import steppers as walks_module
from saga.simulation.steppers import Records, _ExactWalk, _LightWalk, walks

SPAN, PATHS = 7, 3
LENGTHS, STEPS = (
    (14, 9, 3, 1),
    (12, 12, 8, 2),
)  # of four persons: tokens of the record, and years that are drawn
ROUNDING, BROKEN = 1e-9, 1e-2
KINDS = [("decoder", False), ("decoder", True), ("lstm", False), ("feedforward", False)]
each_rhythm = pytest.mark.parametrize("rhythm", [1, 2])


def network(backbone: str = "decoder") -> Saga:
    codes = dict.fromkeys(CATEGORICAL, ("a", "b"))
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
    net = Saga(
        ModelConfig(
            width=32, layers=3, heads=2, bins=24, head_width=8, light=light, backbone=backbone
        ),
        transforms,
    )
    for weight in net.parameters():
        weight.data.mul_(1.5).add_(torch.randn_like(weight), alpha=0.2)
    return net.double().eval()


@torch.no_grad()
def error(net: Saga, rhythm: int, *, light: bool = False) -> float:
    """Largest difference between what a walk and the plain network give the head, over persons, paths and years."""
    draw = torch.Generator().manual_seed(1)
    n, longest, years = len(LENGTHS), LENGTHS[0] + 2, STEPS[0]  # all records are padded
    token, later = (
        torch.randn((n, t, 32), dtype=torch.float64, generator=draw) for t in (longest, 1)
    )
    age = 16 + torch.randint(1, 3, (n, longest), generator=draw).cumsum(1)
    state = torch.randint(1, 3, (n, PATHS, years), generator=draw)
    z = (12 + 0.6 * torch.randn(state.shape, dtype=torch.float64, generator=draw)) * (
        state == POSITIVE
    )
    after = torch.stack([own[t - 1] for own, t in zip(age, LENGTHS, strict=True)])[
        :, None
    ] + rhythm * torch.arange(1, years + 1)

    expected = []
    for i, t in enumerate(LENGTHS):  # alone and unpadded
        drawn = (
            net.tokens.embed_earnings(state[i], z[i]) + net.tokens.embed_age(after[i]) + later[i]
        )
        tokens = torch.cat([token[i, :t].expand(PATHS, -1, -1), drawn], 1)
        ages = torch.cat([age[i, :t], after[i]]).expand(PATHS, -1)
        hidden, _ = net.hidden(tokens, ages)
        if light:
            behind = [torch.nn.functional.pad(own, (t, 0)) for own in (state[i], z[i])]
            hidden = net.fast_hidden(hidden, torch.full((PATHS,), t - 1), *behind, ages)
        expected.append(hidden[:, t - 1 :])

    carriers = walks(net, light=light, precision="float64")  # type: ignore[arg-type]
    walk = carriers.walk(
        Records(token, age, LENGTHS, lambda: list(later)), PATHS, years + 1, rhythm
    )
    found = [walk.hidden.expand(-1, PATHS, -1)]
    for year in range(years):
        going = sum(own > year for own in STEPS)
        found.append(walk.step(state[:going, :, year], z[:going, :, year], after[:going, year]))
    differences = [
        own - expected[i][:, year]
        for year, heard in enumerate(found)
        for i, own in enumerate(heard)
    ]
    return max(float(one.abs().max()) for one in differences)


@each_rhythm
@pytest.mark.parametrize(("backbone", "light"), KINDS)
def test_a_walk_equals_the_network_without_a_cache(backbone: str, light: bool, rhythm: int) -> None:
    assert error(network(backbone), rhythm, light=light) < ROUNDING


# What attention may look at, (first token of the record, first year of the path), as it is and as it must not be.
MASKS: dict[str, Callable[[int, int, int], tuple[int, int]]] = {
    "the record two years beyond the span": lambda first, since, walked: (max(0, first - 2), since),
    "the path two years beyond the span": lambda first, since, walked: (first, max(0, since - 2)),
    "the record's oldest visible year hidden": lambda first, since, walked: (first + 1, since),
    "the first drawn year forgotten": lambda first, since, walked: (
        first,
        max(since, min(1, walked)),
    ),
}


@each_rhythm
@pytest.mark.parametrize("mask", MASKS)
def test_a_broken_mask_is_caught(mask: str, rhythm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = _ExactWalk._attend

    def attend(
        walk: _ExactWalk,
        layer: int,
        i: int,
        projected: Tensor,
        first: int,
        since: int,
        *,
        out: Tensor,
    ) -> None:
        honest(walk, layer, i, projected, *MASKS[mask](first, since, walk.walked), out=out)

    monkeypatch.setattr(_ExactWalk, "_attend", attend)
    assert error(network(), rhythm) > BROKEN


@each_rhythm
def test_drawn_years_rotated_a_year_late_are_caught(
    rhythm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = walks_module._at_ages
    monkeypatch.setattr(
        walks_module, "_at_ages", lambda *block: (maps := honest(*block))[1:] + maps[-1:]
    )
    assert error(network(), rhythm) > BROKEN


def late(walk: Any, age: Tensor) -> Tensor:
    return age + 1


def forgetful(walk: Any, age: Tensor) -> Tensor:
    walk.state = walk.origin.state.expand(-1, PATHS, -1)
    return age


def hurried(walk: Any, age: Tensor) -> Tensor:
    walk.gates = walk.origin.gates + walk.light.cell.gap.weight[0] + walk.light.cell.up.bias
    return age


@each_rhythm
@pytest.mark.parametrize("mistake", [late, forgetful, hurried])
def test_a_broken_cell_is_caught(
    mistake: Callable[[Any, Tensor], Tensor], rhythm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = _LightWalk.step
    monkeypatch.setattr(
        _LightWalk, "step", lambda walk, state, z, age: honest(walk, state, z, mistake(walk, age))
    )
    assert error(network(), rhythm, light=True) > BROKEN
