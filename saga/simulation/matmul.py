"""Matrix products of simulated paths, in float32, by the fastest library.

These products take most of a rollout's time. PyTorch calls MKL, which uses only half of the 512-bit
vectors on processors of makers other than Intel. oneDNN, which is part of PyTorch, uses all of
them, so it is used if the processor has such vectors. The choice depends on the processor, not on
timing, so the same machine always gives the same bits.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_MIN_WIDTH = 16  # a linear layer with fewer inputs is not replaced


class Affine(nn.Module):
    """An affine map, for inference: x (..., in) -> (..., out)."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Weight (out, in), bias (out,)."""
        super().__init__()
        self.register_buffer("weight", weight.detach().contiguous())
        # Contiguous: oneDNN ignores the strides of a bias.
        self.register_buffer("bias", None if bias is None else bias.detach().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """The map: x W^T + b."""
        return product(x, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Product (..., out) of x (..., in), weight (out, in) and bias (out,)."""
    if has_wide_vectors():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    return F.linear(x, weight, bias)


Module = TypeVar("Module", bound=nn.Module)


def with_affine_layers(module: Module) -> Module:
    """A copy of the module with `Affine` layers instead of large linear layers."""
    copy = deepcopy(module)
    for parent in list(copy.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and child.in_features >= _MIN_WIDTH:
                setattr(parent, name, Affine(child.weight, child.bias))
    return copy


@cache
def has_wide_vectors() -> bool:
    """Whether oneDNN multiplies float32 on this machine.

    The processor must have 512-bit vectors, and PyTorch must have the operation (an internal one,
    used by its compiler) with the expected result.
    """
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    x, weight, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3), torch.arange(4.0)
    try:
        result = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(result, F.linear(x, weight, bias))  # small integers: no rounding


def has_matrix_units() -> bool:
    """Whether the processor has bfloat16 matrix units (AMX), several times as fast as float32."""
    try:
        return bool(torch.cpu._is_amx_tile_supported())
    except (AttributeError, RuntimeError):
        return False
