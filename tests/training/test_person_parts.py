"""Threads that compute parts of a batch give the loss and the gradient of the whole batch."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from saga.training.data import Batch
from saga.training.fit import prepare, train
from saga.training.module import ForecastModule
from saga.training.person_parts import PersonParts
from torch import Tensor, nn

from tests.toy_training import QUIET, TOY, make_panel

CONFIG = replace(TOY, model=replace(TOY.model, light=4))
DROPOUT = replace(CONFIG, model=replace(CONFIG.model, dropout=0.3))


@pytest.fixture(scope="module")
def module() -> ForecastModule:
    return ForecastModule(prepare(make_panel(), CONFIG, seed=0).network, CONFIG)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return next(iter(prepare(make_panel(), CONFIG, seed=0).data.train_dataloader()))


def gradient_of(weights: list[nn.Parameter]) -> Tensor:
    """The gradients of all weights in one vector, in double precision."""
    filled = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
    return torch.cat([part.double().flatten() for part in filled])


def gradient(module: ForecastModule, batch: Batch, cores: int) -> tuple[float, Tensor]:
    """The objective and its gradient, computed by parts."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    module.zero_grad()
    parts = PersonParts(cores, seed=0)
    losses = parts.losses(module.losses, batch, weights, 0, nullcontext, nullcontext)
    torch.autograd.backward(2 * losses.objective)
    return float(losses.objective.detach()), gradient_of(weights) / 2


@pytest.mark.parametrize("cores", [1, 2, 3, 9])
def test_parts_have_the_loss_and_gradient_of_the_batch(
    module: ForecastModule, batch: Batch, cores: int
) -> None:
    module.zero_grad()
    whole = module.losses(batch)
    torch.autograd.backward(whole.objective)
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    expected = gradient_of(weights)
    objective, computed = gradient(module, batch, cores)
    # Sums of a few thousand terms in single precision.
    assert objective == pytest.approx(float(whole.objective.detach()), rel=1e-5)
    assert float((computed - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.thorough
def test_masks_of_dropout_depend_on_the_seed_and_not_on_the_threads(tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> Tensor:
        bundle = train(make_panel(), tmp_path / name, config=DROPOUT, seed=seed, run=QUIET)
        return torch.cat(
            [bundle.weights[name].flatten().double() for name in sorted(bundle.weights)]
        )

    before = torch.get_num_threads()
    torch.set_num_threads(2)  # so that there are two parts
    try:
        first, again = weights("first", 1), weights("again", 1)
        other = weights("other", 2)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
