"""The backbone, which combines a person's years: a causal decoder with positions on age.

Every backbone takes tokens (n, t, d) at ages (n, t), with padding at the end of each record, and
returns the residual stream (n, t, d). It is causal. It also returns the `Cache`: the tensors from
which `saga.simulation.steppers` continues with later years of the same persons.

Blocks have multi-query attention and rotary positions. They are pre-norm, with one key-value head
(Shazeer 2019) and a squared-ReLU MLP (So et al. 2021). Positions are ages, not indices: a gap of
three years counts as three years.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.errors import UsageError
from saga.model.config import ModelConfig
from saga.model.dropout import Dropout

Cache = list[tuple[Tensor, ...]]


def rotation(age: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (..., size / 2) of the rotary angles of an age (Su et al. 2021).

    The periods run from 6 to 600 years.
    """
    index = torch.arange(size // 2, dtype=torch.float64) / max(1, size // 2 - 1)
    angle = age[..., None].to(torch.float64) / (100.0**index)
    dtype = torch.get_default_dtype()
    return torch.cos(angle).to(dtype), torch.sin(angle).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the last axis by the angles."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    """One decoder block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, self.heads, self.size = config.width, config.heads, config.head_size
        self.norm_attention, self.norm_mlp = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, d + 2 * self.size)
        self.out = nn.Linear(d, d)
        self.up = nn.Linear(d, config.mlp_ratio * d)
        self.down = nn.Linear(config.mlp_ratio * d, d)
        self.dropout = Dropout(config.dropout)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (..., heads, size) and key (..., size), and value, of x (..., d)."""
        qk, v = self.qkv(self.norm_attention(x)).split(
            [(self.heads + 1) * self.size, self.size], -1
        )
        qk = qk.unflatten(-1, (self.heads + 1, self.size))
        qk = rotate(qk, cos.unsqueeze(-2), sin.unsqueeze(-2))
        return qk[..., :-1, :], qk[..., -1, :], v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Residual stream after attention's output (..., heads * size) and the MLP."""
        x = x + self.dropout(self.out(attended))
        stream: Tensor = x + self.dropout(self.down(squared_relu(self.up(self.norm_mlp(x)))))
        return stream

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Residual stream (n, t, d), and the keys and values (n, t, size) for a cache.

        `mask` (t, t) or (n, t, t) is 0 or -inf and is added to the logits. Padding is at the end of
        a record, so the causal mask hides it from all valid tokens.
        """
        n, t, _ = x.shape
        q, k, v = self.project(x, cos, sin)
        # Heads are rows of one product: with these sizes faster on a CPU than a fused kernel.
        scores = torch.bmm(q.reshape(n, t * self.heads, self.size), k.transpose(1, 2))
        scores = (scores * self.size**-0.5).view(n, t, self.heads, t)
        weights = (scores + mask.unsqueeze(-2)).softmax(-1)
        attended = torch.bmm(weights.view(n, t * self.heads, t), v)
        return self.finish(x, attended.view(n, t, self.heads * self.size)), k, v


def attend_with_cache(
    query: Tensor, record: tuple[Tensor, Tensor], path: tuple[Tensor, Tensor], out: Tensor
) -> None:
    """Attention of m paths of a person to the record and to the simulated years.

    Args:
        query: Scaled and rotated queries (m, heads, size).
        record: Keys (size, t) and values (t, size) of the record.
        path: Keys and values (s, m, size) of the simulated years of each path.
        out: Receives the attention's output (m, heads, size).
    """
    m, heads, size = query.shape
    (record_keys, record_values), (path_keys, path_values) = record, path
    lengths = [len(record_values), len(path_values)]
    to_record = (query.reshape(m * heads, size) @ record_keys).view(m, heads, lengths[0])
    to_path = torch.bmm(query, path_keys.permute(1, 2, 0))
    weights = torch.cat([to_record, to_path], -1).softmax(-1)
    to_record, to_path = torch.split(weights, lengths, -1)
    shared = (to_record.reshape(m * heads, lengths[0]) @ record_values).view(m, heads, size)
    torch.baddbmm(shared, to_path, path_values.transpose(0, 1), out=out)


def squared_relu(x: Tensor) -> Tensor:
    """relu(x)^2; overwrites x, which no gradient may need, as for a result of a linear map or sum.

    A product takes a quarter of the time of a power on a CPU.
    """
    positive = F.relu(x, inplace=True)
    return positive * positive


def causal_mask(age: Tensor, span: int | None = None) -> Tensor:
    """0 if a row may attend to a column, -inf if it is later or over `span` years earlier.

    Shape (t, t), or (n, t, t) if a record at ages (n, t) is longer than `span`.
    """
    t = age.shape[1]
    causal = torch.full((t, t), float("-inf"), device=age.device).triu(1)
    if span is None or not bool((age.amax(1) - age[:, 0] > span).any()):
        return causal
    return causal.masked_fill(age[:, :, None] - age[:, None, :] > span, float("-inf"))


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
