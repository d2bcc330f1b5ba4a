"""Muon (Jordan et al. 2024): momentum replaced by the nearest orthogonal matrix.

It is used for the matrices inside a network: all directions of a weight matrix change at the same
rate. Embeddings, outputs, biases and norms use AdamW (Loshchilov and Hutter 2019), as the
authors of Muon advise.

torch has its own Muon. It orthogonalises in bfloat16, which is ten times slower than float32 on a
CPU without bfloat16 units. It also does not combine both updates in one optimiser, which
Lightning's automatic optimisation needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

# Coefficients of an odd quintic; its iteration brings all singular values to about [0.7, 1.2]
# (Jordan et al. 2024).
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5  # of the quintic
# Root mean square of an AdamW step. With this factor one learning rate suits both updates (Liu et
# al. 2025).
_ADAM_RMS = 0.2
_MOMENTUM = 0.95
_BETAS, _EPSILON = (0.9, 0.98), 1e-8

Each = Callable[[Callable[[Tensor], None], Iterable[Tensor]], Iterable[None]]


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, AdamW for `rest`.

    Tensors of two and more dimensions have decoupled weight decay.
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        rest: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float = 0.01,
        each: Each = map,
    ) -> None:
        """`each` applies Muon to matrices, perhaps by threads, as the built-in `map` does."""
        self.each = each
        rest = list(rest)
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "orthogonal": True, "weight_decay": weight_decay},
            {
                "params": [p for p in rest if p.ndim >= 2],
                "orthogonal": False,
                "weight_decay": weight_decay,
            },
            {"params": [p for p in rest if p.ndim < 2], "orthogonal": False, "weight_decay": 0.0},
        ]
        super().__init__([group for group in groups if group["params"]], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; parameters without a gradient do not change."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            each: Each = self.each if group["orthogonal"] else map
            deque(each(partial(self._update, group), group["params"]), maxlen=0)
        return loss

    @torch.no_grad()
    def _update(self, group: dict[str, Any], weight: Tensor) -> None:
        if weight.grad is not None:
            update = self._orthogonal_step if group["orthogonal"] else self._adam_step
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            update(weight, weight.grad, group["lr"])

    def _orthogonal_step(self, weight: Tensor, gradient: Tensor, lr: float) -> None:
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        mean = state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
        ahead = gradient.lerp(mean, _MOMENTUM)  # Nesterov
        weight.add_(orthogonalise(ahead), alpha=-lr * _ADAM_RMS * max(weight.shape) ** 0.5)

    def _adam_step(self, weight: Tensor, gradient: Tensor, lr: float) -> None:
        state = self.state[weight]
        if not state:
            state |= {
                "step": torch.zeros(()),
                "mean": torch.zeros_like(weight),
                "square": torch.zeros_like(weight),
            }
        state["step"] += 1
        mean = state["mean"].lerp_(gradient, 1 - _BETAS[0])
        square = state["square"].mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        step = float(state["step"])
        scale = (square / (1 - _BETAS[1] ** step)).sqrt_().add_(_EPSILON)
        weight.addcdiv_(mean, scale, value=-lr / (1 - _BETAS[0] ** step))


def orthogonalise(matrix: Tensor) -> Tensor:
    """Approximately U V' of the matrix U S V', shape (r, c), by five Newton-Schulz iterations.

    The singular values of the result lie between about 0.7 and 1.2.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(_ITERATIONS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=_B, alpha=_C), x, beta=_A)
    return x.T if tall else x
