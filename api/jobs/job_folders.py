"""The folders of jobs: the order, the persons, the progress and the result of each, as files.

The database of the queue has only the name of a folder and the holder of the key, never data.
A folder appears under its name in one step, when its body is complete.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from saga.files.atomic import commit_json, digest_json, read_json, sync_folder

JOB_ID = r"^[0-9a-f]{32}$"
RESULT = "result.parquet"
State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
EntryT = TypeVar("EntryT", "JobOrder", "Progress", "Outcome")


@dataclass(frozen=True)
class JobOrder:
    """What a job computes, and for whom.

    Args:
        id: Identifier of the job and name of its folder.
        run: Identifier in the queue, never used twice.
        holder: Holder of the key that sent the job; nobody else can see it.
        created: Time of arrival, ISO 8601 in UTC.
        digest: sha256 of the options and the body.
        persons_file: Name of the file with the persons.
        options: The options as they were sent (`saga.api.request_models.JobOptions`).
        trace: The place of the call in a trace, as W3C traceparent; None without traces.
    """

    id: str
    run: str
    holder: str
    created: str
    digest: str
    persons_file: str
    options: Mapping[str, Any]
    trace: str | None = None


@dataclass(frozen=True)
class Progress:
    """Persons done and persons in all."""

    done: int
    persons: int


@dataclass(frozen=True)
class Outcome:
    """The totals of a finished job, or the problem document of a failed one."""

    totals: Mapping[str, Any] | None
    problem: Mapping[str, Any] | None


_ENTRIES: dict[type, str] = {
    JobOrder: "order.json",
    Progress: "progress.json",
    Outcome: "outcome.json",
}


class JobFolder:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path, self.out, self.result = path, path / "out", path / RESULT

    def read(self, kind: type[EntryT]) -> EntryT | None:
        """The order, progress or outcome; None before it is there, or if the folder is gone."""
        content = read_json(self.path / _ENTRIES[kind])
        return None if content is None else kind(**content)

    def write(self, entry: JobOrder | Progress | Outcome) -> None:
        """Store the order, progress or outcome."""
        commit_json(self.path / _ENTRIES[type(entry)], asdict(entry))

    def result_files(self) -> dict[str, Path]:
        """The files of the scoring run that a client may read, by name."""
        from saga.batch.run_folder import MANIFEST, REJECTED  # loads polars; no worker needs it

        manifest = read_json(self.out / MANIFEST)
        if manifest is None:
            return {}
        names = [MANIFEST, REJECTED, *(part["file"] for part in manifest["parts"])]
        return {name: self.out / name for name in names}

    def changed(self) -> float:
        """Time of the last change, Unix seconds; now if the folder is gone."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return time.time()

    def discard_persons(self) -> None:
        """Delete the persons of a job that has ended."""
        for file in self.path.glob("persons.*"):
            file.unlink(missing_ok=True)

    def discard_data(self) -> None:
        """Delete the persons and whatever was computed."""
        self.discard_persons()
        self.result.unlink(missing_ok=True)
        shutil.rmtree(self.out, ignore_errors=True)


class JobFolders:
    """All jobs of a service, in the folder `root`, which several processes may share."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.workers, self.queue_lock = self.root / "workers", self.root / "queue.lock"
        self._jobs, self._unfinished = self.root / "jobs", self.root / "unfinished"

    def create(self) -> None:
        """Make the folders, readable by the service's user alone."""
        for folder in (self.root, self.workers, self._jobs, self._unfinished):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder(self, job_id: str) -> JobFolder:
        """The folder of a job, which may not exist."""
        if not re.match(JOB_ID, job_id):
            raise ValueError("not the identifier of a job")
        return JobFolder(self._jobs / job_id)

    def __iter__(self) -> Iterator[JobFolder]:
        return (JobFolder(path) for path in sorted(self._jobs.iterdir()))

    def new_upload(self) -> JobFolder:
        """An empty folder for an upload; workers delete it after a day if it is left behind."""
        path = self._unfinished / uuid.uuid4().hex
        path.mkdir(mode=0o700)
        return JobFolder(path)

    def uploads(self) -> list[Path]:
        """The folders of present uploads, and those that a killed process left behind."""
        return sorted(self._unfinished.iterdir())

    def place(self, upload: JobFolder, order: JobOrder) -> bool:
        """Give a complete upload its name; False if there is a job of this name."""
        upload.write(order)
        try:
            upload.path.rename(self._jobs / order.id)
        except OSError:
            if not (self._jobs / order.id).exists():
                raise
            return False
        sync_folder(self._jobs)
        return True

    def remove(self, folder: JobFolder) -> None:
        """Delete a job; it disappears in one step."""
        trash = self._unfinished / uuid.uuid4().hex
        try:
            folder.path.rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash, ignore_errors=True)


def job_id(holder: str, key: str | None) -> str:
    """The identifier of a job: the same for the same holder and Idempotency-Key, else new."""
    return uuid.uuid4().hex if key is None else digest_json([holder, key])[:32]


@dataclass(frozen=True)
class JobStatus:
    """Where a job stands; times are Unix seconds."""

    state: State
    started: float | None = None
    finished: float | None = None


@dataclass(frozen=True)
class Job:
    """A job and where it stands."""

    folder: JobFolder
    order: JobOrder
    status: JobStatus


def describe_job(job: Job, keep_hours: float) -> Mapping[str, Any]:
    """A job as JSON, for its page and its events."""
    order, status, outcome = job.order, job.status, job.folder.read(Outcome)
    progress = job.folder.read(Progress)
    address = f"/v1/jobs/{order.id}"
    problem = None
    if status.state == "failed":
        document = None if outcome is None else outcome.problem
        problem = {**(document or _KILLED), "instance": f"urn:saga:job:{order.id}"}
    totals = outcome.totals if status.state == "succeeded" and outcome is not None else None
    finished = status.finished
    return {
        "id": order.id,
        "state": status.state,
        "product": order.options.get("product", "forecasts"),
        "created": order.created,
        "started": _time(status.started),
        "finished": _time(finished),
        "expires": None if finished is None else _time(finished + keep_hours * 3600),
        "persons": None if progress is None else progress.persons,
        "persons_done": 0 if progress is None else progress.done,
        "totals": totals,
        "problem": problem,
        "links": {
            "self": address,
            "events": f"{address}/events",
            "result": f"{address}/result" if totals and totals["rows"] else None,
            "files": sorted(f"{address}/result/{name}" for name in job.folder.result_files())
            if totals
            else [],
        },
    }


_KILLED: Mapping[str, Any] = {
    "type": "urn:saga:problem:killed",
    "title": "The process of the job was killed",
    "status": 500,
    "detail": "The process ended three times without a result, perhaps for lack of memory. Send "
    "fewer persons or paths, or ask the operator.",
    "problems": [],
}


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
