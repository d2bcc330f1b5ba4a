"""Fixtures of the tests of calibration."""

import pytest

from tests.calibration.worlds import World, draw_world


@pytest.fixture(scope="session")
def world() -> World:
    return draw_world
