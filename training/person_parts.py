"""The losses of a batch, computed by threads, each for a part of its persons.

PyTorch's own threads share each operation. The operations of a small network are too short for
that: threads that do not keep cores busy while they wait make training no faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property, reduce
from itertools import count, pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from saga.training.data import Batch
from torch import Tensor, nn

from saga.model.dropout import seeded_masks

_MAX_PARTS = 4  # of a batch; Python runs one thread at a time between operations


class Losses(NamedTuple):
    """The losses of a batch, or of some of its persons.

    Attributes:
        sums: Losses summed over tokens with a target, by their name in the log.
        counts: Numbers of these tokens.
        nll: Negative log-likelihood summed over tokens with a target.
        n_targets: Number of tokens with a target.
        objective: The loss that training minimises.
    """

    sums: dict[str, Tensor]
    counts: dict[str, Tensor]
    nll: Tensor
    n_targets: Tensor
    objective: Tensor

    @property
    def means(self) -> dict[str, Tensor]:
        """Losses averaged over tokens with a target."""
        return {name: self.sums[name] / n.clamp(min=1) for name, n in self.counts.items()}

    def __add__(self, other: Losses) -> Losses:  # type: ignore[override]
        """The losses of both groups of persons."""
        return Losses(
            {name: value + other.sums[name] for name, value in self.sums.items()},
            {name: value + other.counts[name] for name, value in self.counts.items()},
            self.nll + other.nll,
            self.n_targets + other.n_targets,
            self.objective + other.objective,
        )


class PersonParts:
    """Computes losses with this many cores; masks of dropout depend on the seed."""

    def __init__(self, cores: int, seed: int) -> None:
        self.cores, self.seed = cores, seed
        self.parts = min(cores, _MAX_PARTS)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads; begun late, because Lightning copies the module before the fit."""
        threads = self.cores // self.parts
        return ThreadPoolExecutor(self.parts, "part", torch.set_num_threads, (threads,))

    def each(
        self, function: Callable[[list[Tensor]], None], groups: Iterable[list[Tensor]]
    ) -> Iterable[None]:
        """Apply a function to groups of tensors, by the threads."""
        return self._pool.map(function, groups)

    def losses(
        self,
        compute: Callable[[Batch], Losses],
        batch: Batch,
        weights: Sequence[nn.Parameter],
        step: int,
        context: Callable[[], AbstractContextManager[Any]],
        meanwhile: Callable[[], object],
    ) -> Losses:
        """The losses of a batch; the objective has gradients for `weights`.

        Args:
            compute: The losses of some persons.
            batch: All persons of the step.
            weights: What training changes.
            step: Number of the step.
            context: Entered by each thread, for the precision.
            meanwhile: Called when the first thread is ready and others still compute.
        """

        def compute_part(number: int, part: Batch) -> tuple[Losses, tuple[Tensor | None, ...]]:
            masks = int(np.random.SeedSequence([self.seed, step, number]).generate_state(1)[0])
            with context(), seeded_masks(masks):
                losses = compute(part)
            return losses, torch.autograd.grad(losses.objective, weights, allow_unused=True)

        computed = self._pool.map(compute_part, count(), split_batch(batch, self.parts))
        first = next(computed)
        meanwhile()
        parts, gradients = zip(first, *computed, strict=True)
        losses: Losses = reduce(add, parts)
        sums = [_sum(of_weight) for of_weight in zip(*gradients, strict=True)]
        total = losses.objective.detach()
        objective: Tensor = KnownGradient.apply(total, sums, *weights)  # type: ignore[no-untyped-call]
        return losses._replace(objective=objective)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """At most `parts` parts of about equally many persons; what is not by person is in each."""
    n = len(batch["age"])
    cuts = [n * i // parts for i in range(parts + 1)]
    return [
        {name: value[a:b] if len(value) == n else value for name, value in batch.items()}
        for a, b in pairwise(cuts)
        if b > a
    ]


def _sum(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of a weight's gradients; None where no loss depends on it."""
    present = [gradient for gradient in gradients if gradient is not None]
    return reduce(add, present) if present else None


class KnownGradient(torch.autograd.Function):
    """A loss whose gradient is known: `apply(loss, gradients, *weights)` returns the loss."""

    @staticmethod
    def forward(
        ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *_weights: Tensor
    ) -> Tensor:
        """The loss; `gradients` are those of the weights, None where it does not depend."""
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *factor: Tensor) -> Any:
        """The gradients times the factor of the loss."""
        return None, None, *(g if g is None else g * factor[0] for g in ctx.gradients)
