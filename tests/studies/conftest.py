"""The toy processes of the evaluation tests, for the studies."""

import pytest

from tests.evaluation.conftest import grouped, panel_from, part, random_walk, walker

__all__ = ["grouped", "panel_from", "part", "random_walk", "walker"]


@pytest.fixture(autouse=True)
def _few_origins(two_origins: None) -> None:
    """Calibrate with two origins a person."""
