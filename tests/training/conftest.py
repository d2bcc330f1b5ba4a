"""Fixtures of the training tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """One thread sums in the same order on every machine."""
    torch.set_num_threads(1)
