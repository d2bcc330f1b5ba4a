"""Answers are sent compressed to clients that accept it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.conftest import make_person

if TYPE_CHECKING:
    from tests.service.conftest import Figures, Served

pytestmark = pytest.mark.service


def test_an_answer_is_compressed(served: Served, figures: Figures) -> None:
    persons = [make_person(f"P{i}", years=3 + i % 20) for i in range(100)]
    body = {"persons": persons, "horizons": list(range(1, 31))}
    sizes = {}
    with served.client() as client:
        for accepted in ("identity", "gzip"):
            headers = {"Accept-Encoding": accepted}
            with client.stream("POST", "/v1/forecasts", json=body, headers=headers) as answer:
                sizes[accepted] = len(b"".join(answer.iter_raw()))
    ratio = sizes["identity"] / sizes["gzip"]
    figures.at_least("gzip: size of an answer, uncompressed / compressed", ratio, 5)
