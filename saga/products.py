"""Products of paths with matrices, where a rollout spends its time: in float32 or bfloat16, by the library with the widest vectors.

For float32 PyTorch calls MKL, which on processors of other makers than Intel leaves the 512-bit half of the machine idle. oneDNN, which
PyTorch brings along, does not, so it multiplies wherever the processor has such vectors. The choice goes by the processor, never by a
clock: the same machine always gives the same bits. bfloat16 rounds the two factors of a product to 8 bits, sums in float32, and is
several times as fast where the processor has units for it, slower where it has not.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Literal, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Precision = Literal["float32", "bfloat16"]
_NARROW = 16  # numbers, below which a map stays as it is


class Affine(nn.Linear):
    """An affine map at a precision, for inference: x (..., in) -> (..., out). bfloat16 gives bfloat16, whatever it is given."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> None:
        """Weight (out, in), bias (out,)."""
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.dtype = getattr(torch, precision)
        # oneDNN reads past the strides of a bias: contiguous, both.
        self.weight = nn.Parameter(weight.detach().to(self.dtype).contiguous(), requires_grad=False)
        shift = None if bias is None else nn.Parameter(bias.detach().to(self.dtype).contiguous(), requires_grad=False)
        self.register_parameter("bias", shift)

    def forward(self, x: Tensor) -> Tensor:
        """x W^T + b."""
        return product(x.to(self.dtype), self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., in), weight (out, in), bias (out,) of one type -> (..., out)."""
    if x.dtype == torch.float32 and wide():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    return F.linear(x, weight, bias)


Module = TypeVar("Module", bound=nn.Module)


def at_precision(module: Module, precision: Precision) -> Module:
    """A copy of the module whose linear maps are `Affine`, but for those of a few numbers, which cost nothing."""
    if isinstance(module, nn.Linear):
        return cast(Module, Affine(module.weight, module.bias, precision) if module.in_features >= _NARROW else module)
    copy = deepcopy(module)
    for parent in list(copy.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, at_precision(child, precision))
    return copy


@cache
def wide() -> bool:
    """Whether oneDNN multiplies float32 here: the processor has 512-bit vectors, and PyTorch still has the operation (one of its own, which
    its compiler uses)."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    try:
        torch.ops.mkldnn._linear_pointwise(torch.ones(2, 3), torch.ones(4, 3), None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True
