"""Backbones: what mixes a person's years inside the residual stream. Tokens go in, states that the head can read come out.

All take tokens (n, t, d) at ages (n, t), records at the front and padding behind, and give the stream (n, t, d), causal, with what later
years of the same persons need (`Cache`; `saga.simulation.steppers` goes on from it).
"""

from __future__ import annotations

from torch import Tensor, nn

from saga.model.config import ModelConfig
from saga.model.decoder import Block, causal_mask, rotation
from saga.model.variants.feedforward import Window
from saga.model.variants.lstm import Recurrent

Cache = list[tuple[Tensor, ...]]


class Decoder(nn.ModuleList):
    """Attention: the decoder's blocks (`saga.model.decoder`). Its cache is each layer's keys and values (n, t, size).

    Nobody looks further back than `span` years, the most that training showed: how to weigh what is older was never learnt, and a path
    that is carried on from a long record would weigh it by chance.
    """

    def __init__(self, config: ModelConfig, span: int) -> None:
        super().__init__(Block(config) for _ in range(config.layers))
        self.head_size, self.span = config.head_size, span

    @property
    def stack(self) -> list[Block]:
        """The blocks, first to last."""
        return [block for block in self if isinstance(block, Block)]

    def forward(self, token: Tensor, age: Tensor) -> tuple[Tensor, Cache]:
        """See above."""
        cos, sin = (r.to(token) for r in rotation(age, self.head_size))
        mask = causal_mask(age, None if self.training else self.span).to(
            token.dtype
        )  # no record in training is longer
        x = token
        cache: Cache = []
        for block in self.stack:
            x, k, v = block(x, cos, sin, mask)
            cache.append((k, v))
        return x, cache

    def ends(self) -> list[nn.Linear]:
        """The maps that end residual branches."""
        return [layer for block in self.stack for layer in (block.out, block.down)]

    def matrices(self) -> list[Tensor]:
        """Weights of the maps between hidden states."""
        return [
            layer.weight
            for block in self.stack
            for layer in (block.qkv, block.out, block.up, block.down)
        ]


Backbone = Decoder | Recurrent | Window


def backbone(config: ModelConfig, span: int) -> Backbone:
    """The backbone that `config` names, for records of up to `span` years between first and last."""
    if config.backbone == "decoder":
        return Decoder(config, span)
    kinds: dict[str, type[Recurrent | Window]] = {"lstm": Recurrent, "feedforward": Window}
    return kinds[config.backbone](config)
