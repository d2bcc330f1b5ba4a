"""The client: one object for one service."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pyarrow as pa

from saga.client.frames import Answer, FrameT, read_answer, to_parquet
from saga.client.remote_jobs import PARQUET, JobState, RemoteJob
from saga.client.service_connection import ServiceConnection, foreign_answer, json_of
from saga.errors import UsageError
from saga.requests import (
    Draws,
    ForecastRequest,
    LifetimeRequest,
    OnError,
    PopulationRequest,
    Request,
    options_of,
)

Prices = Literal["nominal"] | int
_FILE_TYPES = {".parquet": PARQUET, ".csv": "text/csv"}


@dataclass(frozen=True)
class Sending:
    """How persons are sent as a job.

    Args:
        prices: Prices of the amounts.
        origin: For backtests: records after this year are not read.
        record: Whether to enter the intervals in the ledger.
        on_error: Whether rows that break a rule end the job, or are dropped and counted.
        key: Idempotency-Key; the same key and request are the same job. By default a new one.
    """

    prices: Prices | None = None
    origin: int | None = None
    record: bool = False
    on_error: OnError = "fail"
    key: str | None = None


class Client(ServiceConnection):
    """Calls a service of SAGA; safe for several threads."""

    def forecast(
        self,
        persons: FrameT,
        request: ForecastRequest = ForecastRequest(),  # frozen
        draws: Draws = Draws(),
        *,
        prices: Prices | None = None,
        origin: int | None = None,
        record: bool = False,
    ) -> Answer[FrameT]:
        """Earnings 1 to 30 years ahead: one row per person and horizon.

        `prices` are those of the amounts; records after the year `origin` are not read; `record`
        enters the intervals in the ledger. Raises ServiceError, of the class that fits the answer.
        """
        extra = {"prices": prices, "origin": origin, "record": record or None}
        return self._compute(persons, request, draws, extra)

    def lifetime(
        self,
        persons: FrameT,
        request: LifetimeRequest = LifetimeRequest(),  # frozen
        draws: Draws = Draws(),
        *,
        prices: Prices | None = None,
        origin: int | None = None,
        record: bool = False,
    ) -> Answer[FrameT]:
        """Present values: one row per person; arguments as in `forecast`. Raises ServiceError."""
        extra = {"prices": prices, "origin": origin, "record": record or None}
        return self._compute(persons, request, draws, extra)

    def population(
        self,
        persons: FrameT,
        request: PopulationRequest = PopulationRequest(),  # frozen
        draws: Draws = Draws(),
        *,
        prices: Prices | None = None,
        origin: int | None = None,
        weights: str | None = None,
    ) -> Answer[FrameT]:
        """Groups with 90 % bands: one row per year, group and statistic; then chances of events.

        `weights` names the own column of `persons` (`extra_NAME`) that says how many persons of a
        population each one stands for; other arguments as in `forecast`. Raises ServiceError.
        """
        extra = {"prices": prices, "origin": origin, "weights": weights}
        return self._compute(persons, request, draws, extra)

    def submit(
        self,
        persons: FrameT,
        request: Request | PopulationRequest = ForecastRequest(),
        draws: Draws = Draws(),
        sending: Sending = Sending(),
    ) -> RemoteJob[FrameT]:
        """Send persons of any number as a job. Raises ServiceError."""
        parameters = query(request, draws, _job_options(request, sending))
        identifier = self._post_job(to_parquet(persons), PARQUET, parameters, sending.key)
        return RemoteJob(self, identifier, persons)

    def submit_file(
        self,
        path: Path,
        request: Request | PopulationRequest = ForecastRequest(),
        draws: Draws = Draws(),
        sending: Sending = Sending(),
    ) -> RemoteJob[pa.Table]:
        """Send a Parquet or CSV file as a job; the result is an Arrow table."""
        if path.suffix not in _FILE_TYPES:
            raise UsageError("A file of persons is .parquet or .csv.")
        parameters = query(request, draws, _job_options(request, sending))
        return self.job(self._post_job(path, _FILE_TYPES[path.suffix], parameters, sending.key))

    def score(
        self,
        persons: FrameT,
        request: Request = ForecastRequest(),  # frozen
        draws: Draws = Draws(),
        sending: Sending = Sending(),
        *,
        progress: Callable[[JobState], None] = lambda _: None,
    ) -> Answer[FrameT]:
        """The result of a job: submit, wait and fetch. Raises JobError if it fails."""
        job = self.submit(persons, request, draws, sending)
        job.wait(progress)
        return job.result()

    def job(self, identifier: str) -> RemoteJob[pa.Table]:
        """A job that was submitted before; its result is an Arrow table."""
        return RemoteJob(self, identifier, pa.table({}))

    def send_outcomes(self, outcomes: FrameT, *, prices: Prices | None = None) -> dict[str, Any]:
        """Send realised earnings (`person_id`, `year`, `earnings`); repeating it has no effect."""
        parameters = {} if prices is None else {"prices": str(prices)}
        headers = {"Content-Type": PARQUET}
        content = to_parquet(outcomes)
        return json_of(
            self.call("POST", "/v1/outcomes", content=content, params=parameters, headers=headers)
        )

    def model(self) -> dict[str, Any]:
        """The bundle of the service: digests, configuration, coverages, model card."""
        return json_of(self.call("GET", "/v1/model"))

    def _compute(
        self,
        persons: FrameT,
        request: ForecastRequest | LifetimeRequest | PopulationRequest,
        draws: Draws,
        extra: Mapping[str, object],
    ) -> Answer[FrameT]:
        response = self.call(
            "POST",
            f"/v1/{request.product}",
            content=to_parquet(persons),
            params=query(request, draws, extra),
            headers={"Content-Type": PARQUET, "Accept": PARQUET},
        )
        return read_answer(response.content, persons)

    def _post_job(
        self, persons: bytes | Path, kind: str, parameters: Mapping[str, str], key: str | None
    ) -> str:
        """Send a table as a job; returns the identifier. A repeated call is the same job."""
        headers = {"Content-Type": kind, "Idempotency-Key": key or uuid.uuid4().hex}

        def post() -> httpx.Response:
            with persons.open("rb") if isinstance(persons, Path) else nullcontext(persons) as body:
                return self.http.post("/v1/jobs", content=body, params=parameters, headers=headers)

        answer = self.checked(post)
        document = json_of(answer)
        if "id" not in document:
            raise foreign_answer(answer)
        return str(document["id"])


def query(
    request: Request | PopulationRequest,
    draws: Draws,
    extra: Mapping[str, object],
) -> dict[str, str]:
    """Query parameters: the options that differ from their defaults, and `extra` but for None.

    Raises UsageError for a scenario or tax that is not a name.
    """
    scenarios = draws.scenario, getattr(request, "reference", None)
    if not all(scenario is None or isinstance(scenario, str) for scenario in scenarios):
        raise UsageError("With a table the scenario is a name, such as recession-1990s.")
    if isinstance(request, LifetimeRequest | PopulationRequest) and not isinstance(
        request.tax, str
    ):
        raise UsageError("With a table the tax is a name, such as se-2026.")
    stated = {
        option.name or name: getattr(source, name)
        for source in (request, draws)
        for name, (entry, option) in options_of(type(source)).items()
        if getattr(source, name) != entry.default
    }
    return {name: _text(value) for name, value in {**stated, **extra}.items() if value is not None}


def _job_options(request: Request | PopulationRequest, sending: Sending) -> dict[str, object]:
    return {
        "product": None if request.product == "forecasts" else request.product,
        "prices": sending.prices,
        "origin": sending.origin,
        "record": sending.record or None,
        "on_error": None if sending.on_error == "fail" else sending.on_error,
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
