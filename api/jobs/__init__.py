"""Jobs: products for any number of persons, computed by the batch engine behind a durable queue."""

from saga.errors import SagaError


class QueueError(SagaError):
    """The database of the job queue does not answer (HTTP 503)."""

    title = "The job queue does not answer"
