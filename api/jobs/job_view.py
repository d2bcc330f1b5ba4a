"""A job as clients see it: its state, progress, totals or problem, and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from saga.api.jobs.job_folders import JobFolder, JobOrder, Outcome

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


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

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of a job that has ended."""
        return self.folder.outcome()


def describe_job(job: Job, keep_hours: float) -> Mapping[str, Any]:
    """A job as JSON, for its page and its events."""
    order, status, outcome = job.order, job.status, job.outcome
    progress = job.folder.progress()
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
