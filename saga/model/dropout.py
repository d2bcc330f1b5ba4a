"""Dropout whose masks depend on a seed, also when threads compute parts of a batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_thread = threading.local()


@contextmanager
def seeded_masks(seed: int) -> Iterator[None]:
    """Masks that this thread draws inside, on a CPU, come from a generator with this seed."""
    _thread.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _thread.generator = None


class Dropout(nn.Module):
    """Sets a share of the values to zero in training, and scales the others (Srivastava 2014).

    PyTorch's own draws from one generator for all threads, so its masks would depend on which
    thread comes first.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        if not self.training or self.share == 0:
            return x
        generator = getattr(_thread, "generator", None)
        mask = torch.rand(x.shape, generator=generator, device=x.device) >= self.share
        return x * (mask / (1 - self.share))
