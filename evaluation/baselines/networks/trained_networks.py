"""Networks of other kinds, trained and questioned as the model is: an LSTM, and a feed-forward network on the last ten records.

Same tokens, head, training, masking and rollout; as many parameters as the shipped model has without its light cell. What differs is
what mixes the years (`saga.model.variants.lstm`, `saga.model.variants.feedforward`). So the rows tell what attention brings, and what the rest does.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np

from saga.data.origins import Origins, history
from saga.data.panel import Panel
from saga.data.split import SHARES
from saga.errors import InputError, Problem
from saga.files.atomic import digest_json
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.paths import Paths
from saga.requests import Draws
from training.fit import train
from training.harness import RunOptions
from training.train_config import TrainConfig, load_config


class Network:
    """A network of a training configuration, whose budget it keeps (`training/configs`)."""

    # Raise it when its numbers may change, by code in `training` or `saga` too (`evaluation.cache`).
    version = 1

    def __init__(self, name: str, config: str | TrainConfig) -> None:
        self.name = name
        self.config = config if isinstance(config, TrainConfig) else load_config(config)

    def settings_key(self) -> str:
        """The digest of the training configuration."""
        return digest_json(self.config.as_dict())

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Trains on the persons of `panel`, and stops on a keyed part of them, in the split's proportion. Raises InputError for too few."""
        persons = panel.persons()
        held = SHARES["validation"] / (SHARES["train"] + SHARES["validation"])
        place = uniform_each(persons, self.name, "validation", panel.meta.panel_id)
        stopping = [person for person, own in zip(persons, place, strict=True) if own < held]
        with TemporaryDirectory(prefix=f"saga-{self.name}-") as folder:
            bundle = train(
                panel,
                Path(folder) / self.name,
                config=self.config,
                seed=seed,
                validation=stopping,
                run=RunOptions(progress=False),
            )
        self.forecaster = Forecaster(bundle)
        return self

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures a person; shape (n, to_horizon, n_paths). Raises InputError where nobody has a record in an origin year."""
        known = _until(history, origins)
        drawn = self.forecaster.simulate(
            known, Draws(n_paths, seed), to_horizon=to_horizon, recalibrate=False
        )
        return drawn.take(np.searchsorted(drawn.person_id, origins.person_id))


class LSTM(Network):
    """The LSTM (configuration `lstm`)."""

    def __init__(self, config: str | TrainConfig = "lstm") -> None:
        super().__init__("lstm", config)


class FeedForward(Network):
    """The feed-forward network (configuration `feedforward`)."""

    def __init__(self, config: str | TrainConfig = "feedforward") -> None:
        super().__init__("ff", config)


def _until(panel: Panel, origins: Origins) -> Panel:
    """Each person's rows up to the origin; raises InputError where the last of them is not in the origin year."""
    known = history(panel, origins)
    last = dict(
        known.frame.select("person_id", "year").iter_rows()
    )  # rows are sorted by year: the last one stays
    absent = [
        (p, y)
        for p, y in zip(origins.person_id.tolist(), origins.year.tolist(), strict=True)
        if last.get(p) != y
    ]
    if absent:
        person, year = absent[0]
        fix = "Give a history with a row in the origin year, or leave the person out."
        problem = Problem(
            "no-history",
            "no record in the origin year",
            fix,
            person_id=person,
            year=year,
            count=len(absent),
        )
        raise InputError("A person has no record to forecast from", [problem])
    return known
