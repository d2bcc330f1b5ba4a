"""Causal decoder blocks: pre-norm, multi-query attention (Shazeer 2019) with rotary positions on age, squared-ReLU MLP (So et al. 2021).

Positions are ages, not indices: a gap of three years looks like three years.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.model.config import ModelConfig


def rotation(age: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (..., size / 2) of the rotary angles of an age (Su et al. 2021); periods from 6 to 600 years."""
    index = torch.arange(size // 2, dtype=torch.float64) / max(1, size // 2 - 1)
    angle = age[..., None].to(torch.float64) / (100.0**index)
    return torch.cos(angle).to(torch.get_default_dtype()), torch.sin(angle).to(
        torch.get_default_dtype()
    )


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
        self.dropout = nn.Dropout(config.dropout)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(..., d) -> rotated queries (..., heads, size), rotated key (..., size), value (..., size)."""
        qk, v = self.qkv(self.norm_attention(x)).split(
            [(self.heads + 1) * self.size, self.size], -1
        )
        qk = rotate(
            qk.unflatten(-1, (self.heads + 1, self.size)), cos.unsqueeze(-2), sin.unsqueeze(-2)
        )
        return qk[..., :-1, :], qk[..., -1, :], v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Residual stream after attention's output (..., heads * size) and the MLP."""
        x = x + self.dropout(self.out(attended))
        deeper: Tensor = x + self.dropout(self.down(squared_relu(self.up(self.norm_mlp(x)))))
        return deeper

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(n, t, d) -> (n, t, d), and the keys and values (n, t, size) for a cache. `mask` (t, t) or (n, t, t) is 0 or -inf, added to the
        scores.

        Written as two matrix products, with the heads folded into the rows: on CPU this is faster at this size than a fused kernel, and the
        rollout does the same arithmetic. Padding stands at the end, so the causal mask hides it from every valid token.
        """
        n, t, _ = x.shape
        q, k, v = self.project(x, cos, sin)
        scores = (
            torch.bmm(q.reshape(n, t * self.heads, self.size), k.transpose(1, 2)) * self.size**-0.5
        )
        weights = (scores.view(n, t, self.heads, t) + mask.unsqueeze(-2)).softmax(-1)
        attended = torch.bmm(weights.view(n, t * self.heads, t), v).view(
            n, t, self.heads * self.size
        )
        return self.finish(x, attended), k, v


def squared_relu(x: Tensor) -> Tensor:
    """relu(x)^2, as a product: on CPU a power costs four times as much. Overwrites x."""
    kept = F.relu(x, inplace=True)  # of a linear map, whose gradient does not need its own result
    return kept * kept


def causal_mask(age: Tensor, span: int | None = None) -> Tensor:
    """0 where a row may see a column, -inf where the column is later, or more than `span` years earlier: (t, t), or (n, t, t) where a
    record at ages (n, t) is longer than that."""
    t = age.shape[1]
    causal = torch.full((t, t), float("-inf"), device=age.device).triu(1)
    if span is None or not bool((age.amax(1) - age[:, 0] > span).any()):
        return causal
    return causal.masked_fill(age[:, :, None] - age[:, None, :] > span, float("-inf"))
