"""The state network: states along a path of earnings.

A future is drawn in two parts, p(earnings path | record) p(states | earnings path, record): first
the path, by the earnings network, then the states, year by year, given the whole path. By the chain
rule this is the joint distribution, and it leaves the distribution of earnings unchanged. The order
within a year is emigration; death, which is possible only if all later earnings of the path are
zero; then the columns, each given those before it (Bengio and Bengio 2000).

Emigration depends on the decoder's state at the origin, on age and period, on the states at the end
of the year before with their durations, and on that year's earnings. Death and the columns also
depend on the path's earnings of the year and the year after, and on its zero years ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from saga.files.bundle_folder import CIRCUMSTANCES
from saga.files.stored_values import faults_of
from saga.model.decoder import squared_relu
from saga.model.members import load_weights
from saga.schema import N_AGES
from saga.states.codes import INDUSTRY, MAX_SPELL, OCCUPATION

WIDTH = 128
MAX_LOOKAHEAD = 15  # years of the path in which the next positive earnings are looked for
_NEVER = float("-inf")


class StateInputs(NamedTuple):
    """Inputs of n path-years, before their states are drawn.

    Attributes:
        origin: The decoder's state at the origin (n, d).
        before: Encoded earnings of the year before (n, e).
        now: Encoded earnings of the year (n, e).
        after: Encoded earnings of the year after (n, e).
        zero_years: Zero years in a row from the year on, at most MAX_LOOKAHEAD + 1 (n,).
        years_left: Years of the path after the year, at most MAX_LOOKAHEAD; 0 if the year is not
            zero (n,).
        zero_to_end: Whether the path has no positive earnings from the year on (n,).
        age: Years above 16 (n,).
        period: (year - last training year) / 10: negative in training, 0 in later years (n,).
        codes: Codes at the end of the year before (n, 7).
        workplace: Whether there was a workplace then (n,).
        durations: Years in the current spell of each code; the eighth: with or without a workplace
            (n, 8).
    """

    origin: Tensor
    before: Tensor
    now: Tensor
    after: Tensor
    zero_years: Tensor
    years_left: Tensor
    zero_to_end: Tensor
    age: Tensor
    period: Tensor
    codes: Tensor
    workplace: Tensor
    durations: Tensor


ChooseCodes = Callable[[int, Tensor], Tensor]  # column and logits (n, size) -> code numbers (n,)


class StateNetwork(nn.Module):
    """Draws exits and the codes of the columns (`saga.states.codes.COLUMNS`).

    The names of layers and buffers are those of the weights in circumstances.safetensors.

    Attributes:
        sizes: Number of codes of each column, with 0 for a missing one.
        share: Width of the features of one column.
        told: Whether a column occurs in training, 1 or 0, (n_column,); other columns are never
            drawn.
        starts: First row of each integer input in the table `numbers`.
        ahead: Embedding of the number of years without earnings that follow.
        read: Linear map from the hidden layer to the features of all columns.
        drawn: What a drawn code adds to the features of later columns.
    """

    starts: Tensor
    told: Tensor

    def __init__(
        self, d: int, earnings_size: int, sizes: tuple[int, ...], width: int = WIDTH
    ) -> None:
        """Layers of `width` for an earnings network of width `d`."""
        super().__init__()
        self.sizes, self.share, n_column = sizes, width // 2, len(sizes)
        self.register_buffer("told", torch.ones(n_column))
        self.origin = nn.Linear(d, width)
        self.before = nn.Linear(earnings_size, width, bias=False)
        self.now = nn.Linear(2 * earnings_size, width, bias=False)
        self.period = nn.Linear(2, width, bias=False)
        # One table for all integers (age, codes, durations) needs one sum instead of sixteen.
        rows = [N_AGES, *sizes, *[2 * (MAX_SPELL + 1)] * (n_column + 1)]
        self.numbers = nn.EmbeddingBag(sum(rows), width, mode="sum")
        starts = torch.from_numpy(np.cumsum([0, *rows[:-1]]))
        self.register_buffer("starts", starts, persistent=False)
        self.ahead = nn.Embedding(2 * (MAX_LOOKAHEAD + 2) * (MAX_LOOKAHEAD + 1), width)
        # Two logits each: the rounding of a product with one output column depends on the other
        # rows (`saga.simulation.rollout.persons_per_group`).
        self.leave, self.die = nn.Linear(width, 2), nn.Linear(width, 2)
        self.inner = nn.Linear(width, width)
        self.read = nn.Linear(width, n_column * self.share)
        self.drawn = nn.ModuleList(
            nn.Embedding(size, (n_column - 1 - j) * self.share) for j, size in enumerate(sizes[:-1])
        )
        self.out = nn.ModuleList(nn.Linear(self.share, size + 1) for size in sizes)
        for layer in [*self.out, self.leave, self.die]:
            nn.init.normal_(layer.weight, std=0.02)
        for table in [self.numbers, self.ahead, *self.drawn]:
            nn.init.normal_(table.weight, std=0.1)

    @classmethod
    def from_weights(cls, weights: Mapping[str, Tensor], sizes: tuple[int, ...]) -> StateNetwork:
        """The network with a bundle's weights, whose shapes give the widths."""
        with faults_of(CIRCUMSTANCES):
            width, d = weights["origin.weight"].shape
            network = cls(d, weights["before.weight"].shape[1], sizes, width)
        load_weights(network, weights, CIRCUMSTANCES)
        return network

    def exits(self, inputs: StateInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of exits, and the features of the columns.

        Returns the logits (n, 2) of staying or emigrating, given the year before; the logits (n, 2)
        of surviving or dying, where a path with positive earnings ahead survives; and the features
        (n, 7 width / 2).
        """
        # In a block of the table, odd rows are durations with a workplace, even rows without.
        durations = 2 * inputs.durations + inputs.workplace[:, None]
        integers = torch.cat([inputs.age[:, None], inputs.codes, durations], 1) + self.starts
        period = self.period(torch.stack([inputs.period, inputs.period.exp()], -1))
        x = (
            self.origin(inputs.origin)
            + self.before(inputs.before)
            + self.numbers(integers)
            + period
        )
        leave = self.leave(squared_relu(x.clone()))  # `squared_relu` overwrites its input
        run = 2 * inputs.zero_years + inputs.zero_to_end
        ahead = self.ahead(run * (MAX_LOOKAHEAD + 1) + inputs.years_left)
        h = squared_relu(x + self.now(torch.cat([inputs.now, inputs.after], -1)) + ahead)
        h = h + squared_relu(self.inner(h))
        alive, dying = self.die(h).unbind(-1)
        die = torch.stack([alive, torch.where(inputs.zero_to_end, dying, _NEVER)], -1)
        return leave, die, self.read(h)

    def columns(self, features: Tensor, before: Tensor, choose: ChooseCodes) -> Tensor:
        """Code numbers (n, 7) of the columns, in order.

        A number is 0 for a column that does not occur in training, for the industry without a
        workplace, and for the occupation without a workplace.

        Args:
            features: The features of `exits`.
            before: Codes last known (n, 7); keeping a code adds a learned bonus to its logit.
            choose: Chooses the codes of a column from its logits.
        """
        numbers: list[Tensor] = []
        for j in range(len(self.sizes)):
            column, features = features[:, : self.share], features[:, self.share :]
            output: Tensor = self.out[j](torch.relu(column))
            stay = output[:, -1:]
            logits = output[:, :-1].scatter_add(1, before[:, j, None], stay)
            if j != INDUSTRY:  # only a workplace may be absent
                logits = torch.cat([torch.full_like(stay, _NEVER), logits[:, 1:]], 1)
            number = choose(j, logits) if self.told[j] else torch.zeros_like(before[:, j])
            if j == OCCUPATION:  # no occupation without a workplace
                number = torch.where(numbers[INDUSTRY] > 0, number, 0)
            numbers.append(number)
            if j < len(self.drawn):
                features = features + self.drawn[j](number)
        return torch.stack(numbers, 1)
