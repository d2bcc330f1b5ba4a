"""Other networks, trained in the same way as the model: an LSTM and a feed-forward network.

They have the same tokens, head, training, masking and rollout, and as many parameters as the
shipped model without its fast cell. Only the part that combines the years differs
(`saga.evaluation.variants`), so their rows in the contest show what attention contributes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
from saga.evaluation.baselines.origin_states import identities
from saga.training.fit import train
from saga.training.train_config import TrainConfig, load_config

from saga.data.origins import Origins, history
from saga.data.panel import Panel
from saga.data.split import SPLIT_SHARES, units_of
from saga.distributions import Marginals
from saga.files.atomic import digest_json
from saga.forecaster import Forecaster
from saga.keyed_random import uniform_each
from saga.paths import Paths
from saga.requests import Draws
from saga.trees.earnings_ranks import no_history_error


class TrainedNetwork:
    """A network of a training configuration (`training/configs`), with its training budget."""

    version = 2  # also of the numbers of `training`

    def __init__(self, name: str, config: str | TrainConfig) -> None:
        self.name = name
        self.config = config if isinstance(config, TrainConfig) else load_config(config)

    def like(self, config: TrainConfig) -> Self:
        """The baseline with this kind of network; tokens, masks and steps are those of `config`.

        The width is chosen so that the networks have about the same size.
        """
        shape = self.config.model
        width = round(config.model.width * shape.width / load_config("small").model.width)
        model = replace(config.model, backbone=shape.backbone, width=width, light=0)
        network = copy(self)
        network.config = replace(config, model=model, members=1, trees=False)
        return network

    def settings_key(self) -> str:
        """The digest of the training configuration."""
        return digest_json(self.config.as_dict())

    def fit(self, panel: Panel, *, seed: int) -> Self:
        """Train on the persons of `panel`.

        A reproducible random share of them is held out for early stopping, in the proportion of
        the train/validation split. Raises InputError if there are too few persons.
        """
        persons = panel.persons()
        validation_share = SPLIT_SHARES["validation"] / (
            SPLIT_SHARES["train"] + SPLIT_SHARES["validation"]
        )
        uniform = uniform_each(units_of(panel), self.name, "validation", panel.meta.panel_id)
        stopping = [p for p, u in zip(persons, uniform, strict=True) if u < validation_share]
        with TemporaryDirectory(prefix=f"saga-{self.name}-") as folder:
            self.bundle = train(
                panel,
                Path(folder) / self.name,
                config=self.config,
                seed=seed,
                validation=stopping,
            )
        return self

    @cached_property
    def forecaster(self) -> Forecaster:
        """The forecaster of the trained bundle."""
        return Forecaster(self.bundle)

    def distributions(self, history: Panel, origins: Origins) -> Marginals:
        """Distributions (n, 30) by the direct forecast, in the order of `origins`.

        Raises InputError if a person has no record in the origin year.
        """
        past = _history_until_origin(history, origins)
        blocks = self.forecaster.marginals(past, recalibrate=False)
        marginals = Marginals.joined(list(blocks))
        return marginals.take(np.searchsorted(marginals.person_id, origins.person_id))

    def simulate(
        self, history: Panel, origins: Origins, *, to_horizon: int, n_paths: int, seed: int
    ) -> Paths:
        """`n_paths` joint futures of each person, shape (n, to_horizon, n_paths).

        Raises InputError if a person has no record in the origin year.
        """
        past = _history_until_origin(history, origins)
        paths = self.forecaster.simulate(
            past, Draws(n_paths, seed), to_horizon=to_horizon, recalibrate=False
        )
        return paths.take(np.searchsorted(paths.person_id, origins.person_id))


class LSTM(TrainedNetwork):
    """The LSTM (configuration `lstm`)."""

    def __init__(self, config: str | TrainConfig = "lstm") -> None:
        super().__init__("lstm", config)


class FeedForward(TrainedNetwork):
    """The feed-forward network (configuration `feedforward`)."""

    def __init__(self, config: str | TrainConfig = "feedforward") -> None:
        super().__init__("ff", config)


def _history_until_origin(panel: Panel, origins: Origins) -> Panel:
    """Each person's rows up to the origin.

    Raises InputError if the last of them is not in the origin year.
    """
    past = history(panel, origins)
    last = dict(past.frame.select("person_id", "year").iter_rows())  # rows are sorted by year
    absent = [(person, year) for person, year in identities(origins) if last.get(person) != year]
    if absent:
        title, message = "A person has no record in the origin year", "no record in the origin year"
        raise no_history_error(*absent[0], len(absent), title, message)
    return past
