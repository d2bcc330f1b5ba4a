"""A feed-forward backbone on the last ten records, the simplest network of the paper.

    x = token + M [LN token_{t-9}, ..., LN token_t]
    x <- x + W_2 relu(W_1 LN x)^2,    `layers` times

A token is a linear map of its record, so M sees the flattened records. A trained vector replaces
records that are missing at the start.
"""

from __future__ import annotations

import torch
from saga.evaluation.variants.recurrent import RecurrentBackbone
from torch import Tensor, nn

from saga.model.config import ModelConfig
from saga.model.decoder import Cache, squared_relu
from saga.model.dropout import Dropout

RECORDS = 10  # last records of a person that the network sees


class FeedForwardBackbone(RecurrentBackbone):
    """A linear map of the last ten records, then `config.layers` residual MLPs."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, inner = config.width, config.mlp_ratio * config.width
        self.norm = nn.LayerNorm(d)
        self.absent = nn.Parameter(torch.zeros(d))
        self.mix = nn.Linear(RECORDS * d, d)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(config.layers))
        self.ups = nn.ModuleList(nn.Linear(d, inner) for _ in range(config.layers))
        self.downs = nn.ModuleList(nn.Linear(inner, d) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, token: Tensor, _age: Tensor) -> tuple[Tensor, Cache]:
        """Residual stream (n, t, d), and the flattened window (n, 10 d) at the last token.

        `step` continues from the window, which must be of unpadded records. Ages reach the backbone
        only through the tokens.
        """
        n, _, d = token.shape
        absent = self.absent.expand(n, RECORDS - 1, d)
        records = torch.cat([absent, self.norm(token)], 1)
        window = records.unfold(1, RECORDS, 1).transpose(2, 3).flatten(2)
        return self._stream(token, window), [(window[:, -1],)]

    def step(self, token: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        """One more token (..., d) after the window (..., 10 d): stream and new window."""
        ((previous,),) = state
        window = torch.cat([previous[..., token.shape[-1] :], self.norm(token)], -1)
        return self._stream(token, window), [(window,)]

    def _stream(self, token: Tensor, window: Tensor) -> Tensor:
        x: Tensor = token + self.dropout(self.mix(window))
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + self.dropout(down(squared_relu(up(norm(x)))))
        return x

    def residual_outputs(self) -> list[nn.Linear]:
        """The linear maps that end residual branches."""
        return [self.mix, *(layer for layer in self.downs if isinstance(layer, nn.Linear))]

    def inner_matrices(self) -> list[Tensor]:
        """Weights of the linear maps between hidden states."""
        return [
            layer.weight
            for layer in (self.mix, *self.ups, *self.downs)
            if isinstance(layer, nn.Linear)
        ]
