"""Muon (Jordan et al. 2024): momentum replaced by the nearest orthogonal matrix.

It is used for the matrices inside a network: all directions of a weight matrix change at the same
rate. Embeddings, outputs, biases and norms use AdamW (Loshchilov and Hutter 2019), as the
authors of Muon advise.

torch has its own Muon. It orthogonalises in bfloat16, which is ten times slower than float32 on a
CPU without bfloat16 units. It also does not combine both updates in one optimiser, which
Lightning's automatic optimisation needs.
"""

from __future__ import annotations

from collections import defaultdict, deque
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

Each = Callable[[Callable[[list[Tensor]], None], Iterable[list[Tensor]]], Iterable[None]]


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
        """`each` applies Muon to matrices of a shape, perhaps by threads, as `map` does."""
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
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if group["orthogonal"]:
                alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
                for weight in weights:
                    alike[tuple(sorted(weight.shape))].append(weight)
                deque(self.each(partial(self._orthogonal_step, group), alike.values()), maxlen=0)
            elif weights:
                self._adam_step(group, weights)
        return loss

    def _running(self, name: str, weights: list[Tensor]) -> list[Tensor]:
        """The weights' running means of this name, at first zero."""
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.zeros_like(weight)
        return [self.state[weight][name] for weight in weights]

    # All weights in few calls: most are small, and threads cannot share the time between calls.

    @torch.no_grad()
    def _orthogonal_step(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Muon for matrices that have one shape if the tall ones are transposed."""
        lr = group["lr"]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        means = self._running("momentum", weights)
        torch._foreach_lerp_(means, gradients, 1 - _MOMENTUM)
        ahead = torch._foreach_lerp(gradients, means, _MOMENTUM)  # Nesterov
        steps = orthogonalise(torch.stack([x.mT if len(x) > x.shape[1] else x for x in ahead]))
        changes = [
            step.mT if len(weight) > weight.shape[1] else step
            for weight, step in zip(weights, steps, strict=True)
        ]
        torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])
        torch._foreach_add_(weights, changes, alpha=-lr * _ADAM_RMS * steps.shape[2] ** 0.5)

    def _adam_step(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        lr = group["lr"]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        means, squares = (self._running(name, weights) for name in ("mean", "square"))
        steps = [self.state[weight].get("step", 0) + 1 for weight in weights]
        for weight, step in zip(weights, steps, strict=True):
            self.state[weight]["step"] = step
        torch._foreach_lerp_(means, gradients, 1 - _BETAS[0])
        torch._foreach_mul_(squares, _BETAS[1])
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - _BETAS[1])
        scales = torch._foreach_div(squares, [1 - _BETAS[1] ** step for step in steps])
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, _EPSILON)
        torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])
        torch._foreach_addcdiv_(
            weights, means, scales, [-lr / (1 - _BETAS[0] ** step) for step in steps]
        )


def orthogonalise(matrices: Tensor) -> Tensor:
    """Approximately U V' of matrices U S V', shape (n, r, c), by five Newton-Schulz iterations.

    The singular values of the result lie between about 0.7 and 1.2. It is fastest if r <= c.
    """
    x: Tensor = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=_B, alpha=_C), x, beta=_A)
    return x
