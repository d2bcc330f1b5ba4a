"""The client: one object for one service, and for each of its jobs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal

import httpx
import pyarrow as pa

from saga.client.frames import Answer, FrameT, read_answer, require_replaceable, to_parquet
from saga.client.service_connection import (
    JobError,
    ServiceConnection,
    document_error,
    foreign_answer,
    json_of,
)
from saga.errors import UsageError, check_type
from saga.requests import (
    JOB_REQUESTS,
    Draws,
    ForecastRequest,
    LifetimeRequest,
    OnError,
    PopulationRequest,
    Request,
    options_of,
)

PARQUET = "application/vnd.apache.parquet"
_LOOK_SECONDS = 1.0  # between two looks at a job
_LOST_SECONDS = 60.0  # after so long without a byte the connection counts as lost
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

    Raises UsageError for a key that cannot be sent.
    """

    prices: Prices | None = None
    origin: int | None = None
    record: bool = False
    on_error: OnError = "fail"
    key: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not re.fullmatch("[!-~]+", str(self.key)):
            raise UsageError("key has only letters from a to z, digits and signs: delivery-2026.")


@dataclass(frozen=True)
class JobState:
    """How far a job is.

    Args:
        id: Identifier of the job.
        state: queued, running, succeeded, failed or cancelled.
        persons: Number of persons; None until they are counted.
        persons_done: Persons that are computed.
        totals: Counts of a job that has succeeded.
        problem: The problem document of a job that has failed.
        result: Address of the result; None if there is none.
    """

    id: str
    state: str
    persons: int | None
    persons_done: int
    totals: Mapping[str, Any] | None
    problem: Mapping[str, Any] | None
    result: str | None

    @property
    def has_ended(self) -> bool:
        """Whether the state will not change any more."""
        return self.state not in ("queued", "running")


class RemoteJob(Generic[FrameT]):
    """A job, made by `Client.submit` and `Client.job`; its result is a frame like `example`."""

    def __init__(self, connection: ServiceConnection, identifier: str, example: FrameT) -> None:
        self.id = identifier
        self._connection, self._example = connection, example
        self._address = f"/v1/jobs/{identifier}"

    def state(self) -> JobState:
        """How far the job is now."""
        answer = self._connection.call("GET", self._address)
        try:
            return _job_state(json_of(answer, "state"))
        except (KeyError, TypeError):
            raise foreign_answer(answer) from None

    def wait(self, progress: Callable[[JobState], None] = lambda _: None) -> JobState:
        """Wait until the job has succeeded; `progress` is called whenever its state changes.

        A restart of the service does not end the wait. Raises JobError if the job fails or is
        cancelled.
        """
        last = self.state()
        progress(last)
        while not last.has_ended:
            self._connection.retries.sleep(_LOOK_SECONDS)
            if (state := self.state()) != last:
                last = state
                progress(last)
        if last.state != "succeeded":
            document = last.problem or {"title": f"The job is {last.state}"}
            raise document_error(JobError, document)
        return last

    def result(self) -> Answer[FrameT]:
        """The result of a job that has succeeded, in the kind of frame that was sent."""
        response = self._connection.call("GET", f"{self._address}/result")
        return read_answer(response.content, self._example)

    def save(self, path: str | Path) -> Path:
        """Write the result to a Parquet file, which appears when it is complete.

        A download that breaks goes on where it broke, as long as each attempt brings it further.
        Raises UsageError for a path with something that is no table of SAGA.
        """
        require_replaceable(target := Path(path))
        partial = target.with_name(f"{target.name}.part")
        try:
            with partial.open("wb") as file:
                self._download(file)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return target

    def _download(self, file: BinaryIO) -> None:
        """Write the result to a file, in several calls if connections break."""
        retries, tag, furthest, number = self._connection.retries, "", 0, 0
        deadline = retries.clock() + retries.seconds
        while True:
            headers = {"Accept-Encoding": "identity"}  # so that a position is that of the file
            if tag and file.tell():
                headers |= {"Range": f"bytes={file.tell()}-", "If-Range": tag}
            try:
                with self._connection.stream(
                    f"{self._address}/result", seconds=_LOST_SECONDS, headers=headers
                ) as answer:
                    if answer.headers.get("content-type") != PARQUET:
                        raise foreign_answer(answer)
                    if answer.status_code != 206:
                        file.truncate(file.seek(0))
                    tag = answer.headers.get("etag", "")
                    for chunk in answer.iter_bytes():
                        file.write(chunk)
                return
            except httpx.HTTPError as error:
                if file.tell() > furthest:
                    furthest, number = file.tell(), 0
                    deadline = retries.clock() + retries.seconds
                if retries.clock() >= deadline:
                    raise self._connection.unreachable(error) from None
            retries.sleep(retries.wait(number, None))
            number += 1

    def cancel(self) -> None:
        """Cancel a job that waits or runs, or delete one that has ended."""
        self._connection.call("DELETE", self._address)


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
        return self._compute(persons, ForecastRequest, request, draws, extra)

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
        return self._compute(persons, LifetimeRequest, request, draws, extra)

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
        return self._compute(persons, PopulationRequest, request, draws, extra)

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
        path: str | Path,
        request: Request | PopulationRequest = ForecastRequest(),
        draws: Draws = Draws(),
        sending: Sending = Sending(),
    ) -> RemoteJob[pa.Table]:
        """Send a Parquet or CSV file as a job; the result is an Arrow table."""
        path = Path(path)
        if path.suffix not in _FILE_TYPES or not path.is_file():
            raise UsageError(f"{path} is no .parquet or .csv file of persons. Name one.")
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

    def model(self) -> dict[str, Any]:
        """The bundle of the service: digests, configuration, coverages, model card."""
        return json_of(self.call("GET", "/v1/model"), "bundle")

    def _compute(
        self,
        persons: FrameT,
        kind: type[Request | PopulationRequest],
        request: Request | PopulationRequest,
        draws: Draws,
        extra: Mapping[str, object],
    ) -> Answer[FrameT]:
        check_type("request", request, kind, f"{kind.__name__}()")
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

        identifier: str = json_of(self.checked(post), "id")["id"]
        return identifier


def query(
    request: Request | PopulationRequest,
    draws: Draws,
    extra: Mapping[str, object],
) -> dict[str, str]:
    """Query parameters: the options that differ from their defaults, and `extra` but for None.

    Raises UsageError for other draws, and for a scenario or tax that is not a name.
    """
    check_type("draws", draws, Draws, "Draws(seed=1)")
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
    if not isinstance(request, tuple(JOB_REQUESTS.values())):
        kinds = ", ".join(kind.__name__ for kind in JOB_REQUESTS.values())
        raise UsageError(f"request is one of {kinds}, not of type {type(request).__name__}.")
    check_type("sending", sending, Sending, "Sending(origin=2015)")
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


def _job_state(view: Mapping[str, Any]) -> JobState:
    """The state from the document of a service. Raises KeyError or TypeError for another one."""
    problem = view["problem"]
    if not (problem is None or problem["title"]):
        raise TypeError
    return JobState(
        id=view["id"],
        state=view["state"],
        persons=view["persons"],
        persons_done=view["persons_done"],
        totals=view["totals"],
        problem=problem,
        result=view["links"]["result"],
    )
