"""Products of paths with matrices, where a rollout spends its time: in float32 or bfloat16, by the library with the widest vectors.

For float32 PyTorch calls MKL, which on processors of other makers than Intel leaves the 512-bit half of the machine idle. oneDNN, which
PyTorch brings along, does not, so it multiplies wherever the processor has such vectors. The choice goes by the processor, never by a
clock: the same machine always gives the same bits. bfloat16 rounds the two factors of a product and its result to 8 bits, sums in
float32, and is several times as fast where the processor has units for it, slower where it has not.
"""

from __future__ import annotations

import platform
from copy import deepcopy
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saga.requests import Precision

_NARROW = 16  # numbers, below which a map stays as it is


class Affine(nn.Module):
    """An affine map at a precision, for inference: x (..., in) -> (..., out). bfloat16 gives bfloat16, whatever it is given."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> None:
        """Weight (out, in), bias (out,)."""
        super().__init__()
        dtype = getattr(torch, precision)
        self.register_buffer("weight", weight.detach().to(dtype).contiguous())
        # Contiguous: oneDNN does not look at the strides of a bias.
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """x W^T + b."""
        return product(x.to(self.weight.dtype), self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., in), weight (out, in), bias (out,) of one type -> (..., out)."""
    if x.dtype == torch.float32 and wide():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    return F.linear(x, weight, bias)


Module = TypeVar("Module", bound=nn.Module)


def at_precision(module: Module, precision: Precision) -> Module:
    """A copy of the module whose linear maps are `Affine`, but for those of a few numbers, which cost nothing."""
    copy = deepcopy(module)
    for parent in list(copy.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and child.in_features >= _NARROW:
                setattr(parent, name, Affine(child.weight, child.bias, precision))
    return copy


@cache
def wide() -> bool:
    """Whether oneDNN multiplies float32 here: the processor has 512-bit vectors, and PyTorch still has the operation (one of its own, which
    its compiler uses), with the result that is expected of it."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    x, weight, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3), torch.arange(4.0)
    try:
        found = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(found, F.linear(x, weight, bias))  # small whole numbers, so without rounding


def has_matrix_units() -> bool:
    """Whether the processor multiplies bfloat16 by matrix units (AMX), several times as fast as float32."""
    try:
        return bool(torch.cpu._is_amx_tile_supported())
    except (AttributeError, RuntimeError):
        return False


def has_bfloat16() -> bool:
    """Whether the processor has units for bfloat16, without which it is slower than float32."""
    try:
        if platform.machine().lower() in (
            "x86_64",
            "amd64",
        ):  # oneDNN's own answer counts processors that imitate it
            return bool(torch.cpu._is_avx512_bf16_supported())
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
