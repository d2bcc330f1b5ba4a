"""An LSTM (Hochreiter and Schmidhuber 1997) in the decoder's place: pre-norm layers with residuals, x <- x + LSTM(LN x).

Everything else is the model's own: tokens, long skip, head, training. So a comparison tells what attention brings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.model.config import ModelConfig


class Recurrent(nn.Module):
    """`config.layers` LSTM layers of `config.width` units."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.width
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(config.layers))
        self.cells = nn.ModuleList(nn.LSTM(d, d, batch_first=True) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)
        for cell in self.layers:
            parameter(cell, "bias_ih_l0").data[d : 2 * d] = (
                1.0  # begins by remembering (Jozefowicz, Zaremba and Sutskever 2015)
            )

    @property
    def layers(self) -> list[nn.LSTM]:
        """The LSTM layers, first to last."""
        return [cell for cell in self.cells if isinstance(cell, nn.LSTM)]

    def forward(self, token: Tensor, age: Tensor) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """(n, t, d) -> (n, t, d), and each layer's output and memory cell (n, d) after the last token: of records that are not padded,
        what `step` goes on from. Ages reach it by the tokens alone."""
        x = token
        ends: list[tuple[Tensor, ...]] = []
        for norm, cell in zip(self.norms, self.layers, strict=True):
            out, (h, c) = cell(norm(x))
            x = x + self.dropout(out)
            ends.append((h[0], c[0]))
        return x, ends

    def step(
        self, token: Tensor, state: Sequence[tuple[Tensor, ...]]
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """The next token (..., d) and each layer's output and memory cell before it -> the stream (..., d) and those after it."""
        x = token
        following: list[tuple[Tensor, ...]] = []
        for norm, cell, (h, c) in zip(self.norms, self.layers, state, strict=True):
            told = F.linear(norm(x), parameter(cell, "weight_ih_l0"), parameter(cell, "bias_ih_l0"))
            told = told + F.linear(
                h, parameter(cell, "weight_hh_l0"), parameter(cell, "bias_hh_l0")
            )
            take, keep, fresh, give = told.chunk(4, -1)
            c = torch.sigmoid(keep) * c + torch.sigmoid(take) * torch.tanh(fresh)
            h = torch.sigmoid(give) * torch.tanh(c)
            x = x + h
            following.append((h, c))
        return x, following

    def ends(self) -> list[nn.Linear]:
        """No linear map ends a residual branch."""
        return []

    def matrices(self) -> list[Tensor]:
        """Weights of the maps between hidden states."""
        return [
            parameter(cell, name)
            for cell in self.layers
            for name in ("weight_ih_l0", "weight_hh_l0")
        ]


def parameter(cell: nn.LSTM, name: str) -> Tensor:
    """A parameter of an LSTM layer; torch makes their names when it runs, so types do not know them."""
    found: Tensor = cell.get_parameter(name)
    return found
