"""The recurrent cell of the light rollout: a residual map with memory, one step per year.

    s' = LN(a * s + D relu(U s + v)^2),    a = sigmoid(decay), one number per unit

The decoder encodes the record once. Its state at the origin determines the cell's first state and a
bias in the cell's hidden layer at every step, so the record influences all years of a path. The
input v of a year is this bias, and terms for earnings, age and gap. The output of the cell is the
input of the model's head. A step has no attention and no transcendental function, and its cost does
not grow with the length of the path. On the register, a gated recurrent unit (Cho et al. 2014) of
the same width was less accurate and slower (docs/method/model.md).
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor, nn

from saga.features.sequences import MAX_GAP
from saga.model.config import ModelConfig
from saga.model.decoder import squared_relu
from saga.schema import MIN_AGE, N_AGES

_HIDDEN_RATIO = 2  # units of the hidden layer per unit of the state
# Decay of the slowest unit at the start of training: half of a state remains after 38 steps.
_SLOWEST_DECAY = 4.0
# Threads that compute many short operations at the same time mostly wait for Python.
_SHORT_OPERATIONS = Lock()


class RecordSummary(NamedTuple):
    """Tensors that the cell receives from a record.

    Attributes:
        state: First state (..., s).
        bias: Bias (..., 2 s) of the hidden layer.
        hidden: Bias (..., d) of the head's input.
    """

    state: Tensor
    bias: Tensor
    hidden: Tensor


class FastCell(nn.Module):
    """Cell of s = `config.light` units between the decoder's state at the origin and the head."""

    def __init__(self, config: ModelConfig, earnings_size: int) -> None:
        super().__init__()
        d, s, inner = config.width, config.light, _HIDDEN_RATIO * config.light
        self.first = nn.Linear(d, s)
        self.bias = nn.Linear(d, inner)
        self.skip = nn.Linear(d, d, bias=False)
        self.earnings = nn.Linear(earnings_size, inner, bias=False)
        self.age = nn.Embedding(N_AGES, inner)
        self.gap = nn.Embedding(MAX_GAP + 1, inner)
        self.up = nn.Linear(s, inner)
        self.down = nn.Linear(inner, s)
        self.decay = nn.Parameter(torch.linspace(0.0, _SLOWEST_DECAY, s))
        self.norm = nn.LayerNorm(s)
        self.out = nn.Linear(s, d)

    def summarise(self, hidden: Tensor) -> RecordSummary:
        """Summarise a record, from the decoder's state at the origin (..., d)."""
        return RecordSummary(self.first(hidden), self.bias(hidden), self.skip(hidden))

    def year_input(self, earnings: Tensor, age: Tensor, gap: Tensor) -> Tensor:
        """Input (..., 2 s) of a year to the hidden layer, without the bias of the record.

        It depends on encoded earnings (..., e), the age, and the years since the previous record.
        """
        position = self.age((age - MIN_AGE).clamp(0, N_AGES - 1)) + self.gap(gap.clamp(0, MAX_GAP))
        values: Tensor = self.earnings(earnings) + position
        return values

    def states(self, first: Tensor, year_inputs: Tensor, after: Tensor) -> Tensor:
        """States (n, t, s) in years with inputs (n, t, 2 s), the biases of the records included.

        Until a year is `after` (n, t) the origin, the state is the `first` (n, s).
        """
        up, decay = self.up.weight.T, torch.sigmoid(self.decay)
        state, states = first, []
        years = zip((year_inputs + self.up.bias).unbind(1), after[..., None].unbind(1), strict=True)
        with _SHORT_OPERATIONS:
            for year_input, is_after in years:
                update = self.down(squared_relu(torch.addmm(year_input, state, up)))
                following = self.norm(torch.addcmul(update, state, decay))
                state = torch.where(is_after, following, state)
                states.append(state)
        return torch.stack(states, 1)

    def hidden(self, state: Tensor, summary: RecordSummary) -> Tensor:
        """The head's input (..., d); `state` may have fewer persons than `summary`."""
        hidden: Tensor = self.out(state) + summary.hidden[: len(state)]
        return hidden
