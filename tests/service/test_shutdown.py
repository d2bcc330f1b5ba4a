"""The end of a process: it answers until the last call is answered, and then every call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.service.conftest import make_person

if TYPE_CHECKING:
    from tests.service.conftest import Served

pytestmark = pytest.mark.service


def test_calls_past_the_deadline_get_a_problem_and_no_traceback(
    serve: Callable[..., AbstractContextManager[Served]],
) -> None:
    persons = [make_person(f"P{i}") for i in range(400)]
    body = {"persons": persons, "paths": 300}
    answers: list[httpx.Response] = []

    def call(url: str) -> None:
        answers.append(httpx.post(f"{url}/v1/lifetimes", json=body, timeout=120))

    with serve(drain_seconds="0.1", stop_seconds="3") as served:
        threads = [threading.Thread(target=call, args=(served.url,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        os.kill(served.pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
    problems = [answer for answer in answers if answer.status_code != 200]
    assert len(answers) == 6
    assert problems
    for answer in problems:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 503
    assert served.log_events()
