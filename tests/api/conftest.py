"""A person to send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def person() -> Callable[..., dict[str, Any]]:
    """Makes a valid person; keyword arguments replace entries."""

    def make(person_id: str = "A1", **changes: Any) -> dict[str, Any]:
        history = [
            {"year": year, "earnings": 250_000.0 + 9_000 * (year - 2015)}
            for year in (2015, 2016, 2018, 2019, 2022)
        ]
        return {
            "person_id": person_id,
            "birth_year": 1984,
            "sex": "female",
            "history": history,
            **changes,
        }

    return make
