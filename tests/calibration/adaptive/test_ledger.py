"""The ledger: its state is that of its log in any order and after any crash."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from saga.calibration.adaptive.adaptive_state import AdaptiveState
from saga.calibration.adaptive.database import LedgerError, create_ledger_engine
from saga.calibration.adaptive.ledger import Ledger, RecordCounts
from saga.calibration.adaptive.ledger_tables import (
    Base,
    IssuedIntervalRow,
    OutcomeRow,
    SettlementRow,
)
from saga.calibration.adaptive.marginal_moves import LEVELS
from saga.calibration.adaptive.outcome_entries import SettlementReport
from saga.calibration.adaptive.pseudonyms import PseudonymKey
from sqlalchemy import Connection, MetaData, func, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from saga.conformal.calibration_table import ALL
from saga.errors import UsageError
from tests.calibration.adaptive.ledgers import (
    BUNDLE,
    HORIZONS,
    ORIGIN,
    PERSONS,
    make_intervals,
    make_outcomes,
)
from tests.postgresql_server import database_of

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database_of(request.param, tmp_path) as database_url:
        yield database_url


@pytest.fixture
def pseudonym_key() -> PseudonymKey:
    return PseudonymKey(b"k" * 32)


@pytest.fixture
def ledger(url: str, pseudonym_key: PseudonymKey) -> Iterator[Ledger]:
    opened = Ledger(url, pseudonym_key)
    yield opened
    opened.close()


@contextmanager
def connect(ledger: Ledger) -> Iterator[Connection]:
    with ledger._storage.engine.begin() as connection:
        yield connection


def current_state(ledger: Ledger) -> AdaptiveState:
    state = ledger.state(BUNDLE)
    assert state is not None
    return state


def state_of_one_delivery(
    pseudonym_key: PseudonymKey, folder: Path, outcomes: list[tuple[str, int, float]]
) -> AdaptiveState:
    """The state after one delivery of all outcomes to a new ledger."""
    fresh = Ledger(f"sqlite:///{folder / 'once.sqlite'}", pseudonym_key)
    fresh.record(BUNDLE, make_intervals())
    fresh.settle(outcomes)
    state = current_state(fresh)
    fresh.close()
    return state


def test_migrations_create_the_tables_of_the_models(ledger: Ledger) -> None:
    with connect(ledger) as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_a_ledger_of_a_newer_version_is_refused_and_unchanged(
    ledger: Ledger, url: str, pseudonym_key: PseudonymKey
) -> None:
    ledger.record(BUNDLE, make_intervals())
    with connect(ledger) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    before = all_rows(url)
    with pytest.raises(LedgerError, match="written by a newer version of SAGA") as caught:
        Ledger(url, pseudonym_key)
    assert "revision later" in str(caught.value)
    assert "Update SAGA" in str(caught.value)
    assert "The ledger is unchanged" in str(caught.value)
    assert all_rows(url) == before


def all_rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """The definition and the rows of every table, and the bytes of a database that is a file."""
    engine = create_ledger_engine(url)
    tables = MetaData()
    with engine.connect() as connection:
        tables.reflect(connection)
        rows: dict[str, list[tuple[object, ...]]] = {
            str(CreateTable(table)): sorted(
                (tuple(r) for r in connection.execute(select(table))), key=repr
            )
            for table in tables.sorted_tables
        }
    engine.dispose()
    path = make_url(url).database if url.startswith("sqlite") else None
    if path is not None:
        rows["file"] = [(Path(path).read_bytes(),)]
    return rows


def test_only_finished_deliveries_count_as_delivered(ledger: Ledger) -> None:
    ledger.record(BUNDLE, make_intervals())
    assert ledger.delivered_until(BUNDLE) is None
    for year, last in ((ORIGIN, ORIGIN), (ORIGIN + 2, ORIGIN + 2), (ORIGIN + 1, ORIGIN + 2)):
        ledger.mark_delivered(BUNDLE, year)
        assert ledger.delivered_until(BUNDLE) == last
    assert ledger.delivered_until("b" * 64) is None


def test_each_outcome_counts_once_when_repeated_or_contradicted(
    ledger: Ledger, pseudonym_key: PseudonymKey, tmp_path: Path
) -> None:
    outcomes = make_outcomes()
    assert ledger.record(BUNDLE, make_intervals()) == RecordCounts(new=PERSONS * HORIZONS)
    assert ledger.record(BUNDLE, make_intervals(seed=5)) == RecordCounts(
        repeated=PERSONS * HORIZONS
    ), "the first intervals stay"
    unmatched = [("nobody", 2016, 1.0), ("P1", 2016 + HORIZONS, 1.0)]
    first = ledger.settle(outcomes[:50] + outcomes[:10] + unmatched)
    assert first == SettlementReport(new=50, duplicate=10, unmatched=2, settled_intervals=50)
    person_id, year, amount = outcomes[7]
    contradicted = ledger.settle([(person_id, year, amount + 4_321)])
    assert replace(contradicted, problems=()) == SettlementReport(conflicting=1)
    (problem,) = contradicted.problems
    assert (problem.person_id, problem.year, problem.rule) == (person_id, year, "outcome-conflict")
    assert str(round(amount)) not in str(problem)
    assert str(round(amount + 4_321)) not in str(problem)
    assert ledger.settle(outcomes) == SettlementReport(
        new=len(outcomes) - 50, duplicate=50, settled_intervals=len(outcomes) - 50
    )
    assert ledger.counts(BUNDLE) == {"settled": PERSONS * HORIZONS, "waiting": 0}
    once = state_of_one_delivery(pseudonym_key, tmp_path, outcomes)
    assert current_state(ledger).cells == once.cells


def test_an_outcome_settles_all_intervals_of_its_year_and_later_ones_are_refused(
    ledger: Ledger,
) -> None:
    ledger.record(BUNDLE, make_intervals())
    ledger.record(BUNDLE, make_intervals(origin=ORIGIN - 1))
    ledger.record("b" * 64, make_intervals())
    year = ORIGIN + 1
    report = ledger.settle([o for o in make_outcomes() if o[1] == year])
    assert report == SettlementReport(new=PERSONS, settled_intervals=3 * PERSONS)
    assert ledger.record(BUNDLE, make_intervals(origin=ORIGIN - 2)) == RecordCounts(
        new=2 * PERSONS, late=PERSONS
    )
    assert current_state(ledger).through == year
    assert {h for _, h, _ in current_state(ledger).cells} >= {1, 2, 30}


def test_the_log_alone_gives_every_version_of_the_state_bit_for_bit(ledger: Ledger) -> None:
    ledger.record(BUNDLE, make_intervals())
    outcomes, states = make_outcomes(), []
    for start in range(0, len(outcomes), 17):
        ledger.settle(outcomes[start : start + 17])
        states.append(current_state(ledger))
    assert len({state.digest for state in states}) == len(states)
    for state in states:
        replayed = ledger.replay(BUNDLE, state.version)
        assert replayed == state
        assert replayed.digest == state.digest
    assert ledger.replay(BUNDLE) == current_state(ledger)
    assert (ledger.replay("c" * 64), ledger.state("c" * 64), ledger.version("c" * 64)) == (
        None,
        None,
        None,
    )


def test_order_and_parts_of_a_delivery_do_not_matter(
    ledger: Ledger, pseudonym_key: PseudonymKey, tmp_path: Path
) -> None:
    outcomes = make_outcomes()
    ledger.record(BUNDLE, make_intervals())
    shuffled = random.Random(3).sample(outcomes, len(outcomes))
    for start in range(0, len(shuffled), 31):
        ledger.settle(shuffled[start : start + 31])
    once = state_of_one_delivery(pseudonym_key, tmp_path, outcomes)
    assert current_state(ledger).cells == once.cells


def test_the_log_cannot_be_changed(ledger: Ledger) -> None:
    ledger.record(BUNDLE, make_intervals())
    ledger.settle(make_outcomes())
    for statement in ("UPDATE settlement SET sign = 0", "DELETE FROM settlement"):
        with pytest.raises(DBAPIError, match="append-only"), connect(ledger) as connection:
            connection.execute(text(statement))


def test_no_name_amount_or_settled_distribution_is_stored(ledger: Ledger) -> None:
    issued = make_intervals()
    named = replace(issued, person_id=np.array([f"SENTINEL-{p}" for p in issued.person_id]))
    outcomes = [(f"SENTINEL-{p}", year, 271_828.0) for p, year, _ in make_outcomes()]
    ledger.record(BUNDLE, named)
    ledger.settle(outcomes)
    with connect(ledger) as connection:
        rows = [
            row
            for table in Base.metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
        assert (
            connection.scalar(
                select(func.count())
                .select_from(IssuedIntervalRow)
                .where(IssuedIntervalRow.distribution.is_not(None))
            )
            == 0
        )
        hashes = connection.scalars(select(OutcomeRow.amount_hash)).all()
    assert "SENTINEL" not in repr(rows)
    assert "271828" not in repr(rows)
    assert len(set(hashes)) == len(outcomes), "equal amounts of two persons have different hashes"


def test_another_key_is_refused_and_a_failing_database_is_a_ledger_error(
    url: str, ledger: Ledger
) -> None:
    with pytest.raises(UsageError, match="another key"):
        Ledger(url, PseudonymKey(b"x" * 32))
    with connect(ledger) as connection:
        connection.execute(text("DROP TABLE outcome"))
    with pytest.raises(LedgerError) as caught:
        ledger.settle(make_outcomes())
    assert "P1" not in str(caught.value)


@pytest.mark.parametrize(
    "unusable_url", ["", "sqlite://", "sqlite:///:memory:", "mysql://u:SENTINEL@h/d", "file.sqlite"]
)
def test_an_unusable_url_is_refused_without_repeating_it(
    unusable_url: str, pseudonym_key: PseudonymKey
) -> None:
    with pytest.raises(UsageError) as caught:
        Ledger(unusable_url, pseudonym_key)
    assert "SENTINEL" not in str(caught.value)


def test_an_error_about_a_server_does_not_repeat_the_password(pseudonym_key: PseudonymKey) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger("postgresql://u:SENTINEL@127.0.0.1:1/d", pseudonym_key)
    assert "SENTINEL" not in str(caught.value)


def test_the_key_file_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
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


def start_settling(url: str, key: Path, persons: int, parts: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "tests.calibration.adaptive.ledgers"]
    return subprocess.Popen([*program, url, str(key), str(persons), *parts], cwd=ROOT)


@pytest.fixture
def key_file(tmp_path: Path, pseudonym_key: PseudonymKey) -> Path:
    (tmp_path / "key").write_bytes(pseudonym_key.key)
    return tmp_path / "key"


def test_two_processes_lose_nothing_and_count_nothing_twice(
    url: str, ledger: Ledger, pseudonym_key: PseudonymKey, key_file: Path, tmp_path: Path
) -> None:
    """Each settles one outcome per call, and both send some of the outcomes."""
    outcomes = make_outcomes()
    ledger.record(BUNDLE, make_intervals())
    both = [
        start_settling(url, key_file, PERSONS, "0123456"),
        start_settling(url, key_file, PERSONS, "3456789"),
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    assert ledger.version(BUNDLE) == len(outcomes), "one transaction an outcome"
    with connect(ledger) as connection:
        assert connection.scalar(select(func.count()).select_from(SettlementRow)) == len(outcomes)
    once = state_of_one_delivery(pseudonym_key, tmp_path, outcomes)
    assert current_state(ledger).cells == once.cells
    assert ledger.replay(BUNDLE) == current_state(ledger)


def test_a_killed_process_leaves_a_consistent_state_that_a_repetition_completes(
    url: str, ledger: Ledger, pseudonym_key: PseudonymKey, key_file: Path, tmp_path: Path
) -> None:
    ledger.record(BUNDLE, make_intervals())
    versions = [0]
    for attempt in range(2):
        process = start_settling(url, key_file, PERSONS, "0123456789")
        began = time.monotonic()
        enough = versions[-1] + 3 + attempt
        while (ledger.version(BUNDLE) or 0) < enough and time.monotonic() < began + 60:
            time.sleep(0.002 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert ledger.replay(BUNDLE) == current_state(ledger)
        versions.append(current_state(ledger).version)
    assert versions == sorted(set(versions))
    assert versions[-1] < PERSONS * HORIZONS, "killed before the end"
    ledger.settle(make_outcomes())
    once = state_of_one_delivery(pseudonym_key, tmp_path, make_outcomes())
    assert current_state(ledger).cells == once.cells
    assert ledger.replay(BUNDLE) == current_state(ledger)


def test_concurrent_first_openings_create_the_tables_once(
    url: str, pseudonym_key: PseudonymKey
) -> None:
    with ThreadPoolExecutor(4) as pool:
        for opened in pool.map(lambda _: Ledger(url, pseudonym_key), range(4)):
            opened.close()


@pytest.mark.thorough
def test_two_hundred_concurrent_updates(url: str, ledger: Ledger, key_file: Path) -> None:
    persons = 200 // HORIZONS + 1
    outcomes = make_outcomes(persons)
    ledger.record(BUNDLE, make_intervals(persons))
    both = [
        start_settling(url, key_file, persons, "02468"),
        start_settling(url, key_file, persons, "13579"),
    ]
    assert [process.wait(300) for process in both] == [0, 0]
    assert ledger.version(BUNDLE) == len(outcomes) >= 200
    assert sum(
        cell.persons
        for (group, _, level), cell in current_state(ledger).cells.items()
        if (group, level) == (ALL, LEVELS[0])
    ) == len(outcomes)
    assert ledger.replay(BUNDLE) == current_state(ledger)
