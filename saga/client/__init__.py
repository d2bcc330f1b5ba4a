"""A client of the service: persons as pandas, polars or Arrow, answers in the same kind of frame.

It needs httpx and pyarrow, and imports neither torch nor polars.
"""

from saga.client.frames import Answer
from saga.client.service_client import Client, JobState, RemoteJob, Sending
from saga.client.service_connection import (
    AuthorisationError,
    BusyError,
    JobError,
    MissingError,
    RefusedError,
    Retries,
    ServiceError,
    UnreachableError,
)

__all__ = [
    "Answer",
    "AuthorisationError",
    "BusyError",
    "Client",
    "JobError",
    "JobState",
    "MissingError",
    "RefusedError",
    "RemoteJob",
    "Retries",
    "Sending",
    "ServiceError",
    "UnreachableError",
]
