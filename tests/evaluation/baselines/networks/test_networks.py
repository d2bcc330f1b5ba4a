"""Networks as baselines: who stops the training, whom a kept score belongs to, who is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from saga.evaluation.baselines import LSTM, FeedForward
from saga.training.train_config import TrainConfig, load_config

from saga.data.origins import Origins
from saga.data.panel import Panel
from saga.errors import InputError
from saga.features.calendar import Calendar
from saga.features.transforms import Transforms
from saga.macro.history import sweden
from saga.model import ModelConfig, Saga

MODEL = ModelConfig(backbone="feedforward", width=8, layers=1, bins=8, head_width=8)
BRIEF = TrainConfig("brief", MODEL, batch_persons=64, max_steps=2, warmup_steps=1, validate_every=2)


def test_an_eighth_of_the_persons_is_for_early_stopping(random_walk: Callable[..., Panel]) -> None:
    panel = random_walk(300)
    fitted = FeedForward(BRIEF).fit(panel, seed=0)
    persons = fitted.forecaster.bundle.metrics["training"]["persons"]
    n = len(panel.persons())
    assert persons["train"] + persons["validation"] == n
    assert persons["validation"] / n == pytest.approx(1 / 8, abs=4 * np.sqrt(1 / 8 * 7 / 8 / n))
    person, last = panel.frame.select("person_id", "year").row(-1)
    with pytest.raises(InputError, match="no record in the origin year"):
        fitted.simulate(
            panel,
            Origins(np.array([person]), np.array([last + 1])),
            to_horizon=2,
            n_paths=3,
            seed=0,
        )


def test_distributions_are_in_the_order_of_origins_and_do_not_depend_on_other_persons(
    random_walk: Callable[..., Panel],
) -> None:
    panel = random_walk(300)
    fitted = FeedForward(BRIEF).fit(panel, seed=0)
    rows = panel.frame.filter(pl.col("year") - pl.col("birth_year") < 60)
    last = rows.group_by("person_id", maintain_order=True).agg(pl.col("year").last())
    persons = last["person_id"].to_numpy().astype(str)
    origins = Origins(persons[::-1].copy(), last["year"].to_numpy()[::-1].copy())
    marginals = fitted.distributions(panel, origins)
    assert marginals.person_id.tolist() == origins.person_id.tolist()
    # A person's numbers do not depend on the others.
    alone = fitted.distributions(panel, origins.take(slice(7, 8)))
    np.testing.assert_array_equal(alone.cdf[0], marginals.cdf[7])


@pytest.mark.parametrize("kind", [LSTM, FeedForward])
@pytest.mark.parametrize("name", ["small", "examples/nlsy79.yaml"])
def test_a_network_like_a_configuration_has_its_steps_and_about_its_size(
    kind: type[LSTM | FeedForward], name: str, register_panel: Panel
) -> None:
    config = load_config(name)
    like = kind().like(config)
    own = like.config
    assert (own.model.backbone, own.name) == (kind().config.model.backbone, config.name)
    same = replace(own, model=config.model, members=config.members)
    assert same == config
    transforms = Transforms.fit(register_panel, Calendar(sweden()), config.model.bins)
    sizes = [
        Saga(replace(model, light=0), transforms).parameters_count
        for model in (own.model, config.model)
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.15)
