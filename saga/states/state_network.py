"""The state network: states along a path of earnings.

A future is drawn in two parts, p(earnings path | record) p(states | earnings path, record): first
the path, by the earnings network, then the states, year by year, given the whole path. By the chain
rule this is the joint distribution, and it leaves the distribution of earnings unchanged. The order
within a year is emigration; death, which is possible only if all later earnings of the path are
zero; then the columns, each given those before it (Bengio and Bengio 2000).

Each output depends on the decoder's state at the origin; on the path's earnings of the year, the
year before and the year after; on the number of zero years ahead; on age; and on the states at the
end of the year before, with their durations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from saga.model.decoder import squared_relu
from saga.model.tokens import AGES
from saga.states.codes import INDUSTRY, MAX_SPELL, OCCUPATION

MAX_LOOKAHEAD = 15  # years of the path in which the next positive earnings are looked for
_NEVER = float("-inf")


class StateInputs(NamedTuple):
    """Inputs of n path-years, before their states are drawn.

    Attributes:
        origin: The decoder's state at the origin (n, d).
        before: Encoded earnings of the year before (n, e).
        now: Encoded earnings of the year (n, e).
        after: Encoded earnings of the year after (n, e).
        zero_years: See `saga.states.life_courses.ZeroRuns` (n,).
        years_left: See `ZeroRuns` (n,).
        zero_to_end: See `ZeroRuns` (n,).
        age: Years above 16 (n,).
        period: Decades since the last training year, at most 0 (n,).
        codes: Codes at the end of the year before (n, 7).
        workplace: Whether there was a workplace (n,).
        durations: Years in the current spells (n, 8).
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
    """Heads for exits and for columns of `sizes` codes each, 0 included.

    `d` is the width of the earnings network. The names of the attributes are those of the weights
    in circumstances.safetensors. `told` (n_column,) is 0 for a column that no training record has;
    such a column is never drawn.
    """

    starts: Tensor
    told: Tensor

    def __init__(
        self, d: int, earnings_size: int, sizes: tuple[int, ...], width: int = 128
    ) -> None:
        super().__init__()
        self.sizes, self.share, columns = sizes, width // 2, len(sizes)
        self.register_buffer("told", torch.ones(columns))
        self.origin = nn.Linear(d, width)
        self.before = nn.Linear(earnings_size, width, bias=False)
        self.now = nn.Linear(2 * earnings_size, width, bias=False)
        self.period = nn.Linear(2, width, bias=False)
        # One table for all integers (age, codes, durations) needs one sum instead of sixteen.
        rows = [AGES, *sizes, *[2 * (MAX_SPELL + 1)] * (columns + 1)]
        self.numbers = nn.EmbeddingBag(sum(rows), width, mode="sum")
        starts = torch.from_numpy(np.cumsum([0, *rows[:-1]]))
        self.register_buffer("starts", starts, persistent=False)
        self.ahead = nn.Embedding(2 * (MAX_LOOKAHEAD + 2) * (MAX_LOOKAHEAD + 1), width)
        # Two logits each: the rounding of a product with one output column depends on the other
        # rows (`saga.simulation.rollout.rows_are_independent`).
        self.leave, self.die = nn.Linear(width, 2), nn.Linear(width, 2)
        self.inner = nn.Linear(width, width)
        self.read = nn.Linear(width, columns * self.share)
        self.drawn = nn.ModuleList(
            nn.Embedding(size, (columns - 1 - j) * self.share) for j, size in enumerate(sizes[:-1])
        )
        self.out = nn.ModuleList(nn.Linear(self.share, size + 1) for size in sizes)
        for layer in [*self.out, self.leave, self.die]:
            nn.init.normal_(layer.weight, std=0.02)
        for table in [self.numbers, self.ahead, *self.drawn]:
            nn.init.normal_(table.weight, std=0.1)

    @classmethod
    def from_weights(cls, weights: Mapping[str, Tensor], sizes: tuple[int, ...]) -> StateNetwork:
        """The network with a bundle's weights, whose shapes give the widths."""
        width, d = weights["origin.weight"].shape
        network = cls(d, weights["before.weight"].shape[1], sizes, width)
        network.load_state_dict(dict(weights))
        return network.eval()

    def exits(self, inputs: StateInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of exits, and the features of the columns.

        Returns the logits (n, 2) of staying or emigrating, given the year before; the logits (n, 2)
        of surviving or dying, where a path with positive earnings ahead survives; and the features
        (n, 7 width / 2).
        """
        # Odd rows of the table are for durations with a workplace, even rows for those without.
        durations = 2 * inputs.durations + inputs.workplace[:, None]
        integers = torch.cat([inputs.age[:, None], inputs.codes, durations], 1) + self.starts
        period = self.period(torch.stack([inputs.period, inputs.period.exp()], -1))
        x = (
            self.origin(inputs.origin)
            + self.before(inputs.before)
            + self.numbers(integers)
            + period
        )
        leave = self.leave(squared_relu(x.clone()))
        run = 2 * inputs.zero_years + inputs.zero_to_end
        ahead = self.ahead(run * (MAX_LOOKAHEAD + 1) + inputs.years_left)
        h = squared_relu(x + self.now(torch.cat([inputs.now, inputs.after], -1)) + ahead)
        h = h + squared_relu(self.inner(h))
        alive, dying = self.die(h).unbind(-1)
        die = torch.stack([alive, torch.where(inputs.zero_to_end, dying, _NEVER)], -1)
        return leave, die, self.read(h)

    def columns(self, features: Tensor, before: Tensor, choose: ChooseCodes) -> Tensor:
        """Code numbers (n, 7) of the columns, in order; 0 for a column absent from training.

        Args:
            features: The features of `exits`.
            before: Codes last known (n, 7); keeping a code has a logit of its own.
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
