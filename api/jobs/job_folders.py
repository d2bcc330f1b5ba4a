"""The folders of jobs: the order, the persons, the progress and the result of each, as files.

What the files say is the state of a job. The database of the queue has only the name of a folder
and the holder of the key, never data. A folder appears under its name in one step, when its body is
complete; an outcome is written once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from saga.files.atomic import (
    FolderInUseError,
    commit_json,
    file_lock,
    new_secret,
    read_json,
    sole_writer,
    sync_folder,
)
from saga.keyed_random import encode

JOB_ID = r"^[0-9a-f]{32}$"
RESULT = "result.parquet"
MAX_ATTEMPTS = 3  # processes of a job that end without progress
_END_SECONDS = 10.0  # in which the process of a cancelled job has ended, usually half a second
State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
EntryT = TypeVar("EntryT", "JobOrder", "Attempts", "Progress", "Outcome")


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
    """

    id: str
    run: str
    holder: str
    created: str
    digest: str
    persons_file: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """Persons done, persons in all, and about the most bytes that the job's folder will have."""

    done: int
    persons: int
    n_bytes: int


@dataclass(frozen=True)
class Attempts:
    """When the first process of a job started, and how many did since `done` persons were done."""

    started: float
    count: int
    done: int


@dataclass(frozen=True)
class Outcome:
    """How a job ended, and when: the totals, or the problem document of a failed one."""

    state: Literal["succeeded", "failed", "cancelled"]
    finished: float
    totals: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] | None = None


_ENTRIES: dict[type, str] = {
    JobOrder: "order.json",
    Attempts: "attempts.json",
    Progress: "progress.json",
    Outcome: "outcome.json",
}


class JobFolder:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path, self.out, self.result = path, path / "out", path / RESULT

    def read(self, kind: type[EntryT]) -> EntryT | None:
        """An entry of the job; None before it is there, if the folder is gone, or if damaged."""
        content = read_json(self.path / _ENTRIES[kind])
        try:
            return None if content is None else kind(**content)
        except TypeError:  # other fields, such as those of another version
            return None

    def write(self, entry: JobOrder | Attempts | Progress) -> None:
        """Store an entry of the job."""
        commit_json(self.path / _ENTRIES[type(entry)], asdict(entry))

    def finish(
        self,
        state: Literal["succeeded", "failed", "cancelled"],
        *,
        totals: Mapping[str, Any] | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the outcome, unless the job has one."""
        try:
            with file_lock(self.path / "outcome.lock", wait=True):
                if self.read(Outcome) is None:
                    outcome = Outcome(state, time.time(), totals, problem)
                    commit_json(self.path / _ENTRIES[Outcome], asdict(outcome))
        except FileNotFoundError:  # the job was deleted
            pass

    @contextmanager
    def sole_writer(self, seconds: float) -> Iterator[None]:
        """Lock the folder, after at most `seconds` of waiting for a process of the job to end.

        Raises FolderInUseError if it goes on, FileNotFoundError if the job was deleted.
        """
        deadline = time.monotonic() + seconds
        while True:
            with ExitStack() as stack:
                try:
                    stack.enter_context(sole_writer(self.path))
                except FolderInUseError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
                    continue
                yield
                return

    def job(self) -> Job | None:
        """The job as its files describe it; None if there is none."""
        order = self.read(JobOrder)
        if order is None:
            return None
        entries = self.read(Attempts), self.read(Progress), self.read(Outcome)
        return Job(self, order, *entries)

    def count_attempt(self) -> bool:
        """Count a process that is about to start; False if too many ended without progress."""
        progress, attempts = self.read(Progress), self.read(Attempts)
        done = 0 if progress is None else progress.done
        if attempts is None:
            attempts = Attempts(time.time(), 0, done)
        count = attempts.count + 1 if attempts.done == done else 1
        self.write(Attempts(attempts.started, count, done))
        return count <= MAX_ATTEMPTS

    def take_attempt_back(self) -> None:
        """Do not count the present process: the service ends it, and will start another."""
        if (attempts := self.read(Attempts)) is not None:
            self.write(Attempts(attempts.started, attempts.count - 1, attempts.done))

    def size(self) -> int:
        """Bytes of all its files."""
        n_bytes = 0
        for path in self.path.rglob("*"):
            with suppress(FileNotFoundError):  # a running job replaces files
                n_bytes += path.stat().st_size
        return n_bytes

    def result_files(self) -> dict[str, Path]:
        """The files of the scoring run that a client may read, by name."""
        from saga.batch.run_folder import MANIFEST, REJECTED  # loads polars; no worker needs it

        manifest = read_json(self.out / MANIFEST)
        if manifest is None:
            return {}
        names = [MANIFEST, REJECTED, *(part["file"] for part in manifest["parts"])]
        return {name: self.out / name for name in names}

    def discard_order(self) -> None:
        """End a job without an outcome, which needs room on the disk: it is deleted, not seen.

        Its worker ends the process, as that of a deleted job; nobody finds the folder any more.
        """
        (self.path / _ENTRIES[JobOrder]).unlink(missing_ok=True)

    def discard_persons(self) -> None:
        """Delete the persons of a job that has ended."""
        for file in self.path.glob("persons.*"):
            file.unlink(missing_ok=True)

    def discard_data(self) -> None:
        """Delete whatever was computed, and in the end the persons."""
        self.result.unlink(missing_ok=True)
        shutil.rmtree(self.out, ignore_errors=True)
        self.discard_persons()


@dataclass(frozen=True)
class HolderJobs:
    """The jobs of a holder: how many wait or run, how many have ended, and the bytes of all.

    Of a job that runs, what it may still write counts.
    """

    unfinished: int
    ended: int
    n_bytes: int


@dataclass(frozen=True)
class EndedJob:
    """What counts of a job that has ended."""

    holder: str
    state: State
    n_bytes: int


_Version = tuple[str, int, int]  # of an outcome: its folder, file and time


def _version(path: Path) -> _Version | None:
    """Which outcome this file is; None before it is there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return path.parent.name, status.st_ino, status.st_mtime_ns


def _folders_in(place: Path) -> list[Path]:
    """Its folders; a file in it, such as one of the file system, belongs to no job."""
    return sorted(path for path in place.iterdir() if path.is_dir())


class JobFolders:
    """All jobs of a service, in the folder `root`, which several processes may share."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.workers, self.queue_lock = self.root / "workers", self.root / "queue.lock"
        self.disk_lock, self._secret = self.root / "disk.lock", self.root / "secret"
        self._jobs, self._unfinished = self.root / "jobs", self.root / "unfinished"
        self._read: Mapping[_Version, EndedJob] = {}

    def create(self) -> None:
        """Make the folders, readable by the service's user alone."""
        for folder in (self.root, self.workers, self._jobs, self._unfinished):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new_secret(self._secret, secrets.token_bytes(32))

    def new_id(self, holder: str, key: str | None) -> str:
        """The identifier of a job: the same for the same holder and Idempotency-Key, else new.

        It depends on a secret of the folder, so that nobody can compute another holder's.
        """
        if key is None:
            return uuid.uuid4().hex
        secret = self._secret.read_bytes()
        return hashlib.blake2b(encode(holder, key), key=secret, digest_size=16).hexdigest()

    def folder(self, job_id: str) -> JobFolder:
        """The folder of a job, which may not exist."""
        if not re.match(JOB_ID, job_id):
            raise ValueError("not the identifier of a job")
        return JobFolder(self._jobs / job_id)

    def __iter__(self) -> Iterator[Job]:
        jobs = (JobFolder(path).job() for path in _folders_in(self._jobs))
        return (job for job in jobs if job is not None)

    def of_holder(self, holder: str) -> HolderJobs:
        """How many jobs a holder has, and what they take of the disk."""
        ended, unfinished = self._ended_and_unfinished()
        of_holder = [job for job in ended if job.holder == holder]
        waiting = [job for job in unfinished if job.order.holder == holder]
        n_bytes = sum(job.n_bytes for job in of_holder)
        n_bytes += sum(job.folder.size() + job.bytes_to_write() for job in waiting)
        return HolderJobs(len(waiting), len(of_holder), n_bytes)

    def bytes_to_write(self) -> int:
        """About the most bytes that all running jobs may still write."""
        return sum(job.bytes_to_write() for job in self._ended_and_unfinished()[1])

    def counts(self) -> tuple[Mapping[State, int], float, int]:
        """How many jobs there are by state, seconds that the oldest one waits, persons to do."""
        ended, jobs = self._ended_and_unfinished()
        arrivals = [
            datetime.fromisoformat(job.order.created).timestamp()
            for job in jobs
            if job.state == "queued"
        ]
        return (
            Counter(job.state for job in ended) + Counter(job.state for job in jobs),
            max(0.0, time.time() - min(arrivals)) if arrivals else 0.0,
            sum(
                job.progress.persons - job.progress.done for job in jobs if job.progress is not None
            ),
        )

    def _ended_and_unfinished(self) -> tuple[list[EndedJob], list[Job]]:
        """The jobs that have ended, each read once after its persons are deleted, and the others.

        There may be many that have ended, of other holders, too, and each new job asks.
        """
        ended, unfinished, read = list[EndedJob](), list[Job](), dict[_Version, EndedJob]()
        for path in _folders_in(self._jobs):
            version = _version(path / _ENTRIES[Outcome])
            known = None if version is None else self._read.get(version)
            if known is None:
                if (job := JobFolder(path).job()) is None:
                    continue
                if job.outcome is None:
                    unfinished.append(job)
                    continue
                is_final = not any(path.glob("persons.*"))
                known = EndedJob(job.order.holder, job.state, job.folder.size())
                version = version if is_final else None
            ended.append(known)
            if version is not None:
                read[version] = known
        self._read = read
        return ended, unfinished

    def new_upload(self) -> JobFolder:
        """An empty folder for an upload; workers delete it after a day if it is left behind."""
        path = self._unfinished / uuid.uuid4().hex
        path.mkdir(mode=0o700)
        return JobFolder(path)

    def uploads(self) -> list[Path]:
        """The folders of present uploads, and those that a killed process left behind."""
        return _folders_in(self._unfinished)

    def orphans(self) -> list[JobFolder]:
        """Folders without an order: they belong to no job, and nobody could delete them."""
        return [
            folder
            for folder in map(JobFolder, _folders_in(self._jobs))
            if not folder.read(JobOrder)
        ]

    def place(self, upload: JobFolder, order: JobOrder) -> None:
        """Give a complete upload its name, which no job has."""
        upload.write(order)
        self.remove(self.folder(order.id))
        upload.path.rename(self._jobs / order.id)
        sync_folder(self._jobs)

    def remove(self, folder: JobFolder) -> None:
        """Delete a job, in one step and as soon as no process writes to it.

        Raises FolderInUseError if one does not end.
        """
        trash = self._unfinished / uuid.uuid4().hex
        try:
            with folder.sole_writer(_END_SECONDS):
                folder.path.rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash, ignore_errors=True)


@dataclass(frozen=True)
class Job:
    """A job: its folder, and the entries that it has so far."""

    folder: JobFolder
    order: JobOrder
    attempts: Attempts | None
    progress: Progress | None
    outcome: Outcome | None

    @property
    def state(self) -> State:
        """Where the job stands."""
        if self.outcome is not None:
            return self.outcome.state
        return "queued" if self.attempts is None else "running"

    def bytes_to_write(self) -> int:
        """About the most bytes that the job may still write, once its persons are counted."""
        return 0 if self.progress is None else max(0, self.progress.n_bytes - self.folder.size())

    def describe(self, keep_hours: float) -> Mapping[str, Any]:
        """The job as JSON, for its page and its events."""
        order, progress, outcome = self.order, self.progress, self.outcome
        address = f"/v1/jobs/{order.id}"
        problem, totals = (None, None) if outcome is None else (outcome.problem, outcome.totals)
        if problem is not None:
            problem = {**problem, "instance": f"urn:saga:job:{order.id}"}
        finished = None if outcome is None else outcome.finished
        return {
            "id": order.id,
            "state": self.state,
            "product": order.options.get("product", "forecasts"),
            "created": order.created,
            "started": _time(None if self.attempts is None else self.attempts.started),
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
                "files": sorted(f"{address}/result/{name}" for name in self.folder.result_files())
                if totals
                else [],
            },
        }


KILLED: Mapping[str, Any] = {
    "type": "urn:saga:problem:killed",
    "title": "The process of the job was killed",
    "status": 500,
    "detail": "The process was killed three times without a result, perhaps for lack of memory on "
    "the machine. Send fewer persons or paths, or ask the operator.",
    "problems": [],
}
OUT_OF_MEMORY: Mapping[str, Any] = {
    "type": "urn:saga:problem:memory",
    "title": "The job needs more memory than it may have",
    "status": 500,
    "detail": "Its process ended at the limit SAGA_JOB_MEMORY_BYTES. Send fewer persons or paths, "
    "or ask the operator.",
    "problems": [],
}
OUT_OF_DISK: Mapping[str, Any] = {
    "type": "urn:saga:problem:no-space",
    "title": "The service has no space for this job",
    "status": 507,
    "detail": "The disk became full while the job was computed. Send the job again later, or ask "
    "the operator for space.",
    "problems": [],
}
INTERRUPTED: Mapping[str, Any] = {
    "type": "urn:saga:problem:interrupted",
    "title": "The job could not be computed",
    "status": 500,
    "detail": "Its worker failed several times, perhaps because the disk was full. Send the job "
    "again later, or ask the operator.",
    "problems": [],
}


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
