"""A person to send, and a call to an application in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI


def ask(app: FastAPI, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    """Ask an application that has not been started, so that it has no bundle."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(send())


@pytest.fixture
def anyio_backend() -> str:
    """The loop of tests that are coroutines."""
    return "asyncio"


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
