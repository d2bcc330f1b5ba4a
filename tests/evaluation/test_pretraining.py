"""The prior: a bundle from simulated economies, reproducible and resumable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from saga.evaluation.economies.economy_pools import Economies
from saga.evaluation.pretraining import pretrain
from saga.training.harness import RunOptions

from saga.bundle import Bundle
from saga.errors import UsageError
from saga.features.transforms import Transforms
from tests.toy_training import TOY, ctrl_c_before

pytestmark = pytest.mark.thorough
ECONOMIES = Economies(seed=5, persons=40, pool_size=6)
CONFIG = replace(
    TOY,
    max_steps=60,  # two epochs of the first pool, and one of the second
    validate_every=10,
    validation_persons=50,
    patience=100,
    scale_free=True,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("prior") / "whole"
    return pretrain(out, ECONOMIES, config=CONFIG, run=RunOptions())


def test_the_prior_is_a_bundle_without_country(whole: Bundle) -> None:
    assert Bundle.load(whole.path).digest == whole.digest
    assert whole.simulated
    assert "Simulated people, not real" in whole.card
    transforms = Transforms.from_dict(whole.transforms)
    assert transforms.currency == "units"
    assert transforms.has_zeros
    assert not transforms.has_death
    assert whole.macro == {"series": None}
    report = whole.metrics["training"]
    assert report["steps"] == CONFIG.max_steps
    assert report["persons"]["train"] > report["steps"] * CONFIG.batch_persons / 4
    assert report["persons"]["validation"] == CONFIG.validation_persons


def test_a_resumed_pretraining_ends_with_the_weights_of_an_uninterrupted_one(
    whole: Bundle, tmp_path: Path
) -> None:
    """Stopped while it uses the second pool."""
    out = tmp_path / "resumed"
    with ctrl_c_before(47):
        pretrain(out, ECONOMIES, config=CONFIG, run=RunOptions())
    quiet = RunOptions(resume=True)
    with pytest.raises(UsageError, match="different settings: economies"):
        pretrain(out, replace(ECONOMIES, seed=6), config=CONFIG, run=quiet)
    resumed = pretrain(out, ECONOMIES, config=CONFIG, run=quiet)
    assert all(torch.equal(whole.weights[name], resumed.weights[name]) for name in whole.weights)
