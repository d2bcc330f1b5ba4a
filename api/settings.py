"""Settings of a deployment, by argument or environment variable with prefix `SAGA_`."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from saga.errors import Problem, UsageError
from saga.requests import RolloutName

_DAY, _TEN_YEARS = 86_400, 87_600  # seconds, hours
_MOST = 1_024  # processes or threads
_LARGEST = 2**53  # of a number or size: each has a float and fits in what the system takes
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:]+\])(:\d+)?")
_Size = Annotated[int, Field(ge=1, le=_LARGEST)]
_FURTHER = frozenset({"SAGA_DEBUG", "SAGA_HOLDER", "SAGA_KEY", "SAGA_KEYS_FILE", "SAGA_URL"})


def _default_bundle() -> Path:
    from saga.bundle import default_bundle  # loads torch, which a worker of jobs does not need

    return default_bundle()


def _read_origins(value: object) -> object:
    """The origins of a text; each is a scheme, a host and perhaps a port, as browsers send them."""
    origins = tuple(filter(None, value.split(","))) if isinstance(value, str) else value
    if isinstance(origins, tuple) and not all(map(_ORIGIN.fullmatch, origins)):
        message = "An origin is like https://portal.example.org or http://localhost:3000"
        raise PydanticCustomError("origin", message)
    return origins


class Settings(BaseSettings):
    """Settings of one service process; `SAGA_BUNDLE=/data/bundle` and so on set them."""

    model_config = SettingsConfigDict(env_prefix="SAGA_", env_ignore_empty=True, extra="forbid")

    bundle: Path = Field(
        default_factory=_default_bundle, description="Bundle directory to forecast from"
    )
    host: Annotated[
        str, Field(description="Address to listen on; anything but loopback needs `keys`")
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one")
    ] = 8000
    keys: Annotated[
        Path | None, Field(description="File of hashed bearer keys, made by `saga keys create`")
    ] = None
    origins: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(_read_origins),
        Field(
            description="Origins whose pages may call the service from a browser, such as "
            "https://portal.example.org, separated by commas; none: its own pages only"
        ),
    ] = ()
    workers: Annotated[
        int,
        Field(
            ge=1,
            le=_MOST,
            description="Processes that answer calls, each with a bundle and a queue",
        ),
    ] = 1
    threads: Annotated[
        int | None, Field(ge=1, le=_MOST, description="Threads of one forecast; default: all cores")
    ] = None
    rollout: Annotated[
        RolloutName | None,
        Field(description="How paths are simulated; default: as the bundle was calibrated"),
    ] = None
    facts: Annotated[
        Path | None,
        Field(description="Your own dated facts: a folder of .csv files, or one; none: shipped"),
    ] = None
    max_persons: Annotated[_Size, Field(description="Most persons in one call")] = 1_000
    max_work: Annotated[_Size, Field(description="Most persons x paths x years in one call")] = (
        6_000_000
    )
    max_body_bytes: Annotated[_Size, Field(description="Largest request body")] = 32 * 2**20
    max_bodies_bytes: Annotated[
        _Size,
        Field(
            description="Bytes of all request bodies, and of all unread answers, in memory",
        ),
    ] = 128 * 2**20
    body_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=_DAY,
            description="Longest time a client may take to send its body, or read nothing",
        ),
    ] = 60.0
    header_seconds: Annotated[
        float,
        Field(gt=0, le=_DAY, description="Longest time a client may take to send its headers"),
    ] = 10.0
    max_connections: Annotated[
        int,
        Field(
            ge=8,
            le=2**20,
            description="Most connections; for one more, one without a call is closed",
        ),
    ] = 512
    queue: Annotated[
        _Size, Field(description="Most calls at a time; more get 503 before they are read")
    ] = 64
    quota: Annotated[
        _Size, Field(description="POST calls of one holder a minute; more get 429")
    ] = 6_000
    database: Annotated[
        SecretStr | None,
        Field(
            description="Database of the ledger: sqlite:///FILE or postgresql://...; "
            "none: no ledger"
        ),
    ] = None
    database_key: Annotated[
        Path | None,
        Field(
            description="File of the ledger's secret key; default for SQLite: FILE.key, which is "
            "made if it is missing"
        ),
    ] = None
    drain_seconds: Annotated[
        float, Field(ge=0, le=_DAY, description="Seconds from SIGTERM to the end of listening")
    ] = 5.0
    stop_seconds: Annotated[
        float,
        Field(gt=0, le=_DAY, description="Seconds for calls to finish after listening ends"),
    ] = 25.0
    queue_seconds: Annotated[
        float,
        Field(gt=0, le=_DAY, description="Longest wait in the queue; then a call gets 503"),
    ] = 30.0

    jobs: Annotated[
        Path | None, Field(description="Folder of jobs: their persons and results; none: no jobs")
    ] = None
    job_files: Annotated[
        Path | None,
        Field(description="Folder with files that jobs may name, a folder for each holder"),
    ] = None
    jobs_database: Annotated[
        SecretStr | None,
        Field(
            description="Database of the job queue: sqlite:///FILE or postgresql://...; default: "
            "a SQLite file in the folder of jobs"
        ),
    ] = None
    job_workers: Annotated[
        int,
        Field(
            ge=0,
            le=_MOST,
            description="Jobs computed at a time by this service; 0: only by `saga work`",
        ),
    ] = 1
    job_processes: Annotated[
        int, Field(ge=1, le=_MOST, description="Processes that compute one job")
    ] = 1
    job_hours: Annotated[
        float,
        Field(gt=0, le=_TEN_YEARS, description="Hours for which the result of a job is available"),
    ] = 72.0
    max_jobs: Annotated[
        _Size, Field(description="Most jobs of one holder that wait or run; more get 429")
    ] = 100
    max_job_bytes: Annotated[
        _Size, Field(description="Largest table of a job, as it is sent and uncompressed")
    ] = 2 * 2**30
    job_memory_bytes: Annotated[
        _Size, Field(ge=2**30, description="Memory that a process of a job may take for its work")
    ] = 4 * 2**30
    holder_bytes: Annotated[
        _Size, Field(description="Disk that all jobs of one holder may take")
    ] = 20 * 2**30

    @property
    def job_queue_url(self) -> str:
        """URL of the database of the job queue. Raises UsageError if it is not usable."""
        from saga.calibration.adaptive.database import parse_database_url, sqlite_url

        if self.jobs_database is not None:
            url = self.jobs_database.get_secret_value()
            parse_database_url(url)
            return url
        assert self.jobs is not None
        return sqlite_url(self.jobs.absolute() / "queue.sqlite")

    @classmethod
    def of(cls, **values: object) -> Self:
        """Settings with these values; the others come from the environment, or are defaults.

        A value that is None is treated as if it were left out.

        Raises UsageError that names a setting that is unknown or out of range, or a misspelt
        variable of the environment.
        """
        unread_variables()
        fix = "Correct the option or the variable SAGA_"
        stated = {name: value for name, value in values.items() if value is not None}
        try:
            return cls(**stated)  # type: ignore[arg-type]  # pydantic checks the types
        except ValidationError as error:
            entries = error.errors(include_url=False, include_input=False)
            problems = [
                Problem("setting", entry["msg"], f"{fix}{name.upper()}", name)
                for entry in entries
                for name in [str(entry["loc"][0])]
            ]
            raise UsageError("A setting of the service is not valid", problems) from None


def unread_variables() -> list[str]:
    """The variables SAGA_... of the environment that nothing reads.

    Raises UsageError for one that looks like the misspelt name of a setting.
    """
    known = {f"SAGA_{name.upper()}" for name in Settings.model_fields}
    names = {name for name in os.environ if name.upper().startswith("SAGA_")}
    unread = sorted(name for name in names if name.upper() not in known | _FURTHER)
    problems = [
        Problem("setting", f"{name} is not a setting", f"Did you mean {near[0]}?", name)
        for name in unread
        if (near := get_close_matches(name.upper(), known, 1, 0.85))
    ]
    if problems:
        raise UsageError("A variable of the environment is not known", problems)
    return unread
