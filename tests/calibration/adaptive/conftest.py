"""Fixtures of the tests of the ledger: each runs on SQLite, and on PostgreSQL with `thorough`.

A test that says so (`ON_BOTH`) runs on both in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from saga.calibration.adaptive.ledger import Ledger

from tests.calibration.adaptive.ledgers import KEY
from tests.postgresql_server import database_of


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.thorough]),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database_of(request.param, tmp_path) as database_url:
        yield database_url


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """The common part of an empty ledger."""
    opened = Ledger(url, KEY)
    yield opened
    opened.close()
