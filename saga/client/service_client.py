"""The client: one object for one service."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx
import pyarrow as pa

from saga.client.frames import Answer, FrameT, read_answer, to_parquet
from saga.client.remote_jobs import JobState, RemoteJob
from saga.client.retries import Retries
from saga.client.service_errors import UnreachableError, service_error
from saga.errors import UsageError
from saga.requests import Draws, ForecastRequest, LifetimeRequest, OnError, PathsRequest, Request
from saga.version import current_version

Prices = Literal["nominal"] | int
_PARQUET = "application/vnd.apache.parquet"
_FILE_TYPES = {".parquet": _PARQUET, ".csv": "text/csv"}
_NAMES = {"states": "circumstances", "n_paths": "paths"}  # where HTTP has another name


@dataclass(frozen=True)
class Sending:
    """How persons are sent as a job.

    Args:
        prices: Prices of the amounts.
        record: Whether to enter the intervals in the ledger.
        on_error: Whether rows that break a rule end the job, or are dropped and counted.
        key: Idempotency-Key; the same key and request are the same job. By default a new one.
    """

    prices: Prices | None = None
    record: bool = False
    on_error: OnError = "fail"
    key: str | None = None


class Client:
    """Calls a service of SAGA; safe for several threads.

    Args:
        url: Address of the service, such as `https://saga.example.org`.
        key: Bearer key; None for a service without keys.
        retries: How long a call is repeated while the service is busy or away.
        seconds: Longest wait for an answer, before the call counts as lost and is repeated.
        tls: Certificate authorities to trust, of `ssl.create_default_context(cafile=...)`.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        retries: Retries = Retries(),  # frozen
        seconds: float = 120.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        headers = {"User-Agent": f"saga-client/{current_version()}"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._retries = retries
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(seconds, connect=10.0),
            verify=True if tls is None else tls,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def forecast(
        self,
        persons: FrameT,
        request: ForecastRequest = ForecastRequest(),  # frozen
        draws: Draws = Draws(),
        *,
        prices: Prices | None = None,
        record: bool = False,
    ) -> Answer[FrameT]:
        """Earnings 1 to 30 years ahead: one row per person and horizon.

        `record` enters the intervals in the ledger. `prices` are those of the amounts. Raises
        ServiceError, of the class that fits the answer.
        """
        extra = {"prices": prices, "record": record or None}
        return self._compute("/v1/forecasts", persons, query(request, draws, extra))

    def lifetime(
        self,
        persons: FrameT,
        request: LifetimeRequest = LifetimeRequest(),  # frozen
        draws: Draws = Draws(),
        *,
        prices: Prices | None = None,
    ) -> Answer[FrameT]:
        """Present values: one row per person. Raises ServiceError."""
        return self._compute("/v1/lifetimes", persons, query(request, draws, {"prices": prices}))

    def submit(
        self,
        persons: FrameT,
        request: Request = ForecastRequest(),
        draws: Draws = Draws(),
        sending: Sending = Sending(),
    ) -> RemoteJob[FrameT]:
        """Send persons of any number as a job. Raises ServiceError."""
        content = to_parquet(persons)
        headers = {"Content-Type": _PARQUET, "Idempotency-Key": sending.key or uuid.uuid4().hex}
        job = self.call(
            "POST",
            "/v1/jobs",
            content=content,
            params=query(request, draws, _job_options(request, sending)),
            headers=headers,
        )
        return RemoteJob(self, job.json()["id"], persons)

    def submit_file(
        self,
        path: Path,
        request: Request = ForecastRequest(),
        draws: Draws = Draws(),
        sending: Sending = Sending(),
    ) -> RemoteJob[pa.Table]:
        """Send a Parquet or CSV file as a job; the result is an Arrow table."""
        if path.suffix not in _FILE_TYPES:
            raise UsageError("A file of persons is .parquet or .csv.")
        parameters = query(request, draws, _job_options(request, sending))
        headers = {
            "Content-Type": _FILE_TYPES[path.suffix],
            "Idempotency-Key": sending.key or uuid.uuid4().hex,
        }

        def post() -> httpx.Response:
            with path.open("rb") as file:
                return self._http.post("/v1/jobs", content=file, params=parameters, headers=headers)

        return self.job(self._checked(post).json()["id"])

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
        headers = {"Content-Type": _PARQUET}
        content = to_parquet(outcomes)
        answer: dict[str, Any] = self.call(
            "POST", "/v1/outcomes", content=content, params=parameters, headers=headers
        ).json()
        return answer

    def model(self) -> dict[str, Any]:
        """The bundle of the service: digests, configuration, coverages, model card."""
        answer: dict[str, Any] = self.call("GET", "/v1/model").json()
        return answer

    def call(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Any call, repeated as `retries` says. Raises ServiceError unless it succeeds."""
        return self._checked(
            lambda: self._http.request(
                method, path, content=content, params=params, headers=headers
            )
        )

    @contextmanager
    def stream(self, path: str, *, seconds: float) -> Iterator[httpx.Response]:
        """The answer of a GET while it arrives; `seconds` is the longest pause.

        Raises:
            ServiceError: The call fails.
            httpx.TransportError: The connection breaks later.
        """
        timeout = httpx.Timeout(seconds, connect=10.0)
        request = self._http.build_request("GET", path, timeout=timeout)
        response = self._checked(lambda: self._http.send(request, stream=True))
        try:
            yield response
        finally:
            response.close()

    def _compute(self, path: str, persons: FrameT, parameters: Mapping[str, str]) -> Answer[FrameT]:
        headers = {"Content-Type": _PARQUET, "Accept": _PARQUET}
        response = self.call(
            "POST", path, content=to_parquet(persons), params=parameters, headers=headers
        )
        return read_answer(response.content, persons)

    def _checked(self, attempt: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            response = self._retries.send(attempt)
        except httpx.TransportError as error:
            message = f"No answer from {self._http.base_url} ({type(error).__name__})"
            raise UnreachableError(message) from error
        if response.is_success:
            return response
        response.read()
        raise service_error(response)


def query(
    request: ForecastRequest | LifetimeRequest | PathsRequest,
    draws: Draws,
    extra: Mapping[str, object],
) -> dict[str, str]:
    """Query parameters: the options that differ from their defaults, and `extra` but for None.

    Raises UsageError for a scenario or tax that is not a name.
    """
    if draws.scenario is not None and not isinstance(draws.scenario, str):
        raise UsageError("With a table the scenario is a name, such as recession-1990s.")
    if isinstance(request, LifetimeRequest) and not isinstance(request.tax, str):
        raise UsageError("With a table the tax is a name, such as se-2026.")
    stated = {
        _NAMES.get(entry.name, entry.name): getattr(source, entry.name)
        for source in (request, draws)
        for entry in fields(source)
        if getattr(source, entry.name) != entry.default
    }
    return {name: _text(value) for name, value in {**stated, **extra}.items() if value is not None}


def _job_options(request: Request, sending: Sending) -> dict[str, object]:
    return {
        "product": None if request.product == "forecasts" else request.product,
        "prices": sending.prices,
        "record": sending.record or None,
        "on_error": None if sending.on_error == "fail" else sending.on_error,
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
