"""Attacks on the ledger: guessing another key's amounts, and a ledger that is locked or damaged."""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from saga.calibration.adaptive.ledger import Actor, open_ledger

from saga.bundle import Bundle
from tests.keys import make_keys
from tests.service.conftest import ROOT, Figures, Served, make_person
from tests.waiting import awaited

if TYPE_CHECKING:
    import httpx

pytestmark = pytest.mark.service

Serve = Callable[..., AbstractContextManager[Served]]
N_PERSONS, N_GUESSES, ROWS = 20, 1_000_000, 100_000
AMOUNT = 487_321.0
LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Attacked:
    """A service with a ledger, the folder of the ledger, and the headers of two holders."""

    served: Served
    folder: Path
    headers: dict[str, dict[str, str]]

    def client(self, holder: str) -> httpx.Client:
        return self.served.client(headers=self.headers[holder])


@pytest.fixture
def attacked(serve: Serve, tmp_path: Path) -> Iterator[Attacked]:
    """Holder a has recorded forecasts of some persons."""
    headers = make_keys(tmp_path / "keys", "a", "b")
    database = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    with serve(keys=str(tmp_path / "keys"), database=database) as served:
        running = Attacked(served, tmp_path, headers)
        with running.client("a") as client:
            persons = [make_person(f"P{i}") for i in range(N_PERSONS)]
            body = {"persons": persons, "horizons": [1, 2], "record": True}
            answer = client.post("/v1/forecasts", json=body)
            assert answer.json()["provenance"]["recorded"]["new"] > 0, answer.text
        yield running


def outcomes(amounts: list[float], year: int = 2023, name: str = "P") -> dict[str, Any]:
    """One outcome of each person, and again for further amounts."""
    return {
        "outcomes": [
            {"person_id": f"{name}{i % N_PERSONS}", "year": year, "earnings": amount}
            for i, amount in enumerate(amounts)
        ]
    }


def test_a_million_guesses_at_another_holders_amounts_tell_nothing(
    attacked: Attacked, figures: Figures
) -> None:
    with attacked.client("a") as a, attacked.client("b") as b:
        assert a.post("/v1/outcomes", json=outcomes([AMOUNT] * N_PERSONS)).json()["new"] == 20
        told: set[str] = set()
        amounts = [10.0 * (i % 50_000) for i in range(N_GUESSES)]  # to 500,000, for 20 persons
        for start in range(0, N_GUESSES, ROWS):
            rows = zip(range(start, start + ROWS), amounts[start : start + ROWS], strict=True)
            body = {
                "outcomes": [
                    {"person_id": f"P{i // 50_000}", "year": 2023, "earnings": amount}
                    for i, amount in rows
                ]
            }
            answer = b.post("/v1/outcomes", json=body)
            assert answer.status_code == 200, answer.text
            told.add(f"{answer.status_code} {answer.text}")
        assert len(told) == 1, "every answer is the same"
        (answer_text,) = told
        facts = json.loads(answer_text.removeprefix("200 "))
        tells = facts["new"] + facts["duplicate"] + facts["conflicting"] + len(facts["problems"])
        figures.at_most("10^6 guesses by another key: outcomes told about", tells, 0)
        assert facts["unmatched"] == ROWS

        def seconds(name: str) -> float:
            body = outcomes([AMOUNT] * N_PERSONS, name=name)
            start = time.perf_counter()
            answer = b.post("/v1/outcomes", json=body)
            assert answer.status_code == 200, answer.text
            return time.perf_counter() - start

        pairs = [(seconds("P"), seconds("nobody-")) for _ in range(100)]
        ratio = statistics.median(known / unknown for known, unknown in pairs)
        figures.at_most("its time, recorded / unknown persons, off 1", abs(ratio - 1), 0.1)

        answers = [
            a.post("/v1/outcomes", json=outcomes([AMOUNT + 1_000 * step])) for step in range(1, 30)
        ]
        conflicting = sum(x.json()["conflicting"] for x in answers if x.status_code == 200)
        figures.at_most("own key: contradictions answered", conflicting, 5)
        assert {x.status_code for x in answers[5:]} == {429}
        assert a.post("/v1/outcomes", json=outcomes([AMOUNT])).status_code == 429
    bundle = Bundle.load(ROOT / "bundles" / "small").digest
    for holder in ("a", "b"):
        ledger = open_ledger(f"sqlite:///{attacked.folder / 'ledger.sqlite'}", actor=Actor(holder))
        assert ledger.replay(bundle) == ledger.state(bundle)
        ledger.close()


def forecast_seconds(client: httpx.Client, seconds: float) -> tuple[list[float], list[int]]:
    """Times and statuses of plain one-person forecasts, one after the other."""
    times, statuses = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        answer = client.post("/v1/forecasts", json={"persons": [make_person()], "horizons": [1, 5]})
        times.append(time.perf_counter() - start)
        statuses.append(answer.status_code)
    return times, statuses


def ledger_state(served: Served) -> str:
    with served.client() as client:
        return str(client.get("/readyz").json()["ledger"])


def check_failure(attacked: Attacked, figures: Figures, name: str, end: Callable[[], None]) -> None:
    """Forecast and write for a minute while the ledger fails, then end that and recover."""
    served = attacked.served
    with attacked.client("a") as client, ThreadPoolExecutor(45) as pool:
        writers: list[Future[httpx.Response]] = [
            pool.submit(client.post, "/v1/outcomes", json=outcomes([AMOUNT])) for _ in range(45)
        ]
        start = time.monotonic()
        during, statuses = forecast_seconds(client, LOCK_SECONDS - 5)
        metrics = client.get("/metrics").text
        while_down = ledger_state(served)
        client.get("/v1/model").raise_for_status()
        refused = [writer.result().status_code for writer in writers]
        assert time.monotonic() - start < LOCK_SECONDS
        end()
        awaited(lambda: ledger_state(served) == "up", 30)
        calm, _ = forecast_seconds(client, 20)
        answer = client.post("/v1/outcomes", json=outcomes([AMOUNT] * N_PERSONS))
        assert answer.status_code == 200, answer.text
    down = [line for line in served.log_events() if line["event"] == "ledger_down"]
    figures.at_most(f"{name}: answers 500", sum(s == 500 for s in [*statuses, *refused]), 0)
    figures.at_least(f"{name}: plain forecasts answered 200", statuses.count(200), len(statuses))
    slower = float(np.quantile(during, 0.99) / np.quantile(calm, 0.99))
    figures.at_most(f"{name}: p99 of plain forecasts, times the calm one", slower, 2)
    figures.at_most(f"{name}: log lines with the cause", len(down), 1)
    assert len(down) == 1
    assert set(refused) == {503}
    assert "saga_ledger_up 0.0" in metrics
    assert while_down == "down"


def test_a_lock_of_a_minute(attacked: Attacked, figures: Figures) -> None:
    other = sqlite3.connect(attacked.folder / "ledger.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    def end() -> None:
        other.execute("ROLLBACK")
        other.close()

    check_failure(attacked, figures, "lock of 60 s", end)


def test_a_damaged_file(attacked: Attacked, figures: Figures) -> None:
    file = attacked.folder / "ledger.sqlite"
    content = file.read_bytes()
    file.write_bytes(os.urandom(len(content)))

    def end() -> None:
        file.write_bytes(content)

    check_failure(attacked, figures, "damaged file", end)
