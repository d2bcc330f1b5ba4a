"""The durable queue of jobs, kept by DBOS in SQLite or PostgreSQL.

This module places jobs in the queue and follows them; `saga.api.jobs.job_worker` computes them. The
queue's values are JSON: an order is the name of a folder.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, WorkflowStatus, error
from saga.api.jobs import QueueError
from saga.api.jobs.job_folders import JobOrder, JobStatus, State
from saga.api.service_metrics import QueueLoad

# Names in the database; another name would leave waiting jobs behind.
APPLICATION, QUEUE, WORKFLOW = "saga", "jobs", "score"
SERIALIZER = DBOSPortableJSONSerializer()

# What the queue raises if its database does not answer.
UNAVAILABLE = (sa.exc.SQLAlchemyError, error.DBOSException)

_UNFINISHED = ["DELAYED", "ENQUEUED", "PENDING"]
_STATES: Mapping[str, State] = {
    "DELAYED": "queued",
    "ENQUEUED": "queued",
    "PENDING": "running",
    "SUCCESS": "succeeded",
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
    "CANCELLED": "cancelled",
}


class JobQueue:
    """Orders, follows and cancels jobs. Every method waits for the database."""

    def __init__(self, url: str) -> None:
        """Connect, and make or migrate the tables.

        Raises QueueError if the database cannot be used.
        """
        try:
            DBOS.migrate(url)
            self._client = DBOSClient(
                system_database_url=url,
                serializer=SERIALIZER,
                application_name=APPLICATION,
                retry_connection_errors=False,
            )
        except (*UNAVAILABLE, AssertionError) as failure:
            raise QueueError(
                f"The database of the jobs cannot be used ({type(failure).__name__})"
            ) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.destroy()

    def submit(self, order: JobOrder) -> None:
        """Enqueue a job; nothing changes if it is in the queue. Holders take turns."""
        self._client.enqueue(
            {
                "workflow_name": WORKFLOW,
                "queue_name": QUEUE,
                "workflow_id": order.run,
                "queue_partition_key": order.holder,
                "authenticated_user": order.holder,
            },
            order.id,
        )

    def status(self, order: JobOrder) -> JobStatus:
        """The state of a job; a job that is not in the queue yet counts as queued."""
        statuses = self.statuses([order])
        return statuses.get(order.run, JobStatus("queued"))

    def statuses(self, orders: Sequence[JobOrder]) -> dict[str, JobStatus]:
        """The states of jobs, by `run`."""
        entries = self._client.list_workflows(
            workflow_ids=[order.run for order in orders], load_input=False, load_output=False
        )
        return {entry.workflow_id: job_status(entry) for entry in entries}

    def count_unfinished(self, holder: str) -> int:
        """Number of jobs of a holder that wait or run."""
        return len(
            self._client.list_workflows(
                name=WORKFLOW, status=_UNFINISHED, user=holder, load_input=False, load_output=False
            )
        )

    def load(self) -> QueueLoad:
        """How many jobs there are by state, and how long the oldest one has waited."""
        entries = self._client.list_workflows(name=WORKFLOW, load_input=False, load_output=False)
        states: Counter[str] = Counter(_STATES[entry.status] for entry in entries)
        arrivals = [
            entry.created_at / 1000
            for entry in entries
            if _STATES[entry.status] == "queued" and entry.created_at is not None
        ]
        waited = time.time() - min(arrivals) if arrivals else 0.0
        return QueueLoad(states, max(0.0, waited))

    def cancel(self, order: JobOrder) -> None:
        """Cancel a job that waits or runs; a finished one does not change."""
        self._client.cancel_workflow(order.run)

    def forget(self, order: JobOrder) -> None:
        """Delete the entry of a job."""
        self._client.delete_workflow(order.run)


def job_status(entry: WorkflowStatus) -> JobStatus:
    """The state of an entry of the queue."""
    state = _STATES[entry.status]
    ended = state not in ("queued", "running")
    return JobStatus(
        state,
        None if entry.dequeued_at is None else entry.dequeued_at / 1000,
        (entry.completed_at or entry.updated_at or 0) / 1000 if ended else None,
    )
