"""A job of the service, followed from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic

import httpx

from saga.client.frames import Answer, FrameT, read_answer
from saga.client.service_connection import (
    JobError,
    ServiceConnection,
    document_error,
    foreign_answer,
    json_of,
)

PARQUET = "application/vnd.apache.parquet"
_LOOK_SECONDS = 1.0  # between two looks at a job
_LOST_SECONDS = 60.0  # after so long without a byte the connection counts as lost


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
            return job_state(json_of(answer))
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
        """
        target = Path(path)
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


def job_state(view: Mapping[str, Any]) -> JobState:
    """The state from the document that the service answers with."""
    return JobState(
        id=view["id"],
        state=view["state"],
        persons=view["persons"],
        persons_done=view["persons_done"],
        totals=view["totals"],
        problem=view["problem"],
        result=view["links"]["result"],
    )
