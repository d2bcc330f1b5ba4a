"""The ledger behind the service: parts by key, corrections, and forecasts that outlive it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from saga.api import ledger_access, service
from saga.calibration.adaptive.ledger import Actor, open_ledger
from saga.calibration.adaptive.outcome_entries import MAX_CONFLICTS

from tests.api.test_outcomes import OPTIONS, counts, outcomes, people, settings
from tests.keys import make_keys
from tests.waiting import awaited

if TYPE_CHECKING:
    import httpx
    from saga.api.settings import Settings

    from tests.conftest import Running

Start = Callable[["Settings"], AbstractContextManager["Running"]]
Person = Callable[..., dict[str, Any]]
Post = Callable[..., "httpx.Response"]


@pytest.fixture
def holders(
    start: Start, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Running, dict[str, Post]]]:
    """A ready service with an empty ledger, and a caller for each of the holders a and b."""
    monkeypatch.setattr(ledger_access, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(service, "WAIT_SECONDS", 0.5)
    keys = make_keys(tmp_path / "keys", "a", "b")
    with start(settings(tiny_bundle, tmp_path, keys=tmp_path / "keys")) as running:

        def caller(name: str) -> Post:
            def call(path: str, body: object = None) -> httpx.Response:
                method = "GET" if body is None else "POST"
                return running.client.request(method, path, json=body, headers=keys[name])

            return call

        yield running, {name: caller(name) for name in keys}


def record(call: Post, person: Person, n: int = 20) -> httpx.Response:
    body = {"persons": people(person, n), **OPTIONS, "record": True}
    return call("/v1/forecasts", body)


def test_another_key_gets_unmatched_and_moves_nothing(
    holders: tuple[Running, dict[str, Post]], person: Person, tmp_path: Path
) -> None:
    running, call = holders
    assert record(call["a"], person).json()["provenance"]["recorded"]["new"] == 40
    sent = {"outcomes": outcomes(amount=1.2e6)}
    guesses = {"outcomes": outcomes(amount=1.2e6) + outcomes(amount=1.1e6)}
    before = call["b"]("/v1/outcomes", guesses).json()
    assert counts(call["a"]("/v1/outcomes", sent))["new"] == 20
    assert call["b"]("/v1/outcomes", guesses).json() == before
    assert counts(call["b"]("/v1/outcomes", guesses))["unmatched"] == 40
    assert call["b"]("/v1/calibration").json()["adaptive"]["settled"] == 0
    assert call["b"]("/v1/calibration").json()["adaptive"]["version"] == 0
    assert call["a"]("/v1/calibration").json()["adaptive"]["settled"] == 20

    assert record(call["b"], person).json()["provenance"]["recorded"]["new"] == 40
    poison = {"outcomes": outcomes(amount=260_000.0)}
    assert counts(call["b"]("/v1/outcomes", poison))["new"] == 20
    assert counts(call["a"]("/v1/outcomes", sent))["duplicate"] == 20

    forecast = {"persons": people(person, 1), **OPTIONS}
    state = {
        name: call[name]("/v1/forecasts", forecast).json()["provenance"]["adaptive"]
        for name in call
    }
    assert state["a"]["version"] == state["b"]["version"] == 1
    assert state["a"]["digest"] != state["b"]["digest"]
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        entries = connection.execute("SELECT action, key_name FROM audit WHERE holder = 'b'")
        assert set(entries) >= {("record", "b"), ("settle", "b")}
    lines = [json.loads(line) for line in running.log.getvalue().splitlines()]
    assert {line["holder"] for line in lines if line["event"] == "outcomes"} == {"a", "b"}


def test_contradictions_end_with_429_and_a_correction_ends_that(
    holders: tuple[Running, dict[str, Post]], person: Person
) -> None:
    _, call = holders
    post = call["a"]
    record(post, person)
    post("/v1/outcomes", {"outcomes": outcomes(amount=271_828.0)})
    answers = [
        post("/v1/outcomes", {"outcomes": outcomes(1, amount=200_000.0 + 1_000 * step)})
        for step in range(MAX_CONFLICTS + 3)
    ]
    assert [answer.status_code for answer in answers] == [200] * MAX_CONFLICTS + [429] * 3
    known = post("/v1/outcomes", {"outcomes": outcomes(2, amount=271_828.0)})
    assert (known.status_code, known.json()["problems"][0]["person_id"]) == (429, "P0")
    assert counts(post("/v1/outcomes", {"outcomes": outcomes()[1:]}))["conflicting"] == 19

    def correct(reason: str, *amounts: float | None) -> httpx.Response:
        rows = [
            {"person_id": f"P{i}", "year": 2023, "earnings": amount}
            for i, amount in enumerate(amounts)
        ]
        return post("/v1/outcomes/corrections", {"reason": reason, "corrections": rows})

    corrected = correct("revised", 1.2e6, None)
    assert corrected.status_code == 200, corrected.text
    expected = {"corrected": 1, "withdrawn": 1, "unmatched": 0, "rejudged": 1, "reopened": 1}
    assert {name: corrected.json()[name] for name in expected} == expected
    assert corrected.json()["adaptive"]["version"] == 2
    rows = outcomes(2, amount=1.2e6)
    settled = post("/v1/outcomes", {"outcomes": rows})
    assert counts(settled) == {
        "new": 1,
        "duplicate": 1,
        "conflicting": 0,
        "unmatched": 0,
    }
    in_force = post("/v1/calibration").json()["adaptive"]
    assert in_force["digest"] == settled.json()["adaptive"]["digest"]
    for answer, rule in (
        (correct("because", 1.0), "literal_error"),
        (correct("revised", -1.0), "greater_than_equal"),
        (post("/v1/outcomes", {"outcomes": outcomes(1, amount=1.7e308)}), "less_than_equal"),
        (post("/v1/outcomes", {"outcomes": outcomes(1, 1985, 9e11)}), "outcome-amount"),
    ):
        assert answer.status_code == 422, answer.text
        assert [problem["rule"] for problem in answer.json()["problems"]] == [rule]


def test_a_call_that_records_nothing_says_why(
    holders: tuple[Running, dict[str, Post]], person: Person
) -> None:
    _, call = holders
    assert "nothing-recorded" not in record(call["a"], person, 1).text
    repeated = record(call["a"], person, 1).json()
    (warning,) = [w for w in repeated["warnings"] if w["code"] == "nothing-recorded"]
    assert "Of 2 forecasts 2 were entered before" in warning["message"]
    assert warning["option"] == "record"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another program holds the ledger's file."""
    other = sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextmanager
def damaged(folder: Path) -> Iterator[None]:
    """The ledger's file is overwritten, and later restored."""
    file = folder / "ledger.sqlite"
    content = file.read_bytes()
    file.write_bytes(os.urandom(len(content)))
    try:
        yield
    finally:
        file.write_bytes(content)


@contextmanager
def removed(folder: Path) -> Iterator[None]:
    """The ledger's file is gone, and later put back."""
    file = folder / "ledger.sqlite"
    file.rename(folder / "backup")
    try:
        yield
        assert not file.exists(), "a ledger that is gone does not come back empty"
    finally:
        (folder / "backup").rename(file)


@pytest.mark.parametrize(
    ("failure", "cause"),
    [(locked, "SQLITE_BUSY"), (damaged, "SQLITE_NOTADB"), (removed, "FileNotFoundError")],
)
def test_forecasts_go_on_under_the_last_known_state_while_the_ledger_fails(
    holders: tuple[Running, dict[str, Post]],
    person: Person,
    tmp_path: Path,
    failure: Callable[[Path], AbstractContextManager[None]],
    cause: str,
) -> None:
    running, call = holders
    post = call["a"]
    record(post, person)
    post("/v1/outcomes", {"outcomes": outcomes(amount=1.2e6)})
    forecast = {"persons": people(person, 1), **OPTIONS}
    before = post("/v1/forecasts", forecast).json()

    def ledger_up() -> bool:
        return bool(running.client.get("/readyz").json()["ledger"] == "up")

    assert ledger_up()
    assert "saga_ledger_up 1.0" in post("/metrics").text
    with failure(tmp_path):
        awaited(lambda: not ledger_up())
        assert "saga_ledger_up 0.0" in post("/metrics").text
        awaited(lambda: "last_known" in post("/v1/forecasts", forecast).text)
        during = post("/v1/forecasts", forecast)
        assert during.status_code == 200
        assert during.json()["forecasts"] == before["forecasts"]
        assert during.json()["provenance"]["adaptive"] == {
            **before["provenance"]["adaptive"],
            "last_known": True,
        }
        assert "ledger-unavailable" in {w["code"] for w in during.json()["warnings"]}
        with ThreadPoolExecutor(12) as pool:
            refused = list(
                pool.map(lambda _: post("/v1/outcomes", {"outcomes": outcomes()}), range(24))
            )
        refused.append(record(post, person))
        assert {answer.status_code for answer in refused} == {503}
        assert {answer.headers["content-type"] for answer in refused} == {
            "application/problem+json"
        }
        assert all("retry-after" in answer.headers for answer in refused)
        table = post("/v1/calibration").json()["adaptive"]
        assert (table["settled"], table["last_known"]) == (None, True)
        assert table["version"] == 1
    awaited(ledger_up)
    assert counts(post("/v1/outcomes", {"outcomes": outcomes(amount=1.2e6)}))["duplicate"] == 20
    after = post("/v1/forecasts", forecast).json()
    assert after["provenance"]["adaptive"] == before["provenance"]["adaptive"]
    lines = [json.loads(line) for line in running.log.getvalue().splitlines()]
    (down,) = [line for line in lines if line["event"] == "ledger_down"]
    assert cause in " ".join(down["problems"])
    assert [line["event"] for line in lines].count("ledger_up") == 1
    assert not [line for line in lines if line["event"] == "internal_error"]


def test_a_state_that_another_process_moved_is_in_force_within_seconds(
    holders: tuple[Running, dict[str, Post]], person: Person, tmp_path: Path
) -> None:
    _, call = holders
    record(call["a"], person)
    other = open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}", actor=Actor("a"))
    assert other.settle([(f"P{i}", 2023, 1.2e6) for i in range(20)]).new == 20
    other.close()
    forecast = {"persons": people(person, 1), **OPTIONS}

    def version() -> int:
        return int(call["a"]("/v1/forecasts", forecast).json()["provenance"]["adaptive"]["version"])

    awaited(lambda: version() == 1)


def test_a_restored_backup_without_a_holder_ends_the_state_of_that_holder(
    holders: tuple[Running, dict[str, Post]], person: Person, tmp_path: Path
) -> None:
    _, call = holders
    forecast = {"persons": people(person, 1), **OPTIONS}

    def answer() -> Any:
        return call["a"]("/v1/forecasts", forecast).json()

    before, file, backup = answer(), tmp_path / "ledger.sqlite", tmp_path / "backup"
    shutil.copy(file, backup)
    record(call["a"], person)
    call["a"]("/v1/outcomes", {"outcomes": outcomes(amount=1.2e6)})
    assert answer()["provenance"]["adaptive"]["version"] == 1
    backup.rename(file)
    awaited(lambda: bool(answer()["provenance"]["adaptive"]["version"] == 0))
    assert answer() == before
