"""The lab's changes of a network that is then trained: attention, and which networks they reach."""

from __future__ import annotations

import pytest
import torch

from saga.model import ModelConfig, Saga
from saga.model.decoder import causal_mask
from studies.lab_training import (
    PLAIN,
    NothingToAttend,
    Recipe,
    TwoScales,
    networks_changed,
    recipes,
)
from tests.saga.features.token_panels import fit_transforms

SCORES = torch.zeros(1, 4, 2, 4)  # a person, four years, two heads
CAUSAL = causal_mask(torch.arange(4)[None]).unsqueeze(-2)


def test_a_head_can_attend_to_nothing() -> None:
    """With equal logits the key of zeros takes the share of one record more."""
    weights = NothingToAttend(ModelConfig(width=8, heads=2)).weights(SCORES, CAUSAL)
    torch.testing.assert_close(weights.sum(-1)[0, :, 0], torch.tensor([1 / 2, 2 / 3, 3 / 4, 4 / 5]))


def test_heads_have_their_own_time_scales() -> None:
    """Weights fall by the factor exp(-1 / years) a record back, and later years have none."""
    weights = TwoScales(ModelConfig(width=8, heads=2)).weights(SCORES, CAUSAL)[0]
    torch.testing.assert_close(
        weights[3, :, 2] / weights[3, :, 3], torch.exp(-torch.tensor([0.5, 0.05]))
    )
    assert not weights[1, :, 2:].any()


@pytest.mark.parametrize(("name", "recipe"), recipes(10).items())
def test_a_change_reaches_the_networks_made_inside(name: str, recipe: Recipe) -> None:
    """Their hidden states are others, still causal; networks made later are as before."""
    config, change = recipe
    shape, transforms = recipes(10)[PLAIN][0].model, fit_transforms()

    def hidden(model: ModelConfig, last: float = 0.0) -> torch.Tensor:
        torch.manual_seed(0)
        network = Saga(model, transforms).eval()
        tokens = torch.linspace(-2, 2, 4 * model.width).sin().view(1, 4, model.width)
        tokens[0, -1] += last
        return network.hidden(tokens, torch.arange(30, 34)[None])[0].detach()

    plain = hidden(shape)
    with networks_changed(change):
        changed = hidden(config.model)
        torch.testing.assert_close(hidden(config.model, last=1.0)[:, :3], changed[:, :3])
    assert torch.equal(plain, changed) == (name == PLAIN)
    assert torch.equal(hidden(shape), plain)
