"""The queue of jobs, kept by DBOS in SQLite or PostgreSQL: whose turn it is, and which worker's.

This module places jobs in the queue; `saga.api.jobs.job_worker` takes them. The queue's values are
JSON: an order is the name of a folder, and the state of a job is in its folder.
"""

from __future__ import annotations

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, error
from saga.api.jobs import QueueError
from saga.api.jobs.job_folders import JobOrder

# Names in the database; another name would leave waiting jobs behind.
APPLICATION, QUEUE, WORKFLOW = "saga", "jobs", "score"
SERIALIZER = DBOSPortableJSONSerializer()

# What the queue raises if its database does not answer.
UNAVAILABLE = (sa.exc.SQLAlchemyError, error.DBOSException)


class JobQueue:
    """Takes orders. Every method waits for the database."""

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

    def probe(self) -> None:
        """Ask the database for something small."""
        self._client.list_workflows(limit=1, load_input=False, load_output=False)
