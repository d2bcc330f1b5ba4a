"""Backbones with a state of fixed size: the LSTM, or the window of the last records."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

import torch
from torch import Tensor

from saga.model import Saga
from saga.model.decoder import Cache, OtherBackbone
from saga.simulation.steppers import Records, StartStepper


class RecurrentBackbone(OtherBackbone):
    """A backbone whose cache is a state, which `step` advances by one token.

    The state is that after the last token of unpadded records.
    """

    @abstractmethod
    def step(self, token: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        """One more token (..., d): residual stream and new state."""

    def start_stepper(self, network: Saga) -> StartStepper:
        """See `OtherBackbone.start_stepper`."""
        return partial(RecurrentStepper, network, self)


class RecurrentStepper:
    """Advances the state of a `RecurrentBackbone`; see `saga.simulation.steppers.Stepper`."""

    def __init__(
        self,
        network: Saga,
        blocks: RecurrentBackbone,
        records: Records,
        n_paths: int,
        _steps: int,
        _rhythm: int,
    ) -> None:
        self.network, self.blocks = network, blocks
        # Person by person and unpadded, so that the state is that after the last token.
        encoded = [
            network.hidden(token[None, :n], age[None, :n])
            for token, age, n in zip(records.token, records.age, records.lengths, strict=True)
        ]
        self.hidden = torch.cat([hidden[:, -1:] for hidden, _ in encoded])
        layers = zip(*(cache for _, cache in encoded), strict=True)
        joined = [[torch.cat(parts) for parts in zip(*layer, strict=True)] for layer in layers]
        self.state = [
            tuple(part[:, None].repeat(1, n_paths, 1) for part in layer) for layer in joined
        ]
        self.constant = torch.cat(list(records.constant()))[:, None]

    def step(self, state: Tensor, z: Tensor, age: Tensor) -> Tensor:
        """Hidden states (n, m, d) after a step."""
        net, n = self.network, len(z)
        year = net.tokens.embed_earnings(state, z) + net.tokens.embed_age(age[:, None])
        token = year + self.constant[:n]
        previous = [tuple(part[:n] for part in layer) for layer in self.state]
        x, self.state = self.blocks.step(token, previous)
        hidden: Tensor = net.norm(x) + net.skip(token)
        return hidden
