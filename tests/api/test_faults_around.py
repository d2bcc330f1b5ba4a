"""Faults around the service: no log, settings that are too large, variables that are misspelt."""

from __future__ import annotations

import io
import json
import os
from typing import TextIO

import pytest
from saga.api.app import create_app
from saga.api.logs import make_logger
from saga.api.settings import Settings, unread_variables

from saga.errors import UsageError
from tests.api.conftest import ask
from tests.command_line import refusal


class Disk(io.StringIO):
    """A log whose disk may be full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def closed_stream() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("kind", ["full disk", "closed", "none"])
def test_a_log_that_cannot_be_written_changes_no_answer_and_is_counted(kind: str) -> None:
    full = Disk()
    full.is_full = True
    log = {"full disk": full, "closed": closed_stream(), "none": None}[kind]
    app = create_app(Settings(), log=log)
    assert ask(app, "/livez").status_code == 200
    assert ask(app, "/v1/nothing").json()["type"] == "urn:saga:problem:http-404"
    lines = [
        line for line in ask(app, "/metrics").text.splitlines() if line.startswith("saga_log_lines")
    ]
    lost = next(line for line in lines if line.startswith("saga_log_lines_lost_total"))
    assert float(lost.split()[1]) >= 2


def test_the_first_line_after_a_full_disk_says_how_many_are_lost() -> None:
    disk = Disk()
    log = make_logger(disk)
    log.info("one")
    disk.is_full = True
    for _ in range(3):
        log.info("lost")
    disk.is_full = False
    log.info("two")
    lines = [json.loads(line) for line in disk.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["one", "log_lines_lost", "two"]
    assert lines[1]["lines"] == 3


FLOATS = [
    name
    for name, entry in Settings.model_fields.items()
    if entry.annotation is float or name in ("workers", "threads", "job_workers", "job_processes")
]


@pytest.mark.parametrize("value", ["inf", "1e9", "nan", "-1"])
@pytest.mark.parametrize("name", FLOATS)
def test_no_time_and_no_number_of_processes_is_without_bounds(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SAGA_{name.upper()}", value)
    with pytest.raises(UsageError, match=f"SAGA_{name.upper()}"):
        Settings.of()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SAGA_JOB_HOUR", "SAGA_JOB_HOURS"),
        ("SAGA_BUNDEL", "SAGA_BUNDLE"),
        ("SAGA_DATABASEKEY", "SAGA_DATABASE_KEY"),
        ("saga_max_person", "SAGA_MAX_PERSONS"),
        ("SAGA_WORKER", "SAGA_WORKERS"),
        ("SAGA_QUOTAS", "SAGA_QUOTA"),
    ],
)
def test_a_misspelt_variable_is_refused_by_every_command(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "secret value")
    with pytest.raises(UsageError, match=f"Did you mean {meant}") as caught:
        Settings.of()
    assert "secret" not in str(caught.value)
    assert meant in refusal("bundle verify bundles/small")


def test_variables_of_other_programs_are_told_and_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kubernetes sets variables of this form for a service that is called saga."""
    for name in [name for name in os.environ if name.startswith("SAGA_")]:
        monkeypatch.delenv(name)
    names = ["SAGA_INPUT", "SAGA_SERVICE_HOST", "SAGA_SERVICE_PORT_HTTP", "SAGA_USER"]
    for name in [*names, "SAGA_KEY", "SAGA_JOB_HOURS"]:
        monkeypatch.setenv(name, "5")
    assert Settings.of().job_hours == 5
    assert unread_variables() == names
    log = io.StringIO()
    create_app(Settings(), log=log)
    assert json.loads(log.getvalue())["names"] == names
