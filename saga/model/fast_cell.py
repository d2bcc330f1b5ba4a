"""The light rollout's recurrent cell: one encoding by the decoder, then a residual map with memory carries a path on.

    s' = LN(a * s + D relu(U s + gates)^2),    a = sigmoid(decay), one number a unit

The decoder's state at the origin sets the cell's first state and a bias inside its hidden layer at every step, so what the record says
is not forgotten along the path. The same head reads the cell. A step costs no attention and no transcendental function, and its price
does not grow with the path. On the register a gated recurrent unit (Cho et al. 2014) of the same width lost more and cost more
(docs/method/model.md).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from saga.features.sequences import MAX_GAP
from saga.model.config import ModelConfig
from saga.model.decoder import squared_relu
from saga.model.tokens import AGES
from saga.schema import MIN_AGE

_WIDER = 2  # units of the hidden layer a unit of the state
_LONGEST_MEMORY = (
    4.0  # decay of the slowest unit at the start of training: half a state is left after 38 steps
)


class Origin(NamedTuple):
    """What the cell keeps of a record: its first state (..., s), the bias of its gates (..., 2 s) and of what the head reads (..., d)."""

    state: Tensor
    gates: Tensor
    hidden: Tensor


class Light(nn.Module):
    """Cell of s = `config.light` units between the decoder's state at the origin and the head, both of width d."""

    def __init__(self, config: ModelConfig, earnings_size: int) -> None:
        super().__init__()
        d, s, inner = config.width, config.light, _WIDER * config.light
        self.first = nn.Linear(d, s)
        self.bias = nn.Linear(d, inner)
        self.skip = nn.Linear(d, d, bias=False)
        self.earnings = nn.Linear(earnings_size, inner, bias=False)
        self.age = nn.Embedding(AGES, inner)
        self.gap = nn.Embedding(MAX_GAP + 1, inner)
        self.up = nn.Linear(s, inner)
        self.down = nn.Linear(inner, s)
        self.decay = nn.Parameter(torch.linspace(0.0, _LONGEST_MEMORY, s))
        self.norm = nn.LayerNorm(s)
        self.out = nn.Linear(s, d)

    def begin(self, hidden: Tensor) -> Origin:
        """The decoder's state at the origin (..., d) -> what the cell keeps of it."""
        return Origin(self.first(hidden), self.bias(hidden), self.skip(hidden))

    def gates(self, earnings: Tensor, age: Tensor, since: Tensor) -> Tensor:
        """What a year tells the cell, (..., 2 s): described earnings (..., e), age, years since the record before."""
        when = self.age((age - MIN_AGE).clamp(0, AGES - 1)) + self.gap(since.clamp(0, MAX_GAP))
        told: Tensor = self.earnings(earnings) + when
        return told

    def step(self, state: Tensor, gates: Tensor) -> Tensor:
        """State (..., s) and what the year tells (..., 2 s) -> next state (..., s)."""
        fresh = self.down(squared_relu(self.up(state) + gates))
        following: Tensor = self.norm(torch.addcmul(fresh, state, torch.sigmoid(self.decay)))
        return following

    def hidden(self, state: Tensor, origin: Origin) -> Tensor:
        """What the head reads, (..., d); the first persons of `origin` where the state has fewer."""
        read: Tensor = self.out(state) + origin.hidden[: len(state)]
        return read
