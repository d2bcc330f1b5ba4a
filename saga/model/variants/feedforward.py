"""A feed-forward network on the flattened window of the last ten records, the paper's simplest network, in the decoder's place.

    x = token + M [LN token_{t-9}, ..., LN token_t],    then `layers` times x <- x + W_2 relu(W_1 LN x)^2

A token is a linear map of its record, so M sees the flattened records. Where there are fewer, a learned vector stands in.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saga.model.config import ModelConfig
from saga.model.decoder import squared_relu

RECORDS = 10


class Window(nn.Module):
    """The map of the window, then `config.layers` residual MLPs."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, inner = config.width, config.mlp_ratio * config.width
        self.norm = nn.LayerNorm(d)
        self.absent = nn.Parameter(torch.zeros(d))
        self.mix = nn.Linear(RECORDS * d, d)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(config.layers))
        self.ups = nn.ModuleList(nn.Linear(d, inner) for _ in range(config.layers))
        self.downs = nn.ModuleList(nn.Linear(inner, d) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, token: Tensor, age: Tensor) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """(n, t, d) -> (n, t, d), and the flattened window (n, 10 d) of the last token: of records that are not padded, what `step` goes on
        from. Ages reach it by the tokens alone."""
        n, _, d = token.shape
        before = self.absent.expand(n, RECORDS - 1, d)
        window = (
            torch.cat([before, self.norm(token)], 1)
            .unfold(1, RECORDS, 1)
            .transpose(2, 3)
            .flatten(2)
        )
        return self._read(token, window), [(window[:, -1],)]

    def step(
        self, token: Tensor, state: Sequence[tuple[Tensor, ...]]
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """The next token (..., d) and the window before it (..., 10 d) -> the stream (..., d) and the window that ends with it."""
        ((before,),) = state
        window = torch.cat([before[..., token.shape[-1] :], self.norm(token)], -1)
        return self._read(token, window), [(window,)]

    def _read(self, token: Tensor, window: Tensor) -> Tensor:
        """The stream (..., d) of the window (..., 10 d) that ends with the token."""
        x: Tensor = token + self.dropout(self.mix(window))
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + self.dropout(down(squared_relu(up(norm(x)))))
        return x

    def ends(self) -> list[nn.Linear]:
        """The maps that end residual branches."""
        return [self.mix, *(layer for layer in self.downs if isinstance(layer, nn.Linear))]

    def matrices(self) -> list[Tensor]:
        """Weights of the maps between hidden states."""
        return [
            layer.weight
            for layer in (self.mix, *self.ups, *self.downs)
            if isinstance(layer, nn.Linear)
        ]
