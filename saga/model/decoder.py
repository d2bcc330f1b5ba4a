"""Causal decoder blocks with multi-query attention and rotary positions on age.

Blocks are pre-norm, with one key-value head (Shazeer 2019) and a squared-ReLU MLP (So et al. 2021).
Positions are ages, not indices: a gap of three years counts as three years. The key-value cache is
built in `saga.model.backbones` and kept in `saga.simulation.steppers`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.model.config import ModelConfig
from saga.model.dropout import Dropout


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
