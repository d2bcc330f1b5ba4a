"""The network: causality, gaps, padding; the head is a probability distribution and its sampler draws from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from saga.model import ModelConfig, Saga
from saga.model import network as network_module
from saga.model.heads import MIN_TAIL, Predictive
from saga.schema import CATEGORICAL
from saga.sequences import N_OTHER, POSITIVE, ZERO
from saga.transforms import OTHER, Transforms

CONFIG = ModelConfig(width=32, layers=2, heads=2, bins=24, head_width=32)


def transforms(*, zeros: bool = True, death: bool = True) -> Transforms:
    codes = dict.fromkeys(CATEGORICAL, ("a", "b"))
    flat = dict.fromkeys(OTHER, 0.0)
    ones = dict.fromkeys(OTHER, 1.0)
    return Transforms(np.linspace(10, 14, 25), 12.0, 0.6, flat, ones, codes, "SEK", 2022, 24_150.0, zeros, death)


@pytest.fixture(scope="module")
def net() -> Saga:
    torch.manual_seed(0)
    return Saga(CONFIG, transforms()).eval()


def inputs(n: int, t: int, seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    state = torch.randint(0, 3, (n, t), generator=g)
    years = torch.cumsum(torch.randint(1, 4, (n, t), generator=g), 1)
    return {
        "state": state,
        "z": (12 + 0.6 * torch.randn(n, t, generator=g)) * (state == POSITIVE),
        "other": torch.randn(n, t, N_OTHER, generator=g),
        "codes": torch.randint(0, 3, (n, t, len(CATEGORICAL)), generator=g),
        "age": 20 + years,
        "macro": torch.randn(n, t, 4, generator=g),
        "gap": torch.ones(n, t, dtype=torch.int64),
        "next_macro": torch.randn(n, t, 4, generator=g),
    }


def change_after(batch: dict[str, Tensor], t: int) -> dict[str, Tensor]:
    other = inputs(*batch["state"].shape, seed=99)
    return {k: torch.cat([v[:, :t], other[k][:, t:]], 1) for k, v in batch.items()}


def leak(net: Saga) -> float:
    """Largest change of a prediction at tokens 0..4 when everything from token 5 on changes."""
    batch = inputs(3, 10)
    with torch.no_grad():
        a, b = net(**batch).logits, net(**change_after(batch, 5)).logits
    return float((a[:, :5] - b[:, :5]).abs().max())


def test_a_prediction_does_not_see_later_years(net: Saga) -> None:
    assert leak(net) < 1e-6


def test_a_broken_mask_is_caught(net: Saga, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "causal_mask", lambda t, device=None: torch.zeros(t, t))
    assert leak(net) > 1e-3


def test_padding_and_batch_do_not_change_a_person(net: Saga) -> None:
    batch = inputs(4, 10)
    with torch.no_grad():
        together = net(**batch).logits[2, :6]
        alone = net(**{k: v[2:3, :6] for k, v in batch.items()}).logits[0]
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_positions_are_ages_so_a_gap_matters(net: Saga) -> None:
    batch = inputs(1, 6)
    moved = {**batch, "age": batch["age"] + torch.tensor([0, 0, 0, 2, 2, 2])}
    with torch.no_grad():
        assert (net(**batch).logits[:, 5] - net(**moved).logits[:, 5]).abs().max() > 1e-4


def predictive(net: Saga, n: int, seed: int = 1) -> Predictive:
    g = torch.Generator().manual_seed(seed)
    shape = (n, len(net.head.knots) + 2)
    return Predictive(torch.randn(shape, generator=g), torch.full((n,), 2.0), torch.full((n,), 3.0), torch.full((n,), -3.0))


def test_the_density_integrates_to_one(net: Saga) -> None:
    p = predictive(net, 1)
    z = torch.linspace(-5, 25, 300_001)
    wide = Predictive(p.logits.expand(len(z), -1), p.lower.expand(len(z)), p.upper.expand(len(z)), p.death.expand(len(z)))
    positive, _ = net.head.nll(wide, torch.full((len(z),), POSITIVE), z, torch.zeros(len(z), dtype=torch.bool))
    zero, _ = net.head.nll(p, torch.tensor([ZERO]), torch.zeros(1), torch.zeros(1, dtype=torch.bool))
    total = torch.trapezoid((-positive).exp().double(), z.double()) + (-zero).exp()
    assert float(total) == pytest.approx(1, abs=2e-3)  # the step at each knot costs the trapezium rule about one grid cell


def test_draws_follow_the_density(net: Saga) -> None:
    n = 40_000
    p = predictive(net, 1)
    many = Predictive(p.logits.expand(n, -1), p.lower.expand(n), p.upper.expand(n), p.death.expand(n))
    u = torch.rand(n, generator=torch.Generator().manual_seed(3))
    dead, positive, z = net.head.sample(many, u)
    hazard = float(torch.sigmoid(p.death))
    shares = p.logits.softmax(-1)[0]
    expected = np.array([hazard, (1 - hazard) * float(shares[0])])
    found = np.array([float(dead.double().mean()), float((~dead & ~positive).double().mean())])
    assert (np.abs(found - expected) < 5 * np.sqrt(expected / n)).all()
    counts = torch.histogram(z[positive], torch.cat([torch.tensor([-1e3]), net.head.knots, torch.tensor([1e3])])).hist
    cells = shares[1:] / shares[1:].sum()
    assert stats.chisquare(counts.numpy(), (cells / cells.sum() * counts.sum()).numpy().astype(float), sum_check=False).pvalue > 1e-6
    assert z[positive].max() > net.head.knots[-1]


def test_the_upper_tail_has_a_mean(net: Saga) -> None:
    batch = inputs(5, 8)
    with torch.no_grad():
        assert float(net(**batch).upper.min()) >= MIN_TAIL


def test_without_zeros_and_deaths_in_training_neither_is_forecast() -> None:
    net = Saga(CONFIG, transforms(zeros=False, death=False)).eval()
    with torch.no_grad():
        p = net(**inputs(2, 5))
    dead, positive, _ = net.head.sample(p, torch.full((2, 5), 1e-7))
    assert not dead.any()
    assert positive.all()


def test_parameters_are_counted(net: Saga) -> None:
    assert net.parameters_count == sum(v.numel() for v in net.state_dict().values())
