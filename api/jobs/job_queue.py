"""The queue of jobs, kept by DBOS in SQLite or PostgreSQL: whose turn it is, and which worker's.

This module places jobs in the queue; `saga.api.jobs.job_worker` takes them. The queue's values are
JSON: an order is the name of a folder, and the state of a job is in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, error
from saga.api.jobs import QueueError
from saga.api.jobs.job_folders import JobOrder

# Names in the database; another name would leave waiting jobs behind.
APPLICATION, QUEUE, WORKFLOW = "saga", "jobs", "score"
SERIALIZER = DBOSPortableJSONSerializer()

# What the queue raises if its database does not answer.
UNAVAILABLE = (sa.exc.SQLAlchemyError, error.DBOSException)


@contextmanager
def connecting() -> Iterator[None]:
    """Turn what stops a connection into QueueError."""
    try:
        yield
    except (*UNAVAILABLE, AssertionError) as failure:
        raise QueueError(
            f"The database of the jobs cannot be used ({type(failure).__name__}). Check that it "
            "runs, and that SAGA_JOBS_DATABASE has its URL, of an account that may write."
        ) from None


class JobQueue:
    """Takes orders. Every method waits for the database."""

    def __init__(self, url: str) -> None:
        """Connect, and make or migrate the tables.

        Raises QueueError if the database cannot be used.
        """
        with connecting():
            DBOS.migrate(url)
            self._client = DBOSClient(
                system_database_url=url,
                serializer=SERIALIZER,
                application_name=APPLICATION,
                retry_connection_errors=False,
            )

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

    def probe(self) -> None:
        """Ask the database for something small."""
        self._client.list_workflows(limit=1, load_input=False, load_output=False)
