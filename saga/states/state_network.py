"""The law of circumstances along a path of earnings.

A future is drawn in two parts, p(earnings path | record) p(circumstances | earnings path, record): first the path, by the network
itself, then year by year what else happened, given the whole path. That is the joint law, by the chain rule, and it leaves the law of
earnings as it is. A year is drawn as: emigration; death, which only zeros to the end of the path allow; then the columns one after the
other, each given those before it (Bengio and Bengio 2000).

Each answer reads the decoder's state at the origin, the path's earnings of the year, the year before and the year after, how
many zeros follow, age, and the circumstances at the end of the year before with their age.
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

MAX_LOOKAHEAD = 15  # years of the path that are looked ahead for earnings that are not zero
_NEVER = float("-inf")


class StateInputs(NamedTuple):
    """What is known of n path-years before their circumstances are drawn.

    `origin` (n, d): the decoder's state at the origin; `before`, `now`, `after` (n, e): described earnings; `zeros`, `left`,
    `last` (n,): what lies ahead (`saga.states.life_courses.ZeroRuns`); `age` (n,): years above 16; `period` (n,): decades since the last year learnt
    from, at most 0; `codes` (n, 7), `workplace` (n,), `years` (n, 8): the standing at the end of the year before.
    """

    origin: Tensor
    before: Tensor
    now: Tensor
    after: Tensor
    zeros: Tensor
    left: Tensor
    last: Tensor
    age: Tensor
    period: Tensor
    codes: Tensor
    workplace: Tensor
    years: Tensor


Choose = Callable[[int, Tensor], Tensor]


class StateNetwork(nn.Module):
    """Heads for circumstances: of `sizes` codes each, 0 counted, beside a network of width `d`."""

    starts: Tensor
    told: Tensor

    def __init__(
        self, d: int, earnings_size: int, sizes: tuple[int, ...], width: int = 128
    ) -> None:
        super().__init__()
        self.sizes, self.share, columns = sizes, width // 2, len(sizes)
        self.register_buffer(
            "told", torch.ones(columns)
        )  # 0: a column that nobody learnt from showed, and that is never drawn
        self.origin = nn.Linear(d, width)
        self.before = nn.Linear(earnings_size, width, bias=False)
        self.now = nn.Linear(2 * earnings_size, width, bias=False)
        self.period = nn.Linear(2, width, bias=False)
        # One table for all that is a number: age, the codes, how long each has been so. One sum a row, not sixteen.
        rows = [AGES, *sizes, *[2 * (MAX_SPELL + 1)] * (columns + 1)]
        self.numbers = nn.EmbeddingBag(sum(rows), width, mode="sum")
        self.register_buffer(
            "starts", torch.from_numpy(np.cumsum([0, *rows[:-1]])), persistent=False
        )
        self.ahead = nn.Embedding(2 * (MAX_LOOKAHEAD + 2) * (MAX_LOOKAHEAD + 1), width)
        # Going or not has two logits: products that give one number a row round it by the company (`saga.simulation.rollout.rows_stand_alone`).
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
        """With the weights of a bundle, whose shapes say the widths."""
        width, d = weights["origin.weight"].shape
        made = cls(d, weights["before.weight"].shape[1], sizes, width)
        made.load_state_dict(dict(weights))
        return made.eval()

    def exits(self, year: StateInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, 2) of staying or emigrating, given what is known of the year before; of living or dying, where the path goes on for
        sure living; and what the columns read (n, 7 width / 2)."""
        # How long one has been so may count otherwise with a workplace than without: the flag is the parity of the row.
        lasted = 2 * year.years + year.workplace[:, None]
        told = self.numbers(torch.cat([year.age[:, None], year.codes, lasted], 1) + self.starts)
        period = self.period(torch.stack([year.period, year.period.exp()], -1))
        x = self.origin(year.origin) + self.before(year.before) + told + period
        leave = self.leave(squared_relu(x.clone()))
        ahead = (2 * year.zeros + year.last) * (MAX_LOOKAHEAD + 1) + year.left
        h = squared_relu(x + self.now(torch.cat([year.now, year.after], -1)) + self.ahead(ahead))
        h = h + squared_relu(self.inner(h))
        alive, dying = self.die(h).unbind(-1)
        die = torch.stack([alive, torch.where(year.last, dying, _NEVER)], -1)
        return leave, die, self.read(h)

    def columns(self, reads: Tensor, before: Tensor, choose: Choose) -> Tensor:
        """Numbers (n, 7) of the columns, in order: `choose(j, logits)` says those of column j, (n,), from its logits (n, size); 0 where no
        record that was learnt from told the column.

        `before` (n, 7) are the codes last known. To stay with one has a logit of its own.
        """
        chosen: list[Tensor] = []
        for j in range(len(self.sizes)):
            read, reads = reads[:, : self.share], reads[:, self.share :]
            answer: Tensor = self.out[j](torch.relu(read))
            stay = answer[:, -1:]
            logits = answer[:, :-1].scatter_add(1, before[:, j, None], stay)
            if j != INDUSTRY:  # only a workplace can be none
                logits = torch.cat([torch.full_like(stay, _NEVER), logits[:, 1:]], 1)
            number = choose(j, logits) if self.told[j] else torch.zeros_like(before[:, j])
            if j == OCCUPATION:  # nobody has one without a workplace
                number = torch.where(chosen[INDUSTRY] > 0, number, 0)
            chosen.append(number)
            if j < len(self.drawn):
                reads = reads + self.drawn[j](number)
        return torch.stack(chosen, 1)
