"""The ledger: whatever is sent, how often, in what order, by how many processes, and killed when, the state is that of the log."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, func, make_url, select, text
from sqlalchemy.exc import DBAPIError

from calibration.adaptive.adaptive_state import AdaptiveState
from calibration.adaptive.database import LedgerError, migration_config
from calibration.adaptive.ledger import Ledger, RecordCounts, SettlementReport
from calibration.adaptive.ledger_tables import Base, IssuedIntervalRow, OutcomeRow, SettlementRow
from calibration.adaptive.pseudonyms import PseudonymKey
from saga.errors import UsageError
from tests.calibration.adaptive.ledgers import (
    BUNDLE,
    HORIZONS,
    LEVELS,
    ORIGIN,
    PERSONS,
    came_true,
    made,
)

ROOT = Path(__file__).parents[3]
SERVER = os.environ.get("SAGA_TEST_POSTGRESQL")


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database: a file, or a new one on the server that SAGA_TEST_POSTGRESQL names."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'ledger.sqlite'}"
        return
    if not SERVER:
        pytest.skip("SAGA_TEST_POSTGRESQL names no server")
    server = make_url(SERVER).set(drivername="postgresql+psycopg")
    name = f"saga_{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def secret() -> PseudonymKey:
    return PseudonymKey(b"k" * 32)


@pytest.fixture
def store(url: str, secret: PseudonymKey) -> Iterator[Ledger]:
    opened = Ledger(url, secret)
    yield opened
    opened.close()


@contextmanager
def looked_into(store: Ledger) -> Iterator[Connection]:
    with store._engine.begin() as connection:
        yield connection


def present(store: Ledger) -> AdaptiveState:
    state = store.state(BUNDLE)
    assert state is not None
    return state


def once(
    secret: PseudonymKey, folder: Path, outcomes: list[tuple[str, int, float]]
) -> AdaptiveState:
    """The state after one delivery of everything to a fresh ledger."""
    fresh = Ledger(f"sqlite:///{folder / 'once.sqlite'}", secret)
    fresh.record(BUNDLE, made())
    fresh.settle(outcomes)
    state = present(fresh)
    fresh.close()
    return state


def test_the_tables_are_those_of_the_models(store: Ledger) -> None:
    with looked_into(store) as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_a_ledger_of_the_first_form_is_brought_to_the_present_one(
    store: Ledger, url: str, secret: PseudonymKey
) -> None:
    """It went by its last promise."""
    store.record(BUNDLE, made())
    with looked_into(store) as connection:
        command.downgrade(migration_config(connection), "0001")
    again = Ledger(url, secret)
    assert again.delivered_until(BUNDLE) == ORIGIN
    assert again.settle(came_true()).settled_intervals == PERSONS * HORIZONS
    again.close()


def test_only_what_a_delivery_has_finished_counts_as_promised(store: Ledger) -> None:
    store.record(BUNDLE, made())
    assert store.delivered_until(BUNDLE) is None
    for year, last in ((ORIGIN, ORIGIN), (ORIGIN + 2, ORIGIN + 2), (ORIGIN + 1, ORIGIN + 2)):
        store.mark_delivered(BUNDLE, year)
        assert store.delivered_until(BUNDLE) == last
    assert store.delivered_until("b" * 64) is None


def test_each_outcome_counts_once_whatever_is_repeated_or_contradicted(
    store: Ledger, secret: PseudonymKey, tmp_path: Path
) -> None:
    outcomes = came_true()
    assert store.record(BUNDLE, made()) == RecordCounts(new=PERSONS * HORIZONS)
    assert store.record(BUNDLE, made(seed=5)) == RecordCounts(repeated=PERSONS * HORIZONS), (
        "the first promise stands"
    )
    strangers = [("nobody", 2016, 1.0), ("P1", 2016 + HORIZONS, 1.0)]
    first = store.settle(outcomes[:50] + outcomes[:10] + strangers)
    assert first == SettlementReport(new=50, duplicate=10, unmatched=2, settled_intervals=50)
    name, year, amount = outcomes[7]
    contradicted = store.settle([(name, year, amount + 4_321)])
    assert replace(contradicted, problems=()) == SettlementReport(conflicting=1)
    (problem,) = contradicted.problems
    assert (problem.person_id, problem.year, problem.rule) == (name, year, "outcome-conflict")
    assert str(round(amount)) not in str(problem)
    assert str(round(amount + 4_321)) not in str(problem)
    assert store.settle(outcomes) == SettlementReport(
        new=len(outcomes) - 50, duplicate=50, settled_intervals=len(outcomes) - 50
    )
    assert store.counts(BUNDLE) == {"settled": PERSONS * HORIZONS, "waiting": 0}
    assert present(store).cells == once(secret, tmp_path, outcomes).cells


def test_an_outcome_settles_every_promise_about_that_year_and_none_can_be_made_after(
    store: Ledger,
) -> None:
    store.record(BUNDLE, made())
    store.record(BUNDLE, made(origin=ORIGIN - 1))
    store.record("b" * 64, made())
    year = ORIGIN + 1
    receipt = store.settle([o for o in came_true() if o[1] == year])
    assert receipt == SettlementReport(new=PERSONS, settled_intervals=3 * PERSONS)
    assert store.record(BUNDLE, made(origin=ORIGIN - 2)) == RecordCounts(
        new=2 * PERSONS, late=PERSONS
    )
    assert present(store).through == year
    assert {h for _, h, level in present(store).cells} >= {1, 2, 30}


def test_the_log_alone_gives_the_state_bit_for_bit_now_and_at_any_version(store: Ledger) -> None:
    store.record(BUNDLE, made())
    outcomes, seen = came_true(), []
    for start in range(0, len(outcomes), 17):
        store.settle(outcomes[start : start + 17])
        seen.append(present(store))
    assert len({state.digest for state in seen}) == len(seen)
    for state in seen:
        replayed = store.replay(BUNDLE, state.version)
        assert replayed == state
        assert replayed.digest == state.digest
    assert store.replay(BUNDLE) == present(store)
    assert (store.replay("c" * 64), store.state("c" * 64), store.version("c" * 64)) == (
        None,
        None,
        None,
    )


def test_order_and_parts_of_a_delivery_do_not_matter(
    store: Ledger, secret: PseudonymKey, tmp_path: Path
) -> None:
    outcomes = came_true()
    store.record(BUNDLE, made())
    shuffled = random.Random(3).sample(outcomes, len(outcomes))
    for start in range(0, len(shuffled), 31):
        store.settle(shuffled[start : start + 31])
    assert present(store).cells == once(secret, tmp_path, outcomes).cells


def test_the_log_cannot_be_changed(store: Ledger) -> None:
    store.record(BUNDLE, made())
    store.settle(came_true())
    for statement in ("UPDATE event SET score = 0", "DELETE FROM event"):
        with pytest.raises(DBAPIError, match="append-only"), looked_into(store) as connection:
            connection.execute(text(statement))


def test_no_name_no_amount_and_no_family_of_a_settled_promise_is_kept(
    store: Ledger, tmp_path: Path
) -> None:
    names = replace(made(), person_id=np.array([f"SENTINEL-{name}" for name in made().person_id]))
    outcomes = [(f"SENTINEL-{name}", year, 271_828.0) for name, year, _ in came_true()]
    store.record(BUNDLE, names)
    store.settle(outcomes)
    with looked_into(store) as connection:
        rows = [
            row
            for table in Base.metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
        assert (
            connection.scalar(
                select(func.count())
                .select_from(IssuedIntervalRow)
                .where(IssuedIntervalRow.family.is_not(None))
            )
            == 0
        )
        seals = connection.scalars(select(OutcomeRow.seal)).all()
    assert "SENTINEL" not in repr(rows)
    assert "271828" not in repr(rows)
    assert len(set(seals)) == len(outcomes), (
        "equal amounts of two persons cannot be told to be equal"
    )


def test_another_key_is_refused_and_a_database_that_fails_is_our_error(
    url: str, store: Ledger, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="another key"):
        Ledger(url, PseudonymKey(b"x" * 32))
    with looked_into(store) as connection:
        connection.execute(text("DROP TABLE outcome"))
    with pytest.raises(LedgerError) as caught:
        store.settle(came_true())
    assert "P1" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", ["", "sqlite://", "sqlite:///:memory:", "mysql://u:SENTINEL@h/d", "file.sqlite"]
)
def test_a_url_that_is_none_is_refused_without_repeating_it(
    wrong: str, secret: PseudonymKey
) -> None:
    with pytest.raises(UsageError) as caught:
        Ledger(wrong, secret)
    assert "SENTINEL" not in str(caught.value)


def test_a_server_that_does_not_answer_is_said_without_the_password(secret: PseudonymKey) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger("postgresql://u:SENTINEL@127.0.0.1:1/d", secret)
    assert "SENTINEL" not in str(caught.value)


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    first = PseudonymKey.read(tmp_path / "key", create=True)
    assert PseudonymKey.read(tmp_path / "key", create=True) == first
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert first.key.hex() not in repr(first)
    with pytest.raises(UsageError, match="cannot be read"):
        PseudonymKey.read(tmp_path / "other", create=False)
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(UsageError, match="too short"):
        PseudonymKey.read(tmp_path / "short", create=True)


def settling(url: str, key: Path, persons: int, parts: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.calibration.adaptive.ledgers",
            url,
            str(key),
            str(persons),
            *parts,
        ],
        cwd=ROOT,
    )


@pytest.fixture
def key(tmp_path: Path, secret: PseudonymKey) -> Path:
    (tmp_path / "key").write_bytes(secret.key)
    return tmp_path / "key"


def test_two_processes_at_once_lose_nothing_and_count_nothing_twice(
    url: str, store: Ledger, secret: PseudonymKey, key: Path, tmp_path: Path
) -> None:
    """Both settle one outcome a call; half of the outcomes are sent by both."""
    outcomes = came_true()
    store.record(BUNDLE, made())
    both = [settling(url, key, PERSONS, "0123456"), settling(url, key, PERSONS, "3456789")]
    assert [process.wait(120) for process in both] == [0, 0]
    assert store.version(BUNDLE) == len(outcomes), "one transaction an outcome"
    with looked_into(store) as connection:
        assert connection.scalar(select(func.count()).select_from(SettlementRow)) == len(outcomes)
    assert present(store).cells == once(secret, tmp_path, outcomes).cells
    assert store.replay(BUNDLE) == present(store)


def test_killed_in_the_middle_the_state_is_that_of_the_log_and_sending_all_again_completes_it(
    url: str, store: Ledger, secret: PseudonymKey, key: Path, tmp_path: Path
) -> None:
    store.record(BUNDLE, made())
    versions = [0]
    for attempt in range(2):
        process = settling(url, key, PERSONS, "0123456789")
        began = time.monotonic()
        while (store.version(BUNDLE) or 0) < versions[
            -1
        ] + 3 + attempt and time.monotonic() < began + 60:
            time.sleep(0.002 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert store.replay(BUNDLE) == present(store)
        versions.append(present(store).version)
    assert versions == sorted(set(versions))
    assert versions[-1] < PERSONS * HORIZONS, "killed before the end"
    store.settle(came_true())
    assert present(store).cells == once(secret, tmp_path, came_true()).cells
    assert store.replay(BUNDLE) == present(store)


def test_first_opening_by_many_at_once_builds_the_tables_once(
    url: str, secret: PseudonymKey
) -> None:
    with ThreadPoolExecutor(4) as pool:
        for opened in pool.map(lambda _: Ledger(url, secret), range(4)):
            opened.close()


@pytest.mark.slow
def test_two_hundred_concurrent_updates(
    url: str, store: Ledger, secret: PseudonymKey, key: Path
) -> None:
    persons = 200 // HORIZONS + 1
    outcomes = came_true(persons)
    store.record(BUNDLE, made(persons))
    both = [settling(url, key, persons, "02468"), settling(url, key, persons, "13579")]
    assert [process.wait(300) for process in both] == [0, 0]
    assert store.version(BUNDLE) == len(outcomes) >= 200
    assert sum(
        cell.persons for (_, _, level), cell in present(store).cells.items() if level == LEVELS[0]
    ) == len(outcomes)
    assert store.replay(BUNDLE) == present(store)
