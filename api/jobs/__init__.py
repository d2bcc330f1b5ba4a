"""Jobs: products for any number of persons, computed by the batch engine behind a durable queue."""

from importlib.util import find_spec

from saga.errors import Problem, SagaError, UsageError


class QueueError(SagaError):
    """The database of the job queue does not answer (HTTP 503)."""

    title = "The job queue does not answer"


def require_libraries() -> None:
    """Raise UsageError unless the optional library of the queue is installed."""
    if find_spec("dbos") is None:
        fix = "Install saga-forecast[jobs], or leave the folder of jobs out"
        problem = Problem("jobs-missing", "The library dbos is not installed", fix)
        raise UsageError("Jobs need a further library", [problem])
