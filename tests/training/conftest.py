"""What tests of training share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The same sums in the same order, whatever the machine."""
    torch.set_num_threads(1)
