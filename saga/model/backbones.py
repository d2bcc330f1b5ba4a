"""Backbones: the part of the network that combines a person's years.

Every backbone takes tokens (n, t, d) at ages (n, t), with padding at the end of each record, and
returns the residual stream (n, t, d). It is causal. It also returns the `Cache`: the tensors from
which `saga.simulation.steppers` continues with later years of the same persons.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import Any

from torch import Tensor, nn

from saga.errors import UsageError
from saga.model.config import ModelConfig
from saga.model.decoder import Block, causal_mask, rotation

Cache = list[tuple[Tensor, ...]]


class Decoder(nn.ModuleList):
    """The decoder's blocks; the cache is the keys and values (n, t, size) of each layer.

    A token attends to years at most `span` years earlier, the longest distance in training. The
    weights of older years were not trained, so they would be arbitrary in long simulated records.
    """

    def __init__(self, config: ModelConfig, span: int) -> None:
        super().__init__(Block(config) for _ in range(config.layers))
        self.head_size, self.span = config.head_size, span

    @property
    def stack(self) -> list[Block]:
        """The blocks in order."""
        return [block for block in self if isinstance(block, Block)]

    def forward(self, token: Tensor, age: Tensor) -> tuple[Tensor, Cache]:
        """Residual stream (n, t, d) and cache."""
        cos, sin = (r.to(token) for r in rotation(age, self.head_size))
        # Training needs no span, because no training record is longer.
        mask = causal_mask(age, None if self.training else self.span).to(token.dtype)
        x = token
        cache: Cache = []
        for block in self.stack:
            x, k, v = block(x, cos, sin, mask)
            cache.append((k, v))
        return x, cache

    def residual_outputs(self) -> list[nn.Linear]:
        """The linear maps that end residual branches."""
        return [layer for block in self.stack for layer in (block.out, block.down)]

    def inner_matrices(self) -> list[Tensor]:
        """Weights of the linear maps between hidden states."""
        return [
            layer.weight
            for block in self.stack
            for layer in (block.qkv, block.out, block.up, block.down)
        ]


class OtherBackbone(nn.Module, ABC):
    """A backbone of another distribution, see `load_variant`."""

    @abstractmethod
    def forward(self, token: Tensor, _age: Tensor) -> tuple[Tensor, Cache]:
        """Residual stream (n, t, d), and the cache."""

    @abstractmethod
    def residual_outputs(self) -> list[nn.Linear]:
        """The linear maps that end residual branches."""

    @abstractmethod
    def inner_matrices(self) -> list[Tensor]:
        """Weights of the linear maps between hidden states."""

    @abstractmethod
    def start_stepper(self, network: Any) -> Any:
        """What starts steppers for a network with this backbone (`saga.simulation.steppers`)."""


def load_variant(name: str) -> Any:
    """The class of the backbone or head `name`, which another distribution has.

    The entry points of the group `saga.variants` name them; `saga-forecast-evidence` has `lstm`,
    `feedforward`, `mixture` and `quantiles`. Raises UsageError if it is not installed.
    """
    for entry in entry_points(group="saga.variants", name=name):
        return entry.load()
    raise UsageError(
        f"A network with '{name}' needs the evidence, which is not installed. Run: "
        "pip install 'saga-forecast[evidence]'"
    )


def build_backbone(config: ModelConfig, span: int) -> Decoder | OtherBackbone:
    """The backbone that `config` names, for records of up to `span` years from first to last."""
    if config.backbone == "decoder":
        return Decoder(config, span)
    backbone: OtherBackbone = load_variant(config.backbone)(config)
    return backbone
